"""JSON: lines and dictionaries as records, gathered by type into blocks.

    line -> record -> **envelope** -> columns -> blocks

The rules are those of data files (schema language, section 16), for JSON lines and for dictionaries alike. A
record is an envelope that names its type; with a type named for the whole input it is the bare properties. A
record that breaks a rule is reported with its position and left out; the others go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import END_NAMES, ENDPOINTS, ID, EdgeType, TableType
from omnigraph.catalog.types import LARGEST_ROW, row_too_large
from omnigraph.engine.load.cells import InputColumn, cells_column
from omnigraph.engine.load.conform import (
    MAX_ROWS,
    InputRows,
    LoadProblems,
    Progress,
    RowBlock,
    UnreadableInput,
    conform,
    fixed_target,
    target,
)
from omnigraph.engine.load.sources.streams import ByteStream, lines
from omnigraph.engine.load.texts import (
    BLANKS,
    DuplicateMember,
    InvalidJson,
    cells_endpoint,
    endpoint_node,
    parse,
)
from omnigraph.engine.validate.relation import Violation
from omnigraph.engine.validate.values import shown
from omnigraph.language.diagnostics import did_you_mean

# Parsed values take several times the room of their text, so less of it is gathered than a block may hold.
GATHERED_BYTES = 4 * 1024 * 1024
_NODE_FIELDS = frozenset({"type", "data"})
_EDGE_FIELDS = frozenset({"edge", "id", "from", "to", "data"})
PHYSICAL = frozenset(
    {
        "_tombstone",
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)


class Refused(ValueError):
    """The record breaks a rule; the code says which sort, the reason what is wrong.

    A reason that takes some finding out is a function: it is asked for only if the report keeps it.
    """

    def __init__(
        self,
        code: str,
        reason: str | Callable[[], str],
        declared: TableType | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(code)
        self.code, self._reason, self.declared, self.name = code, reason, declared, name

    def __str__(self) -> str:
        return self._reason if isinstance(self._reason, str) else self._reason()


@dataclass(slots=True)
class _Rows:
    """Records of one type that wait to become a block."""

    declared: TableType
    allowed: frozenset[str]
    fixed_bytes: int
    positions: list[int] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))


class Gatherer:
    """Takes records one by one, gives blocks; at most `GATHERED_BYTES` or `MAX_ROWS` wait."""

    def __init__(
        self,
        catalog: Catalog,
        report: LoadProblems,
        origin: str,
        now_ms: int,
        declared: TableType | None = None,
    ) -> None:
        self._catalog, self._report, self._origin, self._now_ms = catalog, report, origin, now_ms
        self._declared = declared
        self._waiting: dict[str, _Rows] = {}
        self._by_name: dict[tuple[str, str], _Rows] = {}
        self._rows = self._bytes = 0

    def take(self, record: Any, position: int, size: int) -> None:
        """Take in one record; what is wrong with it is reported."""
        try:
            if size > LARGEST_ROW:
                raise self._too_large(record, size)
            if self._declared is None:
                rows = self._envelope(record, position)
            else:
                rows = self._bare(record, position, self._rows_of(self._declared))
        except Refused as refused:
            self.refuse(refused, position)
            return
        self._rows += 1
        self._bytes += size + rows.fixed_bytes

    def _too_large(self, record: Any, size: int) -> Refused:
        """Return the refusal of a record, which names the largest of its properties."""
        declared, data = self._declared, record
        if declared is None:
            kind = "edge" if "edge" in record else "type"
            declared, data = self._named(kind, record).declared, record.get("data", _EMPTY)
        name = str(max(data, key=lambda member: _size(data[member], 1), default=None))
        return Refused("type", f"{declared.name}.{name}: {row_too_large(size)}", declared, name)

    def refuse(self, refused: Refused, position: int) -> None:
        """Report that a record breaks a rule."""
        self._report.leave_out(refused.declared, 1)
        if not self._report.keeps(self._origin, position):
            self._report.count(1)
            return
        declared = refused.declared
        kind, name = ("record", "") if declared is None else (declared.kind.value, declared.name)
        self._report.add(
            Violation(
                refused.code,
                kind,
                name,
                str(refused),
                property=refused.name,
                origin=self._origin,
                position=position,
            )
        )

    @property
    def full(self) -> bool:
        """Say whether the blocks should be taken before more records come."""
        return self._rows >= MAX_ROWS or self._bytes >= GATHERED_BYTES

    def blocks(self) -> Iterator[RowBlock]:
        """Yield what was gathered, type by type, and start afresh."""
        waiting, self._waiting, self._by_name = self._waiting, {}, {}
        self._rows = self._bytes = 0
        for rows in waiting.values():
            yield from conform(self._given(rows), self._report, self._now_ms)

    # -- one record ----------------------------------------------------------------------------------

    def _envelope(self, record: Any, position: int) -> _Rows:
        if not isinstance(record, dict):
            raise Refused("envelope", f"expected an object, found {shown(record)}")
        if ("type" in record) == ("edge" in record):
            raise Refused("envelope", "a record must contain exactly one of 'type' or 'edge'")
        is_node = "type" in record
        if not (record.keys() <= (_NODE_FIELDS if is_node else _EDGE_FIELDS)):
            raise _unknown_field(record, _NODE_FIELDS if is_node else _EDGE_FIELDS)
        rows = self._named("type" if is_node else "edge", record)
        data = record.get("data", _EMPTY)
        if not isinstance(data, dict):
            raise Refused("envelope", f"'data' must be an object, found {shown(data)}", rows.declared)
        if not (data.keys() <= rows.allowed):
            raise _unknown_data(data, rows)
        if not is_node:
            for name in ("from", "to"):
                if not isinstance(record.get(name), str):
                    raise _endpoint(record, name, rows.declared)
            if ID in record:
                data = _with_id(data, record[ID], rows.declared)
            rows.ends[0].append(record["from"])
            rows.ends[1].append(record["to"])
        rows.data.append(data)
        rows.positions.append(position)
        return rows

    def _bare(self, record: Any, position: int, rows: _Rows) -> _Rows:
        """Take the properties of the one type, and for an edge `from` and `to` beside them."""
        if not isinstance(record, dict):
            raise Refused("envelope", f"expected an object, found {shown(record)}", rows.declared)
        data = record
        if isinstance(rows.declared, EdgeType):
            data = {name: value for name, value in record.items() if name not in _BARE_ENDS}
        if not (data.keys() <= rows.allowed):
            raise _unknown_data(data, rows)
        if isinstance(rows.declared, EdgeType):
            first, second = (_bare_end(record, stored, rows.declared) for stored in ENDPOINTS)
            rows.ends[0].append(first)
            rows.ends[1].append(second)
        rows.data.append(data)
        rows.positions.append(position)
        return rows

    def _named(self, kind: str, record: dict[str, Any]) -> _Rows:
        name = record[kind]
        try:
            return self._by_name[kind, name]
        except (KeyError, TypeError):  # new, or not even hashable
            pass
        if not isinstance(name, str):
            raise Refused("envelope", f"'{kind}' must be a string, found {shown(name)}")
        known: TableType | None
        if kind == "type":
            known, names = self._catalog.find_node(name), [t.name for t in self._catalog.nodes]
        else:
            known, names = self._catalog.find_edge(name), [t.name for t in self._catalog.edges]
        if known is None:
            noun = "node type" if kind == "type" else "edge type"
            raise Refused(
                "unknown_type", partial(_unknown, f"the schema has no {noun} {shown(name)}", name, names)
            )
        rows = self._by_name[kind, name] = self._rows_of(known)
        return rows

    def _rows_of(self, declared: TableType) -> _Rows:
        rows = self._waiting.get(declared.id)
        if rows is None:
            allowed = frozenset({ID, *(member.name for member in declared.properties)})
            rows = self._waiting[declared.id] = _Rows(declared, allowed, declared.fixed_bytes)
        return rows

    # -- many records --------------------------------------------------------------------------------

    def _given(self, rows: _Rows) -> InputRows:
        declared, data = rows.declared, rows.data
        columns: dict[str, InputColumn] = {}
        for member in declared.properties:
            name = member.name
            columns[name] = cells_column([row.get(name) for row in data], target(declared, member))
        columns[ID] = cells_column([row.get(ID) for row in data], fixed_target(declared, ID))
        if isinstance(declared, EdgeType):
            for stored, values in zip(ENDPOINTS, rows.ends, strict=True):
                node = endpoint_node(self._catalog, declared, stored)
                columns[stored] = cells_endpoint(values, fixed_target(declared, END_NAMES[stored]), node)
        return InputRows(declared, columns, pa.array(rows.positions, pa.int64()), self._origin)


_EMPTY: dict[str, Any] = {}
_BARE_ENDS = frozenset({"from", "to", *ENDPOINTS})


def _with_id(data: dict[str, Any], row_id: Any, declared: TableType) -> dict[str, Any]:
    """Take the id that an edge may have beside its ends for that of its data."""
    known = data.get(ID)
    if known is not None and row_id is not None and known != row_id:
        reason = f"'id' is {shown(row_id)}, and that of 'data' is {shown(known)}; give one of them"
        raise Refused("envelope", reason, declared, ID)
    return {**data, ID: row_id if known is None else known}


def _bare_end(record: dict[str, Any], stored: str, declared: TableType) -> Any:
    names = [name for name in (END_NAMES[stored], stored) if name in record]
    if len(names) == 2:
        reason = f"'{names[0]}' and '{names[1]}' mean the same; give one of them"
        raise Refused("envelope", reason, declared)
    return record[names[0]] if names else None


def _unknown_field(record: dict[str, Any], known: frozenset[str]) -> Refused:
    name = next(name for name in record if name not in known)
    if name in PHYSICAL:
        return Refused("envelope", f"field {shown(name)} is reserved physical state")
    hint = "; put it into 'data'" if name == ID else ""
    return Refused("envelope", f"unknown top-level graph batch field {shown(name)}{hint}")


def _unknown_data(data: dict[str, Any], rows: _Rows) -> Refused:
    return unknown_property(str(next(name for name in data if name not in rows.allowed)), rows.declared)


def unknown_property(name: str, declared: TableType) -> Refused:
    """Return the refusal of a field that is no property of the type."""
    where = f"'{declared.kind.value}:{declared.name}'"
    reason: str | Callable[[], str]
    if name in PHYSICAL:
        reason = f"field {shown(name)} for {where} is reserved physical state"
    elif isinstance(declared, EdgeType) and name in ENDPOINTS:
        reason = f"field {shown(name)} for {where} is reserved structural state: use 'from' and 'to'"
    else:
        known = [member.name for member in declared.properties]
        reason = partial(_unknown, f"unknown input field {shown(name)} for {where}", name, known)
    return Refused("unknown_property", reason, declared, name)


def _unknown(reason: str, name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{reason}; {hint}" if hint else reason


def _endpoint(record: dict[str, Any], name: str, declared: TableType) -> Refused:
    if record.get(name) is None:
        return Refused("required", f"edge {declared.name} needs '{name}': the id of a node", declared, name)
    reason = f"'{name}' must be a string, the id of a node; found {shown(record[name])}"
    return Refused("type", reason, declared, name)


# -- framing -----------------------------------------------------------------------------------------
#
# The first and last line of an export that says of itself whether it is whole:
#
#   {"og_export": {"format": 1, "schema_digest": ..., ...}}
#   ... records ...
#   {"og_export_end": {"lines": n, "sha256": ..., ...}}
#
# The export writes what is checked here. `lines` counts the records; `sha256` is the digest of all lines
# before the end line that are not blank, header included, each without its line end and followed by one LF.
# So a change of line ends in transit does no harm, and every other change is found.


HEADER, END = "og_export", "og_export_end"
FORMAT = 1


class RecordFraming:
    """Follows the lines of one file; does nothing until it has seen a header."""

    def __init__(self, catalog: Catalog, origin: str) -> None:
        self._catalog, self._origin = catalog, origin
        self._digest = hashlib.sha256()
        self._records = 0
        self._opened = self._closed = False

    def line(self, text: str, record: Any, first: bool) -> bool:
        """Say whether a line belongs to the frame; `first` when no line came before it."""
        if self._closed:
            raise Refused("envelope", "there is more after the end of the export")
        if type(record) is dict and len(record) == 1:
            if HEADER in record:
                self._header(record[HEADER], first)
                self._add(text)
                return True
            if END in record:
                self._end(record[END])
                return True
        self._records += 1
        self._add(text)
        return False

    def _add(self, text: str) -> None:
        if self._opened:
            self._digest.update(text.encode() + b"\n")

    def unreadable(self, text: str) -> None:
        """Count a line that is no record: it was reported already."""
        self._records += 1
        self._add(text)

    def finish(self) -> None:
        """Refuse a framed file that has no end."""
        if self._opened and not self._closed:
            raise UnreadableInput(
                f"{self._origin}: the export is truncated: its last line, {END}, is missing",
                remedy="Export or transfer the file again",
                file=self._origin,
            )

    def _header(self, header: Any, first: bool) -> None:
        if not first:
            raise Refused("envelope", f"{HEADER} can only be the first line")
        self._opened = True
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            file_format = header.get("format") if isinstance(header, dict) else header
            raise Refused(
                "envelope", f"unknown export format {shown(file_format)}: this release reads {FORMAT}"
            )
        if (digest := header.get("schema_digest")) != self._catalog.declaration_digest:
            raise Refused(
                "envelope",
                f"the export was made with another schema: {shown(digest)}, this branch has "
                f"{shown(self._catalog.declaration_digest)}; apply its schema first, or load it without its "
                "header",
            )

    def _end(self, end: Any) -> None:
        if not self._opened:
            raise Refused("envelope", f"{END} without {HEADER} at the beginning")
        self._closed = True
        if not isinstance(end, dict):
            raise Refused("envelope", f"{END} must be an object, found {shown(end)}")
        if end.get("lines") != self._records:
            counted_lines = shown(end.get("lines"))
            raise Refused(
                "envelope", f"the export counts {counted_lines} records, the file has {self._records}"
            )
        if end.get("sha256") != self._digest.hexdigest():
            raise Refused("envelope", "the content does not match the export's sha256: it was changed")


# -- jsonl -------------------------------------------------------------------------------------------
#
#   bytes -> lines -> **records** -> envelopes -> blocks
#
# One JSON object on each line. Blank lines and CRLF are fine; anything else is one strict JSON value on a
# line.


@dataclass(frozen=True)
class JsonLines:
    """Records as JSON text; with a type, the bare properties of that one type."""

    name: str
    size_bytes: int | None
    opened: Callable[[], AbstractContextManager[ByteStream]]
    now_ms: int
    type: str | None = None
    skipped: int = 0  # lines of the file that come before those read here

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
        """Read the lines."""
        declared = None if self.type is None else catalog.named(self.type)
        gatherer = Gatherer(catalog, report, self.name, self.now_ms, declared)
        frame = RecordFraming(catalog, self.name)
        number, first = self.skipped, True
        with self.opened() as stream:
            for several in lines(stream, progress):
                for raw in several:
                    number += 1
                    text = raw.strip(BLANKS)
                    if text:
                        if report.fingerprint is not None:
                            report.fingerprint.text(self.type, text)
                        _take(text, number, first, gatherer, frame)
                        first = False
                        if gatherer.full:
                            yield from gatherer.blocks()
        yield from gatherer.blocks()
        frame.finish()


def _take(text: str, number: int, first: bool, gatherer: Gatherer, frame: RecordFraming) -> None:
    try:
        record = parse(text)
    except InvalidJson as error:
        frame.unreadable(text)
        reason = (
            str(error)
            if isinstance(error, DuplicateMember)
            else f"invalid strict JSON at line {number}: {error}"
        )
        gatherer.refuse(Refused("syntax", reason), number)
        return
    try:
        if frame.line(text, record, first):
            return
    except Refused as refused:
        gatherer.refuse(refused, number)
        return
    gatherer.take(record, number, len(text))


# -- records -----------------------------------------------------------------------------------------
#
# Dictionaries, under the same rules as the lines of a JSONL file. With a type named, each is the bare
# properties of a row; Python's own dates, times, bytes and tuples stand for what JSON writes as text and
# arrays.


_BASE, _MEMBER = 64, 16  # a rough size: what counts is that long texts and arrays fill a block earlier


@dataclass(frozen=True)
class Records:
    """Dictionaries that are handed out one after the other."""

    records: Iterable[Any]
    now_ms: int
    type: str | None = None
    name: str = "<records>"
    size_bytes: int | None = None
    skipped: int = 0  # records that come before these

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
        """Read the records; the position of a record is its number."""
        declared = None if self.type is None else catalog.named(self.type)
        gatherer = Gatherer(catalog, report, self.name, self.now_ms, declared)
        total = 0
        for number, record in enumerate(self.records, start=self.skipped + 1):
            if isinstance(record, Mapping) and type(record) is not dict:
                record = dict(record)
            if report.fingerprint is not None:
                report.fingerprint.record(self.type, record)
            size = _size(record, 2)
            total += size
            gatherer.take(record, number, size)
            if gatherer.full:
                progress(total)
                yield from gatherer.blocks()
        progress(total)
        yield from gatherer.blocks()


def _size(value: Any, depth: int) -> int:
    """Guess how much room a record takes, without walking through long arrays."""
    if isinstance(value, dict) and depth:
        return _BASE + sum(_size(item, depth - 1) for item in value.values())
    if isinstance(value, str | bytes):
        return _MEMBER + len(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], str | bytes):
        return sum(map(_text_size, value))
    return _MEMBER * len(value) if hasattr(value, "__len__") else _MEMBER


def _text_size(item: Any) -> int:
    return _MEMBER + (len(item) if isinstance(item, str | bytes) else 0)
