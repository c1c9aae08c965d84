"""Writers that race for one keyed edge: one edge is there afterwards, as with a keyed node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import KeyConflict, StaleVersion
from omnigraph.storage.durability import armed
from tests.support.workers import once

ENDS = "node P { n: String @key }  node Film { n: String @key }\n"
KEYED = ENDS + "edge Rates: P -> Film { stars: I32  @key(src, dst) }"
PLAIN = ENDS + "edge Rates: P -> Film { stars: I32 }"
UP = '["Ada","Up"]'


def rate(graph: Graph, stars: int, mode: Any) -> None:
    graph.load([{"edge": "Rates", "from": "Ada", "to": "Up", "data": {"stars": stars}}], mode=mode)


def insert(graph: Graph, stars: int) -> None:
    graph.mutate(f'query q() {{ insert Rates {{ from: "Ada", to: "Up", stars: {stars} }} }}')


def give_key(graph: Graph) -> None:
    graph.schema.apply(KEYED)


def rated(graph: Graph) -> list[tuple[str, int]]:
    return [(row["id"], row["stars"]) for row in graph.edges("Rates").to_arrow().to_pylist()]


Two = tuple[Graph, Graph]


@pytest.fixture(params=[KEYED])
def two(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Two]:
    """One graph, open twice."""
    place = tmp_path / "graph.og"
    with og.init(place, request.param, durability="os") as first, og.connect(place) as second:
        first.load(
            [{"type": "P", "data": {"n": "Ada"}}, {"type": "Film", "data": {"n": "Up"}}], mode="append"
        )
        yield first, second


def overtaken(two: Two, first: Callable[[Graph], None], then: Callable[[Graph], None]) -> None:
    """Do something that another writer overtakes just before it is published."""
    with armed({"publish.before": once(lambda: then(two[1]))}):
        first(two[0])


@pytest.mark.parametrize("write", [insert, lambda graph, stars: rate(graph, stars, "merge")])
def test_the_writer_that_lands_last_replaces_the_edge(two: Two, write: Callable[[Graph, int], None]) -> None:
    overtaken(two, lambda graph: write(graph, 3), lambda graph: write(graph, 4))

    assert rated(two[0]) == [(UP, 3)]


def test_of_two_writers_that_append_one_edge_one_is_told(two: Two) -> None:
    with pytest.raises(KeyConflict):
        overtaken(two, lambda graph: rate(graph, 3, "append"), lambda graph: rate(graph, 4, "append"))

    assert rated(two[0]) == [(UP, 4)]


@pytest.mark.parametrize("two", [PLAIN], indirect=True)
def test_an_edge_that_a_new_key_overtakes_gets_its_id_from_it(two: Two) -> None:
    overtaken(two, lambda graph: insert(graph, 3), give_key)

    assert rated(two[0]) == [(UP, 3)]


@pytest.mark.parametrize("two", [PLAIN], indirect=True)
def test_a_key_that_a_new_edge_overtakes_is_not_applied(two: Two) -> None:
    insert(two[0], 3)

    with pytest.raises(StaleVersion):
        overtaken(two, give_key, lambda graph: insert(graph, 4))

    assert sorted(stars for _, stars in rated(two[0])) == [3, 4]
    assert "@key(src" not in two[0].schema.show()


@pytest.mark.parametrize("two", [PLAIN], indirect=True)
def test_a_key_of_an_empty_type_that_a_first_edge_overtakes_is_planned_again(two: Two) -> None:
    overtaken(two, give_key, lambda graph: insert(graph, 4))

    assert rated(two[0]) == [(UP, 4)]
    assert "@key(src" in two[0].schema.show()
