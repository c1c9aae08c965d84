"""SIGKILL of the driver at the steps of a bulk load: whole or not at all, and it can be repeated."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from tests.spark.bulk import killed
from tests.spark.bulk.killed import Rows, bulk, make_base
from tests.support.contents import check_whole, state
from tests.support.death import points_of
from tests.support.people import INSERT
from tests.support.processes import run_processes

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]
KILLED = -signal.SIGKILL
AT_ONCE = 3
Job = tuple[str, str, int]


@dataclass(frozen=True)
class Scene:
    """The base, what a whole load passes, and how the graph is before and after it."""

    base: Path
    passed: list[str]
    before: Rows
    after: Rows


def copied(base: Path, folder: Path) -> str:
    """Return a copy of the base with its input."""
    folder.mkdir()
    shutil.copytree(base, folder / base.name)
    shutil.copy(base.parent / "input.jsonl", folder)
    return str(folder / base.name)


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("killed")
    base = Path(make_base(folder))
    with og.connect(base) as graph:
        before = state(graph).rows
    whole = copied(base, folder / "whole")
    passed = points_of(bulk, whole, {})
    with og.connect(whole) as graph:
        yield Scene(base, passed, before, state(graph).rows)


def check(scene: Scene, tmp_path: Path, cases: list[tuple[int, str, int]]) -> None:
    """Kill drivers, one for each case, and hold what is left against what must be left."""
    places = [copied(scene.base, tmp_path / str(n)) for n in range(len(cases))]
    jobs = [(place, point, number) for place, (_, point, number) in zip(places, cases, strict=True)]
    for some in batched(jobs, AT_ONCE):
        outcomes = run_processes(killed.perform, some, timeout_s=300)
        assert [outcome.exit_code for outcome in outcomes] == [KILLED] * len(some)
    for place, (at, point, _) in zip(places, cases, strict=True):
        landed = at >= scene.passed.index("publish.after")
        with og.connect(place) as graph:
            check_whole(graph)
            assert _people(state(graph).rows) == _people(scene.after if landed else scene.before), point
            assert bulk(graph).replayed == landed
            assert _people(state(graph).rows) == _people(scene.after)
            assert graph.mutate(INSERT, name="next").attempts == 1
            check_whole(graph)
            clean_up(graph)


def clean_up(graph: Graph) -> None:
    """Take away what no head needs: nothing that the dead load left may stay, and nothing else may go."""
    before = state(graph).rows
    graph.store.reclaim(graph.store.snapshot().state.pins)
    snapshot = graph.store.snapshot()
    named = {
        file.path
        for table in snapshot.state.pins
        for fragment in graph.store.table(snapshot, table).get_fragments()
        for file in fragment.metadata.files
    }
    stored = Path(graph.uri.removeprefix("file://")).glob("tables/*/data/*.lance")
    assert {file.name for file in stored} == named
    assert state(graph).rows == before


def batched(jobs: list[Job], count: int) -> Iterator[list[Job]]:
    """Each job is a Spark of its own: a few at a time."""
    for first in range(0, len(jobs), count):
        yield jobs[first : first + count]


def _people(rows: Rows) -> Rows:
    """Leave out the ids of edges, which each load makes anew."""
    return {
        name: [{k: v for k, v in row.items() if k != "id"} for row in some] for name, some in rows.items()
    }


def cases_of(scene: Scene) -> list[tuple[int, str, int]]:
    """Return each passage of each point, as (place in the order, point, number of the passage)."""
    numbers = [scene.passed[: at + 1].count(point) for at, point in enumerate(scene.passed)]
    return [(at, point, number) for at, (point, number) in enumerate(zip(scene.passed, numbers, strict=True))]


def test_a_driver_killed_at_every_step(scene: Scene, tmp_path: Path) -> None:
    check(scene, tmp_path, cases_of(scene))


def test_what_a_bulk_load_passes(scene: Scene) -> None:
    """Versions for checking are made before the publish, and what is published is made durable before it."""
    for step in ("claim", "table_commit", "table_deletions", "staged_sync", "publish", "head_sync"):
        assert f"{step}.after" in scene.passed
    assert scene.passed.count("publish.after") == 1
    assert scene.passed.index("staged_sync.after") < scene.passed.index("publish.before")
