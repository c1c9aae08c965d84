"""Writes on condition that the branch is at a commit the caller names (W-40 to W-46)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest, PreconditionFailed
from omnigraph.engine.write import Receipt
from tests.support.contents import state
from tests.support.people import INSERT, NOTE, ages, coming_first, head, person, q, thing, tidy
from tests.support.places import Place
from tests.support.stores import nothing_written

Act = Callable[[Graph, str], Receipt]
WRITES: dict[str, Act] = {
    "insert": lambda g, expected: g.mutate(INSERT, name="x", if_commit=expected),
    "update": lambda g, expected: g.mutate(
        q("update Person set { age: 7 } where age = 1"), if_commit=expected
    ),
    "delete": lambda g, expected: g.mutate(q('delete Person where name = "a"'), if_commit=expected),
    "append": lambda g, expected: g.load([person("x")], mode="append", if_commit=expected),
    "merge": lambda g, expected: g.load([person("x")], mode="merge", if_commit=expected),
    "overwrite": lambda g, expected: g.load([person("x")], mode="overwrite", if_commit=expected),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Act:
    """Every kind of write."""
    return WRITES[request.param]


@pytest.fixture(autouse=True)
def _somebody(graph: Graph) -> None:
    graph.load([person("a", age=1)], mode="append")


def test_a_write_runs_when_the_branch_is_where_the_caller_says(graph: Graph, write: Act) -> None:
    expected = head(graph)

    assert write(graph, expected).parents == (expected,)


def test_a_write_runs_when_only_maintenance_came_in_between(graph: Graph, write: Act) -> None:
    expected = head(graph)
    tidy(graph)

    assert write(graph, expected).commit is not None


def test_a_write_runs_when_maintenance_comes_while_it_is_being_published(
    graph: Graph, local_place: Place, write: Act
) -> None:
    expected = head(graph)

    with coming_first(local_place.address, tidy):
        receipt = write(graph, expected)

    assert receipt.attempts == 2
    assert receipt.commit is not None


def test_a_write_is_refused_when_the_branch_is_elsewhere_and_nothing_is_written(
    graph: Graph, local_place: Place, write: Act
) -> None:
    expected = head(graph)
    graph.mutate(NOTE, value="unrelated")  # W-44: any content commit of the branch counts

    with nothing_written(local_place), pytest.raises(PreconditionFailed) as caught:
        write(graph, expected)

    assert caught.value.fields == {"branch": "main", "expected": expected, "actual": head(graph)}
    assert not caught.value.retryable


def test_nobody_can_slip_in_between_the_check_and_the_commit(
    graph: Graph, local_place: Place, write: Act
) -> None:
    """An insert would otherwise be retried by itself: a condition is never retried (W-41, W-42)."""
    expected, before = head(graph), ages(graph)

    with (
        coming_first(local_place.address, lambda other: other.mutate(NOTE, value="unrelated")),
        pytest.raises(PreconditionFailed) as caught,
    ):
        write(graph, expected)

    assert caught.value.fields["actual"] == head(graph)
    assert ages(graph) == before


def test_other_branches_are_no_concern(graph: Graph, write: Act) -> None:
    graph.store.branches.create("review", "main")
    expected = head(graph)
    graph.mutate(NOTE, value="elsewhere", branch="review")

    assert write(graph, expected).commit is not None


def test_a_fresh_branch_is_at_the_commit_it_was_made_from(graph: Graph) -> None:
    graph.store.branches.create("review", "main")

    assert graph.mutate(NOTE, value="x", branch="review", if_commit=head(graph)).commit is not None


def test_a_write_with_nothing_to_do_checks_its_condition_too(graph: Graph) -> None:
    old = head(graph)
    nothing = q('delete Person where name = "nobody"')
    assert graph.mutate(nothing, if_commit=old).commit is None
    graph.mutate(NOTE, value="x")

    with pytest.raises(PreconditionFailed):
        graph.mutate(nothing, if_commit=old)


@pytest.mark.parametrize("how", ["*", "", 'W/"{}"', '"{}"', "{},{}", "{}~1", "main", "{} "])
def test_only_one_plain_commit_id_is_a_condition(graph: Graph, how: str) -> None:
    before = state(graph)
    condition = how.format(head(graph), head(graph))

    acts: list[Callable[[], Receipt]] = [
        lambda: graph.mutate(NOTE, value="x", if_commit=condition),
        lambda: graph.load([thing("x")], mode="append", if_commit=condition),
        lambda: graph.mutate(NOTE, value="x", if_commit=condition, dry_run=True),
    ]
    for act in acts:
        with pytest.raises(InvalidRequest) as caught:
            act()
        assert caught.value.code == "bad_request"
    assert state(graph) == before


def test_an_id_that_no_commit_has_is_a_failed_condition(graph: Graph) -> None:
    with pytest.raises(PreconditionFailed):
        graph.mutate(NOTE, value="x", if_commit="0" * 26)
