"""Streams into a graph: one commit for each batch, whatever fails and whatever is replayed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import ConstraintViolation, InvalidRequest
from omnigraph.engine.load.draft import Mode
from omnigraph.engine.receipt import Receipt
from omnigraph.pipeline import register, stream, written
from omnigraph.pipeline.options import Address
from omnigraph.pipeline.publishing import Batch, Plan, Target, plan_write, publish_batch
from omnigraph.pipeline.session import active
from omnigraph.pipeline.sink import StreamSink, Told
from omnigraph.pipeline.source import OmnigraphSource
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.publish import Intent

pytestmark = pytest.mark.spark

SCHEMA = "node Person { name: String @key age: I32? }\nnode Thing { value: String }\n"
PERSON = StructType([StructField("name", StringType()), StructField("age", IntegerType())])
AT_ONCE = {"availableNow": True}


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        yield made


class Inbox:
    """A folder of files, one for each batch of the stream that reads it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._number = 0
        folder.mkdir()

    def put(self, *values: str) -> None:
        """Add a file, whole."""
        self._number += 1
        part = self._folder.with_name("part")
        part.write_text("".join(json.dumps({"value": value}) + "\n" for value in values))
        os.utime(part, (self._number, self._number))  # by which Spark orders files
        part.rename(self._folder / f"{self._number:03d}.json")

    @property
    def frame(self) -> DataFrame:
        reader = self._spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    """An empty inbox; the format is known to its session."""
    register(spark)
    return Inbox(spark, tmp_path / "inbox")


def start(frame: DataFrame, graph: Graph, checkpoint: Path, **options: str) -> StreamingQuery:
    """Write by the format alone, as people do; all that is there, then end."""
    given = {"uri": graph.uri, "type": "Thing", "checkpointLocation": str(checkpoint), **options}
    kind = given.pop("format", "omnigraph")
    return frame.writeStream.format(kind).options(**given).trigger(availableNow=True).start()


def run(frame: DataFrame, graph: Graph, checkpoint: Path, **options: str) -> None:
    start(frame, graph, checkpoint, **options).awaitTermination()


def values(graph: Graph) -> list[str]:
    return sorted(graph.nodes("Thing").to_arrow()["value"].to_pylist())


def batches(graph: Graph) -> list[tuple[str, int]]:
    """Return the query and the number of each batch that made a commit, oldest first."""
    labels = [commit.labels for commit in graph.commits.list() if "spark.batch_id" in commit.labels]
    return [(one["spark.query_id"], int(one["spark.batch_id"])) for one in reversed(labels)]


# -- the sink ----------------------------------------------------------------------------------------


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


# -- the rules of a batch, without Spark -------------------------------------------------------------


def planned(graph: Graph, mode: Mode = Mode.APPEND) -> Plan:
    target = Target(Address(graph.uri, {}), "Person", "main", mode, 1000)
    return plan_write(graph.store, target, PERSON)


def publish(
    graph: Graph, batch: Batch, names: str, mode: Mode = Mode.APPEND, **intent: Any
) -> Receipt | None:
    plan = planned(graph, mode)
    rows = pa.RecordBatch.from_pydict({"name": pa.array(list(names), pa.string())})
    plan = Plan(plan.target, plan.snapshot, plan.job, rows.schema)
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
    assert publish(graph, Batch("q", 2), "", Mode.MERGE) is None
    assert len(graph.commits.list()) == 2
    assert publish(graph, Batch("q", 3), "", Mode.OVERWRITE) is not None
    assert names(graph) == ""


def test_without_a_query_id_a_batch_needs_the_id_of_its_sink(graph: Graph) -> None:
    """Tasks tell the id of their query; if none does, nobody may guess."""
    plan = planned(graph)
    rows = pa.RecordBatch.from_pydict({"name": ["a"], "age": pa.array([1], pa.int32())})
    state = plan.snapshot.state
    told: list[WriterCommitMessage | None] = [
        Told(0, plan.run([rows]), (state.line.incarnation, state.version), None)
    ]
    with pytest.raises(InvalidRequest, match="which query this batch is of"):
        StreamSink(plan, Intent(), None).commit(told, 0)
    for _ in range(2):
        StreamSink(plan, Intent(), "mine").commit(told, 0)
    assert batches(graph) == [("mine", 0)]
    assert Claims(graph.store.location, graph.store.syncer).find(
        Claim("spark:mine:0", "main", None, b"a batch of a stream")
    )


@pytest.mark.parametrize("option", ["idempotency_key", "if_commit"])
def test_a_stream_has_keys_of_its_own(graph: Graph, option: str) -> None:
    source = OmnigraphSource({"uri": graph.uri, "type": "Person", option: "x"})
    with pytest.raises(InvalidRequest, match=f"option '{option}' does not go with writing a stream"):
        source.streamWriter(PERSON, False)


# -- the helper --------------------------------------------------------------------------------------


def test_the_helper_gives_receipts_and_goes_on_where_the_sink_was(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    receipts: list[Receipt] = []
    inbox.put("a", "b")
    run(inbox.frame, graph, tmp_path / "c")
    inbox.put("c")
    frame = inbox.frame.withColumnRenamed("value", "text")
    started = stream(
        frame,
        graph,
        "Thing",
        mode="append",
        checkpoint=tmp_path / "c",
        columns={"text": "value"},
        actor="ada",
        labels={"team": "x"},
        trigger=AT_ONCE,
        on_batch=receipts.append,
    )
    assert started.wait()

    assert values(graph) == ["a", "b", "c"]
    assert [number for _, number in batches(graph)] == [0, 1]
    assert len({query for query, _ in batches(graph)}) == 1
    (receipt,) = receipts
    assert receipt is started.last
    assert (receipt.replayed, receipt.actor, [one.inserted for one in receipt.nodes]) == (False, "ada", [1])
    assert receipt.commit is not None
    assert receipt.commit.labels["team"] == "x"


def test_the_helper_replays_a_batch_without_doing_it_again(
    graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    receipts: list[Receipt] = []

    def lost(receipt: Receipt) -> None:
        receipts.append(receipt)
        if len(receipts) == 1:
            raise RuntimeError("the reply was lost")

    def go() -> None:
        stream(
            inbox.frame,
            graph,
            "Thing",
            mode="append",
            checkpoint=tmp_path / "c",
            trigger=AT_ONCE,
            on_batch=lost,
        ).wait()

    inbox.put("a")
    with pytest.raises(StreamingQueryException, match="the reply was lost"):
        go()
    inbox.put("b")
    while values(graph) != ["a", "b"]:
        go()
    assert [one.replayed for one in receipts] == [False, True, False]
    assert receipts[0].commit_id == receipts[1].commit_id
    assert [number for _, number in batches(graph)] == [0, 1]


def test_the_helper_keeps_the_type_of_errors(graph: Graph, inbox: Inbox, tmp_path: Path) -> None:
    inbox.put("a")
    with pytest.raises(ConstraintViolation, match="'valeu'"):  # before anything starts
        stream(
            inbox.frame.withColumnRenamed("value", "valeu"),
            graph,
            "Thing",
            mode="append",
            checkpoint=tmp_path / "never",
        )
    assert not (tmp_path / "never").exists()
    nothing = inbox.frame.select(f.lit(None).cast("string").alias("value"))
    with pytest.raises(ConstraintViolation) as caught:
        stream(nothing, graph, "Thing", mode="append", checkpoint=tmp_path / "c", trigger=AT_ONCE).wait()
    assert caught.value.fields["violations"][0]["property"] == "value"
    assert len(graph.commits.list()) == 1


def test_what_is_no_stream_or_no_mode_is_refused(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a stream"):
        stream(spark.range(1), graph, "Thing", mode="append", checkpoint=tmp_path / "c")
