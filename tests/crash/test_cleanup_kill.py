"""SIGKILL and failure at every durable step of a cleanup: heads and tags stay whole, the next one ends it.

A cleanup shows nothing new: at any moment all branches and tags read as before, an old commit reads as before
or says that it was reclaimed.
"""

from __future__ import annotations

import pytest

from omnigraph.base.errors import HistoryReclaimed
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import referenced, stored_files
from tests.crash.cases import points
from tests.crash.ground import Ground, View, look
from tests.crash.operations import AT_ONCE, CLEANUP, OLD
from tests.support.graphs import KNOWS, PERSON, persons, upsert_person
from tests.support.places import Place

pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.s3_when_full]

EVERYTHING = Retention(1, grace_us=0)


def rows(view: View) -> dict[str, object]:
    """Return what the branches of a view hold; a cleanup moves their versions."""
    return {branch: (shown.schema, shown.tables, shown.tags) for branch, shown in view.items()}


def check_history(store: GraphStore) -> None:
    """Every version of main reads whole or says that it was reclaimed; the one with a tag reads whole."""
    for version in range(1, store.snapshot().state.version + 1):
        try:
            assert len(persons(store, at=version)) == store.snapshot(at=version).pin(PERSON).rows
        except HistoryReclaimed:
            assert version != OLD


def check_finished(store: GraphStore) -> None:
    """Nothing is stored of the tables but what heads, tags and the fork need; a further run has no work."""
    states = [store.snapshot(), store.snapshot("review"), store.snapshot(at=OLD)]
    states += [store.snapshot(at=version) for version in store.snapshot().state.kept]
    for table_id in (PERSON, KNOWS):
        needed = {file for state in states for file in referenced(store.table(state, table_id))}
        folders = tuple(name for name in needed if name.endswith("/"))
        stored = stored_files(store.location, table_id)
        assert [file for file in stored if file not in needed and not file.startswith(folders)] == []
    assert store.cleanup(EVERYTHING, dry_run=False).parts == ()


def check(ground: Ground, place: Place) -> None:
    """Look at what a cleanup that did not finish left, go on writing, and finish it."""
    assert rows(look(place)) == rows(ground.before)
    with GraphStore.open(place.address, retry=AT_ONCE, **place.kwargs) as store:
        check_history(store)
        for branch in ("main", "review"):
            upsert_person(store, "next", branch=branch)
            assert "next" in persons(store, branch)
        store.branches.create("later", "main")
        store.branches.delete("later")
        assert store.cleanup(EVERYTHING, dry_run=False).ok
        check_finished(store)
        check_history(store)
        with pytest.raises(HistoryReclaimed):
            persons(store, at=2)


def check_killed(ground: Ground, point: str) -> None:
    """Let processes die at a point."""
    for place in ground.killed(CLEANUP, point):
        check(ground, place)


@pytest.mark.parametrize("point", points(CLEANUP))
def test_death_during_a_cleanup_leaves_whole_heads_and_tags_and_the_next_one_ends_it(
    local_ground: Ground, point: str
) -> None:
    check_killed(local_ground, point)


@pytest.mark.s3
@pytest.mark.parametrize("point", ["kept.after", "floor.after", "reclaim_fence.after", "reclaim_file.after"])
def test_death_during_a_cleanup_on_s3_leaves_whole_heads_and_tags(s3_ground: Ground, point: str) -> None:
    check_killed(s3_ground, point)


@pytest.mark.parametrize("point", points(CLEANUP))
def test_a_cleanup_that_was_abandoned_leaves_its_handle_usable(local_ground: Ground, point: str) -> None:
    place = local_ground.fresh(CLEANUP)
    with GraphStore.open(place.address, retry=AT_ONCE) as store:
        with armed({point: "raise"}), pytest.raises(FailpointHit):
            store.cleanup(EVERYTHING, dry_run=False)
        check_history(store)
        upsert_person(store, "same handle")
        assert store.cleanup(EVERYTHING, dry_run=False).ok
        check_finished(store)


def test_the_cleanup_raises_floors_keeps_a_version_and_deletes_after_that(local_ground: Ground) -> None:
    """Otherwise dying on the way would prove nothing."""
    passed = local_ground.trace(CLEANUP)
    assert passed.count("floor.after") == 4  # each branch twice
    assert passed.count("kept.after") >= 2
    assert passed.count("reclaim_file.after") > 20
    assert passed.index("kept.after") < passed.index("floor.before")
    assert passed.index("reclaim_file.before") > passed.index("reclaim_fence.after")
