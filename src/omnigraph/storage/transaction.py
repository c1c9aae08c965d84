"""Transaction: one write's view of the graph, and the values that a write is made of.

A snapshot is one version of a branch; a transaction is the snapshot that a write started from, with reads of
its tables. Every stage of a write takes the transaction, never the store: there is no way to resolve a branch
or "latest" again in the middle of a write.

A verb is a `Write`: it makes a `PublishPlan` from a transaction (`prepare`) and checks it (`validate`). Both
may run again on a newer base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import TypeNotFound
from omnigraph.base.frozen import FrozenMap
from omnigraph.storage.cost import NOTHING, Cost
from omnigraph.storage.diagnose import Readability
from omnigraph.storage.manifest.records import CommitKind, CommitRecord, ManifestState, Pin, TableChange
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import Effect, depends_on_rows
from omnigraph.storage.tables.predicate import Holds, Predicate
from omnigraph.storage.tables.reads import TableReads

if TYPE_CHECKING:
    from datafusion import SessionContext

# -- snapshot --------------------------------------------------------------------------------------
#
# A plain value: it can be pickled to another process and names every table version exactly, so nothing that
# holds one ever asks for "latest" again.


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """The state of one branch at one manifest version."""

    branch: str
    state: ManifestState

    @property
    def commit_id(self) -> str:
        """Id of the commit this snapshot is."""
        return self.state.head

    @property
    def schema(self) -> str:
        """Hash of the schema in force."""
        return self.state.schema

    def pin(self, table_id: str) -> Pin:
        """Return the pin of a table."""
        pin = self.state.pins.get(table_id)
        if pin is None:
            raise TypeNotFound(
                f"branch {self.branch!r} at commit {self.commit_id} has no table {table_id!r}", name=table_id
            )
        return pin


# -- transaction and plan --------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteTxn:
    """The captured base of a write."""

    snapshot: PinnedSnapshot
    commit_id: str  # minted once for the operation, the same in every attempt
    _reads: TableReads = field(repr=False)
    _readability: Readability = field(repr=False)

    def table(self, table_id: str) -> Handle:
        """Return a table at the base's version, or say that its history was reclaimed."""
        try:
            return self._reads.handle(table_id, self.snapshot.pin(table_id).version)
        except Exception as error:
            reason = self._readability.reason(error, self.snapshot.state, tables=(table_id,))
            if reason is error:
                raise
            raise reason from error

    def exists(self, table_id: str, ids: pa.Array) -> pa.Array:
        """Return, for each id, whether the base has a row with it."""
        return self._reads.exists(table_id, self.snapshot.pin(table_id).version, ids)

    def lookup(self, table_id: str, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the base's rows whose `column` is one of the values."""
        return self._reads.lookup(table_id, self.snapshot.pin(table_id).version, column, values, columns)

    def count_candidates(self, table_id: str, column: str, values: pa.Array) -> int | None:
        """Return how many rows `lookup` would read; None if it would scan."""
        return self._reads.count_candidates(table_id, self.snapshot.pin(table_id).version, column, values)

    def scan(self, table_id: str, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Stream some columns of all rows of the base."""
        return self._reads.scan(table_id, self.snapshot.pin(table_id).version, columns)

    def frame(self, context: SessionContext, table_id: str) -> Any:
        """Return all rows of the base as a DataFusion frame."""
        return self._reads.frame(context, table_id, self.snapshot.pin(table_id).version)

    def where(
        self, table_id: str, predicate: Predicate | None, columns: Sequence[str], holds: Holds
    ) -> pa.Table:
        """Return some columns of the base's rows for which a condition holds; the predicate prunes."""
        return self._reads.where(table_id, self.snapshot.pin(table_id).version, predicate, columns, holds)

    def rows(self, table_id: str) -> int:
        """Return how many rows the base has in a table."""
        return self.snapshot.pin(table_id).rows


@dataclass(frozen=True)
class NewTable:
    """A table that a plan creates."""

    name: str
    kind: str
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class Adopted:
    """A table at the version of another branch, and what that changes here; effects come on top of it."""

    pin: Pin
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


@dataclass(frozen=True, eq=False)
class PublishPlan:
    """Everything one commit will do."""

    kind: CommitKind
    effects: Mapping[str, Effect] = FrozenMap()  # by table id
    create: Mapping[str, NewTable] = FrozenMap()  # new tables by id; they may have effects too
    adopt: Mapping[str, Adopted] = FrozenMap()  # pins taken over as they are (merge by pointer)
    rename: Mapping[str, str] = FrozenMap()  # table id -> new type name
    drop: frozenset[str] = frozenset()
    schema: bytes | None = None  # a new schema to accept
    decided_by: frozenset[str] = frozenset()  # tables whose rows decided what is written
    assumed: frozenset[str] = frozenset()  # tables whose state shaped the plan: if one moves, plan again
    consulted: frozenset[str] = frozenset()  # tables read only to check constraints
    merged_parent: str | None = None
    merged: Mapping[str, int] = FrozenMap()  # what the merged parent has taken in: chain -> version
    replans: bool = False  # a lost race makes it plan again instead of conflicting (merge, maintenance)
    always_commit: bool = False  # publish even when nothing changed (a load is always a commit)
    labels: Mapping[str, str] = FrozenMap()  # what the commit record keeps besides
    # Further labels, made of what was staged.
    staged_labels: Callable[[tuple[TableChange, ...]], Mapping[str, str]] | None = None
    looked_up: Mapping[str, tuple[str, ...]] = FrozenMap()  # columns that rows are found by, by table id

    @property
    def writes(self) -> frozenset[str]:
        """Tables whose pin this plan changes."""
        return frozenset(self.effects) | frozenset(self.adopt) | frozenset(self.rename) | self.drop

    @property
    def decisive(self) -> frozenset[str]:
        """Tables whose move since the base is a conflict."""
        if self.replans:
            return frozenset()
        by_effect = frozenset(table for table, effect in self.effects.items() if depends_on_rows(effect))
        return (by_effect | self.decided_by | self.drop) - frozenset(self.create)


class Write(Protocol):
    """A verb, lowered: a pure function of its transaction."""

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Say what to publish, given this base."""
        ...

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Raise when the image that the plan leads to is not allowed."""
        ...


@dataclass(frozen=True)
class PlannedWrite:
    """A write that needs nothing from its base: the plan itself."""

    plan: PublishPlan

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Return the plan."""
        return self.plan

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Accept: there is nothing to check."""


@dataclass(frozen=True)
class PublishReceipt:
    """What a write did. `commit` is the record that was published, or None when nothing changed."""

    branch: str
    commit: CommitRecord | None
    tables: tuple[TableChange, ...] = ()
    attempts: int = 1
    cost: Cost = NOTHING
    warnings: tuple[str, ...] = ()
    replayed: bool = False  # an earlier call with the same commit id had landed

    @property
    def commit_id(self) -> str | None:
        """Id of the commit, if one was made."""
        return None if self.commit is None else self.commit.id
