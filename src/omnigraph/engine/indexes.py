"""Indexes: bring the indexes of a branch up to its rows, as one maintenance commit.

    catalog -> wanted indexes -> **what they lack** -> publisher -> what is derived from files (derive.py)

Never changes an answer and never makes a writer fail: if one publishes first, what was built is published
on top of it, and only its new rows are added. The report has a row for each type; an index that cannot be
built yet is pending, and the others are built all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, HistoryReclaimed, PublishContention
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import IndexKind, TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.derive import FAILURES, Told, complete
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import NO_VECTORS, BuildIndexes, IndexSpec, StoredIndexKind
from omnigraph.storage.transaction import PublishPlan, WriteTxn

CONTENDED = "contended"
Derived = Mapping[str, tuple[str, ...]]  # type id -> columns, and "adjacency"


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """An index that could not be built, and why."""

    property: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"property": self.property, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one type before and after a compaction; rows are the same."""

    fragments_before: int
    fragments_after: int
    bytes_before: int
    bytes_after: int
    rows: int

    @property
    def changed(self) -> bool:
        """Whether files were rewritten."""
        before = self.fragments_before, self.bytes_before
        return before != (self.fragments_after, self.bytes_after)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "fragments": {"before": self.fragments_before, "after": self.fragments_after},
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "rows": self.rows,
        }


@dataclass(frozen=True, slots=True)
class TypeIndexes:
    """What was done for one type; properties by name, `id`, `src` and `dst` as such.

    `derived` says of which properties key hashes were written beside the data files, and whether
    `adjacency` was; that is no part of the commit. `files` is known after `optimize`.
    """

    type: str
    kind: str
    created: tuple[str, ...] = ()
    extended: tuple[str, ...] = ()
    pending: tuple[PendingIndex, ...] = ()
    derived: tuple[str, ...] = ()
    committed: bool = False
    skipped: str | None = None
    error: str | None = None
    files: TableFiles | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "type": self.type,
            "kind": self.kind,
            **({} if self.files is None else self.files.to_json()),
            "indexes": {"created": list(self.created), "extended": list(self.extended)},
            "pending": [index.to_json() for index in self.pending],
            "derived": list(self.derived),
            "committed": self.committed,
            "skipped": self.skipped,
            "error": self.error,
        }


@dataclass(frozen=True)
class IndexReport:
    """What came of a run; `commit_id` is None when there was nothing to publish."""

    branch: str
    commit_id: str | None
    types: tuple[TypeIndexes, ...]
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "branch": self.branch,
            "commit_id": self.commit_id,
            "types": [indexes.to_json() for indexes in self.types],
        }


def ensure_indexes(
    store: GraphStore,
    catalogs: Catalogs,
    branch: str = "main",
    *,
    actor: str | None = None,
    ready: Ready | None = None,
    broken: Mapping[str, frozenset[str]] = FrozenMap(),
) -> IndexReport:
    """Build the indexes that are declared but missing, extend the others, and complete derived files.

    Segments that are `broken`, by table id, are built anew.
    """
    write = IndexWrite(catalogs, ready, broken)
    already = FrozenMap() if ready is None else ready.derived
    try:
        receipt = store.publish(branch, write, Intent(actor=actor))
    except PublishContention:
        rows = write.report(frozenset(), derived_by(store, catalogs, branch, already))
        return IndexReport(branch, None, tuple(replace(row, skipped=CONTENDED) for row in rows), Cost())
    moved = frozenset(change.table_id for change in receipt.tables)
    rows = write.report(moved, derived_by(store, catalogs, receipt.branch, already))
    return IndexReport(receipt.branch, receipt.commit_id, rows, receipt.cost)


def derived_by(
    store: GraphStore,
    catalogs: Catalogs,
    branch: str,
    already: Derived,
    tables: Collection[str] | None = None,
    told: Told = lambda done, total: None,
) -> Derived:
    """Complete what lies beside the files of a branch; return what was written, now or already."""
    written: dict[str, tuple[str, ...]] = {}
    with suppress(*FAILURES):  # the commit stands, whatever became of its branch or of storage since
        snapshot = store.snapshot(branch)
        written = complete(store, catalogs.get(snapshot.schema), snapshot, tables, told)
    for table_id, names in already.items():
        written[table_id] = tuple(dict.fromkeys([*names, *written.get(table_id, ())]))
    return written


@dataclass(frozen=True)
class Ready:
    """Segments that were built already, by table, and the branch's version before the first of them."""

    since: int
    effects: Mapping[str, BuildIndexes]
    derived: Derived = FrozenMap()  # what was written beside the files already


class IndexWrite:
    """The write: every table that has rows, with the indexes it should have."""

    def __init__(
        self,
        catalogs: Catalogs,
        ready: Ready | None = None,
        broken: Mapping[str, frozenset[str]] = FrozenMap(),
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogs = catalogs
        self._finished = finished  # is called for each table whose indexes are complete
        self._broken = broken
        self._catalog: Catalog | None = None
        self._effects: dict[str, BuildIndexes] = {} if ready is None else dict(ready.effects)
        self._errors: dict[str, str] = {}
        self._empty: frozenset[str] = frozenset()
        self._first = -1 if ready is None else ready.since

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to complete. Effects are kept between attempts: they remember what they built."""
        state = txn.snapshot.state
        if self._first < 0 or state.swept > self._first:  # what was built before may be gone
            self._first, self._effects = state.version, {}
        self._catalog, self._errors = self._catalogs.get(txn.snapshot.schema), {}
        self._effects = {t.id: self._effect(t) for t in self._catalog.tables}
        self._empty = frozenset(t for t in self._effects if not txn.rows(t))
        wanting = {t: e for t, e in self._effects.items() if t not in self._empty and self._opens(txn, t)}
        return PublishPlan(CommitKind.MAINTENANCE, effects=wanting, replans=True)

    def take(self, ready: Ready) -> None:
        """Take over segments that others built, beside those that are here already."""
        self._first = ready.since if self._first < 0 else min(self._first, ready.since)
        self._effects.update(ready.effects)

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Accept: no row changes."""

    def _effect(self, declared: TableType) -> BuildIndexes:
        specs = declared_indexes(declared)
        kept = self._effects.get(declared.id)
        if kept is not None and kept.specs == specs:
            return kept
        broken = self._broken.get(declared.id, frozenset())
        return BuildIndexes(specs, broken=broken, finished=self._finished)

    def _opens(self, txn: WriteTxn, table_id: str) -> bool:
        """Say whether a table can be read at all; one that cannot is reported, and the others go on."""
        try:
            txn.table(table_id)
        except HistoryReclaimed:
            raise
        except GraphError as error:
            self._errors[table_id] = str(error)
            return False
        return True

    def report(self, moved: frozenset[str], derived: Derived) -> tuple[TypeIndexes, ...]:
        """Return a row for each type, given the tables that were published and what was derived."""
        rows = self.report_by_id(moved, derived).values()
        return tuple(sorted(rows, key=lambda row: (row.kind, row.type)))

    def report_by_id(self, moved: frozenset[str], derived: Derived) -> dict[str, TypeIndexes]:
        """Return the row of each type by its id."""
        tables = () if self._catalog is None else self._catalog.tables
        return {t.id: self._row(t, t.id in moved, derived.get(t.id, ())) for t in tables}

    def _row(self, declared: TableType, moved: bool, derived: Iterable[str]) -> TypeIndexes:
        work = self._effects[declared.id].work
        pending = _unborn(declared) if declared.id in self._empty else work.pending
        return TypeIndexes(
            declared.name,
            declared.kind.value,
            created=_names(declared, work.created) if moved else (),
            extended=_names(declared, work.extended) if moved else (),
            pending=tuple(
                PendingIndex(_name(declared, spec.column), pending[spec])
                for spec in sorted(pending, key=lambda spec: spec.column)
            ),
            derived=tuple(_name(declared, column) for column in derived),
            committed=moved,
            error=self._errors.get(declared.id),
        )


def _unborn(declared: TableType) -> dict[IndexSpec, str]:
    """Say why the declared indexes of an empty table are not there."""
    intended = {intent.column for intent in declared.index_intents}
    return {
        spec: NO_VECTORS if spec.kind is StoredIndexKind.VECTOR else "no rows yet"
        for spec in declared_indexes(declared)
        if spec.column in intended
    }


def _names(declared: TableType, specs: Iterable[IndexSpec]) -> tuple[str, ...]:
    return tuple(sorted(_name(declared, spec.column) for spec in specs))


def _name(declared: TableType, column: str) -> str:
    return next((p.name for p in declared.properties if p.column == column), column)


def declared_indexes(declared: TableType) -> tuple[IndexSpec, ...]:
    """Return the indexes that a type's table should have. Ids and ends of edges are found by key hashes."""
    intents = {intent.column: _stored_kind(intent.kind) for intent in declared.index_intents}
    return tuple(IndexSpec(column, kind) for column, kind in sorted(intents.items()))


def _stored_kind(intended: IndexKind) -> StoredIndexKind:
    match intended:
        case IndexKind.ORDERED:
            return StoredIndexKind.BTREE
        case IndexKind.FULL_TEXT:
            return StoredIndexKind.INVERTED
        case IndexKind.VECTOR:
            return StoredIndexKind.VECTOR
        case _:
            assert_never(intended)
