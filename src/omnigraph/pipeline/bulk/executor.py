"""Executor: who answers the evaluator's questions about rows that lie in files.

    change, base -> relations -> **DataFrames** -> answers

With a session Spark answers, about a change of any size: rows of the change go from the driver as Arrow,
stored rows are scanned by executors at the versions that the base pins, only the columns that are read. A
data source commits in a process without a session: there DataFusion reads the files as it reads stored
tables, and holds ids but never rows.

All executors give the same answers; the truth table runs against each. Columns have the relation's own
names before Spark sees them, so none is ever quoted, and dates are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any, assert_never

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from omnigraph.base.arguments import checked
from omnigraph.base.errors import StorageError
from omnigraph.catalog.model import ID
from omnigraph.catalog.types import numbers_in
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.executors import FrameExecutor
from omnigraph.engine.validate.relation import (
    Answer,
    Anti,
    Join,
    Outside,
    Pick,
    Read,
    Relation,
    RelationSide,
    Semi,
    Shared,
    Union,
    names,
)
from omnigraph.engine.write import ExecutorFor
from omnigraph.pipeline.bulk.hash_precheck import SECOND, HashPrecheck, Seeds, decidable, hash_texts
from omnigraph.pipeline.bulk.staged_rows import BulkChange
from omnigraph.pipeline.reading.scan import (
    Fragments,
    ScanColumn,
    TableScan,
    spark_schema,
    to_spark,
    travelling_schema,
)
from omnigraph.pipeline.session import rows_of, slots
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import WriteTxn

Convert = Callable[[pa.RecordBatch], pa.RecordBatch]
SchemaOf = Callable[[pa.Schema], pa.Schema]


@checked
def spark_executor(spark: SparkSession, location: Location) -> ExecutorFor:
    """Return what makes an executor for each change of one graph; a graph is opened with it."""
    return partial(SparkExecutor, spark=spark, location=location)


class SparkExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: WriteTxn, *, spark: SparkSession, location: Location) -> None:
        self._change = change
        self._base = base
        self._spark = spark
        self._location = location
        self._seeds = Seeds.fresh()
        self._precheck = HashPrecheck(self._hashed, self._rows_of)

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total; most answers are empty."""
        try:
            if decidable(relation) and self._precheck.surely_nothing(relation):
                return Answer([], 0)
            answer = self._of(relation)
            total = answer.count()
            first = answer.orderBy(*order).limit(limit).collect() if total else []
        except PySparkException as error:
            raise StorageError(
                f"checking constraints on Spark failed: {error}",
                remedy="Nothing was written; look at the first cause, then try again",
                storage_kind="unknown",
            ) from error
        return Answer([_plain(row.asDict()) for row in first], total)

    def _of(self, relation: Relation) -> DataFrame:
        match relation:
            case Read():
                return self._read(relation)
            case Join(left, right, on):
                return self._of(left).join(self._of(right), list(on)).select(*names(relation))
            case Semi(left, right, on):
                return self._of(left).join(self._of(right).select(*on), list(on), "left_semi")
            case Anti(left, right, on):
                return self._of(left).join(self._of(right).select(*on), list(on), "left_anti")
            case Union(parts):
                columns = names(relation)
                return reduce(DataFrame.union, [self._of(part).select(*columns) for part in parts])
            case Pick(of, columns):
                return self._of(of).select(*columns).distinct()
            case Shared(of, by, holder):
                held = (
                    f.count(holder).alias("n"),
                    f.min(holder).alias("least"),
                    f.max(holder).alias("greatest"),
                )
                return self._of(of).groupBy(*by).agg(*held).where(f.col("n") > 1).select(*names(relation))
            case Outside(of, rows, on, low, high):
                counted = self._of(rows).groupBy(on).agg(f.count(on).alias("n"))
                every = self._of(of).join(counted, on, "left").fillna(0, ["n"]).select(*names(relation))
                wrong = f.col("n") < low
                return every.where(wrong if high is None else wrong | (f.col("n") > high))
            case _:
                assert_never(relation)

    # -- sources -----------------------------------------------------------------------------------

    def _read(self, read: Read) -> DataFrame:
        frame = self._frame(read, _comparable, _compared)
        if read.complete:
            frame = frame.dropna(subset=[name for name, _ in read.columns])
        for name, value in read.label:
            frame = frame.withColumn(name, f.lit(value))
        return frame

    def _hashed(self, read: Read) -> DataFrame:
        """Return a source with two hashes instead of each text."""
        seeds = self._seeds
        frame = self._frame(read, lambda batch: _as_hashes(_comparable(batch), seeds), _hashed_schema)
        return frame.dropna() if read.complete else frame

    def _rows_of(self, read: Read) -> int:
        """Return how many rows a source has."""
        change = self._change.types.get(read.table)
        if self._is_stored(read):
            return self._base.rows(read.table)
        if read.side is RelationSide.REMOVED:
            return 0 if change is None else len(change.removed)
        return 0 if change is None else change.count

    def _frame(self, read: Read, convert: Convert, schema_of: SchemaOf) -> DataFrame:
        change = self._change.types.get(read.table)
        version = change.version_of(read.side) if isinstance(change, BulkChange) else None
        if version is not None or self._is_stored(read):
            return self._stored(read, convert, schema_of, version)
        return self._held(read, convert, schema_of)

    def _is_stored(self, read: Read) -> bool:
        change = self._change.types.get(read.table)
        replaced = change is not None and change.replaces
        return read.side is RelationSide.BEFORE or (read.side is RelationSide.COMMITTED and not replaced)

    def _stored(
        self, read: Read, convert: Convert, schema_of: SchemaOf, version: int | None = None
    ) -> DataFrame:
        """Scan in executors, one task for each group of fragments."""
        types = self._change.catalog.table(read.table).stored_schema
        columns = tuple(ScanColumn(name, stored, types.field(stored).type) for name, stored in read.columns)
        scan = TableScan(self._location, self._base.snapshot, read.table, columns, version)

        def rows(group: Fragments) -> Iterator[pa.RecordBatch]:
            return map(convert, scan.stored(group))

        groups = scan.groups(slots=slots(self._spark))
        return rows_of(self._spark, groups, rows, spark_schema(schema_of(scan.schema)))

    def _held(self, read: Read, convert: Convert, schema_of: SchemaOf) -> DataFrame:
        table = self._rows(read).select([stored for _, stored in read.columns])
        named = table.rename_columns([name for name, _ in read.columns])
        batches = [convert(batch) for batch in named.combine_chunks().to_batches()]
        schema = schema_of(named.schema)
        if not batches:
            return self._spark.createDataFrame([], spark_schema(schema))
        return self._spark.createDataFrame(pa.Table.from_batches(batches, travelling_schema(schema)))

    def _rows(self, read: Read) -> pa.Table:
        change = self._change.types.get(read.table)
        match read.side:
            case RelationSide.REMOVED:
                return pa.table({ID: pa.array([], pa.string()) if change is None else change.removed})
            case RelationSide.GIVEN if change is not None and change.given is not None:
                return change.given
            case RelationSide.GIVEN | RelationSide.CHANGED if change is not None:
                return change.rows
            case _:
                return self._change.catalog.table(read.table).stored_schema.empty_table()


# -- without a session -------------------------------------------------------------------------------


class WrittenExecutor(FrameExecutor):
    """Answers questions about a change whose rows lie in files."""

    def __init__(self, change: ChangeSet, base: WriteTxn, *, store: GraphStore) -> None:
        super().__init__(change, base)
        self._store = store

    def _open(self, read: Read) -> Any:
        change = self._change.types.get(read.table)
        version = change.version_of(read.side) if isinstance(change, BulkChange) else None
        if version is not None:
            return self._store.reads.frame(self._context, read.table, version)
        return super()._open(read)


# -- values that compare alike -------------------------------------------------------------------------


def _compared(stored: pa.Schema) -> pa.Schema:
    """Return the types in which columns are compared: days and moments are numbers, floats are double."""
    return pa.schema([pa.field(field.name, _kind(field.type)) for field in stored])


def _kind(stored: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_floating(stored) else numbers_in(stored)


def _comparable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return stored rows as they are compared, in types that travel."""
    schema = _compared(batch.schema)
    arrays = []
    for values, kind in zip(batch.columns, schema.types, strict=True):
        compared = values.cast(kind)
        if pa.types.is_floating(kind):
            compared = pc.add(compared, 0.0)  # both zeros are one value
        arrays.append(to_spark(compared, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=travelling_schema(schema))


def _hashed_schema(stored: pa.Schema) -> pa.Schema:
    """Return the types of columns whose texts are hashes."""
    fields = []
    for field in _compared(stored):
        if pa.types.is_string(field.type):
            fields += [pa.field(field.name, pa.int64()), pa.field(f"{field.name}{SECOND}", pa.int64())]
        else:
            fields.append(field)
    return pa.schema(fields)


def _as_hashes(batch: pa.RecordBatch, seeds: Seeds) -> pa.RecordBatch:
    """Return rows with two hashes instead of each text."""
    columns: dict[str, pa.Array] = {}
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_string(values.type):
            columns[name], columns[f"{name}{SECOND}"] = hash_texts(values, seeds)
        else:
            columns[name] = values
    return pa.RecordBatch.from_pydict(columns)


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as the other executors give it: unsigned integers travelled as decimals."""
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in row.items()}
