"""Commits by id: found on whatever branch made them, in any order of minting, without walking the history."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest

from omnigraph.base.errors import CommitNotFound
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import RECENT
from omnigraph.storage.store import GraphStore
from tests.support.graphs import build_history, chain_of, make_graph, upsert_person
from tests.support.places import Place
from tests.support.stores import Once, again, tidy


def late_writer(store: GraphStore, rival: GraphStore, behind: int) -> str:
    """Publish a commit whose id was minted before those of `behind` others that came first."""
    with armed({"publish.before": Once(lambda: build_history(rival, behind, prefix=f"r{behind}-"))}):
        return str(upsert_person(store, f"late{behind}").commit_id)


@pytest.mark.parametrize("behind", [1, 5, RECENT + 8])
def test_every_commit_is_found_though_some_were_published_late(local_place: Place, behind: int) -> None:
    with make_graph(local_place.address, durability="os") as store, again(local_place) as rival:
        build_history(store, 3)
        late = late_writer(store, rival, behind)
        build_history(store, 3, prefix="after")
        ids = chain_of(store)
        assert ids != sorted(ids), "one of them really came late"
        assert late in ids

        with again(local_place) as cold:
            for version, commit in enumerate(ids, start=1):
                found = cold.snapshot(at=commit)
                assert (found.commit_id, found.state.version) == (commit, version)


def test_every_commit_is_found_between_control_writes_and_maintenance(
    store: GraphStore, place: Place
) -> None:
    for number in range(4):
        upsert_person(store, f"p{number}")
        tidy(store)
        store.raise_floor("main", number + 1)
    head = store.snapshot().state

    with again(place) as cold:
        for version in range(head.floor, head.version + 1):
            commit = cold.snapshot(at=version).commit_id
            assert cold.snapshot(at=commit).state.pins == cold.snapshot(at=version).state.pins


def opens(store: GraphStore, commit: str) -> int:
    """Return how many datasets a look-up opens."""
    before = store.opener.opens
    with suppress(CommitNotFound):
        store.snapshot(at=commit)
    return store.opener.opens - before


def test_finding_a_commit_does_not_walk_the_history(local_place: Place) -> None:
    depth = 150
    with make_graph(local_place.address, durability="os") as store:
        build_history(store, 3)
        early = store.snapshot().commit_id
        never = early[:10] + "0" * 16  # as old as the early one
        store.branches.create("dev", "main")
        on_branch = str(upsert_person(store, "d", branch="dev").commit_id)
        build_history(store, depth, prefix="later")
    wanted = {"an early one": early, "one of a branch": on_branch, "one that never was": never}
    counts = {name: opens(again(local_place), commit) for name, commit in wanted.items()}

    most = 4 * math.log2(depth) + 16
    assert {name: count for name, count in counts.items() if count > most} == {}
