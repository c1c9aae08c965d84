"""Maintenance as a whole: a graph that was written for long is optimized, cleaned, copied and found sound."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.support.places import Place

SCHEMA = """
node Person { name: String @key  age: I32? @index  text: String?  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = 30


def test_a_cleanup_means_what_the_graph_is_bound_to(local_place: Place) -> None:
    with og.init(local_place.address, "node P { k: String @key }", durability="os") as graph:
        for number in range(3):
            graph.load([{"type": "P", "data": {"k": str(number)}}], mode="append")
        first = graph.commits.list()[-1].id
        graph.branches.create("review")
        for key in ("r", "s"):
            graph.load([{"type": "P", "data": {"k": key}}], mode="append", branch="review")

        with pytest.raises(og.PastState):
            graph.at(first).cleanup(keep=0, dry_run=False)
        of_branch = graph.branch("review").cleanup(keep=0, grace="0s")
        of_all = graph.cleanup(keep=0, grace="0s")

    assert [one.branch for one in of_branch.given_up] == ["review"]
    assert [one.branch for one in of_all.given_up] == ["main", "review"]


def written(place: Path, seed: int) -> Graph:
    """Make a graph with branches, merges, tags, updates and deletes; commits of one row each."""
    random = Random(seed)
    graph = og.init(place, SCHEMA, durability="os")
    people = [
        {"type": "Person", "data": {"name": f"p{n}", "age": n, "text": f"word{n % 3}"}} for n in range(PEOPLE)
    ]
    graph.load(people, mode="append")
    graph.branches.create("side")
    for number in range(40):
        branch = random.choice(["main", "side"])
        name, other = f"p{random.randrange(PEOPLE)}", f"p{random.randrange(PEOPLE)}"
        match random.randrange(4):
            case 0:
                change(graph, branch, "update Person set { age: 7 } where name = $n", n=name)
            case 1:
                change(graph, branch, "insert Knows { from: $n, to: $o, since: 2026 }", n=name, o=other)
            case 2:
                change(graph, branch, "delete Knows where from = $n", n=name)
            case _:
                change(graph, branch, "insert Person { name: $n, age: 1 }", n=f"{branch}-{number}")
        if number == 20:
            graph.tags.create("halfway")
            graph.merge("side", strategy="theirs")
    graph.branches.create("gone")
    change(graph, "gone", "insert Person { name: $n }", n="nobody")
    graph.branches.delete("gone")
    return graph


def change(graph: Graph, branch: str, statement: str, **values: Any) -> None:
    """Commit one statement."""
    declared = ", ".join(f"${name}: String" for name in values)
    graph.mutate(f"query w({declared}) {{ {statement} }}", values, branch=branch)


def everything(graph: Graph, **state: Any) -> dict[str, Any]:
    """Return all rows of a state."""
    people = graph.query("query q() { match { $p: Person } return { $p.name, $p.age, $p.text } }", **state)
    edges = graph.query(
        "query q() { match { $p: Person  $p $k:knows $q } return { $p.name, $q.name, $k.since } }", **state
    )
    return {"people": people.rows, "edges": edges.rows}


STATES: list[dict[str, Any]] = [{"branch": "main"}, {"branch": "side"}, {"at": "halfway"}]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_graph_goes_through_everything_and_stays_what_it_is(tmp_path: Path, seed: int) -> None:
    with written(tmp_path / "g.og", seed) as graph:
        before = [everything(graph, **state) for state in STATES]
        stored = graph.cleanup(keep=0, grace="0s").bytes

        for branch in ("main", "side"):
            graph.optimize(branch=branch)
        graph.backup(tmp_path / "early.og")
        freed = graph.cleanup(keep=1, grace="0s", dry_run=False)
        graph.backup(tmp_path / "early.og")
        graph.backup(tmp_path / "late.og")
        og.restore(tmp_path / "early.og", tmp_path / "restored.og")

        assert freed.bytes > stored > 0
        assert [everything(graph, **state) for state in STATES] == before
        with pytest.raises(og.HistoryReclaimed):
            everything(graph, at="main~3")
        sound(graph)

    for copy in ("early.og", "late.og", "restored.og"):
        with og.connect(tmp_path / copy) as there:
            assert [everything(there, **state) for state in STATES] == before, copy
            sound(there)
            change(there, "main", "insert Person { name: $n }", n="new")
            there.merge("side", strategy="theirs")
            there.optimize()
            there.cleanup(keep=0, grace="0s", dry_run=False)
            sound(there)
            assert (
                len(there.query('query q() { match { $p: Person { name: "new" } } return { $p.name } }')) == 1
            )


def sound(graph: Graph) -> None:
    """Assert that a thorough look finds nothing wrong."""
    report = graph.doctor(deep=True)
    assert [*report.of("error"), *report.of("warning")] == []
