"""Files rewritten by executors: the rows, their order, indexes and past of one process, in one commit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import StorageError
from omnigraph.engine.optimize import OptimizeProgress
from omnigraph.pipeline import optimize
from omnigraph.pipeline.bulk import optimize as optimizing
from omnigraph.pipeline.bulk.optimize import GroupOutcome, GroupTask
from omnigraph.storage.durability import armed
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import CommitKind
from tests.engine.test_optimize import DELETE, SCHEMA, answers, between, doc, filled, layout, row
from tests.support.contents import state
from tests.support.derived import EVERYTHING, derived_files, small_tiers

pytestmark = pytest.mark.spark

POLICY = og.OptimizePolicy(small_bytes=100_000)  # so that some thousand rows are several groups
GROUPS: dict[str, Any] = {"policy": POLICY, "group_bytes": 1}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents in many small fragments, with deleted rows and blobs, and edges."""
    folder = tmp_path_factory.mktemp("optimize") / "base.og"
    with og.init(str(folder), SCHEMA, durability="os") as made:
        filled(made, 6)
        for start in range(100, 2_500, 400):
            made.load([doc(n) for n in range(start, start + 400)], mode="append")
    return folder


@pytest.fixture
def graph(base: Path, tmp_path: Path) -> Iterator[Graph]:
    with copied(base, tmp_path / "graph.og") as opened:
        yield opened


def copied(base: Path, to: Path) -> Graph:
    shutil.copytree(base, to)
    return og.connect(str(to), durability="os")


def stored_order(graph: Graph, name: str) -> list[str]:
    """Return the ids of a type as they lie in files."""
    declared = graph.schema.catalog().named(name)
    handle = graph.store.table(graph.store.snapshot(), declared.id)
    return list(handle.to_table(columns=["id"])["id"].to_pylist())


def titles(graph: Graph) -> set[str]:
    return set(graph.nodes("Doc").to_arrow()["title"].to_pylist())


def data_files(graph: Graph, name: str) -> set[str]:
    table = graph.schema.catalog().named(name).id
    folder = Path(graph.uri.removeprefix("file://")) / "tables" / table / "data"
    return {file.name for file in folder.glob("*.lance")}


def named_files(graph: Graph, name: str) -> set[str]:
    return {file.path for part in layout(graph, name).parts.values() for file in part.metadata.files}


def test_executors_leave_what_one_process_leaves(
    spark: SparkSession, base: Path, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch, EVERYTHING)
    before, past = answers(graph), graph.store.snapshot()
    fragments, kept = len(layout(graph).parts), state(graph)
    told: list[OptimizeProgress] = []

    report = optimize(spark, graph, **GROUPS, progress=told.append)

    with copied(base, tmp_path / "local.og") as local:
        expected = local.optimize(policy=POLICY)
        assert stored_order(graph, "Doc") == stored_order(local, "Doc")
        assert row(report).created == row(expected).created
        assert row(report, "Cites").files.fragments_after == 1  # type: ignore[union-attr]
    assert (fragments, len(layout(graph).parts)) == (6, 3)  # several groups
    head = graph.store.snapshot().state.commit
    assert (head.id, head.kind, head.actor) == (report.commit_id, CommitKind.MAINTENANCE, "system:optimize")
    assert answers(graph) == before
    assert state(graph).rows == kept.rows
    assert answers(graph, at=past.commit_id) == before
    assert graph.verify().ok
    assert list(graph.diff(past.commit_id)) == []
    assert told[-1].stage == "done"
    assert max(now.tasks_done for now in told) > 2
    assert {now.rows for now in told if now.stage == "compacting"} >= {told[0].rows_total}
    assert len(derived_files(graph.uri)) > 0
    again = optimize(spark, graph, **GROUPS)
    assert again.commit_id is None
    assert graph.optimize(policy=POLICY).commit_id is None


def test_what_executors_made_is_kept_when_a_writer_publishes_first(spark: SparkSession, graph: Graph) -> None:
    built: list[int] = []

    def write() -> None:
        graph.mutate(DELETE, t="doc 0101")

    before = titles(graph)
    with armed(
        {
            **between(graph, "publish.before", write),
            "table_index.before": lambda: built.append(1),  # in the driver
        }
    ):
        report = optimize(spark, graph, **GROUPS)

    assert row(report).committed
    assert built == []
    assert titles(graph) == before - {"doc 0101"}
    assert graph.verify().ok


def dies(place: Location, task: GroupTask) -> GroupOutcome:
    """Write the files of a group, and die before that is told."""
    optimizing._rewritten(place, task)
    os._exit(1)


def test_what_a_dead_task_wrote_is_named_by_nothing_and_the_next_run_does_it_all(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, files = state(graph), data_files(graph, "Doc")
    with monkeypatch.context() as patched:
        patched.setattr(optimizing, "_rewritten", dies)
        with pytest.raises(StorageError, match="a Spark job failed"):
            optimize(spark, graph, types=["Doc"], **GROUPS)

    left = data_files(graph, "Doc") - files
    assert left
    assert state(graph) == before
    assert row(optimize(spark, graph, types=["Doc"], **GROUPS)).committed
    assert left.isdisjoint(named_files(graph, "Doc"))
    assert state(graph).rows == before.rows


def test_a_table_that_cannot_be_rewritten_is_reported_and_the_others_are_published(
    spark: SparkSession, graph: Graph
) -> None:
    folder = Path(graph.uri) / "tables" / graph.schema.catalog().node("Doc").id / "data"
    (folder / sorted(named_files(graph, "Doc"))[0]).unlink()

    report = optimize(spark, graph, **GROUPS)

    assert not row(report).committed
    assert "compacting" in str(row(report).error)
    assert row(report, "Cites").committed
