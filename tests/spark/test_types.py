"""The conversion table: every type of the catalog goes to Spark and comes back as it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, LongType

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.pipeline.reading.scan import (
    from_spark,
    spark_schema,
    spark_type,
    to_spark,
    travelling_schema,
    travels_as,
)

# The least, the greatest, and what tends to be lost on the way.
VALUES: dict[Scalar, list[Any]] = {
    Scalar.STRING: ["", "ß\u0000\U0001f600"],
    Scalar.BOOL: [True, False],
    Scalar.I32: [-(2**31), 2**31 - 1],
    Scalar.I64: [-(2**63), 2**63 - 1],
    Scalar.U32: [0, 2**32 - 1],
    Scalar.U64: [0, 2**64 - 1],
    Scalar.F32: [-0.0, float("inf"), 0.10000000149011612],
    Scalar.F64: [5e-324, -1.7976931348623157e308],
    Scalar.DATE: [-719162, 2932896],  # 0001-01-01 and 9999-12-31, as days
    Scalar.DATETIME: [-62135596800000, -1, 253402300799999],  # the same, as milliseconds
    Scalar.BLOB: [b"", b"\x00\xff"],
    Scalar.VECTOR: [[0.5, -1.5]],
}
KINDS = [
    *(
        PropertyType(scalar, nullable=True, dimension=2 if scalar is Scalar.VECTOR else None)
        for scalar in Scalar
    ),
    *(
        PropertyType(scalar, nullable=True, is_list=True)
        for scalar in Scalar
        if scalar not in (Scalar.VECTOR, Scalar.BLOB)
    ),
]


def column(kind: PropertyType) -> pa.Array:
    """Return the values of a type as they are stored, and a null."""
    values = VALUES[kind.scalar]
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        number, base = (pa.int32(), pa.date32()) if kind.scalar is Scalar.DATE else (pa.int64(), pa.date64())
        plain = pa.array([*values, None], number).view(base)
    else:
        plain = pa.array([*values, None], PropertyType(kind.scalar, dimension=kind.dimension).arrow)
    if not kind.is_list:
        return plain
    offsets = pa.array([0, 0, None, len(plain)], pa.int32())  # an empty list, a null, everything
    return pa.ListArray.from_arrays(offsets, plain, type=kind.arrow)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_type_travels_and_comes_back(kind: PropertyType) -> None:
    stored = column(kind)

    travelling = to_spark(stored, kind.arrow)

    assert travelling.type == travels_as(kind.arrow)
    assert from_spark(travelling, kind.arrow, "p").equals(stored)


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        (pa.array([-1]), pa.uint32()),
        (pa.array([2**32]), pa.uint32()),
        (pa.array([2**64], pa.decimal128(20, 0)), pa.uint64()),
        (pa.array([datetime(2024, 1, 1, 0, 0, 0, 1, UTC)], pa.timestamp("us", "UTC")), pa.date64()),
        (pa.array([[1.0, 2.0, 3.0]], pa.list_(pa.float32())), pa.list_(pa.float32(), 2)),
        (pa.array([[-1]], pa.list_(pa.int64())), pa.list_(pa.uint32())),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values: pa.Array, stored: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="column 'p'"):
        from_spark(values, stored, "p")


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="time64"):
        spark_type(pa.time64("ns"))


@pytest.mark.spark
def test_spark_takes_every_type_and_gives_it_back(spark: SparkSession) -> None:
    """S7: the raw types are refused by Spark, what travels is not."""
    stored = pa.schema([pa.field(str(kind), kind.arrow) for kind in KINDS])
    columns = [column(kind).slice(0, 2) for kind in KINDS]
    table = pa.table(
        [to_spark(one, kind.arrow) for one, kind in zip(columns, KINDS, strict=True)],
        schema=travelling_schema(stored),
    )

    frame = spark.createDataFrame(table)
    back = frame.toArrow()

    assert frame.schema == spark_schema(stored)
    for one, kind, name in zip(columns, KINDS, stored.names, strict=True):
        assert from_spark(back[name].combine_chunks(), kind.arrow, name).equals(one), name


def test_lists_are_arrays() -> None:
    assert spark_type(pa.list_(pa.uint32())) == ArrayType(LongType())
