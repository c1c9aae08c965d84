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


VALUES = {
    "texts": pa.array(["", "a", "ö", "long " * 9, "\U0001f600"] * 9),
    "empty texts": pa.array([""] * 45),
    "numbers": pa.array(range(45), pa.int64()),
    "narrow numbers": pa.array(range(45), pa.int16()),
    "floats": pa.array([n / 7 for n in range(45)], pa.float32()),
    "dates": pa.array(range(45), pa.date32()),
    "times": pa.array(range(45), pa.timestamp("ms", tz="UTC")),
    "booleans": pa.array([n % 3 == 0 for n in range(45)]),
    "holes": pa.array([n if n % 4 else None for n in range(45)], pa.int32()),
    "texts with holes": pa.array(["x" if n % 4 else None for n in range(45)]),
    "lists": pa.array([[n] * (n % 3) for n in range(45)], pa.list_(pa.int32())),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("offset", [0, 7])
@pytest.mark.parametrize("count", [0, 1, 5, 32, 33])
def test_a_few_values_are_gathered_as_arrow_takes_them(name: str, offset: int, count: int) -> None:
    column = VALUES[name].slice(offset)
    places = np.random.default_rng(count).integers(0, len(column), count)
    for absent in (None, places % 2 == 0):
        gathered = columns.gathered(column, places, absent)
        gathered.validate(full=True)
        assert gathered.equals(column.take(pa.array(places, pa.int64(), mask=absent)))


def test_nothing_is_gathered_of_a_column_without_rows() -> None:
    for kind in (pa.string(), pa.int64(), pa.bool_()):
        assert columns.gathered(pa.array([], kind), columns.NOTHING).equals(pa.array([], kind))
