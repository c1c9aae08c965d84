"""Branches: create, list, write, delete and make anew, as two processes see it."""

from __future__ import annotations

import pytest

from omnigraph.base.errors import (
    BranchExists,
    BranchHasDescendants,
    BranchNotFound,
    CommitNotFound,
    HistoryReclaimed,
)
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DropColumn, Upsert
from tests.support.graphs import KNOWS, PERSON, chain_of, knows, make_graph, persons, upsert_person, write
from tests.support.places import Place
from tests.support.stores import STAGING, Hits, Once, again, check_error, everything, nothing_written

pytestmark = pytest.mark.s3_when_full


def names(store: GraphStore) -> list[str]:
    return [ref.name for ref in store.branches.list()]


# -- create


def test_a_new_branch_reads_as_its_source_and_inherits_its_head(store: GraphStore, rival: GraphStore) -> None:
    main = store.snapshot()

    store.branches.create("dev", "main")

    dev = rival.snapshot("dev")
    assert dev.commit_id == main.commit_id
    assert (dev.state.pins, dev.schema) == (main.state.pins, main.schema)
    assert persons(rival, "dev") == persons(rival, "main")


def test_creating_a_branch_makes_no_commit_and_touches_no_table(place: Place, store: GraphStore) -> None:
    before, head, hits = everything(place), store.snapshot(), Hits()

    with armed(hits.at(*STAGING)):
        store.branches.create("dev", "main")

    made = {key for key in everything(place).keys() - before.keys() if not key.endswith("/")}
    assert {key.split("/")[0] for key in made} == {"__manifest", "__refs"}
    assert all(key.startswith(("__manifest/tree/", "__refs/")) for key in made)
    assert hits.total == 0
    assert store.snapshot() == head


def test_the_first_write_on_a_branch_is_a_write_like_any_other(place: Place, store: GraphStore) -> None:
    """W-03, PT-05: no fork of the tables, no objects that a later write would not make."""
    store.branches.create("dev", "main")
    kinds = []
    for number in range(2):
        before = everything(place).keys()
        upsert_person(store, f"x{number}", branch="dev")
        made = sorted(key for key in everything(place).keys() - before if not key.endswith("/"))
        kinds.append([key.rsplit("/", 1)[0] for key in made])

    assert kinds[0] == kinds[1]


def test_a_branch_may_start_at_an_older_version(store: GraphStore) -> None:
    old = store.snapshot()
    upsert_person(store, "c")

    store.branches.create("then", "main", old.state)

    assert set(persons(store, "then")) == {"a", "b"}
    assert store.snapshot("then").commit_id == old.commit_id
    receipt = upsert_person(store, "d", branch="then")
    assert receipt.commit is not None
    assert receipt.commit.parent == old.commit_id


def test_a_branch_cannot_start_at_a_version_whose_files_may_be_gone(place: Place, store: GraphStore) -> None:
    """X-41: the state was captured before retention raised the floor past it."""
    old = store.snapshot(at=1)
    store.raise_floor("main", 2)

    with pytest.raises(HistoryReclaimed):
        store.branches.create("then", "main", old.state)
    assert names(again(place)) == []


def test_a_branch_of_a_branch_starts_from_that_one(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    upsert_person(store, "m", branch="main")

    store.branches.create("fix", "dev")

    assert set(persons(store, "fix")) == {"a", "b", "x"}


def test_a_name_that_is_taken_is_refused(place: Place, store: GraphStore, rival: GraphStore) -> None:
    rival.branches.list()
    store.branches.create("dev", "main")

    for one in (store, rival):
        with pytest.raises(BranchExists) as caught:
            one.branches.create("dev", "main")
        check_error(caught.value, "branch_exists", "dev")
    assert names(rival) == ["dev"]


# -- list


def test_branches_are_listed_by_name_whoever_made_them(store: GraphStore, rival: GraphStore) -> None:
    for number, name in enumerate(["m", "b", "z", "a"]):
        (store, rival)[number % 2].branches.create(name, "main")

    assert names(store) == names(rival) == ["a", "b", "m", "z"]


# -- isolation


def test_what_is_written_on_one_branch_is_seen_on_no_other(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    store.branches.create("ops", "main")
    before = {name: rival.snapshot(name) for name in ("main", "ops")}

    upsert_person(store, "x", branch="dev")
    write(store, {KNOWS: Upsert(knows({"e": ("a", "b")}))}, "dev")
    write(store, {PERSON: DropColumn("age")}, "ops")

    assert rival.snapshot("main") == before["main"]
    assert set(persons(rival, "dev")) == {"a", "b", "x"}
    assert rival.table(rival.snapshot("ops"), PERSON).schema.names == ["id", "name"]
    assert rival.table(rival.snapshot("main"), KNOWS).count_rows() == 0


def test_each_branch_is_one_line_from_the_commit_it_was_forked_at(store: GraphStore) -> None:
    fork = store.snapshot().commit_id
    store.branches.create("dev", "main")
    upsert_person(store, "m")
    for number in range(3):
        upsert_person(store, f"x{number}", branch="dev")

    line = chain_of(store, "dev")
    assert line[0] == fork
    assert len(line) == 4
    assert not set(line[1:]) & set(chain_of(store))


def test_a_commit_is_found_from_any_handle_whichever_branch_made_it(
    store: GraphStore, rival: GraphStore
) -> None:
    store.branches.create("dev", "main")
    main, dev = upsert_person(store, "m").commit_id, upsert_person(store, "x", branch="dev").commit_id

    for asked_on in ("main", "dev"):
        found = rival.snapshot(asked_on, at=dev)
        assert (found.branch, found.commit_id) == ("dev", dev)
        found = rival.snapshot(asked_on, at=main)
        assert (found.branch, found.commit_id) == ("main", main)


def test_the_commit_a_branch_was_forked_at_reads_the_same_from_both(store: GraphStore) -> None:
    fork = store.snapshot()
    store.branches.create("dev", "main")
    upsert_person(store, "m")
    upsert_person(store, "x", branch="dev")

    for asked_on in ("main", "dev"):
        assert store.snapshot(asked_on, at=fork.commit_id).state.pins == fork.state.pins


# -- delete


def test_a_deleted_branch_is_gone_for_everybody_at_once(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(rival, "x", branch="dev")

    store.branches.delete("dev")

    for use in (
        lambda: rival.snapshot("dev"),
        lambda: rival.snapshot("dev", at=1),
        lambda: upsert_person(rival, "y", branch="dev"),
        lambda: rival.branches.create("fix", "dev"),
        lambda: rival.branches.delete("dev"),
        lambda: rival.raise_floor("dev", 1),
    ):
        with pytest.raises(BranchNotFound) as caught:
            use()
        check_error(caught.value, "branch_not_found", "dev")
    assert names(rival) == []


def test_deleting_writes_no_commit_and_leaves_the_others_alone(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    main = rival.snapshot()

    store.branches.delete("dev")

    assert rival.snapshot() == main
    assert upsert_person(rival, "m").attempts == 1


def test_the_commits_of_a_deleted_branch_are_found_no_more(store: GraphStore, rival: GraphStore) -> None:
    store.branches.create("dev", "main")
    commit = upsert_person(store, "x", branch="dev").commit_id
    rival.snapshot(at=commit)
    store.branches.delete("dev")

    for one in (store, rival):
        with pytest.raises(CommitNotFound):
            one.snapshot(at=commit)


def test_a_reader_that_holds_a_snapshot_of_a_deleted_branch_finishes(
    store: GraphStore, rival: GraphStore
) -> None:
    """B-19: also when the name is used again meanwhile."""
    store.branches.create("dev", "main")
    upsert_person(store, "x", branch="dev")
    held = rival.snapshot("dev")
    store.branches.delete("dev")
    store.branches.create("dev", "main")
    upsert_person(store, "y", branch="dev")

    assert set(rival.table(held, PERSON).to_table()["id"].to_pylist()) == {"a", "b", "x"}


def test_a_branch_with_descendants_is_kept_until_they_are_gone(place: Place, store: GraphStore) -> None:
    """B-11: directly or through a chain; from the leaves inwards it always works."""
    for name, source in (("a", "main"), ("b", "a"), ("c", "b"), ("d", "a")):
        store.branches.create(name, source)

    with nothing_written(place), pytest.raises(BranchHasDescendants) as caught:
        again(place).branches.delete("a")
    check_error(caught.value, "branch_has_descendants", "a", "b, c, d")
    assert caught.value.fields == {"branch": "a", "descendants": ["b", "c", "d"]}

    for name in ("c", "d", "b", "a"):
        store.branches.delete(name)
    assert names(again(place)) == []


# -- made anew


def test_a_name_is_free_at_once_and_the_new_branch_shares_nothing_with_the_old(
    store: GraphStore, rival: GraphStore
) -> None:
    """B-13: at equal version numbers, for a process that knew the old one."""
    first = store.branches.create("dev", "main")
    upsert_person(store, "old", branch="dev")
    assert set(persons(rival, "dev")) == {"a", "b", "old"}
    store.branches.delete("dev")

    second = store.branches.create("dev", "main")
    upsert_person(store, "new", branch="dev")

    assert first.incarnation != second.incarnation
    assert rival.snapshot("dev").state.version == 2
    assert set(persons(rival, "dev")) == {"a", "b", "new"}
    assert set(persons(rival, "dev", at=2)) == {"a", "b", "new"}
    assert upsert_person(rival, "more", branch="dev").attempts == 1
    assert set(persons(store, "dev")) == {"a", "b", "new", "more"}


@pytest.mark.parametrize("anew", [False, True], ids=["deleted", "deleted and made anew"])
def test_a_write_under_way_never_lands_on_a_branch_that_was_deleted(
    store: GraphStore, rival: GraphStore, anew: bool
) -> None:
    """X-28, X-29."""
    store.branches.create("dev", "main")

    def meanwhile() -> None:
        rival.branches.delete("dev")
        if anew:
            rival.branches.create("dev", "main")

    with armed({"publish.before": Once(meanwhile)}), pytest.raises(BranchNotFound) as caught:
        upsert_person(store, "x", branch="dev")

    check_error(caught.value, "branch_not_found", "dev")
    assert ("made anew" in str(caught.value)) == anew
    if anew:
        assert set(persons(rival, "dev")) == {"a", "b"}
        assert upsert_person(store, "x", branch="dev").attempts == 1


def test_a_conditional_write_is_not_fooled_by_a_branch_made_anew_at_the_same_head(
    store: GraphStore, rival: GraphStore
) -> None:
    """The new branch has the very head that the caller expects, but it is another branch."""
    store.branches.create("dev", "main")
    head = store.snapshot("dev").commit_id

    def meanwhile() -> None:
        rival.branches.delete("dev")
        rival.branches.create("dev", "main")
        assert rival.snapshot("dev").commit_id == head

    with armed({"publish.before": Once(meanwhile)}), pytest.raises(BranchNotFound):
        write(store, {KNOWS: Upsert(knows({"e": ("a", "b")}))}, "dev", expected_head=head)


# -- cost


@pytest.mark.s3
def test_a_name_seen_before_costs_one_probe(s3_place: Place) -> None:
    with make_graph(s3_place.address, **s3_place.kwargs) as store:
        store.branches.create("dev", "main")
        opens = store.opener.opens
        for _ in range(5):
            store.snapshot("dev")

        assert store.opener.opens == opens
