"""Loads into branches, and branches that a load makes (W-20, W-21)."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, ConstraintViolation, GraphError, KeyConflict
from omnigraph.storage.durability import armed
from tests.support.people import ages, head, person
from tests.support.places import Place
from tests.support.stores import nothing_written
from tests.support.workers import once


@pytest.fixture(autouse=True)
def _committed(graph: Graph) -> None:
    graph.load([person("a", age=1)], mode="append")


def branches(graph: Graph) -> list[str]:
    """Return the names of all branches."""
    return [ref.name for ref in graph.store.branches.list()]


def test_a_missing_branch_is_made_from_the_one_that_is_named(graph: Graph) -> None:
    receipt = graph.load([person("b")], mode="append", branch="new", from_branch="main")

    assert ages(graph, branch="new") == {"a": 1, "b": None}
    assert ages(graph) == {"a": 1}
    assert receipt.parents == (head(graph),)
    assert (receipt.branch, receipt.facts["base_branch"], receipt.facts["branch_created"]) == (
        "new",
        "main",
        True,
    )


def test_a_branch_that_exists_is_used_as_it_is(graph: Graph) -> None:
    graph.store.branches.create("new", "main")
    graph.load([person("x")], mode="append")

    receipt = graph.load([person("b")], mode="append", branch="new", from_branch="main")

    assert ages(graph, branch="new") == {"a": 1, "b": None}
    assert receipt.facts["branch_created"] is False


def test_without_a_branch_to_make_it_from_a_missing_branch_is_not_found(
    graph: Graph, local_place: Place
) -> None:
    with nothing_written(local_place), pytest.raises(BranchNotFound):
        graph.load([person("b")], mode="append", branch="new")
    with nothing_written(local_place), pytest.raises(BranchNotFound):
        graph.load([person("b")], mode="append", branch="new", from_branch="nowhere")


@pytest.mark.parametrize("rows", [[person("a")], [person("b", age=999)]], ids=["key", "value"])
def test_a_load_that_fails_leaves_the_branch_that_was_made_and_says_so(
    graph: Graph, rows: list[object]
) -> None:
    with pytest.raises((KeyConflict, ConstraintViolation)) as caught:
        graph.load(rows, mode="append", branch="new", from_branch="main")

    assert branches(graph) == ["new"]
    assert ages(graph, branch="new") == {"a": 1}
    assert isinstance(caught.value, GraphError)
    assert caught.value.fields["branch_created"] == "new"
    assert "Branch 'new' was created from 'main' and stays" in str(caught.value)


def test_a_load_that_fails_in_a_branch_that_existed_says_nothing_of_it(graph: Graph) -> None:
    graph.store.branches.create("new", "main")

    with pytest.raises(KeyConflict) as caught:
        graph.load([person("a")], mode="append", branch="new", from_branch="main")

    assert "branch_created" not in caught.value.fields


def test_a_branch_that_somebody_else_makes_at_the_same_time_is_used(graph: Graph, local_place: Place) -> None:
    def come_first() -> None:
        with og.connect(local_place.address) as other:
            other.store.branches.create("new", "main")

    with armed({"branch_register.before": once(come_first)}):
        receipt = graph.load([person("b")], mode="append", branch="new", from_branch="main")

    assert receipt.facts["branch_created"] is False
    assert ages(graph, branch="new") == {"a": 1, "b": None}


def test_writes_to_a_branch_leave_main_alone(graph: Graph) -> None:
    graph.store.branches.create("new", "main")
    before = head(graph)

    graph.mutate('query q() { delete Person where name = "a" }', branch="new")

    assert head(graph) == before
    assert (ages(graph), ages(graph, branch="new")) == ({"a": 1}, {})


@pytest.mark.parametrize("work", ["load", "optimize", "ensure_indexes"])
def test_a_commit_that_landed_is_acknowledged_though_its_branch_is_deleted_at_once(
    graph: Graph, local_place: Place, work: str
) -> None:
    """What is written beside the tables afterwards may fail; the commit stands."""
    graph.branches.create("gone")
    graph.load([person("b", age=2)], mode="append", branch="gone")

    def delete() -> None:
        with og.connect(local_place.address, durability="os") as other:
            other.branches.delete("gone")

    with armed({"publish.after": once(delete)}):
        if work == "load":
            done = graph.load([person("c", age=3)], mode="append", branch="gone").commit_id
        elif work == "optimize":
            done = graph.optimize(branch="gone").commit_id
        else:
            done = graph.ensure_indexes(branch="gone").commit_id

    assert done is not None
    assert branches(graph) == []
