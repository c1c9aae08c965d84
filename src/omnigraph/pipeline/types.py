"""Types: the one conversion table between stored columns and Spark's, both ways.

Room    pipeline. Spark refuses unsigned integers, milliseconds, vectors and large binaries, so each travels
        as a type that holds every value of it: that is the only Arrow type Spark is ever given here.
Rule    nothing is lost on the way out: an instant beyond the year 294247, which older graphs may hold and
        Spark has not, is an error. On the way in a value that the stored type cannot hold is refused:
        an integer out of range, a fraction of a millisecond, a vector of another length.
"""

from __future__ import annotations

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

from omnigraph.base.errors import InvalidRequest

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
