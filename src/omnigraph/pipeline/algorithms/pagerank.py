"""PageRank: how likely somebody is at a node who follows edges at random, and now and then jumps anywhere.

Room    pipeline.algorithms.
Rule    an edge counts as often as it is there, also from a node to itself. Who stands at a node without an
        edge that leaves it jumps. All ranks together are 1.
Why     ranks are whole numbers of a tiny unit while they are computed. Sums of floats depend on the order in
        which Spark adds them up; these do not, so the same commit gives the same ranks, bit for bit, and a
        graph that they are written to changes only where they do.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.moment import At
from omnigraph.engine.graph import Graph
from omnigraph.pipeline.algorithms.network import Network, read_network
from omnigraph.pipeline.algorithms.rounds import Rounds

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
    branch: str = "main",
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
    found = network.named(ranks.select("n", "rank"), share).localCheckpoint()
    rounds.close()
    return found


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
