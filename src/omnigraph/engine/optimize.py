"""Optimize: compaction, indexes and derived files of a branch, as one maintenance commit.

    snapshot -> fragments worth rewriting -> **rewritten, table by table** -> publisher -> derived files

No answer changes, of now or of the past, and no version is deleted. Nobody waits for it: rows are rewritten
beside the graph, and only the publish at the end meets writers. If one of them comes first, what it changed
is taken over (storage/tables/compaction.py), and the work on all tables is kept. A table that lost most of
the rows that were rewritten is rewritten again, a bounded number of times; then it is skipped as contended,
and the others are published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, HistoryReclaimed, PublishContention
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.derive import FAILURES, Told
from omnigraph.engine.indexes import (
    CONTENDED,
    IndexReport,
    IndexWrite,
    Ready,
    TableFiles,
    TypeIndexes,
    declared_indexes,
    derived_by,
)
from omnigraph.storage.cost import Cost, measured
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.compaction import (
    Fragmentation,
    FragmentFacts,
    IndexState,
    OptimizePolicy,
    Rewriter,
    fragment_facts,
    rebased,
    rewrite,
    worth_rewriting,
    write_anew,
)
from omnigraph.storage.tables.effects import Compact, Effect, SeveralEffects
from omnigraph.storage.tables.indexes import lacks
from omnigraph.storage.tables.layout import Layout
from omnigraph.storage.tables.row_runs import RowRuns
from omnigraph.storage.transaction import PinnedSnapshot, PublishPlan, PublishReceipt, WriteTxn

FILES_CONTENDED = "files contended"  # no file was rewritten, and indexes were published
SYSTEM = "system:optimize"  # the actor, unless the caller names one


@dataclass(frozen=True, slots=True)
class OptimizeProgress:
    """How far an optimize is; rows are those that are rewritten, which are known before it begins.

    Tables are those whose indexes, or then derived files, are complete. When writers were quicker, a stage
    begins again. On Spark `tasks` are those known so far, of all stages.
    """

    stage: Literal["compacting", "indexing", "deriving", "done"]
    rows: int = 0
    rows_total: int = 0
    tasks_done: int = 0
    tasks: int = 0
    tables_done: int = 0
    tables: int = 0


OptimizeListener = Callable[[OptimizeProgress], None]


def optimize(
    store: GraphStore,
    catalogs: Catalogs,
    branch: str,
    *,
    types: Iterable[str] | None = None,
    policy: OptimizePolicy | None = None,
    actor: str | None = None,
    progress: OptimizeListener | None = None,
    workers: OptimizeWorkers | None = None,
) -> IndexReport:
    """Compact the tables of a branch, complete their indexes and derived files; say what came of each.

    `workers` rewrite files and build indexes; without any this process does.
    """
    names = None if types is None else [types] if isinstance(types, str) else list(types)
    report_to = progress or (lambda now: None)
    run = _Run(
        store, catalogs, branch, names, policy or OptimizePolicy(), report_to, workers or _ThisProcess(store)
    )
    with measured() as meter:
        report = run.run(Intent(actor or SYSTEM, by_system=actor is None))
    return replace(report, cost=meter.cost)


def fragmentation(store: GraphStore, catalogs: Catalogs, branch: str) -> tuple[Fragmentation, ...]:
    """Return how the tables of a branch lie in fragments, for `OptimizePolicy.is_due`. Reads no rows."""
    snapshot = store.snapshot(branch)
    return tuple(
        _fragmentation(store, snapshot, declared) for declared in catalogs.get(snapshot.schema).tables
    )


def _fragmentation(store: GraphStore, snapshot: PinnedSnapshot, declared: TableType) -> Fragmentation:
    with store.reading(snapshot.state, tables=(declared.id,)):
        handle = store.table(snapshot, declared.id)
        layout = store.reads.layout(handle)
        specs = declared_indexes(declared)
        lacking = lacks(handle, layout, specs) if layout.parts else {}
        uncovered = {
            spec: sum(
                layout.parts[n].size.rows for n in lack.fragments if not _covered(n, lack.stored.values())
            )
            for spec, lack in lacking.items()
        }
        names = {one.column: one.name for one in declared.properties}
        indexes = [IndexState(names[spec.column], spec.kind.value, uncovered.get(spec, 0)) for spec in specs]
        facts = fragment_facts(handle, layout)
        return Fragmentation(
            declared.name,
            declared.kind.value,
            tuple(facts.values()),
            max(uncovered.values(), default=0),
            tuple(indexes),
        )


def _covered(fragment: int, segments: Iterable[frozenset[int]]) -> bool:
    return any(fragment in segment for segment in segments)


# -- who does the work ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewriteTask:
    """Fragments of one table to rewrite."""

    declared: TableType
    version: int
    chosen: tuple[int, ...]
    layout: Layout
    facts: Mapping[int, FragmentFacts]
    rows: int


class OptimizeWorkers(Protocol):
    """Whoever rewrites files and builds indexes. What they make is named by nothing until it is published."""

    def rewriters(self, tasks: Sequence[RewriteTask]) -> Mapping[str, Rewriter]:
        """Return who writes the new files of each table, by id; what it raises concerns its table alone."""
        ...

    def indexed(
        self, snapshot: PinnedSnapshot, compactions: Mapping[str, Compact], tables: Sequence[TableType]
    ) -> Ready | None:
        """Build what the indexes of tables lack once they are compacted; None leaves it to the publish."""
        ...


class _ThisProcess:
    """Rewrites in threads of this process; indexes are built when they are staged."""

    def __init__(self, store: GraphStore) -> None:
        self._runs = RowRuns(store.location.objects, store.reads.deleted)

    def rewriters(self, tasks: Sequence[RewriteTask]) -> Mapping[str, Rewriter]:
        return {task.declared.id: partial(write_anew, self._runs) for task in tasks}

    def indexed(
        self, snapshot: PinnedSnapshot, compactions: Mapping[str, Compact], tables: Sequence[TableType]
    ) -> None:
        return None


# -- the write -----------------------------------------------------------------------------------------


class _StartOver(Exception):
    """Writers took away most of what was rewritten of some tables: rewrite these again."""


class OptimizeWrite:
    """The indexes of tables, on top of what was compacted of them.

    Preparing reads next to nothing: it is done again after a lost race, while other writers wait.
    """

    def __init__(
        self, store: GraphStore, catalogs: Catalogs, tables: frozenset[str] | None, told: Told
    ) -> None:
        self.indexes = IndexWrite(catalogs, finished=self._finished)
        self.compactions: dict[str, Compact] = {}
        self.contended: set[str] = set()
        self.incarnation: str | None = None  # of the branch whose rows were rewritten
        self.gives_up = False  # whether tables that must be rewritten again are left out
        self._store = store
        self._catalogs = catalogs
        self._tables = tables
        self._planned: dict[str, SeveralEffects] = {}
        self._told = told
        self._built = self._to_build = 0
        self._lock = threading.Lock()

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to publish; effects are kept between attempts, and with them what they built."""
        plan = self.indexes.prepare(txn)
        for table_id in [t for t in self.compactions if not self._fits(txn, t)]:
            del self.compactions[table_id]
            self.contended.add(table_id)
        if self.contended and not self.gives_up:
            raise _StartOver
        effects = {
            table_id: self._effect(table_id, build)
            for table_id, build in plan.effects.items()
            if self._tables is None or table_id in self._tables
        }
        catalog = self._catalogs.get(txn.snapshot.schema)
        looked_up = {table_id: catalog.table(table_id).looked_up for table_id in effects}
        self._built, self._to_build = 0, len(effects)
        return replace(plan, effects=effects, looked_up=looked_up)

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Accept: no row changes."""

    def _finished(self) -> None:
        """Note that the indexes of one more table are built; several are at the same time."""
        with self._lock:
            self._built += 1
            self._told(min(self._built, self._to_build), self._to_build)

    def _effect(self, table_id: str, build: Effect) -> Effect:
        compact = self.compactions.get(table_id)
        if compact is None:
            return build
        planned = self._planned.get(table_id)
        if planned is None or planned.effects != (compact, build):
            planned = self._planned[table_id] = SeveralEffects((compact, build))
        return planned

    def _fits(self, txn: WriteTxn, table_id: str) -> bool:
        """Say whether what was rewritten can take its place in the tables of a base."""
        state, compact = txn.snapshot.state, self.compactions[table_id]
        kept = state.swept <= compact.rewritten.written.since and state.line.incarnation == self.incarnation
        if not kept or table_id not in state.pins:
            return False
        handle = txn.table(table_id)
        reads = self._store.reads
        return rebased(handle, reads.layout(handle), reads.deleted, compact) is not None


# -- a run ---------------------------------------------------------------------------------------------


class _Run:
    """One optimize, from its snapshot to its report."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        branch: str,
        types: list[str] | None,
        policy: OptimizePolicy,
        report: OptimizeListener,
        workers: OptimizeWorkers,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._policy = policy
        self._report = report
        self._workers = workers
        self._branch = branch
        snapshot = store.snapshot(branch)
        catalog = catalogs.get(snapshot.schema)
        self._asked = None if types is None else frozenset(catalog.named(name).id for name in types)
        self._write = OptimizeWrite(store, catalogs, self._asked, partial(self._tables_done, "indexing"))
        self._errors: dict[str, str] = {}
        self._files: dict[str, TableFiles] = {}  # of tables as they were found
        self._indexed: set[str] = set()  # tables that workers were asked for
        self._derived: dict[str, tuple[str, ...]] = {}  # what workers wrote beside files
        self._stopped = threading.Event()
        self._lock = threading.Lock()

    def run(self, intent: Intent) -> IndexReport:
        """Rewrite, publish, and start over where writers were quicker; then complete derived files."""
        write, receipt = self._write, None
        for left in reversed(range(self._policy.replans + 1)):
            write.gives_up = left == 0
            self._rewrite()
            try:
                receipt = self._store.publish(self._branch, write, intent)
                break
            except (_StartOver, PublishContention):
                continue
        self._report(OptimizeProgress("deriving"))
        report = self._reported(receipt)
        self._report(OptimizeProgress("done"))
        return report

    # -- rewriting ---------------------------------------------------------------------------------

    def _rewrite(self) -> None:
        """Rewrite what is worth it of the tables that have nothing rewritten yet."""
        snapshot, write = self._store.snapshot(self._branch), self._write
        if write.incarnation != snapshot.state.line.incarnation:
            write.compactions.clear()
            write.incarnation = snapshot.state.line.incarnation
        write.contended.clear()
        tables = list(self._tables(snapshot))
        tasks = [task for declared in tables if (task := self._task(snapshot, declared))]
        done, total = 0, sum(task.rows for task in tasks)

        def advanced(rows: int) -> None:
            nonlocal done
            if self._stopped.is_set():
                raise OSError("optimize was interrupted")
            with self._lock:
                done += rows
                self._report(OptimizeProgress("compacting", done, total))

        rewriters = self._workers.rewriters(tasks)
        with ThreadPoolExecutor(self._policy.concurrency, "omnigraph-optimize") as pool:
            try:
                list(
                    pool.map(
                        lambda task: self._rewrite_table(
                            snapshot, task, advanced, rewriters[task.declared.id]
                        ),
                        tasks,
                    )
                )
            except BaseException:
                self._stopped.set()  # whoever interrupts does not wait for the rest
                raise
        self._report(OptimizeProgress("indexing"))
        rewritten = {task.declared.id for task in tasks}
        lacking = [t for t in tables if t.id in rewritten or t.id not in self._indexed]
        self._indexed.update(t.id for t in lacking)
        ready = self._workers.indexed(snapshot, write.compactions, lacking)
        if ready is not None:
            write.indexes.take(ready)
            self._derived |= ready.derived

    def _tables_done(self, stage: Literal["indexing", "deriving"], done: int, total: int) -> None:
        self._report(OptimizeProgress(stage, tables_done=done, tables=total))

    def _tables(self, snapshot: PinnedSnapshot) -> Iterable[TableType]:
        for declared in self._catalogs.get(snapshot.schema).tables:
            asked = self._asked is None or declared.id in self._asked
            if asked and declared.id not in self._write.compactions and declared.id not in self._errors:
                yield declared

    def _task(self, snapshot: PinnedSnapshot, declared: TableType) -> RewriteTask | None:
        """Say what there is to rewrite of a table; one that cannot be read is left to the others' report."""
        try:
            with self._store.reading(snapshot.state, tables=(declared.id,)):
                handle = self._store.table(snapshot, declared.id)
                layout = self._store.reads.layout(handle)
                self._files[declared.id] = table_files(layout, layout)
                facts = fragment_facts(handle, layout)
                chosen = worth_rewriting(self._policy, facts)
        except GraphError:
            return None  # told when it is opened to be published
        rows = sum(layout.parts[number].size.rows for number in chosen)
        return RewriteTask(declared, handle.version, chosen, layout, facts, rows) if chosen else None

    def _rewrite_table(
        self,
        snapshot: PinnedSnapshot,
        task: RewriteTask,
        advanced: Callable[[int], None],
        rewriter: Rewriter,
    ) -> None:
        """Rewrite fragments of one table; a failure concerns this table alone."""
        table_id = task.declared.id
        try:
            with self._store.reading(snapshot.state, tables=(table_id,)):
                rewritten = rewrite(
                    self._store.table(snapshot, table_id),
                    task.layout,
                    self._store.reads.deleted,
                    self._policy,
                    task.chosen,
                    snapshot.state.version,
                    rewriter,
                    advanced,
                )
        except HistoryReclaimed:
            self._write.contended.add(table_id)  # a hard drop took the files: there is a newer state
        except GraphError as error:
            self._errors[table_id] = str(error)
        else:
            self._write.compactions[table_id] = Compact(rewritten, self._policy.deleted_share)

    # -- the report --------------------------------------------------------------------------------

    def _reported(self, receipt: PublishReceipt | None) -> IndexReport:
        store, write = self._store, self._write
        branch = self._branch if receipt is None else receipt.branch
        changes = {} if receipt is None else {change.table_id: change for change in receipt.tables}
        for table_id, change in changes.items():
            if change.before is not None and change.after is not None:
                with suppress(*FAILURES):  # the commit stands, whatever became of its files since
                    before, after = (
                        store.reads.layout(store.reads.handle(table_id, version))
                        for version in (change.before, change.after)
                    )
                    self._files[table_id] = table_files(before, after)
        told = partial(self._tables_done, "deriving")
        derived = derived_by(store, self._catalogs, branch, self._derived, self._asked, told)
        rows = write.indexes.report_by_id(frozenset(changes), derived)
        types = (
            self._row(table_id, row, contended=receipt is None)
            for table_id, row in rows.items()
            if self._asked is None or table_id in self._asked
        )
        commit_id = None if receipt is None else receipt.commit_id
        ordered = sorted(types, key=lambda row: (row.kind, row.type))
        return IndexReport(branch, commit_id, tuple(ordered), Cost())

    def _row(self, table_id: str, row: TypeIndexes, *, contended: bool) -> TypeIndexes:
        compact = self._write.compactions.get(table_id)
        failed = None if compact is None else compact.work.error
        return replace(
            row,
            files=self._files.get(table_id),
            skipped=self._skipped(table_id, row, contended=contended),
            error=row.error or self._errors.get(table_id) or failed,
        )

    def _skipped(self, table_id: str, row: TypeIndexes, *, contended: bool) -> str | None:
        """Say what was not done because writers were quicker: anything, or just the rewriting of files."""
        if contended or table_id in self._write.contended:
            return FILES_CONTENDED if row.committed else CONTENDED
        return row.skipped


def table_files(before: Layout, after: Layout) -> TableFiles:
    """Return the files of a table in two versions that have the same rows."""
    return TableFiles(
        len(before.parts), len(after.parts), _stored_bytes(before), _stored_bytes(after), after.rows
    )


def _stored_bytes(layout: Layout) -> int:
    return sum(part.stored_bytes for part in layout.parts.values())
