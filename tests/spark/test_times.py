"""Days and instants at the edge of what is stored, through Spark: refused going in, read coming out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, InvalidRequest
from omnigraph.pipeline import load
from omnigraph.pipeline.reading.scan import to_spark
from omnigraph.pipeline.reading.source import OmnigraphSource
from tests.support.contents import insert

pytestmark = pytest.mark.spark

SCHEMA = "node Event { k: String @key  at: DateTime?  day: Date?  times: [DateTime]? }"
FAR, FAR_DAY = 1_738_000_000_000_000, 20_000_000
FAR_TEXT = "+57045-01-10T17:46:40.000Z"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as graph:
        yield graph


def rows(source: OmnigraphSource) -> pa.Table:
    """Return the rows as tasks would give them, without Spark."""
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches)


def test_a_bulk_load_refuses_years_that_cannot_be_read_back_and_names_the_row(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    numbers = [("good", None), ("bad", FAR)]
    frame = spark.createDataFrame(numbers, "k string, ms long").selectExpr("k", "timestamp_millis(ms) at")
    lines = [{"type": "Event", "data": {"k": "good"}}, {"type": "Event", "data": {"k": "bad", "at": FAR}}]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    for data in ({"Event": frame.coalesce(1)}, file):
        with pytest.raises(ConstraintViolation) as refused:
            load(spark, graph, data, mode="append")
        [violation] = refused.value.fields["violations"]
        assert (violation["entity_id"], violation["place"].endswith(":2")) == ("bad", True)
        assert f"Event.at: {FAR_TEXT} is outside the years 1 to 9999" in violation["message"]
    assert len(graph.nodes("Event")) == 0


def test_rows_of_an_older_graph_are_read_whole(graph: Graph) -> None:
    row: dict[str, Any] = {"k": "far", "at": FAR, "day": FAR_DAY, "times": [FAR]}
    insert(graph, {"Event": [row]})
    query = "query q() { match { $e: Event } return { $e.at as at, $e } }"

    nodes = rows(OmnigraphSource({"uri": graph.uri, "type": "Event"}))
    result = rows(OmnigraphSource({"uri": graph.uri, "query": query}))

    for table in (nodes, result):
        assert table["at"].cast(pa.int64()).to_pylist() == [FAR * 1000]
    assert nodes["day"].cast(pa.int32()).to_pylist() == [FAR_DAY]
    assert nodes["times"].combine_chunks().flatten().cast(pa.int64()).to_pylist() == [FAR * 1000]


def test_an_instant_that_spark_has_not_is_an_error_and_not_another_instant(graph: Graph) -> None:
    beyond = pa.array([2**62], pa.int64()).cast(pa.date64())

    with pytest.raises(InvalidRequest, match="does not fit Spark's type"):
        to_spark(beyond, pa.date64())
