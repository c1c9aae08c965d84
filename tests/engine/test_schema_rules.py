"""Rules of schema apply that need a moment of their own: what others see on the way, indexes, forks, handles.

More of A-01, and A-05, are in test_schema_refusals.py, A-03 in test_schema_apply.py, A-06 and A-07 there and
in test_schema_concurrency.py, A-09 in test_schema_crash.py; hard drops in test_hard_drop.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.durability import armed, names
from tests.engine.cases import person
from tests.support.contents import check_whole, insert, read, state
from tests.support.places import Place
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

BEFORE = person("p: I32? gone: String?", "node Old { name: String @key }")
AFTER = person('q: I64? @rename_from("p") new: String @default("x")', "node City { name: String @key }")
FORK_POINTS = [f"branch_{step}.{side}" for step in ("chain", "register") for side in ("before", "after")]


def made(place: Place) -> Graph:
    """Make a graph with a row of each type."""
    graph = og.init(place.address, BEFORE, durability="os", **place.kwargs)
    insert(graph, {"Person": [{"slug": "a", "p": 1, "gone": "g"}], "Old": [{"name": "o"}]})
    return graph


# -- a plan is a pure function of the head and the text


def test_a_plan_made_twice_is_the_same_and_so_is_what_the_apply_reports(local_place: Place) -> None:
    with made(local_place) as graph, og.connect(local_place.address) as other:
        plans = [one.schema.plan(AFTER).to_json() for one in (graph, other, graph)]
        receipt = graph.schema.apply(AFTER)

        assert plans[0] == plans[1] == plans[2] == receipt.plan.to_json()


def test_a_plan_that_checks_rows_refuses_what_the_apply_would_refuse_and_writes_nothing(
    local_place: Place,
) -> None:
    strict = BEFORE.replace("p: I32?", "p: I32? @range(p, 5..)")
    with made(local_place) as graph:
        version = graph.store.snapshot().state.version
        assert graph.schema.plan(strict).supported
        for refused in (
            lambda: graph.schema.plan(strict, check_rows=True),
            lambda: graph.schema.apply(strict),
        ):
            with pytest.raises(og.GraphError) as caught:
                refused()
            assert caught.value.code == "constraint_violation"
        with pytest.raises(og.GraphError) as stale:
            graph.schema.plan(AFTER, if_commit="not the head")
        assert stale.value.code == "precondition_failed"
        assert graph.schema.plan(AFTER, if_commit=graph.store.snapshot().commit_id, check_rows=True).supported
        assert graph.store.snapshot().state.version == version


# -- schema and tables change together


@pytest.mark.parametrize("allow_data_loss", [False, True])
def test_no_reader_sees_half_an_apply_at_any_step_of_it(place: Place, allow_data_loss: bool) -> None:
    with made(place) as graph, og.connect(place.address, **place.kwargs) as other:
        before, seen = state(other), []
        busy = threading.local()

        def look(point: str) -> Callable[[], None]:
            def looking() -> None:
                if getattr(busy, "yes", False):
                    return
                busy.yes = True
                check_whole(other)
                found = state(other)
                seen.append((point, found.source))
                assert found.source == AFTER or found == before
                busy.yes = False

            return looking

        with armed({point: look(point) for point in names() if not point.startswith("reclaim_file")}):
            graph.schema.apply(AFTER, allow_data_loss=allow_data_loss)

        points = [point for point, _ in seen]
        published = points.index("publish.after")
        assert {source for _, source in seen[:published]} == {BEFORE}
        assert {source for _, source in seen[published:]} == {AFTER}


def test_readers_beside_many_applies_always_find_schema_and_tables_of_one_commit(local_place: Place) -> None:
    with made(local_place) as graph:
        done = threading.Event()

        def watch() -> int:
            looks = 0
            with og.connect(local_place.address) as other:
                while not done.is_set() or looks == 0:
                    head = other.store.snapshot()
                    check_whole(other, at=head.commit_id)
                    looks += 1
            return looks

        with ThreadPoolExecutor(2) as pool:
            watchers = [pool.submit(watch) for _ in range(2)]
            try:
                for _ in range(4):
                    graph.schema.apply(AFTER)
                    graph.schema.apply(BEFORE)
            finally:
                done.set()
            assert all(watcher.result(60) > 0 for watcher in watchers)


# -- indexes are wishes


@pytest.mark.parametrize("wish", ["p: I32? @index", "v: Vector(2)? @index"])
def test_an_index_is_recorded_and_not_built(place: Place, wish: str) -> None:
    body = "p: I32? v: Vector(2)?"
    name = wish.split(":")[0]
    with og.init(place.address, person(body), durability="os", **place.kwargs) as graph:
        insert(graph, {"Person": [{"slug": f"s{n}", "p": n, "v": [1.0, n]} for n in range(50)]})
        pin = graph.store.snapshot().pin(graph.schema.catalog().node("Person").table_id)

        receipt = graph.schema.apply(person(body.replace(wish.split(" @")[0], wish)))

        assert [step.kind for step in receipt.plan.steps] == ["add_constraint"]
        declared = graph.schema.catalog().node("Person")
        assert name in {declared.name_of(intent.property_id) for intent in declared.index_intents}
        snapshot = graph.store.snapshot()
        assert snapshot.pin(declared.table_id).version == pin.version, "the table was not touched"
        assert graph.store.table(snapshot, declared.table_id).describe_indices() == []


# -- a fork beside an apply


@pytest.mark.parametrize("allow_data_loss", [False, True])
@pytest.mark.parametrize("point", FORK_POINTS)
def test_a_fork_that_meets_an_apply_has_the_old_or_the_new_schema_whole(
    place: Place, point: str, allow_data_loss: bool
) -> None:
    with made(place) as graph, og.connect(place.address, durability="os", **place.kwargs) as other:
        change = once(lambda: other.schema.apply(AFTER, allow_data_loss=allow_data_loss))
        with armed({point: change}):
            graph.store.branches.create("review", "main")

        check_whole(graph, "review")
        assert graph.schema.show("review") in (BEFORE, AFTER)
        rows = read(graph, "Person", branch="review")
        assert [row["slug"] for row in rows] == ["a"]
        insert(graph, {"Person": [{"slug": "b", "new": "n"}]}, branch="review")


@pytest.mark.parametrize("point", ["publish.before", "publish.after", "floor.before", "reclaim_fence.before"])
def test_an_apply_that_meets_a_fork_leaves_it_whole(place: Place, point: str) -> None:
    with made(place) as graph, og.connect(place.address, durability="os", **place.kwargs) as other:
        with armed({point: once(lambda: other.store.branches.create("review", "main"))}):
            receipt = graph.schema.apply(AFTER, allow_data_loss=True)

        assert receipt.applied
        check_whole(graph, "review")
        shown = graph.schema.show("review")
        assert shown == (BEFORE if point == "publish.before" else AFTER)
        assert any("'review'" in warning for warning in receipt.warnings) == (shown == BEFORE)
        assert [row["slug"] for row in read(graph, "Person", branch="review")] == ["a"]


# -- handles that live long

OPERATIONS: dict[str, Callable[[Graph], object]] = {
    "catalog": lambda graph: graph.schema.catalog().node("City"),
    "show": lambda graph: graph.schema.show() == AFTER,
    "plan": lambda graph: graph.schema.plan(AFTER).steps == (),
    "apply": lambda graph: graph.schema.apply(AFTER).applied is False,
    "lint": lambda graph: not [d for d in graph.schema.lint(AFTER) if d.code.startswith("OG-")],
    "diagram": lambda graph: "City" in graph.schema.diagram(),
    "nodes": lambda graph: len(graph.nodes("City")) == 0,
    "write": lambda graph: insert(graph, {"City": [{"name": "delft"}]}).attempts == 1,
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_handle_opened_before_an_apply_knows_the_new_schema_at_its_next_operation(
    place: Place, operation: str
) -> None:
    with made(place) as graph, og.connect(place.address, durability="os", **place.kwargs) as other:
        assert graph.schema.show() == BEFORE
        read(graph, "Person")
        other.schema.apply(AFTER)

        assert OPERATIONS[operation](graph)
