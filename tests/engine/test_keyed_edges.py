"""Keyed edges: the ends of an edge, and properties where the schema says so, are its identity."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, GraphError, KeyConflict

ENDS = "node P { n: String @key }  node Film { n: String @key }\n"
SCHEMA = ENDS + "edge Rates: P -> Film { stars: I32  note: String?  @key(src, dst) }"
PLAIN = ENDS + "edge Rates: P -> Film { stars: I32  note: String? }"
NODES = [{"type": "P", "data": {"n": "Ada"}}, {"type": "Film", "data": {"n": "Up"}}]
UP = '["Ada","Up"]'


def rating(stars: int, **more: Any) -> dict[str, Any]:
    """Return R(s) of the specification."""
    return {"edge": "Rates", "from": "Ada", "to": "Up", "data": {"stars": stars, **more}}


def rated(graph: Graph, *, branch: str | None = None) -> list[tuple[str, int, str | None]]:
    """Return id, stars and note of every rating."""
    rows = graph.edges("Rates", branch=branch).to_arrow().to_pylist()
    return [(row["id"], row["stars"], row["note"]) for row in rows]


def made(folder: Path, schema: str) -> Graph:
    graph = og.init(folder / "graph.og", schema, durability="os")
    graph.load(NODES, mode="append")
    return graph


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path, SCHEMA) as opened:
        yield opened


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Graph]:
    with made(tmp_path, PLAIN) as opened:
        yield opened


def codes(refused: pytest.ExceptionInfo[GraphError]) -> list[str]:
    return [violation["code"] for violation in refused.value.fields["violations"]]


# -- loads -------------------------------------------------------------------------------------------


def test_a_merge_load_replaces_the_edge_that_joins_the_same_ends(graph: Graph) -> None:
    graph.load([rating(3, note="a")], mode="merge")
    graph.load([rating(4)], mode="merge")

    assert rated(graph) == [(UP, 4, None)]


def test_an_appended_edge_must_be_new(graph: Graph) -> None:
    graph.load([rating(3)], mode="append")

    with pytest.raises(KeyConflict):
        graph.load([rating(4)], mode="append")

    assert rated(graph) == [(UP, 3, None)]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_no_input_has_a_key_twice(graph: Graph, mode: Any) -> None:
    with pytest.raises(ConstraintViolation) as refused:
        graph.load([rating(3), rating(4)], mode=mode)

    assert codes(refused) == ["unique"]
    assert "Rates.src, dst" in str(refused.value)


def test_an_overwrite_is_the_new_image(graph: Graph) -> None:
    graph.load([rating(3, note="a")], mode="append")

    graph.load([rating(4)], mode="overwrite")

    assert rated(graph) == [(UP, 4, None)]


def test_a_record_may_have_the_id_that_its_ends_make(graph: Graph) -> None:
    with pytest.raises(ConstraintViolation) as refused:
        graph.load([rating(3, id="e1")], mode="append")
    assert codes(refused) == ["key"]

    graph.load([{**rating(3), "id": UP}], mode="append")
    assert rated(graph) == [(UP, 3, None)]


def test_an_edge_may_have_its_id_at_the_top(plain: Graph) -> None:
    for _ in range(2):
        plain.load([{**rating(3), "id": "e1"}], mode="merge")

    assert rated(plain) == [("e1", 3, None)]


def test_two_ids_of_one_record_must_agree(plain: Graph) -> None:
    plain.load([{**rating(3, id="e1"), "id": "e1"}], mode="merge")
    with pytest.raises(GraphError) as refused:
        plain.load([{**rating(3, id="e2"), "id": "e1"}], mode="merge")

    assert codes(refused) == ["envelope"]


def test_parallel_edges_need_a_member_that_differs(tmp_path: Path) -> None:
    schema = ENDS + "edge Rates: P -> Film { day: Date  stars: I32?  @key(src, dst, day) }"
    with made(tmp_path, schema) as graph:
        days = [{**rating(3, day=day)} for day in ("2026-01-01", "2026-01-02")]
        for _ in range(2):
            graph.load(days, mode="merge")
        assert graph.edges("Rates").to_arrow()["id"].to_pylist() == [
            '["Ada","Up","20454"]',
            '["Ada","Up","20455"]',
        ]

        with pytest.raises(GraphError, match="Q207"):
            graph.mutate('query q() { update Rates set { day: "2026-01-03" } where stars = 3 }')


def test_unicode_and_quotes_in_ends_are_escaped_once(graph: Graph) -> None:
    odd = 'a"b\\c\u00e9\n'
    graph.load([{"type": "P", "data": {"n": odd}}], mode="merge")
    graph.load([{**rating(1), "from": odd}], mode="merge")

    assert json.loads(rated(graph)[0][0]) == [odd, "Up"]
