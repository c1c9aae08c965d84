"""Optimize: files of a branch rewritten by Spark's executors, and published by the driver.

    snapshot -> fragments worth rewriting -> **groups, rewritten in tasks; then indexes** -> engine.optimize

What is worth rewriting, what becomes of it after a lost race and how it is published is decided by the
engine, whoever does the work.

Given   a session, a graph and a branch.
Gives   the report of `graph.optimize`, as one maintenance commit.
Rule    a task rewrites neighbouring fragments at the version that the driver pinned, in their order. Only
        what reaches the driver counts: a task that failed, or ran twice, leaves files that nothing names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, StagedFilesGone
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.indexes import IndexReport, Ready, declared_indexes
from omnigraph.engine.optimize import OptimizeListener, OptimizeProgress, RewriteTask
from omnigraph.engine.optimize import optimize as run
from omnigraph.pipeline.bulk.indexes import PART_ROWS, build_segments, derive_key_hashes, opened
from omnigraph.pipeline.bulk.load_task import for_each
from omnigraph.pipeline.progress import watched
from omnigraph.pipeline.reading.scan import Fragments
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.compaction import (
    NewFragments,
    OptimizePolicy,
    Rewriter,
    in_groups,
    write_anew,
)
from omnigraph.storage.tables.effects import BuildIndexes, Compact, fragments_of
from omnigraph.storage.tables.layout import FragmentLayout, Layout
from omnigraph.storage.tables.row_runs import MIB, RowRuns
from omnigraph.storage.transaction import PinnedSnapshot, PublishPlan

GROUP_BYTES = 256 * MIB  # of one task; a fragment is never cut


@checked
def optimize(
    spark: SparkSession,
    graph: Graph,
    *,
    branch: str | None = None,
    types: Iterable[str] | None = None,
    policy: OptimizePolicy | None = None,
    actor: str | None = None,
    group_bytes: int = GROUP_BYTES,
    part_rows: int = PART_ROWS,
    progress: OptimizeListener | None = None,
) -> IndexReport:
    """Do what `graph.optimize` does, on Spark: executors rewrite files and build indexes."""
    policy, branch = policy or OptimizePolicy(), graph.view.administer(branch)
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    watch = None if progress is None else _Progress(progress)
    with watched(spark, f"optimize {branch}", None if watch is None else watch.tasks):
        return run(
            store,
            catalogs,
            branch,
            types=types,
            policy=policy,
            actor=graph.view.by(actor),
            progress=watch,
            workers=SparkWorkers(spark, store, catalogs, policy, max(group_bytes, 1), part_rows),
        )


class _Progress:
    """Says how far an optimize is, by its stages and by the tasks of Spark."""

    def __init__(self, report: OptimizeListener) -> None:
        self._report = report
        self._last = OptimizeProgress("compacting")

    def __call__(self, progress: OptimizeProgress) -> None:
        self._last = replace(progress, tasks_done=self._last.tasks_done, tasks=self._last.tasks)
        self._report(self._last)

    def tasks(self, done: int, known: int) -> None:
        """Say how many tasks of Spark are done, whatever they are for; comes from a thread of its own."""
        self._last = replace(self._last, tasks_done=done, tasks=known)
        self._report(self._last)


# -- in the driver -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupTask:
    """Neighbouring fragments of one table that one task rewrites."""

    table_id: str
    version: int
    fragments: Fragments
    file_bytes: int
    looked_up: tuple[str, ...]


@dataclass(frozen=True)
class GroupOutcome:
    """The new fragments, as texts that travel, or why there are none."""

    fragments: tuple[str, ...] = ()
    error: GraphError | None = None


class SparkWorkers:
    """Rewrite files and build indexes in executors, for one run."""

    def __init__(
        self,
        spark: SparkSession,
        store: GraphStore,
        catalogs: Catalogs,
        policy: OptimizePolicy,
        group_bytes: int,
        part_rows: int,
    ) -> None:
        self._spark = spark
        self._store = store
        self._catalogs = catalogs
        self._policy = policy
        # Files of smaller groups would be merged again by the next run.
        self._group_bytes = max(group_bytes, policy.small_bytes)
        self._part_rows = part_rows

    def rewriters(self, tasks: Sequence[RewriteTask]) -> Mapping[str, Rewriter]:
        """Rewrite all groups of all tables in one job; return who hands over what a table's tasks wrote."""
        groups = [
            GroupTask(
                task.declared.id, task.version, numbers, self._policy.file_bytes, task.declared.looked_up
            )
            for task in tasks
            for numbers in in_groups(task.facts, task.chosen, self._group_bytes)
        ]
        outcomes = for_each(self._spark, groups, partial(_rewritten, self._store.location))
        by_table: dict[str, list[GroupOutcome]] = {task.declared.id: [] for task in tasks}
        for group, outcome in zip(groups, outcomes, strict=True):
            by_table[group.table_id].append(outcome)
        return {table_id: _handing_over(written) for table_id, written in by_table.items()}

    def indexed(
        self, snapshot: PinnedSnapshot, compactions: Mapping[str, Compact], tables: Sequence[TableType]
    ) -> Ready | None:
        """Build indexes on tables as they are once compacted, and the key hashes that other files lack."""
        effects = {declared.id: BuildIndexes(declared_indexes(declared)) for declared in tables}
        compacted = {t: compactions[t] for t in effects if t in compactions}
        for compact in compacted.values():
            compact.work.derived = True  # by the tasks
        try:
            plan = PublishPlan(CommitKind.MAINTENANCE, effects=compacted)
            handles = opened(self._store, snapshot, effects) | dict(self._store.staged(snapshot, plan))
        except StagedFilesGone:
            return None  # the publish meets it too, and begins again
        build_segments(self._spark, self._store, handles, effects, self._part_rows)
        catalog = self._catalogs.get(snapshot.schema)
        others = effects.keys() - compacted.keys()
        derived = derive_key_hashes(
            self._spark, self._store, catalog, snapshot, self._part_rows, tables=others
        )
        return Ready(snapshot.state.version, effects, derived)


def _handing_over(outcomes: Sequence[GroupOutcome]) -> Rewriter:
    """Return a rewriter that has what the tasks of one table wrote, in the order of its fragments."""

    def hand_over(
        handle: Handle,
        layout: Layout,
        file_bytes: int,
        chosen: Sequence[int],
        advanced: Callable[[int], None],
    ) -> NewFragments:
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        fragments = fragments_of(text for outcome in outcomes for text in outcome.fragments)
        advanced(sum(fragment.num_rows for fragment in fragments))
        return fragments

    return hand_over


# -- in an executor ----------------------------------------------------------------------------------


def _rewritten(place: Location, task: GroupTask) -> GroupOutcome:
    """Rewrite a group, and write beside the new files what rows of them are found by."""
    with GraphStore(place) as store, ThreadPoolExecutor(1) as pool:
        try:
            handle = store.reads.handle(task.table_id, task.version)
            layout = store.reads.layout(handle)
            runs = RowRuns(store.location.objects, store.reads.deleted)
            new = write_anew(runs, handle, layout, task.file_bytes, task.fragments)
        except GraphError as error:
            return GroupOutcome(error=error)
        except OSError as error:
            return GroupOutcome(error=storage_failure("compacting", error))
        parts = [FragmentLayout.of(fragment, layout.columns) for fragment in new]
        large = [part for part in parts if part.settled or layout.has_blobs]
        for part in large:
            wait(store.finder.derive(handle, part, pool, task.looked_up))
    return GroupOutcome(tuple(json.dumps(fragment.to_json()) for fragment in new))
