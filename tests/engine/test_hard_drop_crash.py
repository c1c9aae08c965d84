"""SIGKILL at every durable step of a hard drop: before its commit nothing happened, after it the drop stands.

What the reclaim had not deleted yet is merely still stored; a later hard drop of the type takes it along.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import HistoryReclaimed
from omnigraph.storage.durability import Step
from tests.engine import workers
from tests.engine.test_hard_drop import SECRET, holding
from tests.support.contents import check_whole, insert, read, state
from tests.support.death import die_on_copies, position
from tests.support.places import Copies, Place

pytestmark = [pytest.mark.xdist_group("hard-drop-crash"), pytest.mark.s3_when_full]

BEFORE = """
node Person { slug: String @key  age: I32?  diary: String? }
node Safe { slug: String @key  content: String? }
edge Knows: Person -> Person
"""
AFTER = """
node Person { slug: String @key  age: I32? }
edge Knows: Person -> Person
"""
STEPS = (
    Step.SCHEMA_PUT,
    Step.TABLE_DATA,
    Step.TABLE_COMMIT,
    Step.STAGED_SYNC,
    Step.CHECKSUM,
    Step.PUBLISH,
    Step.HEAD_SYNC,
    Step.FLOOR,
    Step.RECLAIM_FENCE,
    Step.RECLAIM_FILE,
)
AFTER_PUBLISH = (Step.FLOOR, Step.RECLAIM_FENCE, Step.RECLAIM_FILE)
LOCAL = [f"{step.value}.{side}" for step in STEPS for side in ("before", "after")]
ON_S3 = [f"{step.value}.{side}" for step in AFTER_PUBLISH for side in ("before", "after")]
EVERY_DAY = ("publish.after", "floor.after", "reclaim_file.after")  # the fault matrix has a drop, too


class Scene:
    """A graph to be changed, with a branch that keeps its own, and what a hard drop passes on the way."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.base = copies.empty()
        with og.init(self.base.address, BEFORE, durability="os", **self.base.kwargs) as graph:
            for part in range(3):
                people = [{"slug": f"p{part}-{n}", "age": n, "diary": f"{SECRET} {n}"} for n in range(20)]
                insert(graph, {"Person": people, "Safe": [{"slug": f"s{part}", "content": SECRET}]})
            graph.store.branches.create("review", "main")
            self.old = graph.store.snapshot().commit_id
            self.before = {branch: state(graph, branch).rows for branch in ("main", "review")}
        done = copies.copy(self.base)
        self.trace = workers.trace_apply(done.address, done.options, AFTER, allow_data_loss=True)
        with og.connect(done.address, **done.kwargs) as graph:
            self.after = {branch: state(graph, branch).rows for branch in ("main", "review")}

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


def kill(scene: Scene, point: str) -> list[tuple[Place, int]]:
    """Let processes die at the first and the last passage of a point."""
    passages = sorted({1, scene.trace.count(point)})
    return die_on_copies(
        workers.apply_and_die,
        lambda: scene.copies.copy(scene.base),
        passages,
        lambda place, passage: (place.address, place.options, AFTER, point, passage, True),
    )


def check_old_commit(graph: Graph, scene: Scene) -> None:
    """The commit before the drop shows its rows, or says that they were reclaimed; never anything else."""
    reclaimed = False
    try:
        rows = read(graph, "Person", at=scene.old)
        assert [row["slug"] for row in rows] == [row["slug"] for row in scene.before["main"]["Person"]]
    except HistoryReclaimed:
        reclaimed = True
    assert reclaimed == bool(graph.store.snapshot().state.reclaimed), "as the branch says"


def check(scene: Scene, point: str) -> None:
    """Kill a hard drop at a point; look at what is left, go on, and let a later drop finish the work."""
    for place, passage in kill(scene, point):
        with og.connect(place.address, durability="os", **place.kwargs) as graph:
            visible = scene.visible_at(point, passage)
            expected = scene.after if visible else scene.before
            assert {branch: state(graph, branch).rows for branch in expected} == expected
            check_whole(graph)
            check_whole(graph, "review")
            check_old_commit(graph, scene)
            assert graph.schema.apply(AFTER, allow_data_loss=True).applied is not visible
            insert(graph, {"Person": [{"slug": "next", "age": 1}]})
            insert(graph, {"Person": [{"slug": "next", "diary": SECRET}]}, branch="review")
            graph.store.branches.delete("review")
            graph.schema.apply("node Person { slug: String @key }", allow_data_loss=True)
            person = graph.schema.catalog().node("Person").table_id
            assert not [key for key in holding(place) if f"tables/{person}/" in key]
            assert len(read(graph, "Person")) == 61


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [pytest.param(p, marks=[] if p in EVERY_DAY else [pytest.mark.full]) for p in LOCAL]
)
def test_death_during_a_hard_drop_leaves_a_good_graph(local_scene: Scene, point: str) -> None:
    check(local_scene, point)


@pytest.mark.full
@pytest.mark.s3
@pytest.mark.parametrize("point", ON_S3)
def test_death_during_the_reclaim_of_a_hard_drop_on_s3_leaves_a_good_graph(
    s3_scene: Scene, point: str
) -> None:
    check(s3_scene, point)


def test_a_hard_drop_passes_these_steps_and_reclaims_after_it_is_visible(local_scene: Scene) -> None:
    assert {point.rpartition(".")[0] for point in local_scene.trace} == {step.value for step in STEPS}
    published = local_scene.trace.index("publish.after")
    for step in AFTER_PUBLISH:
        assert local_scene.trace.index(f"{step.value}.before") > published
