"""Memory follows the size of a block, not of the input: every kind of source, on inputs many times as big."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc
from pyarrow import parquet as pq

from omnigraph.engine.load.conform import MAX_BYTES, LoadProblems
from omnigraph.engine.load.sources.opening import open_source
from tests.engine.load.sources.reading import NOW_MS, lines, node
from tests.support.catalogs import catalog

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bounded")]

WIDE = catalog("node Wide { v: Vector(1024) } node Note { text: String age: I32? }")
MIB = 1 << 20


def drain(data: Any, **options: Any) -> tuple[int, int]:
    """Read an input; return its rows and the most Arrow memory that was in use at any block."""
    gc.collect()
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    report = LoadProblems()
    source = open_source(data, catalog=WIDE, now_ms=NOW_MS, **options)
    for block in source.blocks(WIDE, report, lambda _: None):
        rows += block.rows.num_rows
        peak = max(peak, pa.total_allocated_bytes() - before)
        del block
    assert report.total == 0
    return rows, peak


def python_peak(data: Any, **options: Any) -> tuple[int, int]:
    """Read an input; return its rows and the most memory that Python objects took."""
    gc.collect()
    tracemalloc.start()
    try:
        rows, arrow = drain(data, **options)
        return rows, tracemalloc.get_traced_memory()[1] + arrow
    finally:
        tracemalloc.stop()


def repeated(piece: bytes, times: int, head: bytes = b"") -> Iterator[bytes]:
    """Hand out the same bytes again and again."""
    yield head
    for _ in range(times):
        yield piece


def test_jsonl_of_small_records() -> None:
    piece = lines(*[node("Note", text=f"note {n}", age=n % 90) for n in range(500)])

    rows, peak = python_peak(repeated(piece, 300))

    assert rows == 150_000
    assert peak < 64 * MIB


@pytest.mark.full
def test_jsonl_of_large_records() -> None:
    piece = lines(node("Note", text="x" * MIB))

    rows, peak = python_peak(repeated(piece, 200))

    assert rows == 200
    assert peak < 64 * MIB


@pytest.mark.full
def test_jsonl_where_no_record_is_good() -> None:
    piece = lines(*[node("Note", text=n, **{f"age{n}": n}) for n in range(500)])
    report = LoadProblems()
    gc.collect()
    tracemalloc.start()
    try:
        source = open_source(repeated(piece, 200), catalog=WIDE, now_ms=NOW_MS)
        assert list(source.blocks(WIDE, report, lambda _: None)) == []
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.total, len(report.violations)) == (100_000, 20)
    assert peak < 32 * MIB


@pytest.mark.full
def test_records_with_large_values() -> None:
    rows, peak = python_peak(({"text": str(n) + "y" * MIB} for n in range(200)), type="Note")

    assert rows == 200
    assert peak < 64 * MIB


def test_csv() -> None:
    piece = "".join(f"{n},note number {n}\n" for n in range(1000)).encode()

    rows, peak = python_peak(repeated(piece, 200, b"age,text\n"), type="Note", format="csv")

    assert rows == 200_000
    assert peak < 64 * MIB


@pytest.fixture(scope="module")
def vectors() -> pa.Table:
    """Return 80 MiB of vectors."""
    numbers = np.random.default_rng(1).random(20_000 * 1024, np.float32)
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(numbers), 1024)})


def test_a_parquet_file_of_one_huge_row_group(tmp_path: Path, vectors: pa.Table) -> None:
    path = tmp_path / "Wide.parquet"
    pq.write_table(vectors, path, row_group_size=len(vectors))

    rows, peak = drain(path)

    assert rows == 20_000
    assert peak < 6 * MAX_BYTES


def test_a_parquet_file_whose_dictionary_hides_its_size(tmp_path: Path) -> None:
    path = tmp_path / "Note.parquet"
    pq.write_table(pa.table({"text": pa.array(["z" * 8192] * 40_000).dictionary_encode()}), path)
    assert path.stat().st_size < MIB

    rows, peak = drain(path)

    assert rows == 40_000
    assert peak < 6 * MAX_BYTES


def test_encodings_in_memory_that_hide_the_size_of_values() -> None:
    short = pa.array(["z" * 8192] * 40_000)

    for column in (short.dictionary_encode(), short.cast(pa.string_view())):
        rows, peak = drain(pa.table({"text": column}), type="Note")
        assert rows == 40_000
        assert peak < 4 * MAX_BYTES


def test_an_arrow_stream_of_many_batches(tmp_path: Path, vectors: pa.Table) -> None:
    path = tmp_path / "Wide.arrows"
    with ipc.new_stream(str(path), vectors.schema) as writer:
        writer.write_table(vectors, max_chunksize=500)

    rows, peak = drain(path)

    assert rows == 20_000
    assert peak < 4 * MAX_BYTES


def test_a_table_in_memory_is_read_in_small_blocks(vectors: pa.Table) -> None:
    rows, peak = drain(vectors, type="Wide")

    assert rows == 20_000
    assert peak < 4 * MAX_BYTES


def test_a_line_is_not_copied_over_and_over(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(node("Note", text="w" * (30 * MIB))))

    rows, peak = python_peak(path)

    assert rows == 1
    assert peak < 8 * 30 * MIB
