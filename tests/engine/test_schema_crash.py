"""SIGKILL at every durable step of an apply: the old or the new schema, whole; nothing needs repair (A-09).

The plan adds a type, fills a column, widens and fills another, renames and drops, on two tables. The process
dies at each point, at its first and its last passage; the default run takes the step that decides, on local
disk. A smaller plan dies everywhere in the fault matrix.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.storage.durability import Step
from tests.engine import workers
from tests.faults.cells import LOCAL_ONLY
from tests.support.contents import BranchState, check_whole, insert, state
from tests.support.death import die_on_copies, position
from tests.support.places import Copies, Place

pytestmark = pytest.mark.xdist_group("schema-crash")

SIDES = ("before", "after")
MANY_TIMES = ("table_data", "table_commit")  # passed once or more for each table
BEFORE = """
node Person { slug: String @key  age: I32?  score: I32?  nick: String? }
node Gone { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""
AFTER = """
node Human @rename_from("Person") {
    slug: String @key
    years: I32? @rename_from("age")
    score: I64 @default(7)
    city: String @default("delft")
}
node City { name: String @key }
edge Knows: Human -> Human { since: DateTime? }
"""
STEPS = (
    Step.TABLE_CREATE,
    Step.SCHEMA_PUT,
    Step.TABLE_DATA,
    Step.TABLE_COMMIT,
    Step.STAGED_SYNC,
    Step.CHECKSUM,
    Step.PUBLISH,
    Step.HEAD_SYNC,
)
LOCAL = [f"{step.value}.{side}" for step in STEPS for side in SIDES]
ON_S3 = [f"{step.value}.{side}" for step in STEPS if step not in LOCAL_ONLY for side in SIDES]


class Scene:
    """A graph to be changed, how it is before and after, and what an apply passes on the way."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.base = copies.empty()
        with og.init(self.base.address, BEFORE, durability="os", **self.base.kwargs) as graph:
            people = [{"slug": f"p{n}", "age": n, "score": None if n % 2 else n} for n in range(40)]
            edges = [{"id": f"e{n}", "src": f"p{n}", "dst": f"p{n + 1}"} for n in range(39)]
            insert(graph, {"Person": people, "Knows": edges, "Gone": [{"name": "x"}]})
            self.before = state(graph)
        done = copies.copy(self.base)
        self.trace = workers.trace_apply(done.address, done.options, AFTER)
        with og.connect(done.address, **done.kwargs) as graph:
            self.after = state(graph)

    def visible_at(self, point: str, passage: int) -> bool:
        """Say whether a process that dies at this passage has already made its change visible."""
        return position(self.trace, point, passage) >= self.trace.index("publish.after")


@pytest.fixture(scope="module")
def local_scene(local_copies: Copies) -> Scene:
    """Local disk."""
    return Scene(local_copies)


@pytest.fixture(scope="module")
def s3_scene(s3_copies: Copies) -> Scene:
    """The S3 API."""
    return Scene(s3_copies)


def ends(scene: Scene, point: str) -> list[int]:
    """Return the first and the last passage of a point."""
    return sorted({1, scene.trace.count(point)})


def between(scene: Scene, point: str) -> list[int]:
    """Return the other passages of a point."""
    return list(range(2, scene.trace.count(point)))


def kill(scene: Scene, point: str, passages: list[int]) -> list[tuple[Place, int]]:
    """Let processes die, one at each passage of a point; return where, with the number of the passage."""
    return die_on_copies(
        workers.apply_and_die,
        lambda: scene.copies.copy(scene.base),
        passages,
        lambda place, passage: (place.address, place.options, AFTER, point, passage),
    )


def same(found: BranchState, expected: BranchState) -> bool:
    """Compare all but the id of the head, which is new in every run."""
    return (found.version, found.source, found.rows) == (expected.version, expected.source, expected.rows)


def check(scene: Scene, point: str, passages: list[int]) -> None:
    """Kill an apply at a point, hold what is left against what must be left, and apply again."""
    for place, passage in kill(scene, point, passages):
        with og.connect(place.address, durability="os", **place.kwargs) as graph:
            check_whole(graph)
            if scene.visible_at(point, passage):
                assert same(state(graph), scene.after)
                assert graph.schema.apply(AFTER).applied is False
            else:
                assert state(graph) == scene.before
                assert graph.schema.apply(AFTER).applied
                assert same(state(graph), scene.after), "no version drift"
            check_whole(graph)
            insert(graph, {"City": [{"name": "rome"}], "Human": [{"slug": "next", "score": 1}]})
            assert len(graph.nodes("City")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=[] if p.startswith(Step.PUBLISH.value) else [pytest.mark.full]) for p in LOCAL],
)
def test_death_during_an_apply_leaves_the_old_or_the_new_schema_whole(local_scene: Scene, point: str) -> None:
    check(local_scene, point, ends(local_scene, point))


@pytest.mark.full
@pytest.mark.s3
@pytest.mark.parametrize("point", ON_S3)
def test_death_during_an_apply_on_s3_leaves_the_old_or_the_new_schema_whole(
    s3_scene: Scene, point: str
) -> None:
    check(s3_scene, point, ends(s3_scene, point))


@pytest.mark.full
@pytest.mark.parametrize("point", [point for point in LOCAL if point.startswith(MANY_TIMES)])
def test_death_half_way_through_a_step_leaves_the_old_schema_whole(local_scene: Scene, point: str) -> None:
    check(local_scene, point, between(local_scene, point))


def test_an_apply_passes_exactly_the_steps_it_is_killed_at(local_scene: Scene) -> None:
    assert set(local_scene.trace) == set(LOCAL)


def test_an_apply_becomes_visible_in_one_step(local_scene: Scene) -> None:
    assert local_scene.trace.count("publish.after") == 1
