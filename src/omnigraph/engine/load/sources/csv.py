"""CSV: a text table of one type, the names of its properties in the first line.

    bytes -> lines -> **fields** -> columns -> blocks

Room    engine.load.sources. An empty field is null, quoted or not; how a field is read, see texts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.engine.load.block import MAX_ROWS, Block, Progress, UnreadableInput
from omnigraph.engine.load.column import Column
from omnigraph.engine.load.conform import Given, conform, fixed_target, target
from omnigraph.engine.load.endpoints import endpoint_node, texts_endpoint
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.csv_fields import BadCsv, records
from omnigraph.engine.load.sources.envelopes import GATHERED_BYTES
from omnigraph.engine.load.sources.header import Header, read_header, renamed
from omnigraph.engine.load.sources.streams import ByteStream, lines
from omnigraph.engine.load.texts import texts_column
from omnigraph.engine.validate.findings import Violation

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

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
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
        self, rows: Iterator[tuple[int, list[str]]], catalog: Catalog, declared: TableType, report: Problems
    ) -> Iterator[Block]:
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
            size += sum(map(len, fields)) + _PER_FIELD * len(fields)
            if len(waiting) == MAX_ROWS or size >= 4 * GATHERED_BYTES:
                yield from conform(
                    self._given(waiting, positions, header, catalog, declared), report, self.now_ms
                )
                waiting, positions, size = [], [], 0
        if waiting:
            yield from conform(
                self._given(waiting, positions, header, catalog, declared), report, self.now_ms
            )

    def _uneven(self, report: Problems, declared: TableType, line: int, found: int, wanted: int) -> None:
        place = f"{self.name}:{line}"
        message = (
            f"{place}: {found} field{'s' if found != 1 else ''}, but the first line names {wanted} columns"
        )
        violation = Violation("syntax", declared.kind.value, declared.name, message, place=place)
        report.add(violation, self.name, line)
        report.leave_out(declared, 1)

    def _given(
        self,
        rows: list[list[str]],
        positions: list[int],
        header: Header,
        catalog: Catalog,
        declared: TableType,
    ) -> Given:
        by_place = list(zip(*rows, strict=True))
        columns: dict[str, Column] = {}
        for name, place in header.places.items():
            texts = pa.array([field or None for field in by_place[place]], pa.string())
            member = declared.find(name)
            if member is not None:
                columns[name] = texts_column(texts, target(declared, member))
            elif name == ID or not isinstance(declared, EdgeType):
                columns[name] = Column(texts)
            else:
                end = fixed_target(declared, "from" if name == ENDPOINTS[0] else "to")
                columns[name] = texts_endpoint(texts, end, endpoint_node(catalog, declared, name))
        return Given(declared, columns, pa.array(positions, pa.int64()), self.name)
