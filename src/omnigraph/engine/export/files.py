"""Files: rows of one type, written as one Parquet or JSON lines file.

    plan -> rows -> **files** -> destination -> report

Room    engine.export. The same for every engine: a file is written by whoever has the rows.
Given   batches under the names of the properties, a place that nobody else writes to.
Gives   what was written: rows and bytes. Files end at about a GiB: stores copy objects up to a size only.
Rule    Parquet holds the types that other programs read: moments are timestamps (UTC, milliseconds), vectors
        are lists. A load casts them back without a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.catalog.types import readable
from omnigraph.engine.export.lines import envelope_lines
from omnigraph.engine.export.plan import Format, schema_of
from omnigraph.storage.location import Location

COMPRESSION = "zstd"
FILE_BYTES = 1 << 30
Write = Callable[[pa.RecordBatch], None]


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file, by its place below the destination."""

    name: str
    rows: int
    bytes: int


def write_files(
    place: Location,
    new_name: Callable[[], str],
    batches: Iterable[pa.RecordBatch],
    declared: TableType,
    format: Format,
    most: int = FILE_BYTES,
) -> list[ExportedFile]:
    """Write the rows of some batches below a place: one file, and another whenever one has `most` bytes."""
    left = iter(batches)
    ahead = next(left, None)
    files: list[ExportedFile] = []
    while not files or ahead is not None:
        name, rows = new_name(), 0
        with place.below(name).new_file() as sink:
            with (_parquet if format == "parquet" else _jsonl)(sink, declared) as write:
                while ahead is not None and (rows == 0 or sink.tell() < most):
                    write(ahead)
                    rows += ahead.num_rows
                    ahead = next(left, None)
            files.append(ExportedFile(name, rows, sink.tell()))
    return files


def file_name(catalog: Catalog, declared: TableType, number: int, format: Format) -> str:
    """Return a name that no other task uses, also not another try of the same task.

    A load takes the type of a table from its folder, and of records from each line, where no folder may say
    otherwise: so Parquet has a folder for each type, and JSON lines stand side by side.
    """
    kind, name, part = declared.kind.value, declared.name, f"part-{number:05d}-{uuid4()}"
    if format == "jsonl":
        return f"{kind}-{name}-{part}.jsonl"
    shared = catalog.find_node(name) is not None and catalog.find_edge(name) is not None
    return f"{kind}:{name}/{part}.parquet" if shared else f"{name}/{part}.parquet"


@contextmanager
def _parquet(sink: BinaryIO, declared: TableType) -> Iterator[Write]:
    portable = pa.schema([pa.field(field.name, _portable(field.type)) for field in schema_of(declared)])
    with pq.ParquetWriter(sink, portable, compression=COMPRESSION) as writer:
        yield lambda batch: writer.write_batch(batch.cast(portable))


@contextmanager
def _jsonl(sink: BinaryIO, declared: TableType) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        lines = (f"{line}\n" for line in envelope_lines(batch, declared))
        sink.write("".join(lines).encode())

    yield write


def _portable(kind: pa.DataType) -> pa.DataType:
    return pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else readable(kind)
