"""Frames: tables that live in memory already, recognised without importing the library they are from.

Room    engine.load.sources. pandas frames are cut into parts and converted column by column; anything with
        an Arrow stream (polars and others) is read through it.
Rule    in pandas a missing value is NaN, so NaN is null there; and integers with a missing value are floats,
        so floats without a fraction are good integers there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from omnigraph.engine.load.block import MAX_ROWS
from omnigraph.engine.load.sources.tables import Part, Parts, Values, parts_of


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


def _pandas_parts(frame: Any) -> Iterator[Part]:
    read = 0
    for begin in range(0, len(frame), MAX_ROWS):
        rows = frame.iloc[begin : begin + MAX_ROWS]
        columns = [_pandas_column(rows.iloc[:, place]) for place in range(rows.shape[1])]
        read += sum(column.nbytes for column in columns if isinstance(column, pa.Array))
        yield Part(columns, len(rows), read)


def _pandas_column(series: Any) -> Values:
    try:
        found = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        # Values of several types: each is judged by itself.
        return [None if missing else value for value, missing in zip(series, series.isna(), strict=True)]
    if not isinstance(found, pa.ChunkedArray):
        return found
    return found.combine_chunks() if found.num_chunks != 1 else found.chunk(0)


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
