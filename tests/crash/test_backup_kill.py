"""SIGKILL at the steps of a copy: it leaves no graph yet or exact commits, and the next copy ends it."""

from __future__ import annotations

import pytest

from omnigraph.base.errors import GraphNotFound, IntegrityError
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.location import UNFINISHED, Location
from omnigraph.storage.store import GraphStore
from tests.crash import operations
from tests.crash.cases import points
from tests.crash.ground import Ground, View, look
from tests.crash.operations import BACKUP, copy_of
from tests.support.death import die_on_copies, noting_points
from tests.support.graphs import PERSON, persons, upsert_person
from tests.support.places import Place

pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.s3_when_full]


def copy_at(place: Place) -> Place:
    """Return the place of the copy of a graph."""
    return Place(copy_of(place.address), place.options)


def heads(view: View) -> dict[str, tuple[object, ...]]:
    """Return what the branches of a view are at and hold, ids included."""
    return {branch: (shown, shown.head, shown.parent) for branch, shown in view.items()}


def check_left(place: Place, *, was_graph: bool) -> None:
    """Look at a copy that was not finished: no graph yet, or each branch at a commit of the source, whole."""
    copy = copy_at(place)
    try:
        store = GraphStore.open(copy.address, **copy.kwargs)
    except (GraphNotFound, IntegrityError):
        assert not was_graph
        return
    with store, GraphStore.open(place.address, **place.kwargs) as source:
        for branch in ("main", *(ref.name for ref in store.branches.list())):
            found = store.snapshot(branch)
            assert persons(store, branch) == persons(source, at=found.commit_id)
            for version in range(1, found.state.version + 1):
                assert (
                    len(persons(store, branch, at=version))
                    == store.snapshot(branch, at=version).pin(PERSON).rows
                )


def check_finished(place: Place) -> None:
    """Copy again, and compare all that there is."""
    BACKUP.run(place.address, place.options)
    copy = copy_at(place)
    assert heads(look(copy)) == heads(look(place))
    objects = Location.parse(copy.address, copy.options).objects
    assert [key for key, _ in objects.list(UNFINISHED)] == []
    with GraphStore.open(copy.address, **copy.kwargs) as store:
        assert store.verify([store.snapshot()]).ok
        upsert_person(store, "next")
        assert "next" in persons(store)


def check_killed(ground: Ground, point: str, *, again: bool) -> None:
    """Let copies die at a point, the first ones of their graph or later ones."""

    def fresh() -> Place:
        place = ground.fresh(BACKUP)
        if again:
            BACKUP.run(place.address, place.options)
            with GraphStore.open(place.address, **place.kwargs) as store:
                upsert_person(store, "later")
                store.branches.create("fresh", "review")
                upsert_person(store, "on review", branch="review")
                store.tags.create("v2", store.snapshot().state)
        return place

    trial = fresh()
    with noting_points() as passed:
        BACKUP.run(trial.address, trial.options)
    total = passed.count(point)
    deaths = die_on_copies(
        operations.perform_until,
        fresh,
        sorted({1, (total + 1) // 2, total - 1, total}),
        lambda place, passage: (BACKUP.name, place.address, place.options, point, passage),
    )
    for place, _ in deaths:
        check_left(place, was_graph=again)
        check_finished(place)


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.full)], ids=["first", "again"])
@pytest.mark.parametrize("point", points(BACKUP))
def test_death_during_a_copy_leaves_exact_commits_and_the_next_copy_ends_it(
    local_ground: Ground, point: str, again: bool
) -> None:
    check_killed(local_ground, point, again=again)


@pytest.mark.s3
@pytest.mark.parametrize("point", points(BACKUP))
def test_death_during_a_copy_to_s3_leaves_exact_commits(s3_ground: Ground, point: str) -> None:
    check_killed(s3_ground, point, again=False)


@pytest.mark.parametrize("point", points(BACKUP))
def test_a_copy_that_failed_can_be_made_by_the_same_handle(local_ground: Ground, point: str) -> None:
    place = local_ground.fresh(BACKUP)
    with armed({point: "raise"}), pytest.raises(FailpointHit):
        BACKUP.run(place.address, place.options)
    check_left(place, was_graph=False)
    check_finished(place)


def test_the_oracle_sees_a_copy_without_its_files(local_ground: Ground) -> None:
    place = local_ground.fresh(BACKUP)
    BACKUP.run(place.address, place.options)
    objects = Location.parse(copy_of(place.address)).objects
    objects.delete(next(key for key, _ in objects.list(f"tables/{PERSON}/data")))

    with pytest.raises(ValueError, match="Not found"):
        check_left(place, was_graph=True)
