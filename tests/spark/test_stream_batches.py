"""What makes a batch of a stream one commit: its key, and nothing else. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import InvalidRequest, StagedFilesGone
from omnigraph.engine.load.assembly import WriteMode
from omnigraph.engine.write import Receipt
from omnigraph.pipeline.reading.source import OmnigraphSource
from omnigraph.pipeline.streaming.publishing import Batch, BatchPlan, BatchTarget, plan_write, publish_batch
from omnigraph.pipeline.streaming.sink import StreamSink, TaskMessage
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.publish import Intent
from tests.spark.inbox import SCHEMA, batches, values

PERSON = StructType([StructField("name", StringType()), StructField("age", IntegerType())])


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        yield made


def planned(graph: Graph, mode: WriteMode = WriteMode.APPEND) -> BatchPlan:
    target = BatchTarget(graph.store.location, "Person", "main", mode, 1000)
    return plan_write(graph.store, target, PERSON)


def publish(
    graph: Graph, batch: Batch, names: str, mode: WriteMode = WriteMode.APPEND, **intent: Any
) -> Receipt | None:
    plan = planned(graph, mode)
    rows = pa.RecordBatch.from_pydict({"name": pa.array(list(names), pa.string())})
    plan = BatchPlan(plan.target, plan.snapshot, plan.job, rows.schema)
    return publish_batch(graph.store, plan.target, plan.snapshot, [plan.run([rows])], batch, Intent(**intent))


def names(graph: Graph) -> str:
    return "".join(sorted(graph.nodes("Person").to_arrow()["name"].to_pylist()))


@pytest.mark.parametrize("again", ["ab", "ba", "abc", "x"])
def test_a_batch_is_known_by_its_key_whatever_rows_and_actor_come_again(graph: Graph, again: str) -> None:
    """A replay may bring rows in another order: were they part of the key, it would be refused for ever."""
    first = publish(graph, Batch("q", 7), "ab", actor="ada")
    second = publish(graph, Batch("q", 7), again, actor="bo")
    assert first is not None
    assert second is not None
    assert (second.commit_id, first.replayed, second.replayed) == (first.commit_id, False, True)
    assert names(graph) == "ab"
    for batch, name in ((Batch("q", 8), "c"), (Batch("r", 7), "d")):
        assert publish(graph, batch, name) is not None
    assert names(graph) == "abcd"


def test_a_key_that_was_claimed_by_a_batch_that_never_landed_is_taken_up(graph: Graph) -> None:
    """A crash between the claim and the commit; the rows come in another order then."""
    with pytest.raises(GraphError):
        publish(graph, Batch("q", 0), "aa")  # a key twice
    done = publish(graph, Batch("q", 0), "ab")
    assert done is not None
    assert (done.replayed, names(graph)) == (False, "ab")


def test_no_rows_make_no_commit_unless_they_replace_all(graph: Graph) -> None:
    publish(graph, Batch("q", 0), "ab")
    assert publish(graph, Batch("q", 1), "") is None
    assert publish(graph, Batch("q", 2), "", WriteMode.MERGE) is None
    assert len(graph.commits.list()) == 2
    assert publish(graph, Batch("q", 3), "", WriteMode.OVERWRITE) is not None
    assert names(graph) == ""


def test_without_a_query_id_a_batch_needs_the_id_of_its_sink(graph: Graph) -> None:
    """Tasks tell the id of their query; if none does, nobody may guess."""
    plan = planned(graph)
    message = told(plan, 0, {"name": ["a"], "age": [1]})
    assert isinstance(message, TaskMessage)
    messages: list[WriterCommitMessage | None] = [replace(message, query_id=None)]
    with pytest.raises(InvalidRequest, match="which query this batch is of"):
        StreamSink(plan, Intent(), None).commit(messages, 0)
    for _ in range(2):
        StreamSink(plan, Intent(), "mine").commit(messages, 0)
    assert batches(graph) == [("mine", 0)]
    assert Claims(graph.store.location, graph.store.syncer).find(
        Claim("spark:mine:0", graph.store.snapshot(), None, b"a batch of a stream")
    )


def told(plan: BatchPlan, partition: int, rows: dict[str, Any]) -> WriterCommitMessage | None:
    """Return what a task tells of its rows, as if it were one."""
    batch = pa.RecordBatch.from_pydict(rows).cast(plan.columns)
    state = plan.snapshot.state
    return TaskMessage(partition, plan.run([batch]), (state.line.incarnation, state.version), "q")


def test_rows_count_in_the_order_of_partitions_whatever_order_tasks_end_in(graph: Graph) -> None:
    """Of several rows with one id the last counts."""
    columns = StructType([StructField("id", StringType()), StructField("value", StringType())])
    target = BatchTarget(graph.store.location, "Thing", "main", WriteMode.MERGE, 1)
    plan = plan_write(graph.store, target, columns)
    first = told(plan, 0, {"id": ["x", "y"], "value": ["0", "0"]})
    second = told(plan, 1, {"id": ["x"], "value": ["1"]})
    StreamSink(plan, Intent(), None).commit([second, first], 0)
    assert values(graph) == ["0", "1"]


def test_files_of_a_batch_that_a_cleanup_may_have_taken_are_not_published(graph: Graph) -> None:
    """Whoever commits goes by the state that the batch was planned on, not by that of now."""
    plan = plan_write(
        graph.store, BatchTarget(graph.store.location, "Person", "main", WriteMode.APPEND, 1), PERSON
    )
    messages = [told(plan, 0, {"name": ["a", "b"], "age": [1, 2]})]
    graph.store.raise_floor("main", 1)
    with pytest.raises(StagedFilesGone):
        StreamSink(plan_write(graph.store, plan.target, PERSON), Intent(), None).commit(messages, 0)
    assert names(graph) == ""


@pytest.mark.parametrize("option", ["idempotency_key", "if_commit"])
def test_a_stream_has_keys_of_its_own(graph: Graph, option: str) -> None:
    source = OmnigraphSource({"uri": graph.uri, "type": "Person", option: "x"})
    with pytest.raises(InvalidRequest, match=f"option '{option}' does not go with writing a stream"):
        source.streamWriter(PERSON, False)
