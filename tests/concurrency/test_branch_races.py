"""Processes that create and delete branches at once: names have one owner, and no branch is half there."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.storage.store import GraphStore
from tests.support import workers
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.processes import Outcome, run_processes

pytestmark = pytest.mark.s3_when_full

PROCESSES = 4


def names(store: GraphStore) -> list[str]:
    """Return the names of the live branches, having read each of them."""
    found = [ref.name for ref in store.branches.list()]
    for name in found:
        persons(store, name)
    return found


def values(outcomes: list[Outcome[Any]]) -> list[Any]:
    """Return what the processes returned; none may have failed."""
    assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
    return [outcome.value for outcome in outcomes]


def test_of_processes_creating_one_branch_exactly_one_wins(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        jobs = [(place.address, place.options, "review")] * PROCESSES

        results = values(run_processes(workers.create_branch, jobs))

        assert sorted(results) == ["branch_exists"] * (PROCESSES - 1) + ["ok"]
        assert names(store) == ["review"]


def test_processes_creating_different_branches_all_succeed(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        wanted = [f"review {number}" for number in range(PROCESSES)]

        results = values(
            run_processes(workers.create_branch, [(place.address, place.options, name) for name in wanted])
        )

        assert results == ["ok"] * PROCESSES
        assert names(store) == wanted


def test_of_processes_deleting_one_branch_exactly_one_succeeds(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        store.branches.create("review", "main")
        jobs = [(place.address, place.options, "review")] * PROCESSES

        results = values(run_processes(workers.delete_branch, jobs))

        assert sorted(results) == ["branch_not_found"] * (PROCESSES - 1) + ["ok"]
        assert names(store) == []


def test_names_where_one_is_a_folder_of_the_other_are_created_side_by_side(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        wanted = ["a", "a/b", "A", "a/b/c"]

        results = values(
            run_processes(workers.create_branch, [(place.address, place.options, name) for name in wanted])
        )

        assert results == ["ok"] * len(wanted)
        assert names(store) == sorted(wanted)


def test_deleting_a_branch_leaves_the_one_whose_name_it_begins_untouched(place: Place) -> None:
    with (
        make_graph(place.address, **place.kwargs) as store,
        GraphStore.open(place.address, **place.kwargs) as other,
    ):
        store.branches.create("a", "main")
        store.branches.create("a/b", "main")

        upsert_person(other, "ada", branch="a/b")
        store.branches.delete("a")
        upsert_person(other, "bob", branch="a/b")

        assert names(store) == ["a/b"]
        assert sorted(persons(store, "a/b")) == ["ada", "bob"]


def test_delete_against_fork_leaves_the_child_with_its_parent_or_neither(place: Place) -> None:
    rounds = 2
    with make_graph(place.address, **place.kwargs) as store:
        wanted = [f"b{number}" for number in range(rounds)]
        for name in wanted:
            store.branches.create(name, "main")
        jobs = [(role, place.address, place.options, name) for name in wanted for role in ("delete", "fork")]

        results = values(run_processes(workers.branch_race, jobs))

        live = names(store)
        for number, name in enumerate(wanted):
            outcome = tuple(results[2 * number : 2 * number + 2])
            if outcome == ("ok", "branch_not_found"):
                assert not {name, f"child of {name}"} & set(live)
            else:
                assert outcome == ("branch_has_descendants", "ok")
                assert {name, f"child of {name}"} <= set(live)


def test_writes_to_a_branch_that_is_deleted_and_made_anew_end_with_the_old_branch(place: Place) -> None:
    with make_graph(place.address, **place.kwargs) as store:
        old = store.branches.create("review", "main")
        jobs = [(role, place.address, place.options, "review") for role in ("writer", "writer", "deleter")]

        *writers, new = values(run_processes(workers.live_and_die, jobs))

        assert [code for _, code in writers] == ["branch_not_found"] * 2
        assert sum(len(rows) for rows, _ in writers) > 0
        fresh = store.snapshot("review")
        assert fresh.state.line.incarnation == new != old.incarnation
        assert persons(store, "review") == {}, "no old write lands on the new branch"
        assert chain_of(store, "review") == [store.snapshot().commit_id]
