"""Every pair of operations on two branches has the outcome of the contract (engine contract 6.6)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict
from tests.support.two_branches import change, fork, image, knows, person, put, world

Operation = Callable[[Graph, str], None]


def nothing(graph: Graph, branch: str) -> None:
    """Leave the branch as it is."""


def add_eve(graph: Graph, branch: str) -> None:
    put(graph, branch, person("Eve", age=1 if branch == "main" else 2))


def remove_alice(graph: Graph, branch: str) -> None:
    change(graph, branch, 'delete Person where name = "Alice"')


def add_edge(graph: Graph, branch: str) -> None:
    put(graph, branch, knows(f"ac-{branch}", "Alice", "Carol"))


def remove_edge(graph: Graph, branch: str) -> None:
    change(graph, branch, 'delete Knows where from = "Bob"')


def change_age(graph: Graph, branch: str) -> None:
    put(graph, branch, person("Alice", age=41 if branch == "main" else 42))


def churn(graph: Graph, branch: str) -> None:
    """Add an edge and take it away again."""
    put(graph, branch, knows("churn", "Dan", "Carol"))
    change(graph, branch, 'delete Knows where from = "Dan"')


OPERATIONS: list[Operation] = [nothing, add_eve, remove_alice, add_edge, remove_edge, change_age, churn]
TABLE = """
U U  U  U  U U  U
F DI M  M  M M  M
F M  M  OE M DV M
F M  OE M  M M  M
F M  M  M  M M  M
F M  DV M  M DU M
F M  M  M  M M  M
"""
CONFLICTS = {
    "DI": "divergent_insert",
    "DU": "divergent_update",
    "DV": "delete_vs_update",
    "OE": "orphan_edge",
}
CELLS = [cell for line in TABLE.strip().splitlines() for cell in line.split()]
PAIRS = list(zip(product(OPERATIONS, OPERATIONS), CELLS, strict=True))


@pytest.mark.parametrize(
    ("pair", "cell"), PAIRS, ids=[f"{a.__name__}-{b.__name__}-{cell}" for (a, b), cell in PAIRS]
)
def test_pair(tmp_path: Path, pair: tuple[Operation, Operation], cell: str) -> None:
    source, target = pair
    with world(tmp_path) as graph:
        fork(graph)
        source(graph, "side")
        target(graph, "main")
        before, head = image(graph), graph.store.snapshot("main").state
        if cell in CONFLICTS:
            with pytest.raises(MergeConflict) as caught:
                graph.merge("side")
            assert [one.kind.value for one in caught.value.conflicts] == [CONFLICTS[cell]]
            assert graph.store.snapshot("main").state == head
            assert image(graph) == before
            return
        done = graph.merge("side")
        short = {"already_up_to_date": "U", "fast_forward": "F", "merged": "M"}
        assert short[done.outcome.value] == cell
        after = graph.store.snapshot("main").state
        if cell == "U":
            assert done.commit is None
            assert after == head
            return
        assert done.commit is not None
        assert (done.commit.parent, done.commit.merged_parent) == (
            head.head,
            graph.store.snapshot("side").commit_id,
        )
        assert graph.merge("side").outcome.value == "already_up_to_date"  # M-46
        if cell == "F":
            assert image(graph) == image(graph, "side")


@pytest.mark.parametrize("name", ["Eve", "Alice"], ids=["insert", "update"])
def test_the_same_change_on_both_sides_is_one_change(tmp_path: Path, name: str) -> None:
    equal = person(name, age=7)
    with world(tmp_path) as graph:
        fork(graph)
        for branch in ("side", "main"):
            put(graph, branch, equal)
        before = image(graph)

        assert graph.merge("side").outcome.value == "merged"
        assert image(graph) == before


def test_parallel_edges_of_both_sides_stay(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        for branch in ("side", "main"):
            add_edge(graph, branch)

        graph.merge("side")

        assert [edge["id"] for edge in image(graph)["edges"]] == ["ac-main", "ac-side", "bc"]
