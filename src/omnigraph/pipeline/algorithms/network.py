"""Network: the nodes and edges of one pinned snapshot as numbers, for algorithms that pass over them often.

    pinned snapshot -> ids read by executors -> **numbered nodes, edges between numbers** -> an algorithm

Room    pipeline.algorithms. What all of them read, and how all of them name their results.
Given   a graph, edge types, a state. The nodes are those of every type that one of the edge types joins.
Gives   nodes (n, type, id) and edges (a, b), one row for each edge, from a to b.
Rule    numbers follow type and id, so that what is decided by the least number is decided by name. They are
        good for one network: only names leave it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.moment import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.moments import read_state
from omnigraph.pipeline.scan import scan_of
from omnigraph.pipeline.tasks import frame_of
from omnigraph.storage.snapshot import PinnedSnapshot


@dataclass(frozen=True)
class Network:
    """A graph as numbers."""

    nodes: DataFrame
    edges: DataFrame

    @property
    def pairs(self) -> DataFrame:
        """The pairs (a, b) of different nodes that an edge joins, in either direction: a < b, each once."""
        low, high = f.least("a", "b"), f.greatest("a", "b")
        return self.edges.where("a <> b").select(low.alias("a"), high.alias("b")).distinct()

    def named(self, values: DataFrame, result: Column) -> DataFrame:
        """Return (type, id, result) for every node; `values` has a row (n, ...) for some or all of them."""
        return self.nodes.join(values, "n", "left").select("type", "id", result)

    def name_of(self, number: str) -> DataFrame:
        """Return the names of numbers: a column of numbers under the name given, and `name`."""
        name = f.concat("type", f.lit("/"), "id").alias("name")
        return self.nodes.select(f.col("n").alias(number), name)


def read_network(
    spark: SparkSession, graph: Graph, edge_types: Iterable[str] | None, branch: str, at: At | None
) -> Network:
    """Read the ids of nodes and edges at one snapshot, under the names in force now."""
    store = graph.store
    snapshot, catalog = read_state(store, Catalogs(store.schemas), branch, at)
    edges = _edge_types(catalog, snapshot, edge_types)
    reader = _Reader(spark, graph, snapshot)

    ends = {edge.id: (_node(catalog, edge.source), _node(catalog, edge.target)) for edge in edges}
    types = {node.id: node for pair in ends.values() for node in pair}
    ids = [reader.read(node, "id").withColumn("type", f.lit(node.name)) for node in types.values()]
    ordered = reduce(DataFrame.union, ids).orderBy("type", "id")
    # Checkpointed, because the numbers depend on how rows fell into partitions: they are given once.
    nodes = ordered.withColumn("n", f.monotonically_increasing_id()).localCheckpoint()
    links = [
        reader.read(edge, "src", "dst").select(
            "*", f.lit(ends[edge.id][0].name).alias("from"), f.lit(ends[edge.id][1].name).alias("to")
        )
        for edge in edges
    ]
    return Network(nodes, _numbered(reduce(DataFrame.union, links), nodes).localCheckpoint())


def _numbered(links: DataFrame, nodes: DataFrame) -> DataFrame:
    source = nodes.select(f.col("n").alias("a"), f.col("type").alias("from"), f.col("id").alias("src"))
    target = nodes.select(f.col("n").alias("b"), f.col("type").alias("to"), f.col("id").alias("dst"))
    return links.join(source, ["from", "src"]).join(target, ["to", "dst"]).select("a", "b")


@dataclass(frozen=True)
class _Reader:
    spark: SparkSession
    graph: Graph
    snapshot: PinnedSnapshot

    def read(self, declared: TableType, *columns: str) -> DataFrame:
        location = self.graph.store.location
        return frame_of(self.spark, scan_of(location, self.snapshot, declared).narrowed(columns))


def _edge_types(catalog: Catalog, snapshot: PinnedSnapshot, names: Iterable[str] | None) -> list[EdgeType]:
    if isinstance(names, str):
        raise InvalidRequest(f"edge_types={names!r} is one text", remedy="Give a list of names")
    if names is not None:
        found = list({edge.id: edge for edge in map(catalog.edge, names)}.values())
    else:
        found = [edge for edge in catalog.edges if edge.table_id in snapshot.state.pins]
    if not found:
        raise InvalidRequest("there is no edge type to follow", remedy="Name one that the schema has")
    return found


def _node(catalog: Catalog, identity: str) -> NodeType:
    found = catalog.by_id(identity)
    assert isinstance(found, NodeType)
    return found
