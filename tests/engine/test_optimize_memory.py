"""Optimize takes bounded memory, however unequal the rows are: a few huge ones among many small ones."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from tests.support.resident import peak_counts_from_here, resident

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory")]

MIB = 1 << 20
SMALL, HUGE, HUGE_BYTES = 20_000, 150, 4 * MIB
BOUND = 400 * MIB  # it grew by 165 MiB, and by 1,314 with the huge rows in one batch
SCHEMAS = {
    "texts": "node Doc { name: String @key  body: String }",
    "blobs": "node Doc { name: String @key  body: Blob }",
}


@pytest.mark.parametrize("kind", ["texts", pytest.param("blobs", marks=pytest.mark.full)])
def test_a_few_huge_rows_among_small_ones_are_rewritten_a_few_at_a_time(tmp_path: Path, kind: str) -> None:
    with og.init(tmp_path / "g.og", SCHEMAS[kind], durability="os") as graph:
        graph.load(documents("a", kind), type="Doc", mode="append")
        graph.load(pa.table({"name": ["last"], "body": [value(kind, 1, 1)]}), type="Doc", mode="append")
        graph.mutate('query q() { delete Doc where name = "a7" }')

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        fragments, growth = pool.apply(_optimized, (str(tmp_path / "g.og"),))

    assert fragments == (2, 1)
    assert growth < BOUND, f"grew by {growth // MIB} MiB"
    with og.connect(tmp_path / "g.og") as graph:
        assert len(graph.nodes("Doc")) == 2 * SMALL + HUGE


def documents(prefix: str, kind: str) -> pa.Table:
    """Return small documents, then huge ones, then small ones again."""
    small = pa.array([value(kind, 10, 0)] * SMALL)
    huge = [pa.array([value(kind, HUGE_BYTES, n)]) for n in range(HUGE)]
    return pa.table(
        {
            "name": [f"{prefix}{n}" for n in range(2 * SMALL + HUGE)],
            "body": pa.chunked_array([small, *huge, small]),
        }
    )


def value(kind: str, size: int, number: int) -> str | bytes:
    """Return a value that is like no other: of those that are alike, one is stored."""
    text = f"{number:0{size}}"
    return text if kind == "texts" else text.encode()


def _optimized(address: str) -> tuple[tuple[int, int], int]:
    """Optimize; return the fragments before and after, and by how much the process was larger at most."""
    with og.connect(address, durability="os") as graph:
        len(graph.nodes("Doc"))
        before = resident()
        peak_counts_from_here()
        report = graph.optimize(policy=og.OptimizePolicy(small_bytes=1 << 30, file_bytes=1 << 30))
        (row,) = report.types
        assert row.files is not None
        return (row.files.fragments_before, row.files.fragments_after), resident("VmHWM") - before
