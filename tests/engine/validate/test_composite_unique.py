"""Composite @unique: partners are looked up by whichever member has the fewest, and never without limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation
from omnigraph.engine.validate.executors import MOST
from omnigraph.storage.tables.reads import TableReads
from tests.support.places import Place

SCHEMA = "node P { k: String @key city: String street: String house: I64 @unique(city, street, house) }"
COUNT = 6_000  # enough for a file with key hashes


def person(number: int, street: str = "Main") -> dict[str, Any]:
    return {"k": f"p{number}", "city": "Ulm", "street": street, "house": number}


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        made.load({"P": [person(number) for number in range(COUNT)]}, mode="append")
        yield made


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each look-up returned."""
    counts: list[int] = []
    lookup = TableReads.lookup

    def counted(*args: Any) -> pa.Table:
        rows = lookup(*args)
        counts.append(rows.num_rows)
        return rows

    monkeypatch.setattr(TableReads, "lookup", counted)
    return counts


def test_the_member_with_the_fewest_rows_decides(graph: Graph, looked_up: list[int]) -> None:
    graph.load({"P": [person(COUNT + 1)]}, mode="append")
    with pytest.raises(ConstraintViolation, match="1 violation"):
        graph.load({"P": [{**person(7), "k": "another"}]}, mode="append")

    assert looked_up
    assert max(looked_up) <= 1


def test_where_every_member_has_many_rows_nothing_is_looked_up(graph: Graph, looked_up: list[int]) -> None:
    same = [{**person(number), "house": 1, "street": f"s{number}"} for number in range(COUNT, 2 * COUNT)]
    graph.load({"P": same}, mode="append")
    streets = [{**person(number, "Long"), "k": f"l{number}"} for number in range(2 * COUNT, 3 * COUNT)]
    graph.load({"P": streets}, mode="append")
    looked_up.clear()

    graph.load({"P": [{**person(3 * COUNT, "Long"), "house": 1}]}, mode="append")
    with pytest.raises(ConstraintViolation, match="1 violation"):
        graph.load({"P": [{**person(3 * COUNT + 1, "Long"), "house": 1}]}, mode="append")

    assert max(looked_up, default=0) <= MOST
