"""SIGKILL at every durable step of a merge and of a revert: whole or not at all, and it can be repeated.

Local disk runs always, the S3 API in the full run.
"""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.crash import merges
from tests.crash.merges import MERGES, Merge
from tests.support.contents import check_whole, state
from tests.support.death import die_on_copies, points_of
from tests.support.people import INSERT
from tests.support.places import Copies

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("test_merge_kill")]


class Scene:
    """The base, how it is before and after each operation, and what each passes on the way."""

    def __init__(self, copies: Copies) -> None:
        self.copies = copies
        self.base = copies.empty()
        merges.make_base(self.base.address, self.base.options)
        with og.connect(self.base.address, **self.base.kwargs) as graph:
            self.before = state(graph)
        self.trace: dict[str, list[str]] = {}
        self.after: dict[str, dict[str, list[dict[str, object]]]] = {}
        for one in MERGES:
            done = copies.copy(self.base)
            self.trace[one.name] = points_of(one.run, done.address, done.options)
            with og.connect(done.address, **done.kwargs) as graph:
                self.after[one.name] = state(graph).rows


@pytest.fixture(scope="module")
def local_scene(local_copies: Copies) -> Scene:
    """Local disk."""
    return Scene(local_copies)


@pytest.fixture(scope="module")
def s3_scene(s3_copies: Copies) -> Scene:
    """The S3 API."""
    return Scene(s3_copies)


def check(scene: Scene, one: Merge) -> None:
    """Kill an operation at each passage of each point, and hold what is left against what must be left."""
    passed = scene.trace[one.name]
    numbers = [passed[: at + 1].count(point) for at, point in enumerate(passed)]
    deaths = die_on_copies(
        merges.perform,
        lambda: scene.copies.copy(scene.base),
        range(len(passed)),
        lambda place, at: (one.name, place.address, place.options, passed[at], numbers[at]),
    )
    for place, at in deaths:
        landed = at >= passed.index("publish.after")
        with og.connect(place.address, **place.kwargs) as graph:
            check_whole(graph)
            assert state(graph).rows == (scene.after[one.name] if landed else scene.before.rows), passed[at]
            one.run(graph)
            assert state(graph).rows == scene.after[one.name]
            assert graph.mutate(INSERT, name="next").attempts == 1
            check_whole(graph)


@pytest.mark.parametrize("one", MERGES, ids=str)
def test_death_at_a_step_leaves_all_of_it_or_nothing(local_scene: Scene, one: Merge) -> None:
    check(local_scene, one)


@pytest.mark.s3
@pytest.mark.full
@pytest.mark.parametrize("one", MERGES, ids=str)
def test_death_at_a_step_on_s3_leaves_all_of_it_or_nothing(s3_scene: Scene, one: Merge) -> None:
    check(s3_scene, one)


def test_what_the_operations_pass(local_scene: Scene) -> None:
    """A merge of what both sides changed writes tables; one that takes a branch over writes none."""
    for one in MERGES:
        assert local_scene.trace[one.name].count("publish.after") == 1
    assert local_scene.trace["merge"].count("table_commit.after") == 2
    assert "table_commit.after" not in local_scene.trace["take-over"]
