"""The past of a branch: its commits newest first, in pages; commits by id, position and time."""

from __future__ import annotations

import pytest

from omnigraph.base.errors import CommitNotFound, GraphError, HistoryReclaimed, InvalidRequest
from omnigraph.base.ids import minted_us, new_id
from omnigraph.storage.manifest.records import RECENT
from omnigraph.storage.store import GraphStore
from tests.support.graphs import build_history, chain_of, make_graph, upsert_person
from tests.support.places import Place
from tests.support.stores import again, tidy

pytestmark = pytest.mark.s3_when_full


def ids(store: GraphStore, branch: str = "main", **options: object) -> list[str]:
    page = store.history.page(store.snapshot(branch).state, **options)  # type: ignore[arg-type]
    return [commit.id for commit in page.commits]


def all_pages(store: GraphStore, branch: str, limit: int) -> list[str]:
    found: list[str] = []
    before: str | None = None
    while True:
        page = store.history.page(store.snapshot(branch).state, limit=limit, before=before)
        found += [commit.id for commit in page.commits]
        before = page.next
        if before is None:
            return found


def grown(store: GraphStore) -> list[str]:
    """Make main -> dev -> leaf with commits and control writes on each; return leaf's line, newest first."""
    line = chain_of(store)
    for branch, source in (("main", ""), ("dev", "main"), ("leaf", "dev")):
        if source:
            store.branches.create(branch, source)
        for number in range(3):
            line.append(str(upsert_person(store, f"{branch}{number}", branch=branch).commit_id))
            store.raise_floor(branch, 1)
        if source:
            upsert_person(store, f"{branch} goes on", branch=source)
    return line[::-1]


# -- listing


def test_a_branch_lists_its_own_commits_and_then_those_it_inherited(
    store: GraphStore, rival: GraphStore
) -> None:
    line = grown(store)

    assert ids(rival, "leaf", limit=1000) == line


def test_every_commit_of_a_listing_is_the_parent_of_the_one_above(store: GraphStore) -> None:
    grown(store)

    commits = store.history.page(store.snapshot("leaf").state).commits

    assert [commit.parent for commit in commits[:-1]] == [commit.id for commit in commits[1:]]
    assert commits[-1].parent is None


def test_a_fresh_branch_lists_what_it_inherited(store: GraphStore) -> None:
    store.branches.create("dev", "main")

    assert ids(store, "dev") == ids(store, "main")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_pages_put_together_are_the_whole_list(store: GraphStore, limit: int) -> None:
    line = grown(store)

    assert all_pages(store, "leaf", limit) == line


@pytest.mark.parametrize("depth", [RECENT - 3, RECENT - 2, RECENT - 1, RECENT, 2 * RECENT + 5])
def test_a_long_line_is_listed_whole_whatever_a_version_remembers(local_place: Place, depth: int) -> None:
    with make_graph(local_place.address, durability="os") as store:
        build_history(store, depth)
        with again(local_place) as cold:
            assert ids(cold, limit=1000) == chain_of(store)[::-1]
            assert all_pages(cold, "main", RECENT - 1) == chain_of(store)[::-1]


def test_a_page_costs_its_own_versions_and_few_more(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        build_history(store, 100)
    with again(local_place) as cold:
        head, before = cold.snapshot().state, cold.opener.opens
        cold.history.page(head, limit=10)
        assert cold.opener.opens - before <= 10
        before = cold.opener.opens
        cold.history.page(head, limit=90)
        assert cold.opener.opens - before <= 90


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_page_has_bounds(store: GraphStore, limit: int) -> None:
    with pytest.raises(InvalidRequest):
        store.history.page(store.snapshot().state, limit=limit)


def test_a_page_starts_only_at_a_commit_of_the_line(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    elsewhere = upsert_person(store, "x", branch="dev").commit_id

    for missing in (str(elsewhere), new_id()):
        with pytest.raises(CommitNotFound):
            store.history.page(store.snapshot().state, before=missing)


def test_a_listing_ends_at_the_floor(store: GraphStore) -> None:
    line = chain_of(store)
    for number in range(4):
        line.append(str(upsert_person(store, f"p{number}").commit_id))
    store.raise_floor("main", 4)

    assert ids(store) == line[:2:-1]
    assert all_pages(store, "main", 2) == line[:2:-1]


def test_the_commit_of_the_head_is_listed_though_its_own_version_is_below_the_floor(
    store: GraphStore,
) -> None:
    head = store.snapshot().commit_id
    for _ in range(3):
        store.raise_floor("main", store.snapshot().state.version)

    assert store.snapshot().state.floor > store.snapshot().state.commit.manifest_version
    assert ids(store) == [head]
    assert store.history.get(head)[1].head == head


def test_a_branch_lists_its_fork_though_the_floor_of_its_parent_has_passed_it(store: GraphStore) -> None:
    fork = store.snapshot().commit_id
    store.branches.create("dev", "main")
    own = upsert_person(store, "x", branch="dev").commit_id
    for number in range(3):
        upsert_person(store, f"m{number}")
    store.raise_floor("main", 5)

    assert ids(store, "dev") == [own, fork]


# -- by id


def test_a_commit_is_found_whichever_branch_made_it(store: GraphStore, rival: GraphStore) -> None:
    for commit_id in grown(store):
        assert rival.history.get(commit_id)[1].head == commit_id


def test_a_commit_below_the_floor_is_reclaimed_and_one_that_never_was_is_not_found(
    store: GraphStore, rival: GraphStore
) -> None:
    line = chain_of(store)
    never = new_id()
    for number in range(RECENT + 2):
        line.append(str(upsert_person(store, f"p{number}").commit_id))
    store.raise_floor("main", len(line) - 1)

    for commit_id in (line[0], line[1], line[5], line[-3]):
        with pytest.raises(HistoryReclaimed) as caught:
            rival.history.get(commit_id)
        assert caught.value.remedy
    for missing in (never, new_id()):
        with pytest.raises(CommitNotFound):
            rival.history.get(missing)


# -- by position


def test_ancestors_are_counted_along_first_parents_into_the_parent_branch(store: GraphStore) -> None:
    line = grown(store)
    head = store.snapshot("leaf").state

    found = [store.history.ancestor(head, steps).head for steps in range(len(line))]

    assert found == line


def test_there_is_nothing_before_genesis(store: GraphStore) -> None:
    with pytest.raises(CommitNotFound):
        store.history.ancestor(store.snapshot().state, 2)


def test_an_ancestor_below_the_floor_is_reclaimed(store: GraphStore) -> None:
    upsert_person(store, "x")
    store.raise_floor("main", 2)

    assert store.history.ancestor(store.snapshot().state, 1).version == 2
    with pytest.raises(HistoryReclaimed):
        store.history.ancestor(store.snapshot().state, 2)


# -- by time


def test_the_state_at_a_time_is_the_last_one_then(store: GraphStore, rival: GraphStore) -> None:
    line = grown(store)[::-1]
    head = rival.snapshot("leaf").state
    for number, commit_id in enumerate(line):
        when = minted_us(commit_id)
        last = [one for one in line if minted_us(one) <= when][-1]  # several may be of one millisecond
        assert rival.history.at_time(head, when).head == last, number
        assert rival.history.at_time(head, when + 999).head == last
    assert rival.history.at_time(head, minted_us(line[-1]) + 10**9).head == line[-1]


def test_maintenance_is_part_of_the_state_at_a_time(store: GraphStore) -> None:
    upsert_person(store, "x")
    tidy(store)
    head = store.snapshot().state

    assert store.history.at_time(head, minted_us(head.head)) == head


def test_before_the_first_commit_there_is_no_state(store: GraphStore) -> None:
    store.branches.create("dev", "main")
    first = minted_us(chain_of(store)[0])
    for branch in ("main", "dev"):
        with pytest.raises(CommitNotFound) as caught:
            store.history.at_time(store.snapshot(branch).state, first - 1)
        assert "younger" in str(caught.value)


def test_a_time_below_the_floor_is_reclaimed(place: Place, store: GraphStore) -> None:
    first = minted_us(chain_of(store)[0])
    upsert_person(store, "x")
    store.raise_floor("main", 3)

    with again(place) as cold, pytest.raises(GraphError) as caught:
        cold.history.at_time(cold.snapshot().state, first)
    assert caught.value.code == "history_reclaimed"
