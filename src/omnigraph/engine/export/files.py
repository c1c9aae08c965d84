"""Files: rows of one type, written as one Parquet or JSON lines file.

    plan -> rows -> **files** -> destination -> report

Room    engine.export. The same for every engine: a file is written by whoever has the rows.
Given   batches under the names of the properties, a path that nobody else writes to.
Gives   what was written: rows and bytes.
Rule    Parquet holds the types that other programs read: moments are timestamps (UTC, milliseconds), vectors
        are lists. A load casts them back without a loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.export.lines import envelope_lines
from omnigraph.engine.export.plan import Format, schema_of

COMPRESSION = "zstd"
MOMENT = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file, by its place below the destination."""

    name: str
    rows: int
    bytes: int


def write_file(
    root: Path, name: str, batches: Iterable[pa.RecordBatch], declared: TableType, format: Format
) -> ExportedFile:
    """Write the rows of some batches under a name below a folder."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (_parquet if format == "parquet" else _jsonl)(path, batches, declared)
    return ExportedFile(name, rows, path.stat().st_size)


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


def _parquet(path: Path, batches: Iterable[pa.RecordBatch], declared: TableType) -> int:
    schema = schema_of(declared)
    portable = pa.schema([pa.field(field.name, _portable(field.type)) for field in schema])
    rows = 0
    with pq.ParquetWriter(path, portable, compression=COMPRESSION) as writer:
        for batch in batches:
            writer.write_batch(batch.cast(portable))
            rows += batch.num_rows
    return rows


def _portable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date64(kind):
        return MOMENT
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_portable(kind.value_type))
    return kind


def _jsonl(path: Path, batches: Iterable[pa.RecordBatch], declared: TableType) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for batch in batches:
            for line in envelope_lines(batch, declared):
                file.write(line + "\n")
            rows += batch.num_rows
    return rows
