"""Columns: values that were picked are those of the rows that were asked for, whatever is remembered."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.execution import columns
from omnigraph.execution.columns import ColumnCache, Picks
from omnigraph.execution.entities import EntityTable
from tests.support.derived import small_tiers

ROWS = 400


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    small_tiers(monkeypatch)
    monkeypatch.setattr(columns, "PICK_COST", 0)  # so that columns are never read whole
    monkeypatch.setattr(columns, "MOST_PICKS", 20)
    with og.init(tmp_path / "g.og", "node Doc { name: String @key  size: I64 }", durability="os") as opened:
        opened.load(
            {"Doc": pa.table({"name": [f"d{n:05d}" for n in range(ROWS)], "size": range(ROWS)})},
            mode="append",
        )
        yield opened


def table_of(graph: Graph, cache: ColumnCache) -> EntityTable:
    declared = graph.schema.catalog("main").node("Doc")
    pin = graph.store.snapshot("main").pin(declared.id)
    table = EntityTable(declared, pin.table_id, pin.version, graph.store.reads, cache)
    assert table.start_of_rest == ROWS
    return table


class Forgetful(ColumnCache):
    """Lets go of everything right after it was asked."""

    def picks(self, of: Hashable, column: str) -> Picks | None:
        known = super().picks(of, column)
        self.shrink(0)
        return known


@pytest.mark.parametrize("cache", [ColumnCache(), Forgetful()], ids=["full", "evicted"])
def test_picked_values_are_those_of_the_rows_asked_for(graph: Graph, cache: ColumnCache) -> None:
    table = table_of(graph, cache)
    declared = graph.schema.catalog("main").node("Doc")
    size = next(member.column for member in declared.properties if member.name == "size")
    numbers = table_of(graph, ColumnCache()).column(size).to_pylist()  # by ordinal
    for start in range(0, 120, 10):  # half of the rows were asked for before
        wanted = np.arange(start, start + 30, dtype=np.int64)[::-1].copy()
        assert table.take(size, wanted).to_pylist() == [numbers[n] for n in wanted.tolist()]
