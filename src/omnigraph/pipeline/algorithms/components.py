"""Components: which nodes hang together, whatever the direction of edges.

Room    pipeline.algorithms. Large star, small star (Kiveris and others, 2014): every round hangs nodes on
        smaller ones, until each hangs on the least of its component. The number of rounds grows with the
        logarithm of the size, not with the longest way through a component.
Rule    a component is named after its least node, by type and then id, as `Type/id`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.moment import At
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.algorithms.network import read_network
from omnigraph.pipeline.algorithms.rounds import Rounds


@checked
def connected_components(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    branch: str = "main",
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, component) for every node; alone, a node is a component of its own."""
    network = read_network(spark, graph, edge_types, branch, at)
    rounds = Rounds()
    least = _least(network.pairs, rounds)
    every = network.nodes.select("n").join(least, "n", "left")
    rooted = every.select("n", f.coalesce("root", "n").alias("root"))
    named = rooted.join(network.name_of("root"), "root")
    found = network.named(named.select("n", "name"), f.col("name").alias("component")).localCheckpoint()
    rounds.close()
    return found


def _least(pairs: DataFrame, rounds: Rounds) -> DataFrame:
    """Return (n, root) for each node that is not the least of its component. Pairs have a < b."""
    hanging = pairs.select(f.col("b").alias("n"), f.col("a").alias("root"))
    while True:
        hanging, measured = rounds.take(
            _small_star(_large_star(hanging)), f.count("*").alias("all"), f.countDistinct("n").alias("nodes")
        )
        if measured.all == measured.nodes and not _chained(hanging):
            return hanging


def _chained(hanging: DataFrame) -> bool:
    """Say whether a node hangs on one that hangs itself."""
    holders = hanging.select(f.col("root").alias("n"))
    return bool(hanging.join(holders, "n", "left_semi").limit(1).count())


def _large_star(hanging: DataFrame) -> DataFrame:
    """Hang the larger neighbours of each node on the least one, or on the node itself."""
    both = hanging.union(hanging.select("root", "n"))
    least = f.least(f.min("root").over(Window.partitionBy("n")), "n").alias("least")
    near = both.select(f.col("root").alias("n"), f.col("n").alias("of"), least).where("n > of")
    return near.select("n", f.col("least").alias("root")).distinct()


def _small_star(hanging: DataFrame) -> DataFrame:
    """Hang each node, and the smaller neighbours of it, on the least of these."""
    least = f.min("root").over(Window.partitionBy("n")).alias("least")
    near = hanging.select("n", "root", least)
    moved = f.explode(f.array("n", "root")).alias("n")
    return near.select(moved, f.col("least").alias("root")).where("n <> root").distinct()
