"""CSV: a text table of one type, the names of its properties in the first line.

    bytes -> lines -> **fields** -> columns -> blocks

An empty field is null, quoted or not; how a field is read, see texts.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.engine.load.cells import InputColumn
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
from omnigraph.engine.load.sources.json import GATHERED_BYTES
from omnigraph.engine.load.sources.streams import LONGEST_RECORD, ByteStream, lines
from omnigraph.engine.load.sources.tables import Header, read_header, renamed
from omnigraph.engine.load.texts import endpoint_node, texts_column, texts_endpoint
from omnigraph.engine.validate.relation import Violation

# -- csv fields --------------------------------------------------------------------------------------
#
# Lines as records of fields, with the line on which each record begins. RFC 4180 with any line end: a field
# in double quotes may hold delimiters, line ends and doubled quotes; elsewhere a quote is an error, not
# text. Lines without a quote, nearly all of them, are only split. Python's own reader limits the length of
# a field, and the limit is one for the whole process.


class BadCsv(ValueError):
    """The text is not CSV from this line on."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Open(Exception):
    """A quoted field does not end in this text."""


def records(lines: Iterable[list[str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank, with its first line."""
    # Possessive: in a field that is not closed, a doubled quote must not be taken for its end.
    field = re.compile(f'"((?:[^"]+|"")*+)"|([^"{re.escape(delimiter)}]*)')
    pending: list[str] = []
    begun = size = quotes = 0
    for number, raw in enumerate((line for several in lines for line in several), start=1):
        if pending:
            pending.append(raw)
            size += len(raw)
            quotes += raw.count('"')
            if size > LONGEST_RECORD:  # an open quote would swallow the rest of the file
                raise BadCsv(
                    begun, f"the quoted field is longer than {LONGEST_RECORD >> 20} MiB, or never closed"
                )
            if quotes % 2:
                continue
            raw, pending = "\n".join(pending), []
            yield begun, _fields(raw, field, delimiter, begun)
            continue
        if '"' not in raw:
            line = raw[:-1] if raw.endswith("\r") else raw
            if line:
                yield number, line.split(delimiter)
            continue
        try:
            yield number, _fields(raw, field, delimiter, number)
        except _Open:
            pending, begun, size, quotes = [raw], number, len(raw), raw.count('"')
    if pending:
        raise BadCsv(begun, f"the quoted field that begins on line {begun} is never closed")


def _fields(raw: str, field: re.Pattern[str], delimiter: str, number: int) -> list[str]:
    line = raw[:-1] if raw.endswith("\r") else raw
    fields = []
    position = 0
    while True:
        match = field.match(line, position)
        assert match is not None  # the second choice matches nothing at all
        quoted, plain = match.groups()
        if quoted is None and line.startswith('"', match.end()):
            if match.end() == position:
                raise _Open
            raise BadCsv(number, "a quote stands inside a field that does not begin with one")
        fields.append(plain if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if position == len(line):
            return fields
        if not line.startswith(delimiter, position):
            raise BadCsv(number, "a quoted field is followed by more than the delimiter")
        position += 1


# -- csv ---------------------------------------------------------------------------------------------


_PER_FIELD = 60  # what a short string takes beside its characters


@dataclass(frozen=True)
class Csv:
    """A CSV file of one type."""

    name: str
    size_bytes: int | None
    opened: Callable[[], AbstractContextManager[ByteStream]]
    now_ms: int
    type: str
    delimiter: str = ","
    columns: Mapping[str, str] = FrozenMap()  # column of the file -> property

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
        """Read the records."""
        declared = catalog.named(self.type)
        with self.opened() as stream:
            try:
                yield from self._blocks(
                    records(lines(stream, progress), self.delimiter), catalog, declared, report
                )
            except BadCsv as error:
                raise UnreadableInput(
                    f"{self.name}:{error.line}: not CSV: {error}",
                    remedy="Put fields with quotes in them into quotes, and double the quotes inside",
                    file=self.name,
                    line=error.line,
                ) from None

    def _blocks(
        self,
        rows: Iterator[tuple[int, list[str]]],
        catalog: Catalog,
        declared: TableType,
        report: LoadProblems,
    ) -> Iterator[RowBlock]:
        line, names = next(rows, (1, None))
        if names is None:
            raise UnreadableInput(
                f"{self.name}:1: the file is empty; its first line should name the columns",
                file=self.name,
                line=1,
            )
        named = renamed(names, self.columns, self.name)
        header = read_header(named, declared, report, self.name, line)
        if not header.good:
            return
        fingerprint = report.fingerprint
        if fingerprint is not None:
            fingerprint.text(self.type, repr(names))
        waiting: list[list[str]] = []
        positions: list[int] = []
        size = 0
        for line, fields in rows:
            if fingerprint is not None:
                fingerprint.text(self.type, repr(fields))
            if len(fields) != len(names):
                self._uneven(report, declared, line, len(fields), len(names))
                continue
            waiting.append(fields)
            positions.append(line)
            size += sum(map(len, fields)) + _PER_FIELD * len(fields) + declared.fixed_bytes
            if len(waiting) == MAX_ROWS or size >= 4 * GATHERED_BYTES:
                yield from conform(
                    self._given(waiting, positions, header, catalog, declared), report, self.now_ms
                )
                waiting, positions, size = [], [], 0
        if waiting:
            yield from conform(
                self._given(waiting, positions, header, catalog, declared), report, self.now_ms
            )

    def _uneven(
        self, report: LoadProblems, declared: TableType, line: int, fields: int, columns: int
    ) -> None:
        message = f"{fields} field{'s' if fields != 1 else ''}, but the first line names {columns} columns"
        kind, name = declared.kind.value, declared.name
        report.add(Violation("syntax", kind, name, message, origin=self.name, position=line))
        report.leave_out(declared, 1)

    def _given(
        self,
        rows: list[list[str]],
        positions: list[int],
        header: Header,
        catalog: Catalog,
        declared: TableType,
    ) -> InputRows:
        fields = list(zip(*rows, strict=True))
        columns: dict[str, InputColumn] = {}
        for name, index in header.indexes.items():
            texts = pa.array([field or None for field in fields[index]], pa.string())
            member = declared.find(name)
            if member is not None:
                columns[name] = texts_column(texts, target(declared, member))
            elif name == ID or not isinstance(declared, EdgeType):
                columns[name] = InputColumn(texts)
            else:
                end = fixed_target(declared, "from" if name == ENDPOINTS[0] else "to")
                columns[name] = texts_endpoint(texts, end, endpoint_node(catalog, declared, name))
        return InputRows(declared, columns, pa.array(positions, pa.int64()), self.name)
