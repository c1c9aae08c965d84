"""`pipeline.stream`: receipts, typed errors, and the same keys as the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, InvalidRequest
from omnigraph.engine.receipt import Receipt
from omnigraph.pipeline import stream
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
    with pytest.raises(InvalidRequest, match="there is no load mode 'insert'"):
        stream(inbox.frame, graph, "Thing", mode=wrong, checkpoint=tmp_path / "c")
    with pytest.raises(InvalidRequest, match="not a stream"):
        stream(spark.range(1), graph, "Thing", mode="append", checkpoint=tmp_path / "c")
