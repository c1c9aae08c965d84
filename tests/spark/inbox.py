"""A folder that streams are read from, and what came of them in a graph."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import omnigraph as og
from omnigraph import Graph
from omnigraph.pipeline import register

SCHEMA = "node Person { name: String @key age: I32? }\nnode Thing { value: String }\n"


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


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        yield made


@pytest.fixture
def inbox(spark: SparkSession, tmp_path: Path) -> Inbox:
    """An empty inbox; the format is known to its session."""
    register(spark)
    return Inbox(spark, tmp_path / "inbox")
