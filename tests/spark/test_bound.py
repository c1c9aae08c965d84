"""A graph that is bound to a branch or a past state is that on Spark too: nothing falls back on main."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import pipeline

SCHEMA = "node Person { name: String @key  rank: F64? }\nedge Knows: Person -> Person"


def test_work_on_a_bound_graph_reads_and_writes_what_it_is_bound_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        empty = graph.at("main~0")
        dev = graph.branch("dev", create=True)
        people = spark.createDataFrame([("Ada", None), ("Bo", None)], "name string, rank double")

        pipeline.load(spark, dev, {"Person": people}, mode="append")
        pipeline.analytics.write_back(
            spark, dev, pipeline.analytics.pagerank(spark, dev), "rank", type="Person"
        )
        pipeline.ensure_indexes(spark, dev)

        assert [row["rank"] for row in pipeline.read(spark, dev, "Person").collect()] == [0.5, 0.5]
        assert pipeline.diff(spark, dev, "main").count() == 2
        assert pipeline.export(spark, dev, tmp_path / "out").commit_id == dev.commits.get("dev~0").id
        assert pipeline.read(spark, graph, "Person").count() == 0
        assert len(graph.nodes("Person")) == 0

        pipeline.merge(spark, graph, "dev")
        assert pipeline.read(spark, graph, "Person").count() == 2
        assert pipeline.read(spark, empty, "Person").count() == 0
        with pytest.raises(og.PastState):
            pipeline.load(spark, empty, {"Person": people}, mode="append")
        with pytest.raises(og.PastState):
            pipeline.merge(spark, empty, "dev")
