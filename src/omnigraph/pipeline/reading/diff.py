"""Diff: what two states of a graph do not have in common, as a DataFrame.

    two moments -> two states -> sides of each type -> **compared by executors** -> changes

The comparison is that of `graph.diff`; here many processes make it, each for some ids.

Given   a session, a graph and two moments; a type, if only its changes are wanted.
Gives   the columns op, kind, type, id, fields, before, after, as a change feed has them. Both states are
        pinned when the DataFrame is made. Rows come in no order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, TableType
from omnigraph.catalog.past import columns_then
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.comparison import StateComparison
from omnigraph.engine.history.delta import Fills, compare, conformed, fills_of
from omnigraph.pipeline.reading.feed import Images
from omnigraph.pipeline.reading.scan import from_spark, spark_type, to_spark, travels_as
from omnigraph.pipeline.session import rows_of
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.differences import FragmentRows, OneSided

# -- sides -------------------------------------------------------------------------------------------
#
#   versions -> what only one has (storage) -> read by executors -> **rows of one id in one task** -> work
#
# The rows that two versions of a table do not share, brought together by id, for diffs and merges. The
# driver finds out which fragments differ and at which offsets, which takes no reading; executors read just
# those. The caller numbers the sides, and all of them are read under the columns of one type. In a task
# `gathered` has, for each side, the rows of the task's ids: about `TASK_ROWS`, so memory does not follow
# the size of the change.


TASK_ROWS = 500_000
NUMBER = "number"


@dataclass(frozen=True)
class Reading:
    """Some rows of one side, as an executor reads them."""

    number: int  # of the side
    location: Location
    table_id: str
    version: int
    fragments: tuple[FragmentRows, ...]
    names: Mapping[str, str]  # column of the type -> the one that has its values in this version

    def rows(self, schema: pa.Schema, fills: Fills) -> Iterator[pa.Table]:
        """Yield the rows under a schema."""
        with GraphStore(self.location) as store:
            side = OneSided(store.reads.handle(self.table_id, self.version), self.fragments)
            for batch in side.batches(list(self.names.values())):
                renamed = pa.Table.from_batches([batch]).rename_columns(list(self.names))
                yield conformed(renamed, schema, fills)


def readings(
    number: int, store: GraphStore, side: OneSided, then: Catalog, declared: TableType
) -> list[Reading]:
    """Return what executors read of one side, in parts; `then` is the schema that its version has."""
    known = then.same_table(declared)
    if side.handle is None or known is None:
        return []
    names = columns_then(declared, then)
    whole = Reading(number, store.location, known.table_id, side.handle.version, (), names)
    # What the driver holds of small fragments stays here: executors read them as they read the others.
    fragments = [replace(fragment, held=None) for fragment in side.pieces]
    return [replace(whole, fragments=tuple(group)) for group in _grouped(fragments)]


def _grouped(fragments: Sequence[FragmentRows]) -> Iterator[list[FragmentRows]]:
    held: list[FragmentRows] = []
    for fragment in fragments:
        if held and sum(earlier.rows for earlier in held) + fragment.rows > TASK_ROWS:
            yield held
            held = []
        held.append(fragment)
    if held:
        yield held


def by_id(
    spark: SparkSession, to_read: Sequence[Reading], schema: pa.Schema, fills: Fills, rows: int
) -> DataFrame:
    """Return the rows of all sides with those of one id in one partition."""
    sent = {name: pa.repeat(value, 1) for name, value in fills.items()}  # a scalar loses the time of a day

    def read(reading: Reading) -> Iterator[pa.RecordBatch]:
        filled = {name: value[0] for name, value in sent.items()}
        for table in reading.rows(schema, filled):
            yield from _sent(table, reading.number)

    columns = [StructField(_name(at), spark_type(field.type)) for at, field in enumerate(schema)]
    frame = rows_of(spark, to_read, read, StructType([StructField(NUMBER, IntegerType()), *columns]))
    return frame.repartition(max(-(-rows // TASK_ROWS), 1), _name(schema.get_field_index(ID)))


def gathered(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sides: int) -> list[pa.Table]:
    """Return the rows of each side in a task, by id."""
    by_side: list[list[pa.RecordBatch]] = [[] for _ in range(sides)]
    for batch in batches:
        arrays = [
            from_spark(values, field.type, field.name)
            for values, field in zip(batch.columns[1:], schema, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        for number in range(sides):
            mine = rows.filter(pc.equal(batch.column(0), number))
            if mine.num_rows:
                by_side[number].append(mine)
    return [pa.Table.from_batches(parts, schema).sort_by(ID) for parts in by_side]


def _sent(table: pa.Table, number: int) -> Iterator[pa.RecordBatch]:
    """Turn rows into what travels; columns go by their place, since any name may be a property's."""
    for batch in table.combine_chunks().to_batches():
        arrays = [to_spark(values, values.type) for values in batch.columns]
        names = [_name(at) for at in range(len(arrays))]
        numbers = pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)
        fields = [
            pa.field(name, travels_as(values.type)) for name, values in zip(names, batch.columns, strict=True)
        ]
        schema = pa.schema([pa.field(NUMBER, pa.int32()), *fields])
        yield pa.RecordBatch.from_arrays([numbers, *arrays], schema=schema)


def _name(at: int) -> str:
    return f"c{at}"


# -- diff --------------------------------------------------------------------------------------------


@checked
def diff(
    spark: SparkSession,
    graph: Graph,
    a: At,
    b: At | None = None,
    *,
    type: str | None = None,
) -> DataFrame:
    """Return the changes that lead from one state to another; with a type, their images are structs."""
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    before, after = (graph.view.side(store, named).state for named in (a, b))
    comparison = StateComparison(store, catalogs, before, after)
    chosen = None if type is None else comparison.newer.named(type)
    images = Images(None if chosen is None else comparison.pair(chosen).declared)
    types = [
        declared for declared in comparison.types if chosen is None or declared.table_id == chosen.table_id
    ]
    frames = [_changes(spark, store, comparison, declared, images) for declared in types]
    if not frames:
        return spark.createDataFrame([], images.of_changes)
    return reduce(DataFrame.union, frames)


def _changes(
    spark: SparkSession, store: GraphStore, comparison: StateComparison, declared: TableType, images: Images
) -> DataFrame:
    pair = comparison.pair(declared)
    gone, come = comparison.sides(declared)
    read = [
        *readings(0, store, gone, comparison.older, pair.declared),
        *readings(1, store, come, comparison.newer, pair.declared),
    ]
    schema = pair.declared.stored_schema
    rows = by_id(spark, read, schema, fills_of(pair.declared, comparison.after), gone.rows + come.rows)

    def compared(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from images.changes(compare(*gathered(batches, schema, 2)), pair)

    return rows.mapInArrow(compared, images.of_changes)
