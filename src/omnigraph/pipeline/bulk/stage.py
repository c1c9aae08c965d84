"""Stage: Spark jobs whose tasks do work for the driver and tell it what came of it.

Room    pipeline.bulk. One row a task, pickled: our own executors made it. Each frame is collected once and
        never used again, since using it again would do the work again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.errors import GraphError, StorageError
from omnigraph.pipeline.tasks import rows_of

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # only the client of Spark Connect is installed
    JOB_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    JOB_ERRORS = (PySparkException, Py4JError)  # the latter when the job was cancelled

Item = TypeVar("Item")
Result = TypeVar("Result")
MESSAGE = "number long, message binary"
_SCHEMA = pa.schema([pa.field("number", pa.int64()), pa.field("message", pa.binary())])


def for_each(
    spark: SparkSession | None, items: Sequence[Item], work: Callable[[Item], Result]
) -> list[Result]:
    """Do something for each item, a task for each or all in this process; return the results in order."""
    if spark is None or not items:
        return list(map(work, items))

    def run(numbered: tuple[int, Item]) -> Iterator[pa.RecordBatch]:
        number, item = numbered
        yield message(number, _told(work, item))

    return collected(rows_of(spark, list(enumerate(items)), run, MESSAGE))


def for_each_partition(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Result]) -> list[Result]:
    """Do something with the batches of each partition, and return the results in their order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.taskcontext import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield message(context.partitionId(), _told(work, batches))

    return collected(frame.mapInArrow(run, MESSAGE))


def collected(frame: DataFrame) -> list[Any]:
    """Run the tasks and return what each of them tells, by number; raise what one of them raised."""
    try:
        rows = frame.collect()
    except JOB_ERRORS as error:
        raise StorageError(
            f"a Spark job failed: {cause_of(error)}",
            remedy="Nothing was published; look at the first cause, then try again",
            storage_kind="unknown",
        ) from error
    found = []
    for row in sorted(rows, key=lambda row: int(row.number)):
        told = pickle.loads(row.message)  # made by `_told` in our own executors
        if isinstance(told, GraphError):
            raise told
        found.append(told)
    return found


def _told(work: Callable[[Item], Result], item: Item) -> Result | GraphError:
    """Let typed errors come back as values: Spark would keep only their text."""
    try:
        return work(item)
    except GraphError as error:
        return error


def message(number: int, told: object) -> pa.RecordBatch:
    """Return what a task tells the driver, as a row."""
    return pa.RecordBatch.from_pydict({"number": [number], "message": [pickle.dumps(told)]}, _SCHEMA)


def cause_of(error: Exception) -> str:
    """Return the line of Spark's text that says what happened: of a traceback the last, else the first.

    >>> cause_of(
    ...     Exception(
    ...         "[X] from the Python worker:\\nTraceback (most recent call last):\\n  f()\\nValueError: no"
    ...     )
    ... )
    'ValueError: no'
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not any(line.startswith("Traceback") for line in lines):
        return lines[0].strip() if lines else type(error).__name__
    told = [line for line in lines if not line.startswith((" ", "\t", "Traceback", "JVM stacktrace"))]
    return told[-1].strip() if told else lines[0].strip()
