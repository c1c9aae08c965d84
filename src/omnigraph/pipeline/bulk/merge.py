"""Merge: a three-way merge whose large types are compared, decided and written by executors.

    base, ours, theirs -> sides -> **rows of one id in one task -> three-way -> files** -> plan, one publish

What a merge means is in engine.merge, which runs here too: only a type with many rows to compare takes the
way over Spark, and tasks decide it with the same function.

Given   a session, a graph and two branches.
Gives   the outcome of `graph.merge`. Rows that the merge writes lie in files before anybody publishes them.
Rule    the driver holds the ids that are removed and the first conflicts, never the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.catalog.past import compared_type
from omnigraph.engine.change import Catalogs, ChangeSet
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.delta import compare, fills_of, pin_of, rows_moved, sides_of
from omnigraph.engine.merge.conflicts import Choices, Conflict, Granularity, Resolutions, Take
from omnigraph.engine.merge.merge import MergeOutcome, Merges
from omnigraph.engine.merge.threeway import Conflicts, Counts, MergedType, States, merge_type
from omnigraph.engine.merge.write import SHOWN, count
from omnigraph.engine.options import MergeOptions, WriteOptions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import Executor, Findings
from omnigraph.engine.validate.values import value_findings
from omnigraph.pipeline.bulk.executor import spark_executor
from omnigraph.pipeline.bulk.load_task import for_each_partition
from omnigraph.pipeline.bulk.staged_rows import BulkChange, BulkRemover, choose
from omnigraph.pipeline.progress import Report, watched
from omnigraph.pipeline.reading.diff import Reading, by_id, gathered, readings
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Written, alone, fragments_of, write_rows
from omnigraph.storage.transaction import Adopted, WriteTxn

LARGE_ROWS = 2_000_000  # rows of one type to compare; below, one process is done sooner


@checked
def merge(
    spark: SparkSession,
    graph: Graph,
    source: str,
    into: str | None = None,
    *,
    preview: bool = False,
    resolutions: Resolutions | None = None,
    strategy: Take | None = None,
    granularity: Granularity = "property",
    delete_branch: bool = False,
    if_commit: str | None = None,
    message: str | None = None,
    actor: str | None = None,
    large_rows: int = LARGE_ROWS,
    progress: Report | None = None,
) -> MergeOutcome:
    """Fold one branch into another; types with more than `large_rows` rows to compare are merged on Spark.

    The rest is as `graph.merge` has it. `progress` is told tasks done and known.
    """
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    into = graph.view.merge(source, into, preview=preview, delete_branch=delete_branch)
    large = LargeMerges(spark, store, catalogs, large_rows)
    merges = Merges(store, catalogs, partial(_executor, spark, store), large)
    with watched(spark, f"merge of {source} into {into}", progress):
        return merges.merge(
            source,
            WriteOptions(into, if_commit, message=message, actor=graph.view.by(actor), dry_run=preview),
            MergeOptions(resolutions, strategy, granularity, delete_branch),
        )


def _executor(spark: SparkSession, store: GraphStore, change: ChangeSet, base: WriteTxn) -> Executor:
    """Return who judges the merged image: Spark, if rows of it are not in this process."""
    if any(isinstance(type_change, BulkChange) for type_change in change.types.values()):
        return spark_executor(spark, store.location)(change, base)
    return LocalExecutor(change, base)


@dataclass(frozen=True)
class MergeJob:
    """What every task of one type's merge knows."""

    location: Location
    declared: TableType
    compared: pa.Schema  # of the rows that come to the task
    version: int  # of the target's table, beside whose files rows are written
    choices: Choices


@dataclass(frozen=True)
class Share:
    """What came of the ids of one task."""

    fragments: tuple[str, ...]
    removed: tuple[str, ...]
    conflicts: tuple[Conflict, ...]
    total_conflicts: int
    counts: tuple[int, int, int]
    values: Findings


class LargeMerges:
    """Merges types that are too large for one process."""

    def __init__(self, spark: SparkSession, store: GraphStore, catalogs: Catalogs, large_rows: int) -> None:
        self._spark = spark
        self._store = store
        self._catalogs = catalogs
        self._large_rows = large_rows

    def __call__(self, declared: TableType, states: States, choices: Choices) -> MergedType | None:
        """Merge what both sides did to a type; None if there is little of it."""
        before, here, pin = (
            self._pin(declared, state) for state in (states.base, states.target, states.source)
        )
        if pin is None or here is None or not rows_moved(before, pin):
            return None
        schemas = [self._catalog(state) for state in (states.base, states.target, states.source)]
        wide = compared_type(declared, schemas)
        read, rows = self._readings(wide, states)
        if rows <= self._large_rows:
            return None
        shares = self._decided(declared, wide, here.version, choices, read, rows, states.source)
        counts = Counts(declared, *map(sum, zip(*(share.counts for share in shares), strict=True)))
        change = self._change(declared, states.target, here.version, shares)
        adopted = None if rows_moved(before, here) else Adopted(pin, *counts.numbers)
        return MergedType(
            counts,
            change,
            Conflicts(
                tuple(one for share in shares for one in share.conflicts)[:SHOWN],
                sum(share.total_conflicts for share in shares),
            ),
            adopted=adopted,
            effect=change.effect() if adopted is None else None,
            values=sum((share.values for share in shares), Findings()),
        )

    def _readings(self, declared: TableType, states: States) -> tuple[list[Reading], int]:
        """Return what to read of the four sides: theirs and ours, before and after; and how many rows."""
        rows = 0
        to_read: list[Reading] = []
        for at, state in ((0, states.source), (2, states.target)):
            ends = (states.base, state)
            sides = sides_of(self._store.reads, *(self._pin(declared, end) for end in ends))
            for number, (side, then) in enumerate(zip(sides, ends, strict=True), at):
                to_read += readings(number, self._store, side, self._catalog(then), declared)
                rows += side.rows
        return to_read, rows

    def _decided(
        self,
        declared: TableType,
        wide: TableType,
        version: int,
        choices: Choices,
        read: list[Reading],
        rows: int,
        source: ManifestState,
    ) -> list[Share]:
        frame = by_id(self._spark, read, wide.stored_schema, fills_of(wide, source), rows)
        job = MergeJob(self._store.location, declared, wide.stored_schema, version, choices)
        return for_each_partition(frame, partial(_share, job))

    def _change(
        self, declared: TableType, target: ManifestState, version: int, shares: list[Share]
    ) -> BulkChange:
        table = declared.table_id
        written = Written(fragments_of(t for share in shares for t in share.fragments), target.version)
        only = alone(self._store.reads.handle(table, version), written)
        self._store.opener.adopt(table, only)
        way = choose(written.num_rows)
        return BulkChange(
            declared,
            declared.stored_schema.empty_table(),
            removed=pa.array(sorted(row_id for share in shares for row_id in share.removed), pa.string()),
            written=written,
            version=only.version,
            given_version=only.version,
            remover=BulkRemover(self._spark, self._store, table, only.version, way),
        )

    def _pin(self, declared: TableType, state: ManifestState) -> Pin | None:
        return pin_of(state, self._catalog(state), declared)

    def _catalog(self, state: ManifestState) -> Catalog:
        return self._catalogs.get(state.schema)


def _share(job: MergeJob, batches: Iterator[pa.RecordBatch]) -> Share:
    """Decide the ids of one task and write what becomes of them, in an executor."""
    gone, come, lost, won = gathered(batches, job.compared, 4)
    theirs, ours = compare(gone, come), compare(lost, won)
    outcome = merge_type(job.declared, ours, theirs, job.choices, frozenset())
    fragments: list[str] = []
    if outcome.rows.num_rows:
        with GraphStore(job.location) as store:
            handle = store.reads.handle(job.declared.table_id, job.version)
            fragments = write_rows(handle, outcome.rows.to_batches())
    judged = (value_findings(batch, job.declared) for batch in outcome.rows.to_batches())
    return Share(
        tuple(fragments),
        tuple(outcome.removed.to_pylist()),
        outcome.conflicts[:SHOWN],
        len(outcome.conflicts),
        count(outcome, ours, theirs),
        sum(judged, Findings()),
    )
