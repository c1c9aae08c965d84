"""Renaming a branch: one instant for everybody, and no handle ever acts on a branch it did not mean."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from omnigraph.base.errors import (
    BadBranchName,
    BranchExists,
    BranchNotFound,
    GraphError,
    ReservedBranch,
    TagExists,
)
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.store import GraphStore
from tests.support.graphs import chain_of, persons, upsert_person
from tests.support.places import Place
from tests.support.stores import Once, again, check_error, nothing_written

pytestmark = pytest.mark.s3_when_full


@pytest.fixture
def renamed(store: GraphStore, rival: GraphStore) -> Callable[[], None]:
    """Both know `dev` by heart; calling this gives it the name `kept` and makes another `dev`."""
    store.branches.create("dev", "main")
    upsert_person(store, "old", branch="dev")
    upsert_person(rival, "old too", branch="dev")

    def act() -> None:
        store.branches.rename("dev", "kept")
        store.branches.create("dev", "main")

    return act


def names(store: GraphStore) -> list[str]:
    return [ref.name for ref in store.branches.list()]


def half_renamed(store: GraphStore) -> None:
    """Rename `dev` to `kept`, up to the point between the two steps."""
    with armed({"branch_rename.before": "raise"}), pytest.raises(FailpointHit):
        store.branches.rename("dev", "kept")


# -- what it does


def test_a_renamed_branch_is_the_same_branch_under_another_name(store: GraphStore, rival: GraphStore) -> None:
    made = store.branches.create("dev", "main")
    head = upsert_person(store, "x", branch="dev").commit_id

    ref = store.branches.rename("dev", " kept ")

    assert (ref.name, ref.incarnation, ref.created_us) == ("kept", made.incarnation, made.created_us)
    for one in (store, rival):
        assert names(one) == ["kept"]
        assert one.snapshot("kept").commit_id == head
        with pytest.raises(BranchNotFound):
            one.snapshot("dev")
    upsert_person(rival, "y", branch="kept")
    assert set(persons(store, "kept")) == {"a", "b", "x", "y"}


def test_a_rename_is_no_commit(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    before = chain_of(store, "dev")

    store.branches.rename("dev", "kept")

    assert chain_of(store, "kept") == before


def test_branches_forked_from_a_renamed_one_stay_and_protect_it(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.branches.create("leaf", "dev")

    store.branches.rename("dev", "kept")

    with pytest.raises(GraphError) as caught:
        store.branches.delete("kept")
    check_error(caught.value, "branch_has_descendants", "leaf")


def test_a_name_may_come_back(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.branches.rename("dev", "kept")
    store.branches.rename("kept", "dev")

    upsert_person(rival, "x", branch="dev")

    assert "x" in persons(store, "dev")
    assert names(store) == ["dev"]


def test_a_branch_forked_from_a_renamed_one_has_no_name_to_inherit(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.branches.rename("dev", "kept")

    store.branches.create("leaf", "kept")

    assert store.snapshot("kept").state.name == "kept"
    assert store.snapshot("leaf").state.name is None


# -- refusals


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("main", "trunk", ReservedBranch),
        ("dev", "main", ReservedBranch),
        ("dev", "__dev", ReservedBranch),
        ("dev", "a//b", BadBranchName),
        ("dev", "taken", BranchExists),
        ("dev", "dev", BranchExists),
        ("dev", "v1", TagExists),
        ("nope", "other", BranchNotFound),
    ],
)
def test_a_rename_that_cannot_be_is_refused_before_anything_is_written(
    place: Place, store: GraphStore, old: str, new: str, error: type[GraphError]
) -> None:
    store.branches.create("dev", "main")
    store.branches.create("taken", "main")
    store.tags.create("v1", store.snapshot().state)

    with nothing_written(place), pytest.raises(error):
        store.branches.rename(old, new)


def test_a_branch_whose_delete_was_interrupted_is_not_renamed(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    with armed({"branch_tombstone.before": "raise"}), pytest.raises(FailpointHit):
        store.branches.delete("dev")

    with pytest.raises(BranchNotFound) as caught:
        store.branches.rename("dev", "kept")
    assert "being deleted" in str(caught.value)


# -- handles that know the old name


def test_a_stale_handle_writes_to_the_new_holder_of_the_name(
    store: GraphStore, rival: GraphStore, renamed: Callable[[], None]
) -> None:
    renamed()

    upsert_person(rival, "new", branch="dev")

    assert set(persons(store, "dev")) == {"a", "b", "new"}
    assert set(persons(store, "kept")) == {"a", "b", "old", "old too"}


def test_a_stale_handle_reads_the_new_holder_of_the_name(
    rival: GraphStore, renamed: Callable[[], None]
) -> None:
    renamed()

    assert set(persons(rival, "dev")) == {"a", "b"}


@pytest.mark.parametrize("point", ["table_data.before", "publish.before"])
def test_a_writer_parked_through_rename_and_recreation_is_refused_and_lands_nowhere(
    store: GraphStore, rival: GraphStore, renamed: Callable[[], None], point: str
) -> None:
    with armed({point: Once(renamed)}), pytest.raises(BranchNotFound):
        upsert_person(rival, "lost", branch="dev")

    assert "lost" not in {**persons(store, "dev"), **persons(store, "kept")}


@pytest.mark.parametrize("point", ["branch_name.after", "branch_rename.before"])
def test_a_writer_that_began_in_the_middle_of_a_rename_lands_before_it_or_not_at_all(
    place: Place, store: GraphStore, rival: GraphStore, renamed: Callable[[], None], point: str
) -> None:
    """Its base is newer than the note on the chain; only the registry can tell it from a late one."""
    third = again(place)

    def write_in_the_middle() -> None:
        upsert_person(rival, "between", branch="dev")

    with armed({point: Once(write_in_the_middle)}):
        renamed()

    assert set(persons(third, "kept")) == {"a", "b", "old", "old too", "between"}
    assert set(persons(third, "dev")) == {"a", "b"}


def test_a_writer_with_a_base_from_the_middle_of_a_rename_does_not_land_after_it(
    store: GraphStore, rival: GraphStore, renamed: Callable[[], None]
) -> None:
    """The note was on the chain before the writer looked, so the chain alone would not stop it."""
    noted, go_on = threading.Event(), threading.Event()
    renamer = threading.Thread(target=renamed)

    def wait_for_the_writer() -> None:
        noted.set()
        assert go_on.wait(60)

    def finish_the_rename() -> None:
        go_on.set()
        renamer.join(60)

    with armed({"branch_rename.before": Once(wait_for_the_writer)}):
        renamer.start()
        assert noted.wait(60)
        with armed({"publish.before": Once(finish_the_rename)}), pytest.raises(BranchNotFound):
            upsert_person(rival, "late", branch="dev")

    assert names(store) == ["dev", "kept"]
    assert "late" not in {**persons(store, "dev"), **persons(store, "kept")}


# -- interrupted


def test_an_interrupted_rename_leaves_the_branch_under_its_old_name(place: Place, store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    half_renamed(store)

    for one in (store, again(place)):
        assert names(one) == ["dev"]
        assert "x" in persons(one, "dev")
        with pytest.raises(BranchNotFound):
            one.snapshot("kept")
        assert one.branches.head("dev")[1].name == "kept"


def test_reading_a_half_renamed_branch_writes_nothing(place: Place, store: GraphStore) -> None:
    store.branches.create("dev", "main")
    half_renamed(store)

    with nothing_written(place):
        assert set(persons(again(place), "dev")) == {"a", "b"}


def test_the_first_write_after_an_interrupted_rename_takes_it_back(place: Place, store: GraphStore) -> None:
    store.branches.create("dev", "main")
    half_renamed(store)

    upsert_person(again(place), "x", branch="dev")

    state = store.snapshot("dev").state
    assert state.name == "dev"
    assert "x" in persons(store, "dev")


def test_an_interrupted_rename_can_be_repeated_or_the_branch_deleted(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    half_renamed(store)
    store.branches.rename("dev", "kept")
    assert names(store) == ["kept"]

    store.branches.create("dev", "main")
    with armed({"branch_rename.before": "raise"}), pytest.raises(FailpointHit):
        store.branches.rename("dev", "other")
    store.branches.delete("dev")
    assert names(store) == ["kept"]


def test_the_name_that_an_interrupted_rename_meant_is_free(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    half_renamed(store)

    rival.branches.create("kept", "main")
    upsert_person(rival, "k", branch="kept")

    assert "k" not in persons(store, "dev")
    assert "k" in persons(store, "kept")


def test_two_renames_of_one_branch_at_once_give_it_one_name(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")

    def other() -> None:
        rival.branches.rename("dev", "theirs")

    with armed({"branch_rename.before": Once(other)}), pytest.raises(BranchNotFound):
        store.branches.rename("dev", "mine")

    assert names(store) == names(rival) == ["theirs"]
    upsert_person(store, "x", branch="theirs")
    assert "x" in persons(rival, "theirs")
