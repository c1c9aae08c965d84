"""Tasks: a DataFrame whose rows executors make, one task for each item.

Room    pipeline. The one way in which work of ours becomes rows on Spark. A data source of Python gives the
        same rows more slowly: Spark plans it in processes of its own and takes it row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from omnigraph.pipeline.options import coded
from omnigraph.pipeline.scan import Fragments, Scan
from omnigraph.pipeline.types import spark_schema

Item = TypeVar("Item")


def rows_of(
    spark: SparkSession,
    items: Sequence[Item],
    make: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Return the rows that are made of each item, in a task for each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(items[number])

    return spark.range(0, len(items), 1, max(len(items), 1)).mapInArrow(run, schema)


def frame_of(spark: SparkSession, scan: Scan) -> DataFrame:
    """Return the rows of a scan."""

    def rows(group: Fragments) -> Iterator[pa.RecordBatch]:
        with coded():
            yield from scan.read(group)

    return rows_of(spark, scan.groups(slots=slots(spark)), rows, spark_schema(scan.schema))


def slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time; behind Spark Connect that is not known."""
    context = getattr(spark, "sparkContext", None)
    return 1 if context is None else max(int(context.defaultParallelism), 1)
