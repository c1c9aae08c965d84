"""Labels: communities by label propagation, whatever the direction of edges.

Room    pipeline.algorithms. Every node starts with a label of its own; in each round all nodes at once take
        the label that most of their edges lead to.
Rule    an edge counts as often as it is there; one from a node to itself does not. Between labels of equal
        weight the least wins, by type and then id, so the result is the same each time. A node without
        neighbours keeps its own. Labels are named after the node that they began at, as `Type/id`.
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


@checked
def label_propagation(
    spark: SparkSession,
    graph: Graph,
    edge_types: Iterable[str] | None = None,
    *,
    rounds: int = 10,
    branch: str = "main",
    at: At | None = None,
) -> DataFrame:
    """Return (type, id, label) for every node after so many rounds, or fewer if one changes nothing."""
    if rounds < 1:
        raise InvalidRequest(f"rounds={rounds}", remedy="Give at least one round")
    network = read_network(spark, graph, edge_types, branch, at)
    kept = Rounds()
    labels = _propagated(network, kept, rounds)
    named = labels.join(network.name_of("label"), "label").select("n", "name")
    found = network.named(named, f.col("name").alias("label")).localCheckpoint()
    kept.close()
    return found


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
