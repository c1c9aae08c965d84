"""SIGKILL at every durable step of a mutation and of a load: whole or not at all, and never twice (X-37).

After the crash the write is repeated under its idempotency key: it is done now if it had not landed, and only
acknowledged if it had. The default run kills around the claim and the swap on local disk; every other step
and the S3 API are marked `full`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from tests.crash import writes
from tests.crash.operations import LOCAL_ONLY
from tests.crash.writes import WRITES, Write
from tests.support.contents import check_whole, state
from tests.support.death import die_on_copies, points_of, position
from tests.support.graphs import chain_of
from tests.support.people import INSERT, head
from tests.support.places import Copies

DECIDING = ("claim.after", "publish.before", "publish.after")
pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("test_write_kill")]


class Scene:
    """The base, how it is before and after each write, and what each passes on the way."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.base = copies.empty()
        writes.make_base(self.base.address, self.base.options)
        with og.connect(self.base.address, **self.base.kwargs) as graph:
            self.before = state(graph)
        self.trace: dict[str, list[str]] = {}
        self.after: dict[str, dict[str, list[dict[str, object]]]] = {}
        for write in WRITES:
            done = copies.copy(self.base)
            self.trace[write.name] = points_of(write.run, done.address, done.options)
            with og.connect(done.address, **done.kwargs) as graph:
                self.after[write.name] = state(graph).rows

    def visible_at(self, write: Write, point: str, passage: int) -> bool:
        """Say whether a process that dies at this passage has already made its change visible."""
        passed = self.trace[write.name]
        return position(passed, point, passage) >= passed.index("publish.after")


@pytest.fixture(scope="module")
def local_scene(local_copies: Copies) -> Scene:
    """Local disk."""
    return Scene(local_copies)


@pytest.fixture(scope="module")
def s3_scene(s3_copies: Copies) -> Scene:
    """The S3 API."""
    return Scene(s3_copies)


def points(*, local: bool) -> Iterator[object]:
    """Yield (write, point) for every point; what is not decisive runs in the full run only."""
    for write in WRITES:
        for step in write.steps:
            for side in ("before", "after"):
                point = f"{step.value}.{side}"
                chosen = local and point in DECIDING and write.name != "delete"
                marks = [] if chosen else [pytest.mark.full]
                if local or step not in LOCAL_ONLY:
                    yield pytest.param(write, point, id=f"{write}-{point}", marks=marks)


def check(scene: Scene, write: Write, point: str) -> None:
    """Kill a write at each passage of a point, and hold what is left against what must be left."""
    passages = range(1, scene.trace[write.name].count(point) + 1)
    deaths = die_on_copies(
        writes.perform,
        lambda: scene.copies.copy(scene.base),
        passages,
        lambda place, passage: (write.name, place.address, place.options, point, passage),
    )
    for place, passage in deaths:
        landed = scene.visible_at(write, point, passage)
        with og.connect(place.address, **place.kwargs) as graph:
            check_whole(graph)
            if landed:
                assert state(graph).rows == scene.after[write.name]
            else:
                assert state(graph) == scene.before

            again = write.run(graph)

            assert again.replayed is landed
            assert again.commit_id == head(graph)
            assert again.parents == (scene.before.head,)
            assert state(graph).rows == scene.after[write.name]
            assert graph.mutate(INSERT, name="next").attempts == 1
            assert len(chain_of(graph.store)) == 5
            check_whole(graph)


@pytest.mark.parametrize(("write", "point"), list(points(local=True)))
def test_death_at_a_step_of_a_write_leaves_all_of_it_or_nothing_and_it_can_be_repeated(
    local_scene: Scene, write: Write, point: str
) -> None:
    check(local_scene, write, point)


@pytest.mark.s3
@pytest.mark.parametrize(("write", "point"), list(points(local=False)))
def test_death_at_a_step_of_a_write_on_s3_leaves_all_of_it_or_nothing_and_it_can_be_repeated(
    s3_scene: Scene, write: Write, point: str
) -> None:
    check(s3_scene, write, point)


@pytest.mark.parametrize("write", WRITES, ids=str)
def test_a_write_passes_exactly_the_steps_it_is_killed_at(local_scene: Scene, write: Write) -> None:
    passed = local_scene.trace[write.name]

    assert set(passed) == {f"{step.value}.{side}" for step in write.steps for side in ("before", "after")}
    assert passed[:2] == ["claim.before", "claim.after"], "the key is claimed before anything is staged"
    assert passed.count("publish.after") == 1
