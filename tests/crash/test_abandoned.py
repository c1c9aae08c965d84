"""An operation is abandoned at any point, its process alive: the same handle goes on as if nothing had been.

Where `test_kill.py` ends the process, here an exception ends the operation, as a cancelled call would.
"""

from __future__ import annotations

import pytest

from omnigraph.base.errors import BranchNotFound, GraphError
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.store import GraphStore
from tests.crash.cases import INIT, ON_A_BASE, everywhere, on_s3, points
from tests.crash.ground import Ground, look
from tests.crash.operations import BY_NAME, Operation
from tests.support.graphs import make_graph, persons, upsert_person
from tests.support.places import Place

pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.s3_when_full]

DELETE = BY_NAME["delete-branch"]
BEFORE_GENESIS = ("schema_put", "refs_create", "genesis.before")  # tables are made in threads that go on
DONE_ALREADY = {
    "create-branch": "branch_exists",
    "delete-branch": "branch_not_found",
    "rename-branch": "branch_not_found",
    "create-tag": "tag_exists",
    "delete-tag": "tag_not_found",
}


class Shared(GraphStore):
    """A store that an operation's own `with` block does not close."""

    def close(self) -> None:
        """Stay open."""


def abandon(place: Place, operation: Operation, point: str, monkeypatch: pytest.MonkeyPatch) -> GraphStore:
    """Run an operation on a store up to a point; return the store, which is still open."""
    store = Shared.open(place.address, **place.kwargs)
    with monkeypatch.context() as patch:
        patch.setattr(GraphStore, "open", lambda *_, **__: store)
        with armed({point: "raise"}), pytest.raises(FailpointHit):
            operation.run(place.address, place.options)
    return store


def check(ground: Ground, operation: Operation, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Abandon an operation; look at the graph, and go on with the same handle."""
    place = ground.fresh(operation)

    store = abandon(place, operation, point, monkeypatch)

    found = look(place)
    assert found == ground.expected(operation, point, 1)
    for branch in found:
        upsert_person(store, "next", branch=branch)
        assert "next" in persons(store, branch)
    assert {ref.name for ref in store.branches.list()} == found.keys() - {"main"}
    GraphStore.close(store)


@pytest.mark.parametrize(("operation", "point"), everywhere(ON_A_BASE))
def test_abandoned_operation_is_done_or_not_and_its_handle_goes_on(
    local_ground: Ground, operation: Operation, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(local_ground, operation, point, monkeypatch)


@pytest.mark.s3
@pytest.mark.parametrize(("operation", "point"), on_s3(ON_A_BASE))
def test_operation_abandoned_on_s3_is_done_or_not_and_its_handle_goes_on(
    s3_ground: Ground, operation: Operation, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(s3_ground, operation, point, monkeypatch)


@pytest.mark.parametrize(("operation", "point"), everywhere(ON_A_BASE))
def test_abandoned_operation_can_be_repeated_at_once(
    local_ground: Ground, operation: Operation, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same arguments; if it had become visible, a branch step answers that it is done already."""
    place = local_ground.fresh(operation)
    GraphStore.close(abandon(place, operation, point, monkeypatch))

    answer = "ok"
    try:
        operation.run(place.address, place.options)
    except GraphError as error:
        answer = error.code

    done = local_ground.visible_at(operation, point, 1)
    assert answer == (DONE_ALREADY.get(operation.name, "ok") if done else "ok")
    wanted, found = local_ground.after(operation), look(place)
    assert {name: view.tables for name, view in found.items()} == {
        name: view.tables for name, view in wanted.items()
    }


# -- a delete that was interrupted -----------------------------------------------------------------


@pytest.mark.parametrize("point", points(DELETE))
def test_branch_whose_delete_was_interrupted_is_gone_or_complete(
    local_ground: Ground, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delete that only announced itself leaves a branch that reads and writes; the error of a fork says
    that the delete must be finished first (docs/branching.md).
    """
    place = local_ground.fresh(DELETE)
    GraphStore.close(abandon(place, DELETE, point, monkeypatch))

    with GraphStore.open(place.address) as store:
        if "review" in [ref.name for ref in store.branches.list()]:
            assert "reviewed" in persons(store, "review")
            upsert_person(store, "later", branch="review")
            refusal = ""
            try:
                store.branches.create("child", "review")
                store.branches.delete("child")
            except BranchNotFound as error:
                refusal = str(error)
            assert refusal == "" or "delete the branch again to finish it" in refusal
            store.branches.delete("review")
        assert store.branches.list() == ()


@pytest.mark.parametrize("point", [point for point in points(INIT) if point.startswith(BEFORE_GENESIS)])
def test_init_that_failed_leaves_a_place_that_init_can_take_over(local_ground: Ground, point: str) -> None:
    place = local_ground.fresh(INIT)
    with armed({point: "raise"}), pytest.raises(FailpointHit):
        INIT.run(place.address, place.options)

    make_graph(place.address, force=True).close()

    assert look(place) == local_ground.after(INIT)
