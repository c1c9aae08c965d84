"""A type is named in one way everywhere: `P`, or `node:P` and `edge:P` where two types share the name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, InvalidRequest

SCHEMA = "node Knows { k: String @key  n: I32? }  node P { k: String @key }  edge Knows: P -> P { n: I32? }"
ROWS = [
    {"type": "P", "data": {"k": "a"}},
    {"type": "P", "data": {"k": "b"}},
    {"type": "Knows", "data": {"k": "x", "n": 1}},
    {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "e", "n": 1}},
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        graph.load(ROWS, mode="append")
        yield graph


def counts(graph: Graph) -> tuple[int, int, int]:
    return len(graph.nodes("Knows")), len(graph.edges("Knows")), len(graph.nodes("P"))


def _folder(graph: Graph) -> Path:
    return Path(graph.uri.removeprefix("file://")).parent


# Every place that takes the name of a type, and what it answers for a name that means one.
PLACES: dict[str, Callable[[Graph, str], Any]] = {
    "load type": lambda g, name: g.load([], type=name, mode="append"),
    "load mapping": lambda g, name: g.load({name: []}, mode="append"),
    "overwritten mapping": lambda g, name: g.load({name: []}, mode="overwrite"),
    "replace_types": lambda g, name: g.load([], mode="overwrite", replace_types=[name]),
    "export": lambda g, name: g.export(_folder(g) / "out", types=[name]),
    "diff": lambda g, name: g.diff("main", "main", types=[name]),
    "feed": lambda g, name: g.changes.poll(start="beginning", types=[name]),
    "entity": lambda g, name: g.entity(name, "x").get(),
    "entity history": lambda g, name: g.entity(name, "x").history(),
    "resolution": lambda g, name: g.merge("side", resolutions=[{"type": name, "id": "x", "take": "ours"}]),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_means_two_types_is_refused_with_both_spellings(graph: Graph, place: str) -> None:
    graph.branches.create("side")
    graph.mutate('query q() { insert P { k: "c" } }', branch="side")
    before = counts(graph)

    with pytest.raises(InvalidRequest, match="both a node type and an edge type") as refused:
        PLACES[place](graph, "Knows")

    assert "node:Knows" in str(refused.value)
    assert "edge:Knows" in str(refused.value)
    assert counts(graph) == before


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_means_none_is_refused_as_such(graph: Graph, place: str) -> None:
    graph.branches.create("side")
    graph.mutate('query q() { insert P { k: "c" } }', branch="side")

    for name in ("Knowz", "node:Nobody", "table:Knows", "edge:P", ":P", "node:"):
        with pytest.raises(GraphError, match=f"the schema has no type '{name}'"):
            PLACES[place](graph, name)


def test_with_its_kind_a_name_means_one(graph: Graph) -> None:
    start = graph.store.snapshot().commit_id
    table = pa.table({"k": ["y", "z"], "n": [1, 2]})

    graph.load({"node:Knows": table}, mode="overwrite")
    assert counts(graph) == (2, 1, 2)
    graph.load(ROWS[:2], mode="overwrite", replace_types=["edge:Knows"])
    assert counts(graph) == (2, 0, 2)

    assert {change.kind for change in graph.diff(start, types=["edge:Knows"])} == {"edge"}
    assert {change.id for change in graph.diff(start, types="node:Knows")} == {"x", "y", "z"}
    assert {change.kind for change in graph.diff(start, types="Knows", kinds="edge")} == {"edge"}
    assert graph.entity("node:Knows", "z").get() == {"id": "z", "k": "z", "n": 2}
    assert graph.entity("edge:Knows", "e").get() is None
    assert graph.entity("edge:Knows", "e").get(at=start) is not None
    report = graph.export(_folder(graph) / "out", types=["node:Knows", "node:P"])
    assert [one.rows for one in report.types] == [2, 2]


def test_a_conflict_of_an_edge_is_traced_to_the_edge_and_decided_by_its_name(graph: Graph) -> None:
    graph.branches.create("side")
    for branch, n in (("side", 2), ("main", 3)):
        row = {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "e", "n": n}}
        graph.load([row], mode="merge", branch=branch)

    [conflict] = graph.merge("side", preview=True).conflicts
    assert conflict.entity_kind == "edge"
    assert conflict.ours is not None
    assert conflict.theirs is not None
    choice = {"type": "edge:Knows", "id": "e", "take": "theirs"}
    graph.merge("side", resolutions=[choice])

    assert graph.edges("Knows").to_arrow()["n"].to_pylist() == [2]
