"""Branches: what an interrupted create or delete leaves behind, and how the next operation takes it up.

`manifest/branches.py` documents these states: a chain that nothing names; a marked branch, still complete;
a tombstoned one whose name is still registered, which counts as absent.
"""

from __future__ import annotations

import pytest

from omnigraph.base.errors import BranchExists, BranchHasDescendants, BranchNotFound
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.store import GraphStore
from tests.support.graphs import persons, upsert_person
from tests.support.places import Place
from tests.support.stores import Once, again, check_error

pytestmark = pytest.mark.s3_when_full


def names(store: GraphStore) -> list[str]:
    return [ref.name for ref in store.branches.list()]


def stop_create(store: GraphStore, at: str) -> None:
    with armed({at: "raise"}), pytest.raises(FailpointHit):
        store.branches.create("dev", "main")


def stop_delete(store: GraphStore, at: str) -> None:
    with armed({at: "raise"}), pytest.raises(FailpointHit):
        store.branches.delete("dev")


@pytest.fixture(
    params=["local, same process", "local, another", pytest.param("s3, another", marks=pytest.mark.s3)]
)
def where(request: pytest.FixtureRequest) -> str:
    """On which store, and who comes after the interruption: the process it happened in, or a new one."""
    return str(request.param)


@pytest.fixture
def place(request: pytest.FixtureRequest, where: str) -> Place:
    found: Place = request.getfixturevalue("s3_place" if where.startswith("s3") else "local_place")
    return found


@pytest.fixture
def after(place: Place, store: GraphStore, where: str) -> GraphStore:
    return again(place) if where.endswith("another") else store


# -- create


@pytest.mark.parametrize("at", ["branch_chain.before", "branch_chain.after", "branch_register.before"])
def test_a_create_stopped_before_it_is_registered_leaves_the_name_absent_and_free(
    store: GraphStore, after: GraphStore, at: str
) -> None:
    stop_create(store, at)

    assert names(after) == []
    with pytest.raises(BranchNotFound):
        after.snapshot("dev")
    after.branches.create("dev", "main")
    upsert_person(after, "x", branch="dev")
    assert set(persons(after, "dev")) == {"a", "b", "x"}


def test_a_create_stopped_after_it_is_registered_leaves_a_whole_branch(
    store: GraphStore, after: GraphStore
) -> None:
    stop_create(store, "branch_register.after")

    assert names(after) == ["dev"]
    upsert_person(after, "x", branch="dev")
    assert set(persons(after, "dev")) == {"a", "b", "x"}
    with pytest.raises(BranchExists):
        after.branches.create("dev", "main")


# -- delete, stopped after the mark


@pytest.fixture
def marked(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    stop_delete(store, "branch_mark.after")


@pytest.mark.usefixtures("marked")
def test_a_branch_whose_delete_stopped_at_the_mark_is_complete(after: GraphStore) -> None:
    assert names(after) == ["dev"]
    assert set(persons(after, "dev")) == {"a", "b", "x"}
    assert upsert_person(after, "y", branch="dev").attempts == 1


@pytest.mark.usefixtures("marked")
def test_a_branch_whose_delete_stopped_at_the_mark_cannot_be_forked_and_the_error_says_why(
    after: GraphStore,
) -> None:
    with pytest.raises(BranchNotFound) as caught:
        after.branches.create("fix", "dev")

    check_error(caught.value, "branch_not_found", "dev", "being deleted", "delete the branch again")
    assert names(after) == ["dev"]


@pytest.mark.usefixtures("marked")
def test_a_branch_whose_delete_stopped_at_the_mark_still_holds_its_name(after: GraphStore) -> None:
    with pytest.raises(BranchExists):
        after.branches.create("dev", "main")


@pytest.mark.usefixtures("marked")
def test_a_delete_that_stopped_at_the_mark_can_be_finished(place: Place, after: GraphStore) -> None:
    after.branches.delete("dev")

    assert names(again(place)) == []
    after.branches.create("dev", "main")
    assert set(persons(again(place), "dev")) == {"a", "b"}


# -- delete, stopped after the tombstone


@pytest.fixture(params=["branch_tombstone.after", "branch_unregister.before"])
def tombstoned(request: pytest.FixtureRequest, store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    stop_delete(store, request.param)


@pytest.mark.usefixtures("tombstoned")
def test_a_branch_whose_delete_stopped_at_the_tombstone_is_gone(after: GraphStore) -> None:
    assert names(after) == []
    for use in (
        lambda: after.snapshot("dev"),
        lambda: upsert_person(after, "y", branch="dev"),
        lambda: after.branches.create("fix", "dev"),
    ):
        with pytest.raises(BranchNotFound):
            use()


@pytest.mark.usefixtures("tombstoned")
def test_the_name_of_a_branch_whose_delete_stopped_at_the_tombstone_is_free(after: GraphStore) -> None:
    after.branches.create("dev", "main")

    assert names(after) == ["dev"]
    upsert_person(after, "new", branch="dev")
    assert set(persons(after, "dev")) == {"a", "b", "new"}


@pytest.mark.usefixtures("tombstoned")
def test_deleting_again_after_the_tombstone_finishes_the_job_and_says_that_it_was_gone(
    place: Place, after: GraphStore
) -> None:
    with pytest.raises(BranchNotFound):
        after.branches.delete("dev")

    assert again(place)._refs.latest().branches == ()


def test_a_branch_that_was_forked_from_one_that_counts_as_absent_can_still_be_deleted(
    store: GraphStore, rival: GraphStore
) -> None:
    store.branches.create("other", "main")
    store.branches.create("dev", "main")
    stop_delete(store, "branch_tombstone.after")

    rival.branches.delete("other")

    assert names(rival) == []


def test_a_half_deleted_child_does_not_keep_its_parent_alive(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("parent", "main")
    store.branches.create("dev", "parent")
    stop_delete(store, "branch_tombstone.after")

    rival.branches.delete("parent")

    assert names(rival) == []


def test_a_marked_child_does_keep_its_parent_alive(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("parent", "main")
    store.branches.create("dev", "parent")
    stop_delete(store, "branch_mark.after")

    with pytest.raises(BranchHasDescendants):
        rival.branches.delete("parent")


# -- a fork against a delete


@pytest.mark.parametrize("point", ["branch_mark.before", "branch_mark.after", "branch_tombstone.after"])
def test_a_fork_during_the_delete_of_its_source_exists_with_it_or_not_at_all(
    store: GraphStore, rival: GraphStore, point: str
) -> None:
    """X-30: the child exists and the delete is refused, or the delete wins and the fork is refused."""
    store.branches.create("dev", "main")
    rival.branches.list()
    outcome: list[str] = []

    def fork() -> None:
        try:
            rival.branches.create("child", "dev")
            outcome.append("forked")
        except BranchNotFound:
            outcome.append("refused")

    with armed({point: Once(fork)}):
        try:
            store.branches.delete("dev")
            outcome.append("deleted")
        except BranchHasDescendants:
            outcome.append("kept")

    assert outcome in (["forked", "kept"], ["refused", "deleted"])
    assert names(rival) == (["child", "dev"] if "forked" in outcome else [])


@pytest.mark.parametrize("point", ["branch_chain.before", "branch_chain.after", "branch_register.before"])
def test_a_delete_during_a_fork_of_its_branch_wins_or_is_refused(
    store: GraphStore, rival: GraphStore, point: str
) -> None:
    store.branches.create("dev", "main")
    rival.branches.list()
    with armed({point: Once(lambda: rival.branches.delete("dev"))}), pytest.raises(BranchNotFound):
        store.branches.create("child", "dev")

    assert names(rival) == names(store) == []
