"""The change feed as a stream: every commit once, from where the checkpoint is; or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest
from omnigraph.pipeline import register
from tests.spark.changes import add, graph, source

__all__ = ["graph"]  # a fixture

pytestmark = pytest.mark.spark

ALL = ReadAllAvailable()


class Reading:
    """A stream of changes that is started again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, graph: Graph, checkpoint: Path, **options: str) -> None:
        register(spark)
        self._spark = spark
        self._options = {"uri": graph.uri, "changes": "true", **options}
        self._checkpoint = checkpoint
        self.batches: list[list[Any]] = []

    @property
    def frame(self) -> DataFrame:
        return self._spark.readStream.format("omnigraph").options(**self._options).load()

    def run(self) -> list[list[Any]]:
        """Read what there is, and return the batches that have rows."""
        self.batches = []
        writer = self.frame.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return self.batches

    def _keep(self, batch: DataFrame, number: int) -> None:
        rows = batch.orderBy("version", "type", "id").collect()
        if rows:
            self.batches.append(rows)


def test_a_stream_that_is_stopped_and_started_again_misses_and_repeats_nothing(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    add(graph, "before")
    reading = Reading(spark, graph, tmp_path / "c", type="Person")
    assert reading.run() == []  # from now on
    first = add(graph, "a", "b", age=1, actor="ada", message="two")
    graph.mutate('query q() { update Person set { age: 2 } where name = "a" }')
    ((one, two, three),) = reading.run()
    graph.mutate('query q() { delete Person where name = "b" }')
    assert [[(row.op, row.id) for row in batch] for batch in reading.run()] == [[("delete", "b")]]
    assert reading.run() == []

    assert [(row.op, row.id) for row in (one, two, three)] == [
        ("insert", "a"),
        ("insert", "b"),
        ("update", "a"),
    ]
    assert (one.before, one.after.age, one.commit_id, one.actor, one.message, one.commit_kind) == (
        None,
        1,
        first,
        "ada",
        "two",
        "load",
    )
    assert (three.fields, three.before.age, three.after.age, three.commit_kind) == (["age"], 1, 2, "mutation")


def test_batches_take_so_many_commits_and_a_run_ends_where_the_head_was(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    for name in "abcde":
        add(graph, name)
    reading = Reading(spark, graph, tmp_path / "c", starting="earliest", max_commits="2")
    assert [[row.id for row in batch] for batch in reading.run()] == [["a", "b"], ["c", "d"], ["e"]]
    ends = sorted((tmp_path / "c" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    offset = json.loads(ends[-1].read_text().splitlines()[-1])
    assert offset["commit"] == graph.store.snapshot().commit_id


def test_a_stream_whose_history_was_cleaned_ends_with_the_code_in_the_text(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    reading = Reading(spark, graph, tmp_path / "c")
    reading.run()
    add(graph, "a")
    add(graph, "b")
    graph.store.raise_floor("main", graph.store.snapshot().state.version)
    with pytest.raises(StreamingQueryException) as caught:
        reading.run()
    assert "omnigraph error code: change_feed_gap" in str(caught.value)
    assert "with a new checkpoint" in str(caught.value)


def test_a_stream_of_changes_is_asked_for(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    """Spark does not say what a source is made for, so the columns of a stream need the option."""
    register(spark)
    frame = spark.readStream.format("omnigraph").options(uri=graph.uri, type="Person").load()
    with pytest.raises(StreamingQueryException, match="Set option 'changes' to 'true'"):
        frame.writeStream.format("noop").option(
            "checkpointLocation", str(tmp_path / "c")
        ).start().awaitTermination()
    with pytest.raises(InvalidRequest, match=r"Use spark\.readStream"):
        source(graph).reader(source(graph).schema())
