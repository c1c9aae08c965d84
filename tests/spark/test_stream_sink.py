"""Streams into a graph: one commit for each batch, whatever fails and whatever is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph import Graph
from omnigraph.pipeline import written
from omnigraph.pipeline.reading.source import OmnigraphSource
from omnigraph.pipeline.session import active
from tests.spark.inbox import SCHEMA, Inbox, batches, graph, inbox, run, values

__all__ = ["graph", "inbox"]  # fixtures
pytestmark = pytest.mark.spark


def test_each_batch_is_one_commit_under_its_key_and_a_restart_goes_on(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    inbox.put("a", "b")
    inbox.put("c")
    run(inbox.frame, graph, tmp_path / "c", message="from the inbox", actor="ada")
    inbox.put("d")
    run(inbox.frame, graph, tmp_path / "c")
    run(inbox.frame, graph, tmp_path / "c")  # nothing new

    assert values(graph) == ["a", "b", "c", "d"]
    ((query, _), *_) = batches(graph)
    assert batches(graph) == [(query, 0), (query, 1), (query, 2)]
    assert query in (tmp_path / "c" / "metadata").read_text()
    first = written(graph, f"spark:{query}:0")
    assert first.commit is not None
    assert (first.commit.message, first.commit.actor) == ("from the inbox", "ada")
    assert [one.inserted for one in first.nodes] == [2]


class Lossy(OmnigraphSource):
    """The format itself; the reply to a commit is lost once, if the graph's folder says so."""

    @classmethod
    def name(cls) -> str:
        return "lossy"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return LossySink(super().streamWriter(schema, overwrite), Path(self.options["uri"]).parent)


class LossySink(DataSourceStreamArrowWriter):
    """Hands everything on."""

    def __init__(self, sink: DataSourceStreamWriter, folder: Path) -> None:
        self._sink = sink
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(messages, batchId)
        with (self._folder / "commits").open("a") as notes:
            notes.write(f"{batchId} ")
        if (self._folder / "lose").exists():
            (self._folder / "lose").unlink()
            raise RuntimeError("the reply was lost")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.abort(messages, batchId)
        (self._folder / "aborted").write_text(str(batchId))


def test_a_batch_that_landed_and_is_replayed_is_there_once(
    spark: SparkSession, graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    """S1: after the commit that raised, Spark aborts, and runs the very batch again when it is restarted."""
    with active(spark):
        spark.dataSource.register(Lossy)
    inbox.put("a", "b")
    run(inbox.frame, graph, tmp_path / "c", format="lossy")
    inbox.put("c")
    (tmp_path / "lose").touch()
    with pytest.raises(StreamingQueryException, match="the reply was lost"):
        run(inbox.frame, graph, tmp_path / "c", format="lossy")
    assert (tmp_path / "aborted").read_text() == "1"
    assert values(graph) == ["a", "b", "c"]  # nothing was undone

    inbox.put("d")
    graph.load([{"type": "Thing", "data": {"value": "local"}}], mode="append")
    while values(graph) != ["a", "b", "c", "d", "local"]:  # Spark may end a run after the replay
        run(inbox.frame, graph, tmp_path / "c", format="lossy", actor="another")

    assert (tmp_path / "commits").read_text().split() == ["0", "1", "1", "2"]
    assert [number for _, number in batches(graph)] == [0, 1, 2]
    assert len({query for query, _ in batches(graph)}) == 1
    assert len(graph.commits.list()) == 5


def test_a_new_checkpoint_is_another_query_whose_batches_count_anew(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    """Batches are numbered from 0 again: the number alone would make them replays."""
    inbox.put("a")
    for checkpoint in ("one", "two"):
        run(inbox.frame, graph, tmp_path / checkpoint, sink_id="the same")
    assert values(graph) == ["a", "a"]
    assert [number for _, number in batches(graph)] == [0, 0]
    assert len({query for query, _ in batches(graph)}) == 2


def test_a_batch_without_rows_makes_no_commit(graph: Graph, inbox: Inbox, tmp_path: Path) -> None:
    inbox.put("a")
    inbox.put("b")
    run(inbox.frame.where("value = 'b'"), graph, tmp_path / "c")
    assert values(graph) == ["b"]
    assert [number for _, number in batches(graph)] == [1]


def test_others_may_write_and_change_the_schema_between_batches(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    """Each batch is planned on the state of then, in a query that goes on running."""
    query = (
        inbox.frame.writeStream.format("omnigraph")
        .options(uri=graph.uri, type="Thing", checkpointLocation=str(tmp_path / "c"), driver_rows="1")
        .start()
    )
    try:
        inbox.put("a", "b")
        query.processAllAvailable()
        graph.load([{"type": "Thing", "data": {"value": "local"}}], mode="append")
        inbox.put("c", "d")
        query.processAllAvailable()
        graph.schema.apply(SCHEMA.replace("value: String", "value: String more: String?"))
        inbox.put("e", "f")
        query.processAllAvailable()
    finally:
        query.stop()
    assert values(graph) == ["a", "b", "c", "d", "e", "f", "local"]
    assert [number for _, number in batches(graph)] == [0, 1, 2]


def test_complete_results_replace_the_type_if_the_option_agrees(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    inbox.put("x", "y", "x")
    inbox.put("y")
    counted = inbox.frame.groupBy(f.col("value").alias("name")).agg(f.count("*").cast("int").alias("age"))

    def complete(checkpoint: str, **options: str) -> None:
        given = {"uri": graph.uri, "type": "Person", "checkpointLocation": str(tmp_path / checkpoint)}
        writer = counted.writeStream.format("omnigraph").outputMode("complete").options(**given, **options)
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="Spark's mode replaces rows"):
        complete("refused")
    complete("c", load_mode="overwrite")
    rows = graph.nodes("Person").to_arrow().select(["name", "age"]).to_pylist()
    assert sorted(map(tuple, (row.values() for row in rows))) == [("x", 2), ("y", 2)]
    assert [number for _, number in batches(graph)] == [0, 1]


def test_a_bad_batch_ends_the_stream_with_the_code_in_the_text(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    inbox.put("a")
    for frame in (
        inbox.frame.select(f.lit(None).cast("string").alias("value")),  # a row
        inbox.frame.withColumnRenamed("value", "valeu"),  # a column
    ):
        with pytest.raises(PySparkException) as caught:
            run(frame, graph, tmp_path / f"c{frame.columns[0]}")
        assert "omnigraph error code: constraint_violation" in str(caught.value)
    assert len(graph.commits.list()) == 1
