"""One branch step in the middle of another, at every place where that could matter (X-26 to X-30).

Two stores stand for two processes: they share nothing but storage. A failpoint lets the second act exactly
between two steps of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from omnigraph.base.errors import BranchExists, BranchHasDescendants, BranchNotFound
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

DELETE_POINTS = [
    f"{step}.{side}"
    for step in ("branch_mark", "branch_tombstone", "branch_unregister")
    for side in ("before", "after")
]
CREATE_POINTS = ["branch_chain.before", "branch_chain.after", "branch_register.before"]


@pytest.fixture
def mine(place: Place) -> Iterator[GraphStore]:
    """A graph with a branch `review`."""
    with make_graph(place.address, **place.kwargs) as store:
        store.branches.create("review", "main")
        yield store


@pytest.fixture
def theirs(mine: GraphStore, place: Place) -> Iterator[GraphStore]:
    """The same graph as another process sees it."""
    with GraphStore.open(place.address, **place.kwargs) as store:
        yield store


def names(store: GraphStore) -> list[str]:
    """Return the names of the live branches."""
    return [ref.name for ref in store.branches.list()]


def quietly(act: Callable[[], object], *errors: type[Exception]) -> Callable[[], None]:
    """Return an action that may end in one of these errors."""

    def run() -> None:
        try:
            act()
        except errors:
            return

    return once(run)


# -- a writer, and the end of its branch -----------------------------------------------------------


def test_writer_parked_while_its_branch_is_deleted_is_refused(mine: GraphStore, theirs: GraphStore) -> None:
    parked = armed({"publish.before": once(lambda: theirs.branches.delete("review"))})
    with parked, pytest.raises(BranchNotFound):
        upsert_person(mine, "ada", branch="review")

    assert names(mine) == []


@pytest.mark.parametrize("commits", [0, 3])
def test_writer_parked_while_its_branch_is_made_anew_is_refused_and_lands_nowhere(
    mine: GraphStore, theirs: GraphStore, commits: int
) -> None:
    """With 0 commits both lifetimes are at the same version number, which must not hide the change."""
    for number in range(commits):
        upsert_person(mine, f"old {number}", branch="review")

    def make_anew() -> None:
        theirs.branches.delete("review")
        theirs.branches.create("review", "main")

    with armed({"publish.before": once(make_anew)}), pytest.raises(BranchNotFound):
        upsert_person(mine, "ada", branch="review")

    assert persons(theirs, "review") == persons(mine, "review") == {}
    assert len(chain_of(mine, "review")) == 1


@pytest.mark.parametrize("point", DELETE_POINTS)
def test_write_during_a_delete_is_on_the_branch_or_refused(
    mine: GraphStore, theirs: GraphStore, point: str
) -> None:
    """Before the tombstone the branch is alive; from the tombstone on it is gone."""
    write = quietly(lambda: upsert_person(theirs, "ada", branch="review"), BranchNotFound)

    with armed({point: write}):
        mine.branches.delete("review")

    assert names(mine) == names(theirs) == []
    with pytest.raises(BranchNotFound):
        upsert_person(theirs, "bob", branch="review")


def test_warm_reader_of_a_branch_that_was_made_anew_sees_the_new_one(
    mine: GraphStore, theirs: GraphStore
) -> None:
    upsert_person(mine, "old", branch="review")
    assert list(persons(theirs, "review")) == ["old"]

    mine.branches.delete("review")
    mine.branches.create("review", "main")
    upsert_person(mine, "new", branch="review")  # both lifetimes are at the same version number

    assert list(persons(theirs, "review")) == ["new"]


def test_reader_that_holds_a_snapshot_of_a_deleted_branch_reads_it_to_the_end(
    mine: GraphStore, theirs: GraphStore
) -> None:
    upsert_person(mine, "ada", branch="review")
    held = theirs.snapshot("review")

    mine.branches.delete("review")
    mine.branches.create("review", "main")

    assert theirs.table(held, "t-person").to_table()["id"].to_pylist() == ["ada"]


# -- two deletes, delete and create ----------------------------------------------------------------


@pytest.mark.parametrize("point", DELETE_POINTS)
def test_of_two_overlapping_deletes_one_succeeds(mine: GraphStore, theirs: GraphStore, point: str) -> None:
    results: list[str] = []

    def delete(store: GraphStore) -> None:
        try:
            store.branches.delete("review")
            results.append("ok")
        except BranchNotFound:
            results.append("not found")

    with armed({point: once(lambda: delete(theirs))}):
        delete(mine)

    assert sorted(results) == ["not found", "ok"]
    assert names(mine) == names(theirs) == []


@pytest.mark.parametrize("point", DELETE_POINTS)
def test_recreating_a_name_while_its_delete_is_under_way_leaves_a_whole_branch_or_the_old_error(
    mine: GraphStore, theirs: GraphStore, point: str
) -> None:
    upsert_person(mine, "old", branch="review")
    made: list[str] = []

    def recreate() -> None:
        made.append(theirs.branches.create("review", "main").incarnation)

    with armed({point: quietly(recreate, BranchExists)}):
        mine.branches.delete("review")

    assert names(mine) == names(theirs) == ["review"] * len(made)
    for incarnation in made:
        assert mine.snapshot("review").state.line.incarnation == incarnation
        assert persons(mine, "review") == persons(theirs, "review") == {}
    if not made:
        theirs.branches.create("review", "main")


def test_store_that_saw_a_delete_under_way_can_delete_the_branch_that_came_after(
    mine: GraphStore, theirs: GraphStore
) -> None:
    with armed({"branch_tombstone.before": once(lambda: theirs.branches.list())}):
        mine.branches.delete("review")
    mine.branches.create("review", "main")

    theirs.branches.delete("review")

    assert names(mine) == []


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_of_two_overlapping_creates_of_one_name_one_succeeds(
    mine: GraphStore, theirs: GraphStore, point: str
) -> None:
    parked = armed({point: once(lambda: theirs.branches.create("fresh", "main"))})
    with parked, pytest.raises(BranchExists):
        mine.branches.create("fresh", "main")

    assert names(mine) == names(theirs) == ["fresh", "review"]


# -- parents and children --------------------------------------------------------------------------


@pytest.mark.parametrize("point", DELETE_POINTS)
def test_fork_during_the_delete_of_its_parent_never_leaves_an_orphan(
    mine: GraphStore, theirs: GraphStore, point: str
) -> None:
    forked = quietly(lambda: theirs.branches.create("child", "review"), BranchNotFound)

    try:
        with armed({point: forked}):
            mine.branches.delete("review")
    except BranchHasDescendants:
        assert names(mine) == ["child", "review"]
    else:
        assert names(mine) == []


@pytest.mark.parametrize("point", CREATE_POINTS)
def test_delete_of_the_parent_during_a_fork_never_leaves_an_orphan(
    mine: GraphStore, theirs: GraphStore, point: str
) -> None:
    parked = armed({point: once(lambda: theirs.branches.delete("review"))})
    with parked, pytest.raises(BranchNotFound):
        mine.branches.create("child", "review")

    assert names(mine) == names(theirs) == []


def test_parent_can_be_deleted_as_soon_as_another_process_has_deleted_its_last_child(
    mine: GraphStore, theirs: GraphStore
) -> None:
    """Leaf first always works, however old the list is that a store remembers."""
    mine.branches.create("child", "review")
    theirs.branches.delete("child")

    mine.branches.delete("review")

    assert names(mine) == names(theirs) == []


def test_parent_of_a_branch_that_another_process_forked_cannot_be_deleted(
    mine: GraphStore, theirs: GraphStore
) -> None:
    assert names(mine) == ["review"]
    theirs.branches.create("child", "review")

    with pytest.raises(BranchHasDescendants) as refused:
        mine.branches.delete("review")

    assert refused.value.fields["descendants"] == ["child"]
