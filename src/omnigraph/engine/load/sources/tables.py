"""Tables: columns of one type, in memory or read from somewhere, as blocks.

    parts -> **columns** -> blocks

Parquet, Arrow and frames all come here as parts of a table: parts of files from parquet.py, those of frames
in memory from the end of this module. Work is on whole columns. A column whose type cannot be right is
reported once and ends the reading, since no row could be good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import END_NAMES, ENDPOINTS, ID, EdgeType, TableType
from omnigraph.catalog.types import LARGEST_ROW, row_too_large
from omnigraph.engine.load.arrow import arrow_column, text_column
from omnigraph.engine.load.cells import ColumnMisfit, InputColumn, cells_column
from omnigraph.engine.load.conform import (
    MAX_BYTES,
    MAX_ROWS,
    InputRows,
    LoadProblems,
    Progress,
    RowBlock,
    conform,
    fixed_target,
    rows_from,
    target,
)
from omnigraph.engine.load.sources.json import unknown_property
from omnigraph.engine.load.texts import arrow_endpoint, cells_endpoint, endpoint_node
from omnigraph.engine.validate.relation import Violation

# -- header ------------------------------------------------------------------------------------------
#
#   **column names** -> columns -> blocks
#
# What the columns of a table mean for one type. For CSV, Parquet, Arrow and frames: a table of one named
# type. Names are property names, `id`, and for an edge `from` and `to` (or `src` and `dst`). A problem with
# a column concerns all of its rows, so it is reported once, at the first.


@dataclass(frozen=True)
class Header:
    """Where the columns stand, by property name, `id`, `src` and `dst`; and whether they can be used."""

    indexes: dict[str, int]
    good: bool


def renamed(names: Sequence[str], columns: Mapping[str, str], origin: str) -> list[str]:
    """Return the names of columns as the caller maps them; a column that is to be mapped must be there.

    >>> renamed(["Full Name", "age"], {"Full Name": "name"}, "people.csv")
    ['name', 'age']
    """
    lost = [name for name in columns if name not in names]
    if lost:
        raise InvalidRequest(
            f"{origin} has no column {lost[0]!r} to map", remedy=f"Its columns are {', '.join(names)}"
        )
    return [columns.get(name, name) for name in names]


def read_header(
    names: Sequence[str], declared: TableType, report: LoadProblems, origin: str, line: int
) -> Header:
    """Match column names with a type, and report those that do not."""
    indexes: dict[str, int] = {}
    before = report.total
    aliases = {END_NAMES[end]: end for end in ENDPOINTS} if isinstance(declared, EdgeType) else {}
    for position, name in enumerate(names):
        meant = aliases.get(name, name)
        known = declared.find(meant) is not None or meant == ID or meant in aliases.values()
        if not known:
            refusal = unknown_property(name, declared)
            column_problem(report, declared, refusal.code, str(refusal), name, origin, line)
        elif meant in indexes:
            other = names[indexes[meant]]
            twice = (
                f"column '{name}' stands twice"
                if name == other
                else f"columns '{other}' and '{name}' mean the same"
            )
            column_problem(report, declared, "envelope", twice, name, origin, line)
        indexes.setdefault(meant, position)
    _report_missing(indexes, declared, report, origin, line)
    return Header(indexes, report.total == before)


def _report_missing(
    indexes: dict[str, int], declared: TableType, report: LoadProblems, origin: str, line: int
) -> None:
    needed = [END_NAMES[end] for end in ENDPOINTS if isinstance(declared, EdgeType) and end not in indexes]
    needed += [
        member.name
        for member in declared.properties
        if not member.type.nullable and member.default is None and member.name not in indexes
    ]
    for name in needed:
        message = f"non-nullable property '{name}' has null or invalid values: there is no such column"
        column_problem(report, declared, "required", message, name, origin, line)


def column_problem(
    report: LoadProblems, declared: TableType, code: str, message: str, name: str, origin: str, line: int
) -> None:
    """Report what is wrong with a whole column."""
    report.of_columns = True
    kind = declared.kind.value
    report.add(Violation(code, kind, declared.name, message, property=name, origin=origin, position=line))


# -- tables ------------------------------------------------------------------------------------------


Values: TypeAlias = pa.Array | list[Any]  # a list where Arrow cannot hold the values together


@dataclass(frozen=True, eq=False)
class TablePart:
    """Some rows of a table."""

    columns: Sequence[Values]
    rows: int
    read: int  # bytes of the input read so far

    @property
    def size(self) -> int:
        """The room that the values take."""
        return sum(map(column_bytes, self.columns))

    def slice(self, begin: int, end: int) -> TablePart:
        """Return some of the rows; nothing is copied."""
        return TablePart([column[begin:end] for column in self.columns], end - begin, self.read)


@dataclass(frozen=True, eq=False)
class Parts:
    """An open table: the names of its columns, and its rows from the first on."""

    names: Sequence[str]
    parts: Iterator[TablePart]


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

    def blocks(self, catalog: Catalog, report: LoadProblems, progress: Progress) -> Iterator[RowBlock]:
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
                for begin, end in _bounds(part, declared.fixed_bytes):
                    sliced = part.slice(begin, end)
                    if sliced.rows == 1 and sliced.size > LARGEST_ROW:
                        _refuse_large(sliced, header, declared, report, self.name, done + 1)
                        done += 1
                        continue
                    columns = self._columns(sliced, header, catalog, declared, report, done + 1)
                    if columns is None:
                        return
                    rows_in = InputRows(declared, columns, rows_from(done + 1, sliced.rows), self.name)
                    yield from conform(rows_in, report, self.now_ms)
                    done += sliced.rows
                progress(part.read)

    def _columns(
        self,
        part: TablePart,
        header: Header,
        catalog: Catalog,
        declared: TableType,
        report: LoadProblems,
        first: int,
    ) -> dict[str, InputColumn] | None:
        columns: dict[str, InputColumn] = {}
        for name, index in header.indexes.items():
            try:
                columns[name] = self._column(name, part.columns[index], catalog, declared)
            except ColumnMisfit as misfit:
                column_problem(report, declared, "type", str(misfit), name, self.name, first)
        return columns if len(columns) == len(header.indexes) else None

    def _column(self, name: str, values: Values, catalog: Catalog, declared: TableType) -> InputColumn:
        member = declared.find(name)
        if member is not None:
            goal = target(declared, member)
            if isinstance(values, list):
                return cells_column(values, goal)
            return arrow_column(values, goal, whole_floats=self.whole_floats)
        if name == ID or not isinstance(declared, EdgeType):
            goal = fixed_target(declared, name)
            return cells_column(values, goal) if isinstance(values, list) else text_column(values, goal)
        goal, node = fixed_target(declared, END_NAMES[name]), endpoint_node(catalog, declared, name)
        if isinstance(values, list):
            return cells_endpoint(values, goal, node)
        return arrow_endpoint(values, goal, node)


def _bounds(part: TablePart, fixed_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a part into slices of the size of a block; a row that may be too large is a slice by itself."""
    size = part.size + part.rows * fixed_bytes
    step = max(1, min(MAX_ROWS, MAX_BYTES * part.rows // max(size, 1)))
    for begin in range(0, part.rows, step):
        end = min(begin + step, part.rows)
        if size > LARGEST_ROW and part.slice(begin, end).size > LARGEST_ROW:
            yield from ((row, row + 1) for row in range(begin, end))
        else:
            yield begin, end


def _refuse_large(
    row: TablePart, header: Header, declared: TableType, report: LoadProblems, origin: str, position: int
) -> None:
    """Report a row that is too large, by the largest of its values."""
    sizes = {name: column_bytes(row.columns[index]) for name, index in header.indexes.items()}
    name = max(sizes, key=sizes.__getitem__)
    message, kind = f"{declared.name}.{name}: {row_too_large(row.size)}", declared.kind.value
    report.add(
        Violation("type", kind, declared.name, message, property=name, origin=origin, position=position)
    )
    report.leave_out(declared, 1)


def column_bytes(column: Values) -> int:
    """Return the room that the values of a column take, as far as it is known."""
    return _plain_bytes(column) if isinstance(column, pa.Array) else 0


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


def parts_of(batches: Iterator[pa.RecordBatch]) -> Iterator[TablePart]:
    """Yield batches in memory as parts, counting their bytes."""
    read = 0
    for batch in batches:
        read += batch.nbytes
        yield TablePart(batch.columns, batch.num_rows, read)


# -- frames ------------------------------------------------------------------------------------------
#
# Tables that live in memory already, recognised without importing the library they are from. pandas frames
# are cut into parts and converted column by column; anything with an Arrow stream (polars and others) is
# read through it. In pandas a missing value is NaN, so NaN is null there; and integers with a missing value
# are floats, so floats without a fraction are good integers there.


def library_of(data: Any) -> str:
    """Return the top-level package that a value's class is from."""
    return type(data).__module__.partition(".")[0]


def is_pandas(data: Any) -> bool:
    """Say whether this is a pandas frame."""
    return library_of(data) == "pandas" and type(data).__name__ == "DataFrame"


@contextmanager
def open_pandas(frame: Any) -> Iterator[Parts]:
    """Read a pandas frame; its index is no column."""
    yield Parts([str(name) for name in frame.columns], _pandas_parts(frame))


def _pandas_parts(frame: Any) -> Iterator[TablePart]:
    read = 0
    for begin in range(0, len(frame), MAX_ROWS):
        rows = frame.iloc[begin : begin + MAX_ROWS]
        columns = [_pandas_column(rows.iloc[:, place]) for place in range(rows.shape[1])]
        read += sum(column.nbytes for column in columns if isinstance(column, pa.Array))
        yield TablePart(columns, len(rows), read)


def _pandas_column(series: Any) -> Values:
    try:
        column = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Values of several types: each is judged by itself.
        return [None if missing else value for value, missing in zip(series, series.isna(), strict=True)]
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


@contextmanager
def open_batches(names: Iterable[str], batches: Callable[[], Iterable[pa.RecordBatch]]) -> Iterator[Parts]:
    """Read batches of one schema."""
    yield Parts(list(names), parts_of(iter(batches())))


@contextmanager
def open_table(table: pa.Table) -> Iterator[Parts]:
    """Read an Arrow table."""
    yield Parts(table.column_names, parts_of(iter(table.to_batches(max_chunksize=MAX_ROWS))))


@contextmanager
def open_stream(data: Any) -> Iterator[Parts]:
    """Read what hands out an Arrow stream."""
    with pa.RecordBatchReader.from_stream(data) as reader:
        yield Parts(reader.schema.names, parts_of(iter(reader)))
