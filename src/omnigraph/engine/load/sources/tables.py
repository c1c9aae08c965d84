"""Tables: columns of one type, in memory or read from somewhere, as blocks.

    parts -> **columns** -> blocks

Room    engine.load.sources. Parquet, Arrow and frames all come here as parts of a table; where the parts
        come from is in parquet.py and frames.py.
Rule    whole columns at a time. A column whose type cannot be right is reported once and ends the reading,
        since no row could be good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.engine.load.arrow import arrow_column, text_column
from omnigraph.engine.load.block import MAX_BYTES, MAX_ROWS, Block, Progress
from omnigraph.engine.load.cells import cells_column
from omnigraph.engine.load.column import Column, ColumnMisfit
from omnigraph.engine.load.conform import Given, conform, fixed_target, rows_from, target
from omnigraph.engine.load.endpoints import arrow_endpoint, cells_endpoint, endpoint_node
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.header import Header, column_problem, read_header, renamed
from omnigraph.engine.validate.values import INPUT_NAMES

Values: TypeAlias = pa.Array | list[Any]  # a list where Arrow cannot hold the values together


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table."""

    columns: Sequence[Values]
    rows: int
    read: int  # bytes of the input read so far

    def piece(self, begin: int, end: int) -> Part:
        """Return some of the rows; nothing is copied."""
        return Part([column[begin:end] for column in self.columns], end - begin, self.read)


@dataclass(frozen=True, eq=False)
class Parts:
    """An open table: the names of its columns, and its rows from the first on."""

    names: Sequence[str]
    parts: Iterator[Part]


@dataclass(frozen=True)
class Tabular:
    """A table of one type."""

    name: str
    size_bytes: int | None
    opened: Callable[[], AbstractContextManager[Parts]]
    now_ms: int
    type: str
    whole_floats: bool = False
    columns: Mapping[str, str] = FrozenMap()  # column of the input -> property
    skipped: int = 0  # rows of the table that come before those read here

    def blocks(self, catalog: Catalog, report: Problems, progress: Progress) -> Iterator[Block]:
        """Read the rows; the position of a row is its number."""
        declared = catalog.named(self.type)
        done = self.skipped
        with self.opened() as table:
            header = read_header(
                renamed(table.names, self.columns, self.name), declared, report, self.name, 1
            )
            if not header.good:
                return
            for part in table.parts:
                if report.fingerprint is not None:
                    report.fingerprint.columns(self.type, table.names, part.columns, part.rows)
                for begin, end in _bounds(part):
                    piece = part.piece(begin, end)
                    columns = self._columns(piece, header, catalog, declared, report, done + 1)
                    if columns is None:
                        return
                    given = Given(declared, columns, rows_from(done + 1, piece.rows), self.name)
                    yield from conform(given, report, self.now_ms)
                    done += piece.rows
                progress(part.read)

    def _columns(
        self,
        piece: Part,
        header: Header,
        catalog: Catalog,
        declared: TableType,
        report: Problems,
        first: int,
    ) -> dict[str, Column] | None:
        found: dict[str, Column] = {}
        for name, place in header.places.items():
            try:
                found[name] = self._column(name, piece.columns[place], catalog, declared)
            except ColumnMisfit as misfit:
                column_problem(report, declared, "type", str(misfit), name, self.name, first)
        return found if len(found) == len(header.places) else None

    def _column(self, name: str, values: Values, catalog: Catalog, declared: TableType) -> Column:
        member = declared.find(name)
        if member is not None:
            goal = target(declared, member)
            if isinstance(values, list):
                return cells_column(values, goal)
            return arrow_column(values, goal, whole_floats=self.whole_floats)
        if name == ID or not isinstance(declared, EdgeType):
            goal = fixed_target(declared, name)
            return cells_column(values, goal) if isinstance(values, list) else text_column(values, goal)
        goal, node = fixed_target(declared, INPUT_NAMES[name]), endpoint_node(catalog, declared, name)
        if isinstance(values, list):
            return cells_endpoint(values, goal, node)
        return arrow_endpoint(values, goal, node)


def _bounds(part: Part) -> Iterator[tuple[int, int]]:
    """Cut a part into pieces of the size of a block."""
    size = sum(_plain_bytes(column) for column in part.columns if isinstance(column, pa.Array))
    step = max(1, min(MAX_ROWS, MAX_BYTES * part.rows // max(size, 1)))
    for begin in range(0, part.rows, step):
        yield begin, min(begin + step, part.rows)


def _plain_bytes(column: pa.Array) -> int:
    """Return the room that the values take once they are plain; encodings hide it, or share it."""
    if kinds.is_dictionary(column.type):
        if kinds.is_string(column.type.value_type) or kinds.is_large_string(column.type.value_type):
            return pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0
        return 8 * len(column)
    if kinds.is_string_view(column.type) or kinds.is_binary_view(column.type):
        # A view begins with the length of its value.
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[column.offset : column.offset + len(column), 0]
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        return int(lengths[valid].sum(dtype=np.int64))
    return int(column.nbytes)


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[Part]:
    """Yield batches in memory as parts, counting their bytes."""
    read = 0
    for batch in batches:
        read += batch.nbytes
        yield Part(batch.columns, batch.num_rows, read)
