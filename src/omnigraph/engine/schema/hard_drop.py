"""Hard drop: drops that leave nothing behind.

A soft drop retires a column or a pin and touches no data. A hard one rewrites the table without the column in
the same commit, and has its history reclaimed right after it. Here are the steps with their real cost, the
effects that carry them out and, once published, what was taken away and which branches still hold some of it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.errors import GraphError
from omnigraph.catalog.model import TypeKind
from omnigraph.catalog.steps import DropMode, DropProperty, DropType, Effect, Step
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.storage.reclaim import Reclaimed, carries, field_ids
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DropColumn, Overwrite
from omnigraph.storage.tables.effects import Effect as TableEffect
from omnigraph.storage.transaction import WriteTxn

log = logging.getLogger(__name__)


def is_hard(step: Step) -> bool:
    """Say whether a step takes the history of a table with it; an interface has no table."""
    if not isinstance(step, DropProperty | DropType):
        return False
    return step.mode is DropMode.HARD and step.type_kind is not TypeKind.INTERFACE


def as_executed(step: Step, rows: Mapping[str, int]) -> Step:
    """Return a step with its real cost: taking a column out of the files rewrites every row there is."""
    if isinstance(step, DropProperty) and is_hard(step) and rows.get(step.type_id):
        return replace(step, effect=Effect.REWRITE)
    return step


@dataclass(frozen=True)
class RowsWithout:
    """The rows of a table less some columns, read anew for each staging."""

    handle: Any
    columns: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        """The columns that stay."""
        return pa.schema([field for field in self.handle.schema if field.name not in self.columns])

    def reader(self) -> pa.RecordBatchReader:
        """Start reading from the beginning."""
        return scanner(self.handle, columns=self.schema.names).to_reader()


def rewrites(steps: Iterable[Step], txn: WriteTxn) -> dict[str, list[TableEffect]]:
    """Return what takes columns out of tables for good: they go, and the rows are written without them."""
    dropped: dict[str, list[DropProperty]] = {}
    for step in steps:
        if isinstance(step, DropProperty) and is_hard(step):
            dropped.setdefault(step.type_id, []).append(step)
    effects: dict[str, list[TableEffect]] = {}
    for table_id, drops in dropped.items():
        columns = [step.column for step in drops if step.column is not None]
        effects[table_id] = [DropColumn(column) for column in columns]
        if any(step.effect is Effect.REWRITE for step in drops):
            effects[table_id].append(Overwrite(RowsWithout(txn.table(table_id), frozenset(columns))))
    return effects


@dataclass(frozen=True)
class ReclaimedType(JsonFields):
    """What a hard drop took away of one type's table; `error` says why it could not."""

    json_names: ClassVar = {"files": "files_removed", "bytes": "bytes_removed"}
    json_if_known = frozenset({"error"})

    type_name: str
    files: int = 0
    bytes: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Reclamation:
    """What the hard drops of one apply took away, and what they could not."""

    types: tuple[ReclaimedType, ...] = ()
    warnings: tuple[str, ...] = ()


def reclaim(store: GraphStore, commit: CommitRecord, steps: Iterable[Step]) -> Reclamation:
    """Reclaim the history of every table that a commit's hard drops concern. The commit stands anyway."""
    hard = [step for step in steps if isinstance(step, DropProperty | DropType) and is_hard(step)]
    names = {step.type_id: step.type_name for step in hard}
    if not names:
        return Reclamation()
    try:
        dropped = _dropped(store, commit, hard)  # before the version that knows it is gone
        swept_tables = store.reclaim(names)
    except GraphError as error:
        failed = (ReclaimedType(name, error=str(error)) for name in sorted(names.values()))
        text = f"the schema was changed, but dropped data is still stored: {error}"
        return Reclamation(tuple(failed), (text,))
    types = [ReclaimedType(names[swept.table_id], swept.files, swept.bytes) for swept in swept_tables]
    for reclaimed in types:
        log.info("reclaimed %d files, %d bytes of %s", reclaimed.files, reclaimed.bytes, reclaimed.type_name)
    held = _still_held(store, commit.branch, dropped, swept_tables)
    return Reclamation(tuple(sorted(types, key=lambda reclaimed: reclaimed.type_name)), tuple(held))


@dataclass(frozen=True)
class _Dropped:
    """What one step dropped; a type has no column."""

    table_id: str
    shown: str
    column: str | None = None
    ids: frozenset[int] = frozenset()

    def is_in(self, store: GraphStore, version: int) -> bool:
        """Say whether a version of the table holds it; one that cannot be looked at may."""
        try:
            handle = store.opener.table(self.table_id, version)
        except GraphError:
            return True
        return self.column is None or carries(handle, self.column, self.ids)


def _dropped(
    store: GraphStore, commit: CommitRecord, hard: Iterable[DropProperty | DropType]
) -> list[_Dropped]:
    before = {change.table_id: change.before for change in commit.tables}
    dropped = []
    for step in hard:
        version = before.get(step.type_id)
        if isinstance(step, DropType):
            dropped.append(_Dropped(step.type_id, step.type_name))
        elif step.column is not None and version is not None:
            ids = field_ids(store.opener.table(step.type_id, version), step.column)
            shown = f"{step.type_name}.{step.property_name}"
            dropped.append(_Dropped(step.type_id, shown, step.column, ids))
    return dropped


def _still_held(
    store: GraphStore, branch: str, dropped: Iterable[_Dropped], swept_tables: Iterable[Reclaimed]
) -> Iterator[str]:
    """Name the branches whose heads hold what was dropped on this one."""
    pinned = {table.table_id: table.pinned_by for table in swept_tables}
    for drop in dropped:
        others = ((name, version) for name, version in pinned[drop.table_id].items() if name != branch)
        holders = [repr(name) for name, version in others if drop.is_in(store, version)]
        if holders:
            yield (
                f"the data of {drop.shown} is still held by {'branch' if len(holders) == 1 else 'branches'} "
                f"{', '.join(holders)}: drop it there too, or delete the branch"
            )
