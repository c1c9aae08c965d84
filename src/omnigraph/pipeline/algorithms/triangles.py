"""Triangles: how many triangles each node is a corner of.

Room    pipeline.algorithms. Every pair of neighbours points from the node of fewer neighbours to the other,
        so a node with very many of them is the start of few pairs; a triangle is found once, at the corner
        that both of its sides leave.
Rule    direction does not count, nor how often an edge is there, nor an edge from a node to itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.moment import At
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.algorithms.network import read_network


@checked
def triangle_count(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    branch: str = "main",
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, triangles) for every node."""
    network = read_network(spark, graph, edge_types, branch, at)
    pairs = network.pairs.localCheckpoint()
    corners = _triangles(pairs).select(f.explode(f.array("u", "v", "w")).alias("n"))
    counted = corners.groupBy("n").agg(f.count("*").alias("triangles"))
    return network.named(counted, f.coalesce("triangles", f.lit(0)).alias("triangles")).localCheckpoint()


def _triangles(pairs: DataFrame) -> DataFrame:
    """Return (u, v, w), each triangle once."""
    ends = pairs.select(f.explode(f.array("a", "b")).alias("n"))
    degrees = ends.groupBy("n").agg(f.count("*").alias("degree"))
    first = degrees.select(f.col("n").alias("a"), f.col("degree").alias("of_a"))
    second = degrees.select(f.col("n").alias("b"), f.col("degree").alias("of_b"))
    known = pairs.join(first, "a").join(second, "b")
    ahead = f.col("of_a") <= f.col("of_b")  # a < b settles it between equals
    start, end = (
        f.when(ahead, f.col("a")).otherwise(f.col("b")),
        f.when(ahead, f.col("b")).otherwise(f.col("a")),
    )
    arrows = known.select(start.alias("u"), end.alias("v"))
    fans = arrows.join(arrows.select("u", f.col("v").alias("w")), "u").where("v < w")
    return fans.join(pairs.select(f.col("a").alias("v"), f.col("b").alias("w")), ["v", "w"])
