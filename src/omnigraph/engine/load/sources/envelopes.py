"""Envelopes: records that name their type, gathered by type into blocks.

    line -> record -> **envelope** -> columns -> blocks

Room    engine.load.sources. The rules of data files (schema language, section 16), for JSON lines and for
        dictionaries alike; with a type named for the whole input, records are the bare properties.
Rule    a record that breaks a rule is reported with its place and left out; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.engine.load.block import MAX_ROWS, Block
from omnigraph.engine.load.cells import cells_column
from omnigraph.engine.load.column import Column
from omnigraph.engine.load.conform import Given, conform, fixed_target, target
from omnigraph.engine.load.endpoints import cells_endpoint, endpoint_node
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.validate.findings import Violation
from omnigraph.engine.validate.values import INPUT_NAMES, shown
from omnigraph.language.suggest import did_you_mean

# Parsed values take several times the room of their text, so less of it is gathered than a block may hold.
GATHERED_BYTES = 4 * 1024 * 1024
_NODE_FIELDS = frozenset({"type", "data"})
_EDGE_FIELDS = frozenset({"edge", "from", "to", "data"})
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
    positions: list[int] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    ends: tuple[list[Any], list[Any]] = field(default_factory=lambda: ([], []))


class Gatherer:
    """Takes records one by one, gives blocks; at most `GATHERED_BYTES` or `MAX_ROWS` wait."""

    def __init__(
        self, catalog: Catalog, report: Problems, origin: str, now_ms: int, declared: TableType | None = None
    ) -> None:
        self._catalog, self._report, self._origin, self._now_ms = catalog, report, origin, now_ms
        self._declared = declared
        self._waiting: dict[str, _Rows] = {}
        self._by_name: dict[tuple[str, str], _Rows] = {}
        self._rows = self._bytes = 0

    def take(self, record: Any, position: int, size: int) -> None:
        """Take in one record; what is wrong with it is reported."""
        try:
            if self._declared is None:
                self._envelope(record, position)
            else:
                self._bare(record, position, self._rows_of(self._declared))
        except Refused as refused:
            self.refuse(refused, position)
            return
        self._rows += 1
        self._bytes += size

    def refuse(self, refused: Refused, position: int) -> None:
        """Report that a record breaks a rule."""
        self._report.leave_out(refused.declared, 1)
        if not self._report.keeps(self._origin, position):
            self._report.count(1)
            return
        declared, place = refused.declared, f"{self._origin}:{position}"
        kind, name = ("record", "") if declared is None else (declared.kind.value, declared.name)
        message = f"{place}: {refused}"
        found = Violation(refused.code, kind, name, message, property=refused.name, place=place)
        self._report.add(found, self._origin, position)

    @property
    def full(self) -> bool:
        """Say whether the blocks should be taken before more records come."""
        return self._rows >= MAX_ROWS or self._bytes >= GATHERED_BYTES

    def blocks(self) -> Iterator[Block]:
        """Yield what was gathered, type by type, and start afresh."""
        waiting, self._waiting, self._by_name = self._waiting, {}, {}
        self._rows = self._bytes = 0
        for rows in waiting.values():
            yield from conform(self._given(rows), self._report, self._now_ms)

    # -- one record ----------------------------------------------------------------------------------

    def _envelope(self, record: Any, position: int) -> None:
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
            rows.ends[0].append(record["from"])
            rows.ends[1].append(record["to"])
        rows.data.append(data)
        rows.positions.append(position)

    def _bare(self, record: Any, position: int, rows: _Rows) -> None:
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
        found = self._waiting.get(declared.id)
        if found is None:
            allowed = frozenset({ID, *(member.name for member in declared.properties)})
            found = self._waiting[declared.id] = _Rows(declared, allowed)
        return found

    # -- many records --------------------------------------------------------------------------------

    def _given(self, rows: _Rows) -> Given:
        declared, data = rows.declared, rows.data
        columns: dict[str, Column] = {}
        for member in declared.properties:
            name = member.name
            columns[name] = cells_column([row.get(name) for row in data], target(declared, member))
        columns[ID] = cells_column([row.get(ID) for row in data], fixed_target(declared, ID))
        if isinstance(declared, EdgeType):
            for stored, values in zip(ENDPOINTS, rows.ends, strict=True):
                node = endpoint_node(self._catalog, declared, stored)
                columns[stored] = cells_endpoint(values, fixed_target(declared, INPUT_NAMES[stored]), node)
        return Given(declared, columns, pa.array(rows.positions, pa.int64()), self._origin)


_EMPTY: dict[str, Any] = {}
_BARE_ENDS = frozenset({"from", "to", *ENDPOINTS})


def _bare_end(record: dict[str, Any], stored: str, declared: TableType) -> Any:
    names = [name for name in (INPUT_NAMES[stored], stored) if name in record]
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
