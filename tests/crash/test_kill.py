"""SIGKILL at every durable step: the graph is as before or as after, and nothing needs repair (X-37, PT-02).

Locally every operation dies at every point it passes, at each passage; the S3 API is for the full run. A
point decides exactly on which side the graph must be: before the step that makes the change visible is over,
nothing has happened.
"""

from __future__ import annotations

import pytest

from omnigraph.base.errors import AlreadyInitialized, GraphNotFound, IntegrityError, InvalidRequest
from omnigraph.storage.store import GraphStore
from tests.crash import operations
from tests.crash.cases import INIT, ON_A_BASE, on_local_disk, on_s3
from tests.crash.ground import Ground, View, look
from tests.crash.operations import Operation
from tests.support.death import die_on_copies
from tests.support.graphs import make_graph, persons, upsert_person
from tests.support.places import Place

pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.s3_when_full]

# The branches that operations make, rename and delete; the first may be forked from the others.
NAMES = ("fresh", "renamed", "review")


def kill(ground: Ground, operation: Operation, point: str) -> list[tuple[Place, int]]:
    """Let processes die, one at each passage of a point; return where, with the number of the passage."""
    passages = range(1, ground.trace(operation).count(point) + 1)
    return die_on_copies(
        operations.perform_until,
        lambda: ground.fresh(operation),
        passages,
        lambda place, passage: (operation.name, place.address, place.options, point, passage),
    )


def carry_on(place: Place, found: View) -> None:
    """Use the graph at once, as if nothing had happened: write, create and delete branches."""
    with GraphStore.open(place.address, **place.kwargs) as store:
        for branch in found:
            assert upsert_person(store, "next", age=1, branch=branch).attempts == 1
            assert persons(store, branch)["next"] == 1
        for name in NAMES:
            if name not in found:
                store.branches.create(name, "main")
                upsert_person(store, "first", branch=name)
        for name in NAMES:
            store.branches.delete(name)
        assert store.branches.list() == ()


def check(ground: Ground, operation: Operation, point: str) -> None:
    """Kill an operation at a point, and hold what is left against what must be left."""
    for place, passage in kill(ground, operation, point):
        found = look(place)
        assert found == ground.expected(operation, point, passage)
        if not ground.visible_at(operation, point, passage):
            assert {name: view.head for name, view in found.items()} == {
                name: view.head for name, view in ground.before.items()
            }
        for name, view in found.items():
            was = ground.before.get(name)
            assert was is None or view.head == was.head or view.parent == was.head
        carry_on(place, found)


@pytest.mark.parametrize(("operation", "point"), on_local_disk(ON_A_BASE))
def test_death_at_a_step_leaves_the_graph_as_before_or_as_after_and_usable_at_once(
    local_ground: Ground, operation: Operation, point: str
) -> None:
    check(local_ground, operation, point)


@pytest.mark.s3
@pytest.mark.parametrize(("operation", "point"), on_s3(ON_A_BASE))
def test_death_at_a_step_on_s3_leaves_the_graph_as_before_or_as_after_and_usable_at_once(
    s3_ground: Ground, operation: Operation, point: str
) -> None:
    check(s3_ground, operation, point)


# -- init ------------------------------------------------------------------------------------------


def check_init(ground: Ground, point: str) -> None:
    """Kill an init: there is a whole graph, or something that init can take over when told to."""
    for place, passage in kill(ground, INIT, point):
        if ground.visible_at(INIT, point, passage):
            with pytest.raises(AlreadyInitialized):
                make_graph(place.address, **place.kwargs)
        else:
            with pytest.raises((GraphNotFound, IntegrityError)):
                GraphStore.open(place.address, **place.kwargs)
            try:
                make_graph(place.address, **place.kwargs).close()
            except InvalidRequest:  # parts are there, and another init might be at work: it must be told
                make_graph(place.address, force=True, **place.kwargs).close()
        found = look(place)
        assert found == ground.after(INIT)
        carry_on(place, found)


@pytest.mark.parametrize(("operation", "point"), on_local_disk([INIT]))
def test_death_of_an_init_leaves_a_graph_or_a_place_that_init_can_take_over(
    local_ground: Ground, operation: Operation, point: str
) -> None:
    check_init(local_ground, point)


@pytest.mark.s3
@pytest.mark.parametrize(("operation", "point"), on_s3([INIT]))
def test_death_of_an_init_on_s3_leaves_a_graph_or_a_place_that_init_can_take_over(
    s3_ground: Ground, operation: Operation, point: str
) -> None:
    check_init(s3_ground, point)
