"""Staging: carry out a plan's effects on all its tables, in parallel, invisibly.

Between the plan (a value) and the publisher (the swap). Staged versions are keyed by the base they were made
from; a retry keeps those whose base did not move.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor, wait
from dataclasses import replace

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StagedFilesGone
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.cost import stage as cost_stage
from omnigraph.storage.derived.rows import RowFinder
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import CommitKind, ManifestState, Pin, TableChange
from omnigraph.storage.opener import Opener
from omnigraph.storage.schema_objects import SchemaObjects
from omnigraph.storage.tables.differences import TailCache
from omnigraph.storage.tables.effects import Effect, Upsert, Written, written_in
from omnigraph.storage.tables.files import create_table
from omnigraph.storage.tables.layout import Layouts
from omnigraph.storage.tables.stage import stage
from omnigraph.storage.tables.workbench import Staged, Tools
from omnigraph.storage.transaction import PublishPlan, WriteTxn


@dataclass(frozen=True)
class StagedPlan:
    """A plan with all its tables staged on one base."""

    plan: PublishPlan
    base: ManifestState
    tables: Mapping[str, Staged]
    schema: str | None  # hash of the new schema, when the plan accepts one
    staged_at: int  # the manifest version when the oldest of the files was written

    def rebased(self, state: ManifestState) -> StagedPlan:
        """Return the same staged versions on a newer state that left all their tables alone."""
        return replace(self, base=state)

    def pins(self, commit_id: str, kind: CommitKind) -> dict[str, Pin | None]:
        """Return the pins to publish, which are none where nothing changes; None removes a table."""
        pins: dict[str, Pin | None] = dict.fromkeys(self.plan.drop)
        for table_id, new in self.plan.create.items():
            pins[table_id] = Pin(table_id, new.name, new.kind, version=1, rows=0, content=commit_id)
        for table_id, adopted in self.plan.adopt.items():
            pins[table_id] = adopted.pin
        for table_id, name in self.plan.rename.items():
            pins[table_id] = replace(pins.get(table_id) or self.base.pins[table_id], name=name)
        for table_id, staged in self.tables.items():
            if staged.version != staged.base_version:
                old = pins.get(table_id) or self.base.pins[table_id]
                content = old.content if kind is CommitKind.MAINTENANCE else commit_id
                pins[table_id] = replace(old, version=staged.version, rows=staged.rows, content=content)
        return pins

    def changes(self, pins: Mapping[str, Pin | None]) -> tuple[TableChange, ...]:
        """Return what the commit record says of each table that gets a new pin, by type name."""
        changes = []
        for table_id, pin in pins.items():
            old = self.base.pins.get(table_id)
            staged = self.tables.get(table_id) or self.plan.adopt.get(table_id)
            changes.append(
                TableChange(
                    table_id,
                    name=(pin or old or Pin(table_id, table_id, "", 0, 0, "")).name,
                    before=None if old is None else old.version,
                    after=None if pin is None else pin.version,
                    inserted=staged.inserted if staged else 0,
                    updated=staged.updated if staged else 0,
                    deleted=staged.deleted if staged else 0,
                )
            )
        return tuple(sorted(changes, key=lambda change: (change.name, change.table_id)))


class Staging:
    """Stages plans for one graph."""

    def __init__(
        self,
        location: Location,
        opener: Opener,
        schemas: SchemaObjects,
        syncer: Syncer,
        tables: Executor,
        files: Executor,
        tail: TailCache,
        layouts: Layouts,
        checksums: Checksums,
        finder: RowFinder,
    ) -> None:
        self._location = location
        self._opener = opener
        self._schemas = schemas
        self._syncer = syncer
        self._tail = tail
        self._layouts = layouts
        self._checksums = checksums
        self._finder = finder
        self._tables = tables  # one task per table ...
        self._files = files  # ... which waits for tasks of its own: a second pool, or they would deadlock

    def stage(self, txn: WriteTxn, plan: PublishPlan, reuse: StagedPlan | None = None) -> StagedPlan:
        """Stage every effect of a plan and make the files durable."""
        state = txn.snapshot.state
        since = self._check_kept(plan, state)
        done: dict[str, Staged] = {}
        todo: dict[str, Effect] = {}
        for table_id, effect in plan.effects.items():
            kept = None if reuse is None else self._reusable(reuse, txn, table_id, effect)
            if kept is not None:
                done[table_id] = kept
            else:
                todo[table_id] = effect
        if plan.create:
            if not plan.create.keys().isdisjoint(state.condemned):
                raise staged_files_gone("a cleanup ran while new tables waited to be published")
            self._create(plan, reuse)
        schema = self._schemas.put(plan.schema, state.condemned) if plan.schema is not None else None
        fresh = self._stage_all(txn, plan, todo)
        self._sync(fresh)
        for table_id, staged_table in fresh.items():
            self._checksums.record_written(table_id, staged_table.files, self._files)
        staged_at = since if reuse is None else min(since, reuse.staged_at)
        return StagedPlan(plan, state, {**done, **fresh}, schema, staged_at)

    def _stage_all(self, txn: WriteTxn, plan: PublishPlan, todo: Mapping[str, Effect]) -> dict[str, Staged]:
        """Stage tables side by side; the first runs here, so its steps stand for all in the cost."""
        (first, *rest) = todo.items() if todo else ((None, None),)
        futures = {
            table: self._tables.submit(self._stage_one, txn, plan, table, effect) for table, effect in rest
        }
        try:
            fresh = {} if first[0] is None else {first[0]: self._stage_one(txn, plan, *first)}
        finally:
            wait(futures.values())  # no straggler goes on writing after an error was told
        return {**fresh, **{table: future.result() for table, future in futures.items()}}

    def _stage_one(self, txn: WriteTxn, plan: PublishPlan, table_id: str, effect: Effect) -> Staged:
        if table_id in plan.create:
            base = self._opener.table(table_id, 1)
        elif table_id in plan.adopt:
            base = self._opener.table(table_id, plan.adopt[table_id].pin.version)
        else:
            base = txn.table(table_id)
        folder = f"{self._location.uri}/tables/{table_id}/"
        columns = plan.looked_up.get(table_id, ())
        tools = Tools(self._files, self._tail, self._layouts, self._finder, columns, self._syncer, folder)
        staged, handle = stage(base, effect, tools)
        self._opener.adopt(table_id, handle)
        return staged

    def _create(self, plan: PublishPlan, reuse: StagedPlan | None) -> None:
        created = reuse.plan.create if reuse is not None else {}
        cost_stage()
        futures = [
            self._tables.submit(
                create_table,
                table_id,
                new.schema,
                self._location,
                self._syncer,
                self._checksums.record_written,
                may_exist=True,
            )
            for table_id, new in plan.create.items()
            if created.get(table_id) is not new
        ]
        wait(futures)
        for future in futures:
            future.result()

    def _reusable(self, reuse: StagedPlan, txn: WriteTxn, table_id: str, effect: Effect) -> Staged | None:
        """Return what an earlier attempt staged, if it was for this very effect on this very version."""
        if reuse.plan.effects.get(table_id) is not effect:
            return None
        adopted = reuse.plan.adopt.get(table_id)
        staged = reuse.tables.get(table_id)
        pin = txn.snapshot.state.pins.get(table_id) if adopted is None else adopted.pin
        if staged is None or pin is None or pin.version != staged.base_version:
            return None
        return staged

    def _check_kept(self, plan: PublishPlan, state: ManifestState) -> int:
        """Return since when files of a plan lie about; refuse those that a sweep may have taken."""
        written = [
            (table_id, rows)
            for table_id, effect in plan.effects.items()
            if not isinstance(effect, Upsert)  # whose rows are in memory
            for rows in written_in(effect)
        ]
        since = min((rows.since for _, rows in written), default=state.version)
        if since < state.swept and not all(self._is_left(table, rows, state) for table, rows in written):
            raise staged_files_gone("a cleanup ran while these rows waited to be published")
        return min(since, state.version)

    def _is_left(self, table_id: str, rows: Written, state: ManifestState) -> bool:
        """Say whether every sweep so far has left the files of some rows alone: it says how old they were."""
        if state.swept_us is None:
            return False
        files = f"tables/{table_id}/data"
        entries = self._location.objects.entries(files)
        young = {entry.key for entry in entries if entry.modified_us >= state.swept_us}
        return all(f"{files}/{file.path}" in young for part in rows.fragments for file in part.files)

    def _sync(self, staged: Mapping[str, Staged]) -> None:
        """Before anything can name these files, they must survive a power cut."""
        if not self._location.is_local:
            return
        with durable(Step.STAGED_SYNC):
            self._syncer.files(
                f"{self._location.uri}/tables/{table_id}/{file}"
                for table_id, staged_table in staged.items()
                for file in staged_table.files
            )


def staged_files_gone(what: str) -> StagedFilesGone:
    """Return the error for files that were staged and that a cleanup may have taken."""
    return StagedFilesGone(
        f"{what}, and may have removed their files",
        remedy="Nothing was published; repeat the write",
    )
