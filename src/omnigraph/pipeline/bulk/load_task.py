"""Load task: what one Spark task does for a load, and the jobs that such tasks are part of.

    **split or partition -> blocks -> files** -> outcome -> driver

A task reads one split of an input (engine.load.sources), or the batches of one partition of a DataFrame,
and writes the rows as files that nothing names yet. Reading and value checks are those of a local load, the
same code. The driver gets a `TaskOutcome`: the fragments written for each type, how many rows, what was
wrong with which.

A task may run twice, and only the outcome that reaches the driver counts. Rows that break a rule are left
out; whether that ends the load is for the driver to say.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, StorageError
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.load.conform import LoadProblems, LoadSource, RowBlock
from omnigraph.engine.load.draft import Spools
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.load.sources.json import JsonLines, Records
from omnigraph.engine.load.sources.tables import Parts, TablePart, Tabular
from omnigraph.engine.validate.relation import SHOWN, Violation
from omnigraph.pipeline.session import rows_of
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import write_rows
from omnigraph.storage.transaction import PinnedSnapshot

Runs = tuple[tuple[int, int], ...]  # positions in the input, as (first, how many)


@dataclass(frozen=True)
class LoadJob:
    """What every task of a load knows."""

    location: Location
    catalog: Catalog
    versions: Mapping[str, int]  # of the tables, as the load found them
    now_ms: int
    kept_problems: int = SHOWN  # all of them, when bad rows are set aside
    sets_aside: bool = False  # bad rows are left out, and the others still written
    keyed: bool = False  # the load has an idempotency key, so a fingerprint is wanted
    landed: bool = False  # and it has landed: nothing but the fingerprint is wanted


@dataclass(frozen=True)
class WrittenRows:
    """What one task wrote for one type."""

    fragments: tuple[str, ...]
    rows: int
    minted: bool
    runs: Runs | None  # where the rows stand in the input; None where that takes reading it again


@dataclass(frozen=True)
class TaskOutcome:
    """What came of one task."""

    types: Mapping[str, WrittenRows]
    read: int  # rows of a DataFrame's partition, good or bad
    problems: tuple[Violation, ...] = ()
    total_problems: int = 0
    fingerprint: Fingerprint | None = None
    of_columns: bool = False  # a whole column is wrong, so that no row could be good
    left_out: Mapping[str, int] = FrozenMap()  # rows with problems, by type id

    def shifted(self, rows: int) -> TaskOutcome:
        """Return the outcome of a partition that comes after so many rows of its DataFrame."""
        if not rows:
            return self
        types = {
            type_id: replace(part, runs=tuple((first + rows, n) for first, n in part.runs or ()))
            for type_id, part in self.types.items()
        }
        return replace(self, types=types, problems=tuple(_moved(problem, rows) for problem in self.problems))


def load_job(
    store: GraphStore,
    snapshot: PinnedSnapshot,
    catalog: Catalog,
    *,
    kept_problems: int = SHOWN,
    sets_aside: bool = False,
    keyed: bool = False,
    landed: bool = False,
) -> LoadJob:
    """Return what tasks need to know to write for a state of the graph."""
    versions = {table.table_id: snapshot.pin(table.table_id).version for table in catalog.tables}
    now_ms = store.clock.now_us() // 1000
    return LoadJob(store.location, catalog, versions, now_ms, kept_problems, sets_aside, keyed, landed)


def run_source(job: LoadJob, source: LoadSource) -> TaskOutcome:
    """Read one source to its end."""
    problems = _problems(job)
    blocks = source.blocks(job.catalog, problems, lambda _: None)
    if isinstance(source, JsonLines | Records):  # records of all types in any order
        return _gathered(job, blocks, problems)
    return _streamed(job, blocks, problems, None)


def run_partition(
    job: LoadJob,
    type_name: str,
    names: tuple[str, ...],
    columns: Mapping[str, str],
    batches: Iterable[pa.RecordBatch],
) -> TaskOutcome:
    """Read one partition of a DataFrame; positions count from its own first row."""
    counted = _Counted(batches)
    opened = Parts(names, counted.parts())
    source = Tabular(
        f"<{type_name}>", None, lambda: nullcontext(opened), job.now_ms, type_name, False, columns
    )
    problems = _problems(job)
    blocks = source.blocks(job.catalog, problems, lambda _: None)
    return _streamed(job, blocks, problems, counted)


def _problems(job: LoadJob) -> LoadProblems:
    return LoadProblems(job.kept_problems, fingerprint=Fingerprint() if job.keyed else None)


class _Counted:
    """Batches from Spark as parts of a table."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def parts(self) -> Iterator[TablePart]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield TablePart(batch.columns, batch.num_rows, 0)


# -- writing -------------------------------------------------------------------------------------------


def _streamed(
    job: LoadJob, blocks: Iterator[RowBlock], problems: LoadProblems, counted: _Counted | None
) -> TaskOutcome:
    """Write rows of one type while they are read."""
    if job.landed:
        return _passed_over(blocks, problems, counted)
    runs: list[tuple[int, int]] = []
    rows, minted = 0, True
    first = next(blocks, None)
    fragments: list[str] = []

    def good(block: RowBlock, table: TableType) -> Iterator[pa.RecordBatch]:
        nonlocal rows, minted
        assert block.declared.id == table.id
        if problems and not job.sets_aside:
            return  # the load is refused: only what else is wrong is of interest
        rows += block.rows.num_rows
        minted = minted and block.minted
        _add_runs(runs, block.positions)
        yield block.rows

    def batches(begin: RowBlock) -> Iterator[pa.RecordBatch]:
        yield from good(begin, begin.declared)
        for block in blocks:
            yield from good(block, begin.declared)

    if first is not None:
        with GraphStore(job.location) as store:
            table = first.declared.table_id
            fragments = write_rows(store.reads.handle(table, job.versions[table]), batches(first))
    types = {}
    if first is not None and rows:
        types[first.declared.id] = WrittenRows(tuple(fragments), rows, minted, tuple(runs))
    return _outcome(types, problems, counted)


def _passed_over(blocks: Iterator[RowBlock], problems: LoadProblems, counted: _Counted | None) -> TaskOutcome:
    """Read rows that are stored already."""
    for _ in blocks:
        pass
    return _outcome({}, problems, counted)


def _outcome(
    types: Mapping[str, WrittenRows], problems: LoadProblems, counted: _Counted | None = None
) -> TaskOutcome:
    return TaskOutcome(
        types,
        0 if counted is None else counted.rows,
        problems.violations,
        problems.total,
        problems.fingerprint,
        problems.of_columns,
        dict(problems.left_out),
    )


def _gathered(job: LoadJob, blocks: Iterator[RowBlock], problems: LoadProblems) -> TaskOutcome:
    """Gather rows of several types, then write type after type."""
    if job.landed:
        return _passed_over(blocks, problems, None)
    spools = Spools()
    try:
        for block in blocks:
            if job.sets_aside or not problems:
                spools.add(block)
        types = {}
        if job.sets_aside or not problems:
            with GraphStore(job.location) as store:
                for type_id, spool in spools.by_type.items():
                    table = spool.declared.table_id
                    handle = store.reads.handle(table, job.versions[table])
                    rows = spool.table().select(spool.declared.stored_schema.names)
                    types[type_id] = WrittenRows(
                        tuple(write_rows(handle, rows.to_batches())), spool.rows, spool.minted, None
                    )
        return _outcome(types, problems)
    finally:
        spools.close()


# -- positions --------------------------------------------------------------------------------------------


def _add_runs(runs: list[tuple[int, int]], positions: pa.Array) -> None:
    """Take in positions, which ascend, as runs without gaps."""
    numbers = positions.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
    for begin, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        first, many = int(numbers[begin]), int(end - begin)
        if runs and sum(runs[-1]) == first:
            runs[-1] = (runs[-1][0], runs[-1][1] + many)
        else:
            runs.append((first, many))


def _moved(violation: Violation, rows: int) -> Violation:
    """Return a problem with its position in the DataFrame, given that in its partition."""
    if violation.position is None:
        return violation
    return replace(violation, position=violation.position + rows)


def in_order(outcomes: Iterable[TaskOutcome]) -> Iterator[TaskOutcome]:
    """Yield outcomes of the partitions of one DataFrame; positions count over all of it."""
    rows = 0
    for outcome in outcomes:
        yield outcome.shifted(rows)
        rows += outcome.read


def fingerprint_of(outcomes: Iterable[TaskOutcome]) -> Fingerprint:
    """Return what tells an input from another, however it was cut into splits."""
    whole = Fingerprint()
    for outcome in outcomes:
        if outcome.fingerprint is not None:
            whole.add(outcome.fingerprint)
    return whole


# -- jobs ----------------------------------------------------------------------------------------------
#
# Spark jobs whose tasks do work for the driver and report what came of it: one row for each task, pickled by
# our own executors. A frame is collected once, since using it again would do the work again.


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
        yield message(number, _result(work, item))

    return collected(rows_of(spark, list(enumerate(items)), run, MESSAGE))


def for_each_partition(frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Result]) -> list[Result]:
    """Do something with the batches of each partition, and return the results in their order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.taskcontext import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield message(context.partitionId(), _result(work, batches))

    return collected(frame.mapInArrow(run, MESSAGE))


def collected(frame: DataFrame) -> list[Any]:
    """Run the tasks and return the result of each, by number; raise what one of them raised."""
    try:
        rows = frame.collect()
    except JOB_ERRORS as error:
        raise StorageError(
            f"a Spark job failed: {cause_of(error)}",
            remedy="Nothing was published; look at the first cause, then try again",
            storage_kind="unknown",
        ) from error
    results = []
    for row in sorted(rows, key=lambda row: int(row.number)):
        result = pickle.loads(row.message)  # made by `_result` in our own executors
        if isinstance(result, GraphError):
            raise result
        results.append(result)
    return results


def _result(work: Callable[[Item], Result], item: Item) -> Result | GraphError:
    """Let typed errors come back as values: Spark would keep only their text."""
    try:
        return work(item)
    except GraphError as error:
        return error


def message(number: int, result: object) -> pa.RecordBatch:
    """Return what a task reports to the driver, as a row."""
    return pa.RecordBatch.from_pydict({"number": [number], "message": [pickle.dumps(result)]}, _SCHEMA)


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
    causes = [line for line in lines if not line.startswith((" ", "\t", "Traceback", "JVM stacktrace"))]
    return causes[-1].strip() if causes else lines[0].strip()
