"""Watermarks: values that come back from text as they were, and rows closed off on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.pipeline.declared import parse_pipeline, watermark
from omnigraph.pipeline.declared.spec import Pipeline, SourceSpec
from omnigraph.pipeline.declared.watermark import PAGE, SourceSlice, labels, last_run, slice_source
from omnigraph.pipeline.session import active
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.spark.library import BASIC

SPEC = SourceSpec("raw", "csv", watermark="at")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("bigint", "9007199254740993", "9007199254740994"),
        ("decimal(38,10)", "12345678901234567890.0000000001", "12345678901234567890.0000000002"),
        ("string", "a'b", "a'c"),
        ("timestamp", "2026-01-01 10:00:00.000001", "2026-01-01 10:00:00.000002"),
        ("timestamp_ntz", "2026-01-01 10:00:00", "2026-01-01 10:00:00.5"),
    ],
)
def test_a_watermark_comes_back_as_it_was(spark: SparkSession, kind: str, first: str, second: str) -> None:
    texts = spark.createDataFrame([(first,), (second,), (None,)], "text string")
    frame = texts.selectExpr(f"cast(text as {kind}) as at")

    whole = slice_source(frame, SPEC, None)
    assert (whole.rows, whole.frame.count(), whole.since) == (3, 3, None)
    later = slice_source(frame, SPEC, first)
    assert (later.rows, later.frame.count(), later.watermark) == (1, 1, whole.watermark)
    none = slice_source(frame, SPEC, whole.watermark)
    assert (none.rows, none.watermark) == (0, None)


@pytest.mark.spark
def test_a_column_may_have_any_name(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1,), (2,)], ["a`b.c"])
    assert slice_source(frame, SourceSpec("raw", "csv", watermark="a`b.c"), "1").frame.count() == 1


class Growing(DataSource):
    """Rows of a file as it is whenever somebody looks."""

    @classmethod
    def name(cls) -> str:
        return "growing"

    def schema(self) -> str:
        return "at int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Lines(self.options["path"])


class Lines(DataSourceReader):
    """Reads a number a line."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        yield from ((int(line),) for line in Path(self._path).read_text().split())


@pytest.mark.spark
@pytest.mark.parametrize("since", [None, "1"])
def test_rows_that_come_while_a_run_reads_are_for_the_next(
    spark: SparkSession, tmp_path: Path, since: str | None
) -> None:
    Growing.__module__ = Lines.__module__ = "__main__"  # workers do not know this file
    with active(spark):
        spark.dataSource.register(Growing)
    file = tmp_path / "numbers"
    file.write_text("1\n2\n")
    found = slice_source(spark.read.format("growing").load(str(file)), SPEC, since)

    file.write_text("1\n2\n3\n")

    assert sorted(row.at for row in found.frame.collect())[-1] == 2
    assert found.watermark == "2"


# -- in commits ----------------------------------------------------------------------------------------


PIPELINE = parse_pipeline(BASIC, file="p.yaml")
MARK = "pipeline.p.watermark.raw"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.og", "node A { k: I32 @key }", durability="os") as made:
        yield made


def commit(graph: og.Graph, branch: str = "main", **labels: str) -> str:
    """Make a commit, with labels as a run leaves them; `mark` is a watermark."""
    noted = {MARK if name == "mark" else name: text for name, text in labels.items()}
    plan = PublishPlan(CommitKind.LOAD, always_commit=True)
    made = graph.store.publish(branch, PlannedWrite(plan), Intent(labels=FrozenMap(noted))).commit
    assert made is not None
    return made.id


def on(branch: str, origin: str = "main") -> Pipeline:
    return replace(PIPELINE, branch=branch, from_branch=origin)


def test_a_commit_remembers_the_pipeline_and_how_far_it_came() -> None:
    def slice_(since: str | None, last: str | None) -> SourceSlice:
        return SourceSlice(None, 0, since, last)  # type: ignore[arg-type]

    found = labels(PIPELINE, {"b": slice_("1", "2"), "a": slice_("1", None), "c": slice_(None, None)})
    assert found == {"pipeline": "p", "pipeline.p.watermark.a": "1", "pipeline.p.watermark.b": "2"}


def test_the_newest_run_is_found_behind_many_other_commits(graph: og.Graph) -> None:
    assert last_run(graph, PIPELINE).commit_id is None
    commit(graph, mark="1")
    newest = commit(graph, mark="2", pipeline="p")
    for _ in range(3 * PAGE):
        head = commit(graph)

    found = last_run(graph, PIPELINE)
    assert (found.commit_id, found.head, dict(found.watermarks)) == (newest, head, {"raw": "2"})


def test_a_branch_that_is_not_there_goes_on_from_the_one_it_is_made_from(graph: og.Graph) -> None:
    graph.branches.create("other")
    commit(graph, mark="1")
    commit(graph, "other", mark="2")
    found = [last_run(graph, on(*where)).watermarks.get("raw") for where in (("new",), ("new", "other"))]
    assert found == ["1", "2"]
    assert last_run(graph, on("other")).watermarks["raw"] == "2"


def test_merged_runs_count_while_their_branch_lives(graph: og.Graph) -> None:
    graph.branches.create("side")
    commit(graph, "side", mark="5")
    graph.load([{"type": "A", "data": {"k": 1}}], mode="append", branch="side")
    commit(graph, mark="4")
    assert last_run(graph, PIPELINE).watermarks["raw"] == "4"
    newest = commit(graph, "side", mark="6")
    graph.merge("side")
    assert last_run(graph, PIPELINE).commit_id == newest

    graph.branches.delete("side")
    assert last_run(graph, PIPELINE).watermarks["raw"] == "4"


def test_runs_that_were_undone_do_not_count(graph: og.Graph) -> None:
    commit(graph, mark="1")
    undone = commit(graph, mark="2")
    commit(graph, reverts=undone)
    assert last_run(graph, PIPELINE).watermarks["raw"] == "1"


def test_names_that_begin_alike_are_not_mixed_up(graph: og.Graph) -> None:
    commit(graph, mark="1")
    commit(graph, **{"pipeline.p.watermark.q.watermark.raw": "2", "pipeline.pp.watermark.raw": "3"})
    assert dict(last_run(graph, PIPELINE).watermarks) == {"raw": "1"}


def test_a_search_without_end_is_refused(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermark, "LOOKED_AT", 5)
    commit(graph, mark="1")
    for _ in range(4):
        commit(graph)
    assert last_run(graph, PIPELINE).watermarks["raw"] == "1"
    commit(graph)
    with pytest.raises(InvalidRequest, match=r"none of the last 5 commits of 'main' is a run of 'p'"):
        last_run(graph, PIPELINE)
