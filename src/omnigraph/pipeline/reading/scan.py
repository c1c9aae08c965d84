"""Scan: the rows of one pinned table, as executors read them.

The driver says once what is read, as a value; executors open the graph for themselves and read the
fragments that they are given, at the version that the value names.

Given   a graph's address, a snapshot, and columns by name.
Gives   groups of fragments for the driver, record batches in the types that travel for the executors.
Rule    no handle is part of it, and nobody who holds one asks for "latest".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.catalog.past import stored_column
from omnigraph.engine.history.resolve_at import check_existed
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

# -- types -------------------------------------------------------------------------------------------
#
# The one conversion table between stored columns and Spark's, both ways. Spark refuses unsigned integers,
# milliseconds, vectors and large binaries, so each travels as a type that holds every value of it: that is
# the only Arrow type Spark is ever given here. Nothing is lost on the way out: an instant beyond the year
# 294247, which older graphs may hold and Spark has not, is an error. On the way in a value that the stored
# type cannot hold is refused: an integer out of range, a fraction of a millisecond, a vector of another
# length.


INSTANT = pa.timestamp("us", "UTC")
UNSIGNED = pa.decimal128(20, 0)  # holds every unsigned integer of 64 bits

# Stored type -> (what travels, what Spark calls it). Lists and vectors are made of these.
_TABLE: dict[pa.DataType, tuple[pa.DataType, DataType]] = {
    pa.string(): (pa.string(), StringType()),
    pa.bool_(): (pa.bool_(), BooleanType()),
    pa.int32(): (pa.int32(), IntegerType()),
    pa.int64(): (pa.int64(), LongType()),
    pa.uint32(): (pa.int64(), LongType()),
    pa.uint64(): (UNSIGNED, DecimalType(20, 0)),
    pa.float32(): (pa.float32(), FloatType()),
    pa.float64(): (pa.float64(), DoubleType()),
    pa.date32(): (pa.date32(), DateType()),
    pa.date64(): (INSTANT, TimestampType()),
    pa.large_binary(): (pa.binary(), BinaryType()),
}
# Arrow casts an instant to a whole day of date64: the number of milliseconds has to pass as a number.
_BY_WAY_OF = {pa.date64(): (pa.timestamp("ms", "UTC"), pa.int64())}


def travels_as(stored: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which values of a stored type go to Spark and come back."""
    if pa.types.is_list(stored) or pa.types.is_fixed_size_list(stored):
        return pa.list_(pa.field("element", travels_as(stored.value_type)))
    return _row(stored)[0]


def spark_type(stored: pa.DataType) -> DataType:
    """Return Spark's type for a stored type."""
    if pa.types.is_list(stored) or pa.types.is_fixed_size_list(stored):
        return ArrayType(spark_type(stored.value_type))
    return _row(stored)[1]


def spark_schema(stored: pa.Schema) -> StructType:
    """Return Spark's schema for stored columns. Everything may be null: Spark compares that too."""
    return StructType([StructField(field.name, spark_type(field.type)) for field in stored])


def travelling_schema(stored: pa.Schema) -> pa.Schema:
    """Return the Arrow schema that goes to Spark for stored columns."""
    return pa.schema([pa.field(field.name, travels_as(field.type)) for field in stored])


def to_spark(values: pa.Array, stored: pa.DataType) -> pa.Array:
    """Return values of a stored type as they travel."""
    return sent_as(values, travels_as(stored))


def sent_as(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return stored values in a type that travels."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"a stored value does not fit Spark's type for {values.type}: {error}",
            remedy="Spark's timestamps reach the year 294247: leave the column out, or mend the rows that "
            "graph.query finds beyond it",
        ) from error


def from_spark(values: pa.Array, stored: pa.DataType, name: str) -> pa.Array:
    """Return values that came from Spark in a stored type; `name` is the column that an error names."""
    try:
        for way in (*_ways(stored), stored):
            values = values.cast(way)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(
            f"column {name!r}: a value does not fit {stored}: {error}",
            remedy="Convert the column in Spark to what the schema declares",
            column=name,
        ) from error
    return values


def _ways(stored: pa.DataType) -> tuple[pa.DataType, ...]:
    """Return the types between what travels and what is stored."""
    if pa.types.is_list(stored):
        return tuple(pa.list_(way) for way in _BY_WAY_OF.get(stored.value_type, ()))
    return _BY_WAY_OF.get(stored, ())


def _row(stored: pa.DataType) -> tuple[pa.DataType, DataType]:
    if stored not in _TABLE:
        raise InvalidRequest(f"Spark has no type for stored columns of {stored}", type=str(stored))
    return _TABLE[stored]


# -- scan --------------------------------------------------------------------------------------------


PARTITION_BYTES = 64 << 20  # of stored files; what Spark makes of them is a few times as much
SMALL_BYTES = 4 << 20  # less than this is not worth a task of its own
BATCH_ROWS = 65_536
Fragments = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScanColumn:
    """A column under the name that readers know, and where it is stored: nowhere, if it came later."""

    name: str
    stored: str | None
    type: pa.DataType

    @property
    def field(self) -> pa.Field:
        """The column as it is declared."""
        return pa.field(self.name, self.type)


@dataclass(frozen=True)
class TableScan:
    """Some columns of one table at one version."""

    location: Location
    snapshot: PinnedSnapshot
    table_id: str
    columns: tuple[ScanColumn, ...]
    version: int | None = None  # of the table, where it is not the one that the snapshot pins

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are declared."""
        return pa.schema([column.field for column in self.columns])

    def narrowed(self, names: Sequence[str]) -> TableScan:
        """Return the scan of some columns, in the order given."""
        known = {column.name: column for column in self.columns}
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise InvalidRequest(
                f"there is no column {unknown[0]!r}" if unknown else "no column is named",
                remedy=f"The columns are {', '.join(known)}",
            )
        return replace(self, columns=tuple(known[name] for name in names))

    def groups(self, partition_bytes: int = PARTITION_BYTES, slots: int = 1) -> list[Fragments]:
        """Return the table's fragments in groups of about so many stored bytes, in their order.

        `slots` is how many groups are read at a time.
        """
        with self._open() as store:
            handle = self._table(store)
            with self._reading(store):
                sizes = {n: part.size.bytes for n, part in store.reads.layout(handle).parts.items()}
        return grouped(sizes, partition_bytes, slots)

    def read(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the types that travel."""
        for batch in self.stored(fragments):
            arrays = [to_spark(batch.column(c.name), c.type) for c in self.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=travelling_schema(self.schema))

    def stored(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the types that are declared."""
        stored = [column.stored for column in self.columns if column.stored is not None]
        with self._open() as store:
            handle = self._table(store)
            with self._reading(store):
                scanner = handle.scanner(
                    columns=stored or [ID],  # a column that came later is null for each row there is
                    fragments=[handle.get_fragment(number) for number in fragments],
                    batch_size=BATCH_ROWS,
                )
                for batch in scanner.to_batches():
                    yield self._named(batch)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            pa.nulls(batch.num_rows, column.type)
            if column.stored is None
            else batch.column(column.stored).cast(column.type)
            for column in self.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _table(self, store: GraphStore) -> Handle:
        if self.version is None:
            return store.table(self.snapshot, self.table_id)
        with self._reading(store):
            return store.reads.handle(self.table_id, self.version)

    def _reading(self, store: GraphStore) -> AbstractContextManager[None]:
        return store.reading(self.snapshot.state, tables=(self.table_id,))

    def _open(self) -> GraphStore:
        return GraphStore(self.location)  # reads nothing: the version is known


def scan_of(location: Location, snapshot: PinnedSnapshot, declared: TableType) -> TableScan:
    """Return the scan of a type that is declared as the snapshot has it: id, ends, then properties."""
    check_existed(snapshot, declared)
    fixed = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    return TableScan(
        location,
        snapshot,
        declared.table_id,
        (
            *(ScanColumn(name, name, pa.string()) for name in fixed),
            *(ScanColumn(p.name, stored_column(p), p.type.arrow) for p in declared.properties),
        ),
    )


def grouped(sizes: Mapping[int, int], limit: int, slots: int = 1) -> list[Fragments]:
    """Put neighbours together in groups of about a size, as many in each slot.

    >>> grouped({1: 4, 2: 5, 3: 20, 4: 1}, 10)
    [(1, 2), (3,), (4,)]
    >>> grouped({n: 20 << 20 for n in range(10)}, 40 << 20, slots=2)
    [(0, 1), (2, 3, 4), (5, 6), (7, 8, 9)]
    """
    total = sum(sizes.values())
    if slots > 1 and total > SMALL_BYTES * slots:
        return _even(sizes, total, slots * max(round(total / limit / slots), 1))
    groups: list[Fragments] = []
    held = 0
    for number, size in sorted(sizes.items()):
        if groups and held + size <= limit:
            groups[-1] = (*groups[-1], number)
            held += size
        else:
            groups.append((number,))
            held = size
    return groups


def _even(sizes: Mapping[int, int], total: int, count: int) -> list[Fragments]:
    """Cut the fragments into so many groups of nearly one size: each goes where its middle is."""
    groups: dict[int, Fragments] = {}
    before = 0
    for number, size in sorted(sizes.items()):
        at = int((before + size / 2) * count / total)
        groups[at] = (*groups.get(at, ()), number)
        before += size
    return list(groups.values())
