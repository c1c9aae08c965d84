"""Network: the nodes and edges of one pinned snapshot as numbers, for algorithms that pass over them often.

    pinned snapshot -> ids read by executors -> **numbered nodes, edges between numbers** -> an algorithm

What all of them read, and how all of them name their results.

Given   a graph, edge types, a state. The nodes are those of every type that one of the edge types joins.
Gives   nodes (n, type, id) and edges (a, b), one row for each edge, from a to b.
Rule    numbers follow type and id, so that what is decided by the least number is decided by name. They are
        good for one network: only names leave it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, InvalidRequest
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, NodeType, TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.resolve_at import read_state
from omnigraph.engine.write import Receipt
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.pipeline.bulk.load import load
from omnigraph.pipeline.reading.scan import scan_of
from omnigraph.pipeline.session import frame_of
from omnigraph.storage.transaction import PinnedSnapshot


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
    spark: SparkSession, graph: Graph, edge_types: Iterable[str] | None, branch: str | None, at: At | None
) -> Network:
    """Read the ids of nodes and edges at one snapshot, under the names in force now."""
    store = graph.store
    snapshot, catalog = read_state(store, Catalogs(store.schemas), *graph.view.read(branch, at))
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
        edges = list({edge.id: edge for edge in map(catalog.edge, names)}.values())
    else:
        edges = [edge for edge in catalog.edges if edge.table_id in snapshot.state.pins]
    if not edges:
        raise InvalidRequest("there is no edge type to follow", remedy="Name one that the schema has")
    return edges


def _node(catalog: Catalog, identity: str) -> NodeType:
    node = catalog.by_id.get(identity)
    assert isinstance(node, NodeType)
    return node


# -- write back --------------------------------------------------------------------------------------
#
#   result -> joined with whole rows of the branch -> **one merge load** -> receipt
#
# What an algorithm found, as a property of the nodes that it found it for. A load replaces entities whole,
# so all properties of them are read first. The load is made for the very commit that the rows were read
# from: if somebody writes to the branch meanwhile it is refused, so nothing of theirs is undone. Nodes that
# the result does not name, or that have the value already, stay as they are; names that the branch does not
# have are left out.


TYPE, NEW = "type", "value to write"  # no property has a blank in its name


@checked
def write_back(
    spark: SparkSession,
    graph: Graph,
    result: DataFrame,
    property: str,
    *,
    type: str,
    branch: str | None = None,
    from_branch: str | None = None,
    message: str | None = None,
    actor: str | None = None,
) -> Receipt:
    """Set a property of the nodes of one type to what a result says of them, as one commit.

    `result` has `id`, perhaps `type`, and the value: the column of the property's name, or the only other
    one. A missing branch is made from `from_branch` if that is given.
    """
    branch = graph.view.write(branch)
    base = _base(graph, branch, from_branch)
    catalog = Catalogs(graph.store.schemas).get(base.schema)
    declared = catalog.node(type)
    _check(declared, property)
    values = _values(result, property, declared)
    rows = frame_of(spark, scan_of(graph.store.location, base, declared))
    return load(
        spark,
        graph,
        {f"node:{declared.name}": _changed(rows, values, property)},
        mode="merge",
        branch=branch,
        from_branch=from_branch,
        if_commit=base.commit_id,
        message=message,
        actor=actor,
    )


def _base(graph: Graph, branch: str, from_branch: str | None) -> PinnedSnapshot:
    """Return the commit that is built on: the head of the branch, or of that which it will be made from."""
    try:
        return graph.store.snapshot(branch)
    except BranchNotFound:
        if from_branch is None:
            raise
        return graph.store.snapshot(from_branch)


def _check(declared: NodeType, name: str) -> None:
    member = declared.find(name)
    if member is None:
        hint = did_you_mean(name, [p.name for p in declared.properties])
        raise InvalidRequest(
            f"{declared.name} has no property {name!r}" + (f"; {hint}" if hint else ""),
            remedy="Add it to the schema first",
        )
    if member.id in declared.key:
        raise InvalidRequest(
            f"{name!r} is the key of {declared.name}", remedy="Write to a property that is no key"
        )


def _changed(rows: DataFrame, values: DataFrame, name: str) -> DataFrame:
    """Return whole rows with the new values; of equal type, only where they differ."""
    joined = rows.join(values, ID)
    if rows.schema[name].dataType == values.schema[NEW].dataType:
        joined = joined.where(~f.col(NEW).eqNullSafe(f.col(name)))
    return joined.select(
        *(f.col(NEW).alias(name) if column == name else f.col(column) for column in rows.columns)
    )


def _values(result: DataFrame, name: str, declared: NodeType) -> DataFrame:
    """Return the ids of nodes of the type, and the values for them."""
    others = [column for column in result.columns if column not in (ID, TYPE)]
    column = name if name in others else others[0] if len(others) == 1 else None
    if ID not in result.columns or column is None:
        raise InvalidRequest(
            f"the result has the columns {', '.join(result.columns)}",
            remedy=f"It needs {ID!r}, may have {TYPE!r}, and one more: the values of {name!r}",
        )
    chosen = result.where(f.col(TYPE) == declared.name) if TYPE in result.columns else result
    return chosen.select(ID, f.col(column).alias(NEW))
