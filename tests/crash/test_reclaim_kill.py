"""SIGKILL and failure at every durable step of a reclaim: heads stay whole, and history says what it is.

A reclaim shows nothing new, so a graph is not before or after it: at any moment all branches read as before,
an old commit reads as before or says that it was reclaimed, and a second reclaim finishes the work.
"""

from __future__ import annotations

import pytest

from omnigraph.base.errors import GraphError, HistoryReclaimed
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import referenced, stored_files
from tests.crash.cases import points
from tests.crash.ground import Ground, View, look
from tests.crash.operations import RECLAIM
from tests.support.graphs import PERSON, persons, upsert_person
from tests.support.places import Place

pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.s3_when_full]

ONCE_EACH = ("reclaim_fence.before", "reclaim_fence.after", "reclaim_file.before", "reclaim_file.after")


def rows(view: View) -> dict[str, object]:
    """Return what the branches of a view hold; a reclaim moves their versions."""
    return {branch: (shown.schema, shown.tables) for branch, shown in view.items()}


def check_history(store: GraphStore) -> None:
    """Every version of main reads whole, or says that it was reclaimed."""
    for version in range(1, store.snapshot().state.version + 1):
        answer = ""
        try:
            found = persons(store, at=version)
            assert len(found) == store.snapshot(at=version).pin(PERSON).rows
        except GraphError as error:
            answer = error.code
        assert answer in ("", "history_reclaimed")


def check_finished(store: GraphStore) -> None:
    """Nothing is stored of the table but what the heads need."""
    needed: set[str] = set()
    for branch in ("main", "review"):
        needed |= referenced(store.table(store.snapshot(branch), PERSON))
    folders = tuple(name for name in needed if name.endswith("/"))
    stored = stored_files(store.location, PERSON)
    assert [file for file in stored if file not in needed and not file.startswith(folders)] == []


def check(ground: Ground, place: Place) -> None:
    """Look at what a reclaim that did not finish left, go on writing, and finish it."""
    assert rows(look(place)) == rows(ground.before)
    with GraphStore.open(place.address, **place.kwargs) as store:
        check_history(store)
        for branch in ("main", "review"):
            upsert_person(store, "next", branch=branch)
            assert "next" in persons(store, branch)
        store.branches.create("later", "main")
        store.branches.delete("later")
        store.reclaim([PERSON])
        check_finished(store)
        with pytest.raises(HistoryReclaimed):
            persons(store, at=2)
        for branch in ("main", "review"):
            assert "next" in persons(store, branch)


def check_killed(ground: Ground, point: str) -> None:
    """Let processes die at a point."""
    for place in ground.killed(RECLAIM, point):
        check(ground, place)


@pytest.mark.parametrize("point", points(RECLAIM))
def test_death_during_a_reclaim_leaves_whole_heads_and_honest_history(
    local_ground: Ground, point: str
) -> None:
    check_killed(local_ground, point)


@pytest.mark.s3
@pytest.mark.parametrize("point", ONCE_EACH)
def test_death_during_a_reclaim_on_s3_leaves_whole_heads_and_honest_history(
    s3_ground: Ground, point: str
) -> None:
    check_killed(s3_ground, point)


@pytest.mark.parametrize("point", points(RECLAIM))
def test_a_reclaim_that_was_abandoned_leaves_its_handle_usable(local_ground: Ground, point: str) -> None:
    place = local_ground.fresh(RECLAIM)
    with GraphStore.open(place.address) as store:
        with armed({point: "raise"}), pytest.raises(FailpointHit):
            store.reclaim([PERSON])
        check_history(store)
        upsert_person(store, "same handle")
        assert "same handle" in persons(store)
        store.reclaim([PERSON])
        check_finished(store)


def test_the_reclaim_really_deletes_and_moves_both_branches(local_ground: Ground) -> None:
    """Otherwise dying on the way would prove nothing."""
    passed = local_ground.trace(RECLAIM)
    assert passed.count("floor.after") == 4  # each of them twice
    assert passed.count("reclaim_file.after") > 10
    assert passed.index("reclaim_file.before") > passed.index("reclaim_fence.after")
