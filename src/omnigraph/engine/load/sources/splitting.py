"""Splitting: one input as several that can be read side by side, in other processes too.

For bulk loads; a local load reads its inputs one after the other. The splits of a source give the same rows
in the same order, each with the position that it has in its file. Parquet is cut between row groups, JSON
lines after a line end, what is in memory after so many rows. What cannot be cut stays whole: compressed
text, CSV (a field may hold line ends), Arrow files, and exports that carry a checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet as pq

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.load.conform import LoadSource
from omnigraph.engine.load.sources import parquet, tables
from omnigraph.engine.load.sources.csv import Csv
from omnigraph.engine.load.sources.json import HEADER, JsonLines, Records
from omnigraph.engine.load.sources.opening import SeveralSources
from omnigraph.engine.load.sources.parquet import ParquetFileAt
from omnigraph.engine.load.sources.streams import FileAt
from omnigraph.engine.load.sources.tables import Tabular

SPLIT_BYTES = 64 << 20
SPLIT_RECORDS = 50_000
_BLOCK = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def split(source: LoadSource, split_bytes: int = SPLIT_BYTES) -> Iterator[LoadSource]:
    """Yield the splits of an input, in its order."""
    match source:
        case SeveralSources(_, sources):
            for member in sources:
                yield from split(member, split_bytes)
        case Tabular(opened=ParquetFileAt() as file):
            yield from _row_groups(source, file, split_bytes)
        case JsonLines(opened=FileAt() as file):
            yield from _lines(source, file, split_bytes)
        case Csv(opened=FileAt()) | Tabular(opened=partial(func=parquet.open_arrow, args=(Path(), *_))):
            yield source
        case Records(records=list() | tuple() as records):
            for first in range(0, len(records) or 1, SPLIT_RECORDS):
                yield replace(source, records=records[first : first + SPLIT_RECORDS], skipped=first)
        case Tabular(opened=partial(func=tables.open_table, args=(table,))):
            yield from _table_rows(source, table)
        case Tabular(opened=partial(func=tables.open_stream, args=(frame,))):
            yield from _table_rows(source, pa.table(frame))
        case Tabular(opened=partial(func=tables.open_pandas, args=(frame,))):
            for first in range(0, len(frame) or 1, SPLIT_RECORDS):
                rows = frame.iloc[first : first + SPLIT_RECORDS]
                yield replace(source, opened=partial(tables.open_pandas, rows), skipped=first)
        case _:
            raise InvalidRequest(
                f"{source.name} cannot be read by other processes",
                remedy="Give paths, tables, frames or lists, or load it with engine='local'",
            )


def _table_rows(source: Tabular, table: pa.Table) -> Iterator[LoadSource]:
    """Cut a table into streams: a slice of a table travels with all that it was cut from."""
    for first in range(0, len(table) or 1, SPLIT_RECORDS):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(first, SPLIT_RECORDS))
        content = sink.getvalue().to_pybytes()
        opened = partial(parquet.open_arrow, content, source.name, len(content))
        yield replace(source, opened=opened, size_bytes=len(content), skipped=first)


def _row_groups(source: Tabular, file: ParquetFileAt, split_bytes: int) -> Iterator[LoadSource]:
    try:
        footer = pq.read_metadata(file.path)
    except (OSError, ValueError):
        yield source  # whoever reads it says what is wrong with it
        return
    begin, rows, held = 0, 0, 0
    first = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        if held and held + group.total_byte_size > split_bytes:
            yield _of_groups(source, file, range(begin, number), first)
            begin, first, rows, held = number, first + rows, 0, 0
        rows += group.num_rows
        held += group.total_byte_size
    yield _of_groups(source, file, range(begin, footer.num_row_groups), first)


def _of_groups(source: Tabular, file: ParquetFileAt, groups: range, first: int) -> LoadSource:
    return replace(source, opened=replace(file, groups=tuple(groups)), skipped=first)


def _lines(source: JsonLines, file: FileAt, split_bytes: int) -> Iterator[LoadSource]:
    size = source.size_bytes or 0
    if size <= split_bytes or not _can_cut(file.path):
        yield source
        return
    cuts = [0, *_cuts(file.path, size, split_bytes), size]
    lines = 0
    for begin, end in pairwise(cuts):
        yield replace(
            source, opened=replace(file, begin=begin, end=end), size_bytes=end - begin, skipped=lines
        )
        lines += _count_lines(file.path, begin, end)


def _can_cut(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(256)
    return not head.startswith(_COMPRESSED) and HEADER.encode() not in head


def _cuts(path: Path, size: int, split_bytes: int) -> Iterator[int]:
    """Yield where lines begin, about so many bytes apart."""
    with path.open("rb") as file:
        at = split_bytes
        while at < size:
            file.seek(at - 1)
            file.readline()
            if file.tell() >= size:
                return
            yield file.tell()
            at = file.tell() + split_bytes


def _count_lines(path: Path, begin: int, end: int) -> int:
    """Count line ends; reading them is a small part of what parsing the lines costs."""
    lines = 0
    with path.open("rb") as file:
        file.seek(begin)
        left = end - begin
        while left:
            block = file.read(min(_BLOCK, left))
            if not block:
                break
            lines += block.count(b"\n")
            left -= len(block)
    return lines
