"""`pipeline.stream`: receipts, typed errors, and the same keys as the sink."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, InvalidRequest
from omnigraph.engine.load.assembly import WriteMode
from omnigraph.engine.write import Receipt
from omnigraph.pipeline import stream
from omnigraph.pipeline.streaming.publishing import BatchTarget
from omnigraph.pipeline.streaming.stream import _Batches, _Work
from omnigraph.storage.publish import Intent
from tests.spark.inbox import Inbox, batches, graph, inbox, run, values

__all__ = ["graph", "inbox"]  # fixtures
pytestmark = pytest.mark.spark
AT_ONCE = {"availableNow": True}


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


def test_what_travels_to_a_server_holds_nothing_open_and_publishes_each_batch_once(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    """Behind Spark Connect the function for batches is pickled, and called in a process of the server's."""
    checkpoint = tmp_path / "[old]"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"the-query"}')  # as Spark writes it before the first batch
    target = BatchTarget(graph.store.location, "Thing", "main", WriteMode.APPEND, 1000)
    here = _Batches(graph.store, _Work(target, {"text": "value"}, Intent("ada"), None, str(checkpoint)))

    there = pickle.loads(cloudpickle.dumps(here))  # type: ignore[no-untyped-call]
    for _ in range(2):
        there(spark.createDataFrame([("a",), ("b",)], "text string"), 7)

    assert values(graph) == ["a", "b"]
    assert batches(graph) == [("the-query", 7)]
    here.known("the-query")
    receipt = here.published(7)
    assert receipt is not None
    assert (receipt.replayed, receipt.actor, receipt.affected_nodes) == (True, "ada", 2)


def test_a_batch_does_not_wait_for_a_start_that_never_returns(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    """Ctrl-C may come between the start of the query and the moment when its id is known."""
    (tmp_path / "metadata").write_text('{"id":"the-query"}')
    target = BatchTarget(graph.store.location, "Thing", "main", WriteMode.APPEND, 1000)
    called = _Batches(graph.store, _Work(target, {"text": "value"}, Intent("ada"), None, str(tmp_path)))
    frame = spark.createDataFrame([("a",)], "text string")
    caller = threading.Thread(target=called, args=(frame, 7), daemon=True)
    caller.start()
    caller.join(60)

    assert not caller.is_alive(), "waits for an id that nobody will tell"
    assert batches(graph) == [("the-query", 7)]


def test_a_checkpoint_is_where_this_process_says(
    graph: Graph, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.put("a")
    monkeypatch.chdir(tmp_path)  # the JVM keeps the directory that it was started in

    stream(inbox.frame, graph, "Thing", mode="append", checkpoint="kept", trigger=AT_ONCE).wait()

    assert (tmp_path / "kept" / "metadata").exists()


CONNECTED = """
import json, sys
import omnigraph as og
from omnigraph.pipeline import load, stream
from pyspark.sql import SparkSession

folder = sys.argv[1]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
with og.init(folder + "/g.og", "node Thing { value: String }") as graph:
    load(spark, graph, {"Thing": spark.createDataFrame([("x",)], "value string")}, mode="append")
    frame = spark.readStream.schema("value string").json(folder + "/in")
    running = stream(frame, graph, "Thing", mode="append", checkpoint=folder + "/c",
                     trigger={"availableNow": True})
    running.wait()
    last = running.last
    rows = sorted(row["value"] for row in graph.nodes("Thing").to_arrow().to_pylist())
    same = last.commit.labels["spark.query_id"] == str(running.query.id)
    print(json.dumps([rows, last.affected_nodes, same]))
spark.stop()
"""


@pytest.mark.full
def test_a_stream_behind_spark_connect(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"value": "a"}\n{"value": "b"}\n')
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}

    ran = subprocess.run(
        [sys.executable, "-c", CONNECTED, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == [["a", "b", "x"], 2, True]


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


def test_what_is_no_stream_or_no_mode_is_refused(
    spark: SparkSession, graph: Graph, inbox: Inbox, tmp_path: Path
) -> None:
    wrong: Any = "insert"
    with pytest.raises(InvalidRequest, match="argument 'mode' must be 'append', 'merge' or 'overwrite'"):
        stream(inbox.frame, graph, "Thing", mode=wrong, checkpoint=tmp_path / "c")
    with pytest.raises(InvalidRequest, match="not a stream"):
        stream(spark.range(1), graph, "Thing", mode="append", checkpoint=tmp_path / "c")
