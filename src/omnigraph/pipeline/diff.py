"""Diff: what two states of a graph do not have in common, as a DataFrame.

    two moments -> two states -> sides of each type -> **compared by executors** -> changes

Room    pipeline. The comparison is that of `graph.diff`; here many processes make it, each for some ids.
Given   a session, a graph and two moments; a type, if only its changes are wanted.
Gives   the columns op, kind, type, id, fields, before, after, as a change feed has them. Both states are
        pinned when the DataFrame is made. Rows come in no order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.moment import At
from omnigraph.catalog.model import TableType
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.comparison import Comparison
from omnigraph.engine.history.delta import compare
from omnigraph.engine.history.paired import fills_of
from omnigraph.engine.history.sides import side
from omnigraph.pipeline.feed_rows import Images
from omnigraph.pipeline.sides import by_id, gathered, readings
from omnigraph.storage.store import GraphStore


@checked
def diff(
    spark: SparkSession,
    graph: Graph,
    a: At,
    b: At = "main",
    *,
    type: str | None = None,
) -> DataFrame:
    """Return the changes that lead from one state to another; with a type, their images are structs."""
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    before, after = side(store, a).state, side(store, b).state
    found = Comparison(store, catalogs, before, after)
    chosen = None if type is None else found.newer.named(type)
    images = Images(None if chosen is None else found.pair(chosen).declared)
    wanted = [one for one in found.types if chosen is None or one.table_id == chosen.table_id]
    frames = [_changes(spark, store, found, declared, images) for declared in wanted]
    if not frames:
        return spark.createDataFrame([], images.of_changes)
    return reduce(DataFrame.union, frames)


def _changes(
    spark: SparkSession, store: GraphStore, found: Comparison, declared: TableType, images: Images
) -> DataFrame:
    pair = found.pair(declared)
    gone, come = found.sides(declared)
    read = [
        *readings(0, store, gone, found.older, pair.declared),
        *readings(1, store, come, found.newer, pair.declared),
    ]
    schema = pair.declared.stored_schema
    rows = by_id(spark, read, schema, fills_of(pair.declared, found.after), gone.rows + come.rows)

    def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from images.changes(compare(*gathered(batches, schema, 2)), pair)

    return rows.mapInArrow(compared, images.of_changes)
