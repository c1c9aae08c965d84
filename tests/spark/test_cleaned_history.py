"""What a cleanup gave up, asked for through Spark: the same answers as in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipeline import diff, export, read, register
from tests.engine.history.test_cleaned_history import NAMES, check_reclaimed, cleaned, graph, ids

pytestmark = pytest.mark.spark
__all__ = ["cleaned", "graph", "ids"]  # fixtures

READS: dict[str, Callable[[SparkSession, Graph, str], Any]] = {
    "read": lambda spark, g, at: read(spark, g, "Person", at=at).collect(),
    "diff": lambda spark, g, at: diff(spark, g, at, "main").collect(),
    "diff until": lambda spark, g, at: diff(spark, g, "v1", at).collect(),
    "export": lambda spark, g, at: export(spark, g, Path(g.uri).parent / "out", at=at),
}
SOURCES: dict[str, Callable[[str], dict[str, str]]] = {
    "type": lambda at: {"type": "Person", "at": at},
    "query": lambda at: {"query": NAMES, "at": at},
    "changes": lambda at: {"changes": "true", "starting": at},
}


@pytest.mark.parametrize("name", READS)
def test_what_is_given_up_says_so(spark: SparkSession, cleaned: Graph, ids: list[str], name: str) -> None:
    check_reclaimed(lambda g, at: READS[name](spark, g, at), cleaned, ids)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_of_what_is_given_up_ends_with_the_code_in_the_text(
    spark: SparkSession, cleaned: Graph, ids: list[str], tmp_path: Path, name: str
) -> None:
    register(spark)
    options = {"uri": cleaned.uri, **SOURCES[name](ids[2])}
    with pytest.raises(PySparkException) as caught:
        run(spark, options, tmp_path / "checkpoint")
    assert "omnigraph error code: history_reclaimed" in str(caught.value)


def run(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    """Read a source to its end, as a stream or as a batch."""
    if "changes" not in options:
        spark.read.format("omnigraph").options(**options).load().collect()
        return
    frame = spark.readStream.format("omnigraph").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
