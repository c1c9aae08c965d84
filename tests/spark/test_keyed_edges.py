"""Keyed edges on Spark: loads, streams and merges derive the same ids as one process does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, KeyConflict
from omnigraph.pipeline import load, merge, register

pytestmark = pytest.mark.spark
SCHEMA = """
node P { n: String @key }
node Film { n: String @key }
edge Rates: P -> Film { stars: I32  day: Date?  @key(src, dst) }
"""
COLUMNS = "`from` string, `to` string, stars int"
engines = pytest.mark.parametrize(
    "driver_rows", [pytest.param(0, id="executors"), pytest.param(1000, id="driver")]
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        nodes = [{"type": "P", "data": {"n": name}} for name in ("Ada", "Bo")]
        made.load([*nodes, {"type": "Film", "data": {"n": "Up"}}], mode="append")
        yield made


def ratings(spark: SparkSession, *rows: tuple[str, int]) -> DataFrame:
    return spark.createDataFrame([(who, "Up", stars) for who, stars in rows], COLUMNS).repartition(2)


def rated(graph: Graph, branch: str | None = None) -> dict[str, int]:
    rows = graph.edges("Rates", branch=branch).to_arrow().to_pylist()
    return {row["id"]: row["stars"] for row in rows}


@engines
def test_a_merge_load_replaces_the_edges_of_the_same_ends(
    spark: SparkSession, graph: Graph, driver_rows: int
) -> None:
    def rate(mode: Any, *rows: tuple[str, int]) -> None:
        frames = {"Rates": ratings(spark, *rows)}
        load(spark, graph, frames, mode=mode, driver_rows=driver_rows)

    rate("merge", ("Ada", 3))
    rate("merge", ("Ada", 4), ("Bo", 5))
    assert rated(graph) == {'["Ada","Up"]': 4, '["Bo","Up"]': 5}

    with pytest.raises(KeyConflict):
        rate("append", ("Bo", 1))
    with pytest.raises(ConstraintViolation, match="stands in the input twice"):
        rate("merge", ("Ada", 1), ("Ada", 2))
    assert rated(graph) == {'["Ada","Up"]': 4, '["Bo","Up"]': 5}


def test_records_that_repeat_a_key_are_set_aside(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    lines = [{"edge": "Rates", "from": who, "to": "Up", "data": {"stars": 1}} for who in ("Ada", "Bo", "Ada")]
    lines += [{"edge": "Rates", "id": "e1", "from": "Bo", "to": "Up", "data": {"stars": 1}}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    load(
        spark,
        graph,
        tmp_path / "in.jsonl",
        mode="merge",
        on_violation="reject",
        rejects=tmp_path / "rejects.parquet",
    )

    assert rated(graph) == {'["Ada","Up"]': 1, '["Bo","Up"]': 1}
    rejected = pq.read_table(tmp_path / "rejects.parquet").to_pylist()
    assert sorted({row["code"] for row in rejected}) == ["key", "unique"]


def test_a_stream_upserts_by_ends(spark: SparkSession, graph: Graph, tmp_path: Path) -> None:
    register(spark)
    (tmp_path / "inbox").mkdir()
    for number, stars in enumerate((3, 4)):
        record = {"from": "Ada", "to": "Up", "stars": stars}
        (tmp_path / "inbox" / f"{number}.json").write_text(json.dumps(record) + "\n")
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "inbox"))
    options = {
        "uri": graph.uri,
        "type": "Rates",
        "load_mode": "merge",
        "checkpointLocation": str(tmp_path / "c"),
    }

    frame.writeStream.format("omnigraph").options(**options).trigger(
        availableNow=True
    ).start().awaitTermination()

    assert list(rated(graph)) == ['["Ada","Up"]']


def test_a_merge_by_executors_takes_edges_of_one_key_for_one(spark: SparkSession, graph: Graph) -> None:
    graph.branches.create("side")
    for branch, rows in (("side", [("Ada", 3), ("Bo", 4)]), ("main", [("Ada", 3)])):
        load(spark, graph, {"Rates": ratings(spark, *rows)}, mode="append", branch=branch)

    merge(spark, graph, "side", large_rows=0)

    assert rated(graph) == {'["Ada","Up"]': 3, '["Bo","Up"]': 4}
