"""Algorithms: PageRank, connected components, label propagation and triangle counts of a network.

All of them go over the numbered nodes and edges of one pinned snapshot (network.py). The same commit gives
the same result, bit for bit, however Spark divides the work: between equals the least wins, by type and
then id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import At
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.analytics.network import Network, read_network

# -- rounds ------------------------------------------------------------------------------------------
#
# The state of a computation that goes round after round. Spark plans a round from where its state came
# from, so without care each round plans, and perhaps computes, all rounds before it. Here a state is
# computed once and kept, the one before it is let go, and each few rounds the plan is cut.


CUT_EVERY = 4


class Rounds:
    """Keeps the state of the newest round."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[DataFrame] = []

    def take(self, state: DataFrame, *measures: Column) -> tuple[DataFrame, Any]:
        """Compute a new state; return it as it is kept, and what is measured of it, as a row."""
        self.count += 1
        cut = self.count % CUT_EVERY == 0
        kept = state.localCheckpoint() if cut else state.persist()
        measured = kept.agg(*measures).collect()[0]
        self.close()
        if not cut:
            self._kept.append(kept)
        return kept, measured

    def close(self) -> None:
        """Let go of what is kept in memory."""
        while self._kept:
            self._kept.pop().unpersist()


# -- pagerank ----------------------------------------------------------------------------------------
#
# How likely somebody is at a node who follows edges at random, and now and then jumps anywhere. An edge
# counts as often as it is there, also from a node to itself. Who stands at a node without an edge that
# leaves it jumps. All ranks together are 1.
#
# Ranks are whole numbers of a tiny unit while they are computed. Sums of floats depend on the order in which
# Spark adds them up; these do not, so a graph that ranks are written to changes only where they do.


ONE = 1 << 60  # the sum of all ranks, in units


@checked
def pagerank(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_rounds: int = 50,
    branch: str | None = None,
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, rank) for every node.

    Ends when a round moves less than `tolerance` of all rank, or after `max_rounds`.
    """
    if not 0 <= damping < 1 or tolerance < 0 or max_rounds < 1:
        raise InvalidRequest(
            f"damping={damping}, tolerance={tolerance}, max_rounds={max_rounds}",
            remedy="Damping is at least 0 and below 1, the tolerance not negative, the rounds at least one",
        )
    network = read_network(spark, graph, edge_types, branch, at)
    rounds = Rounds()
    ranks, total = _converged(network, rounds, damping, tolerance, max_rounds)
    share = (f.col("rank") / f.lit(float(total))).alias("rank")
    result = network.named(ranks.select("n", "rank"), share).localCheckpoint()
    rounds.close()
    return result


def _converged(
    network: Network, rounds: Rounds, damping: float, tolerance: float, max_rounds: int
) -> tuple[DataFrame, int]:
    """Return (n, rank), and the sum of all ranks."""
    size = network.nodes.count()
    links = network.edges.groupBy("a", "b").agg(f.count("*").alias("times")).localCheckpoint()
    leaving = links.groupBy(f.col("a").alias("n")).agg(f.sum("times").alias("out"))
    start = f.lit(ONE // max(size, 1)).cast("long").alias("rank")
    state = network.nodes.join(leaving, "n", "left").select(
        "n", f.coalesce("out", f.lit(0)).alias("out"), start
    )
    stuck = f.sum(f.when(f.col("out") == 0, f.col("rank")).otherwise(0)).alias("stuck")
    total = f.sum("rank").alias("total")
    state, measured = rounds.take(state, stuck, total)
    while size and rounds.count <= max_rounds:
        jumps = int(ONE * (1 - damping) + damping * measured.stuck) // size
        share = f.floor(f.col("rank") * damping / f.col("out")).alias("share")
        sent = links.join(state.where("out > 0").select(f.col("n").alias("a"), share), "a")
        got = sent.groupBy(f.col("b").alias("n")).agg(f.sum(f.col("share") * f.col("times")).alias("got"))
        rank = (f.coalesce("got", f.lit(0)) + f.lit(jumps)).alias("rank")
        moved = f.abs(rank - f.col("rank")).alias("moved")
        after = state.join(got, "n", "left").select("n", "out", rank, moved)
        state, measured = rounds.take(after, stuck, total, f.sum("moved").alias("moved"))
        if measured.moved < tolerance * ONE:
            break
    return state, measured.total or 1


# -- components --------------------------------------------------------------------------------------
#
# Which nodes hang together, whatever the direction of edges. Large star, small star (Kiveris and others,
# 2014): every round hangs nodes on smaller ones, until each hangs on the least of its component. The number
# of rounds grows with the logarithm of the size, not with the longest way through a component. A component
# is named after its least node, by type and then id, as `Type/id`.


@checked
def connected_components(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    branch: str | None = None,
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, component) for every node; alone, a node is a component of its own."""
    network = read_network(spark, graph, edge_types, branch, at)
    rounds = Rounds()
    least = _least(network.pairs, rounds)
    every = network.nodes.select("n").join(least, "n", "left")
    rooted = every.select("n", f.coalesce("root", "n").alias("root"))
    named = rooted.join(network.name_of("root"), "root")
    result = network.named(named.select("n", "name"), f.col("name").alias("component")).localCheckpoint()
    rounds.close()
    return result


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


# -- labels ------------------------------------------------------------------------------------------
#
# Communities by label propagation, whatever the direction of edges. Every node starts with a label of its
# own; in each round all nodes at once take the label that most of their edges lead to. An edge counts as
# often as it is there; one from a node to itself does not. Between labels of equal weight the least wins,
# by type and then id, so the result is the same each time. A node without neighbours keeps its own. Labels
# are named after the node that they began at, as `Type/id`.


@checked
def label_propagation(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    rounds: int = 10,
    branch: str | None = None,
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, label) for every node after so many rounds, or fewer if one changes nothing."""
    if rounds < 1:
        raise InvalidRequest(f"rounds={rounds}", remedy="Give at least one round")
    network = read_network(spark, graph, edge_types, branch, at)
    kept = Rounds()
    labels = _propagated(network, kept, rounds)
    named = labels.join(network.name_of("label"), "label").select("n", "name")
    result = network.named(named, f.col("name").alias("label")).localCheckpoint()
    kept.close()
    return result


def _propagated(network: Network, kept: Rounds, rounds: int) -> DataFrame:
    """Return (n, label)."""
    edges = network.edges.where("a <> b")
    both = edges.select(f.col("a").alias("n"), f.col("b").alias("other"))
    both = both.union(both.select("other", "n"))
    near = both.groupBy("n", "other").agg(f.count("*").alias("times")).localCheckpoint()
    labels = network.nodes.select("n", f.col("n").alias("label"))
    while kept.count < rounds:
        heard = near.join(labels.select(f.col("n").alias("other"), "label"), "other")
        weighed = heard.groupBy("n", "label").agg(f.sum("times").alias("weight"))
        best = f.min(f.struct(-f.col("weight"), "label")).getField("label").alias("best")
        taken = labels.join(weighed.groupBy("n").agg(best), "n", "left")
        after = taken.select(
            "n",
            f.coalesce("best", "label").alias("label"),
            (f.coalesce("best", "label") != f.col("label")).cast("int").alias("changed"),
        )
        labels, measured = kept.take(after, f.sum("changed").alias("changed"))
        if not measured.changed:
            break
    return labels


# -- triangles ---------------------------------------------------------------------------------------
#
# How many triangles each node is a corner of. Every pair of neighbours points from the node of fewer
# neighbours to the other, so a node with very many of them is the start of few pairs; a triangle is found
# once, at the corner that both of its sides leave. Direction does not count, nor how often an edge is
# there, nor an edge from a node to itself.


@checked
def triangle_count(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    branch: str | None = None,
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
