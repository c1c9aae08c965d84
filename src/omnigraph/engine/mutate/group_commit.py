"""Group: writes of several threads that wait at the same time go out in one commit.

One line for each branch and actor of a process. While one publish is in flight the others line up; whoever
is first then takes all that can go together and publishes for them. A writer whose turn comes with its
answer at hand leaves at once.

Only writes that no rows decide may share a commit (inserts and upserts of different ids), so that no order
between them can be observed. Each gets its own receipt. If the union breaks a constraint, each is published
alone, in the order of arrival, and gets its own answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, Kind, OutcomeUnknown
from omnigraph.base.fair_lock import FairLock
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.write import ChangeWrite, Draft
from omnigraph.storage.manifest.records import TableChange
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PublishReceipt, WriteTxn

MOST = 64  # writes in one commit


@dataclass(eq=False)
class _Waiting:
    write: ChangeWrite
    receipt: PublishReceipt | None = None
    error: Exception | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None


@dataclass(eq=False)
class _Line:
    turns: FairLock = field(default_factory=FairLock)
    waiting: deque[_Waiting] = field(default_factory=deque)


class GroupCommit:
    """Publishes writes, together where they come together."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._lines: WeakValueDictionary[tuple[str, Intent], _Line] = WeakValueDictionary()  # those in use
        self._lock = threading.Lock()

    def publish(self, branch: str, write: ChangeWrite, intent: Intent) -> PublishReceipt:
        """Publish a write that no rows decide, alone or with others."""
        mine = _Waiting(write)
        with self._lock:
            line = self._lines.setdefault((branch, intent), _Line())
        turn = line.turns.turn()
        with turn.held:
            try:
                line.waiting.append(mine)
                turn.wait()
            finally:
                self._leave(line, mine)  # also when interrupted: nobody shall publish it then
            if not mine.done:
                self._lead(branch, intent, line, mine)
        if mine.error is not None:
            raise mine.error
        if mine.receipt is None:
            raise AssertionError("a write ended without an answer")
        return mine.receipt

    def _leave(self, line: _Line, mine: _Waiting) -> None:
        with self._lock:
            if mine in line.waiting:  # else somebody has begun to publish for us
                line.waiting.remove(mine)

    def _lead(self, branch: str, intent: Intent, line: _Line, mine: _Waiting) -> None:
        """Publish our own write, and those of all who wait."""
        if mine.write.commit_id is not None:  # whoever drafted it for us was told to stop, and is gone
            raise OutcomeUnknown(mine.write.commit_id, branch=branch)
        group = [mine]
        with self._lock:
            while line.waiting and len(group) < MOST:
                group.append(line.waiting.popleft())
        try:
            self._together(branch, intent, group)
        except Exception as error:  # noqa: BLE001 (told to each, in the thread whose write it is)
            for member in group:
                if not member.done:
                    member.error = error

    def _together(self, branch: str, intent: Intent, group: Sequence[_Waiting]) -> None:
        if len(group) > 1:
            union = _Union([one.write for one in group])
            try:
                done = self._store.publish(branch, union.write, intent)
            except GraphError as error:
                if not _one_may_be_at_fault(error):
                    raise  # of storage, perhaps after the commit landed: trying again could write twice
            else:
                for one in group:
                    one.receipt = union.share(one.write, done)
                return
        for one in group:
            try:
                one.receipt = self._store.publish(branch, one.write, intent)
            except Exception as error:  # noqa: BLE001 (handed to the thread whose write it is)
                one.error = error


def _one_may_be_at_fault(error: GraphError) -> bool:
    return error.kind in (Kind.INVALID, Kind.NOT_FOUND, Kind.CONFLICT) and not error.retryable


class _Union:
    """Several writes as one."""

    def __init__(self, writes: Sequence[ChangeWrite]) -> None:
        self._writes = writes
        self._base: WriteTxn | None = None
        self.write = writes[0].like(self._draft)

    def _draft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        self._base = txn
        drafts = [one.redraft(txn, catalog) for one in self._writes]
        types: dict[str, list[TypeChange]] = {}
        for draft in drafts:
            for table_id, change in draft.change.types.items():
                types.setdefault(table_id, []).append(change)
        changes = [_merged(parts) for parts in types.values()]
        return Draft(ChangeSet.of(catalog, changes), frozenset().union(*(d.decided_by for d in drafts)))

    def share(self, write: ChangeWrite, done: PublishReceipt) -> PublishReceipt:
        """Return one writer's receipt: the common commit, and its own counts."""
        if write.draft is None:
            raise AssertionError("published before it was drafted")
        mine = write.draft.change.types
        return replace(
            done, tables=tuple(self._part(mine[c.table_id], c) for c in done.tables if c.table_id in mine)
        )

    def _part(self, mine: TypeChange, whole: TableChange) -> TableChange:
        rows = mine.rows.num_rows
        if not whole.updated or not whole.inserted or self._base is None:
            return replace(whole, inserted=min(rows, whole.inserted), updated=min(rows, whole.updated))
        there = self._base.exists(mine.table_id, mine.rows[ID].combine_chunks())
        updated = int(pc.sum(there).as_py())
        return replace(whole, inserted=rows - updated, updated=updated)


class CannotShare(GraphError):
    """Two writes touch one entity; each must be published alone."""

    kind = Kind.CONFLICT


def _merged(parts: Sequence[TypeChange]) -> TypeChange:
    if len(parts) == 1:
        return parts[0]
    rows = pa.concat_tables([part.rows for part in parts])
    minted = all(part.minted for part in parts)
    if not minted and len(rows[ID].unique()) != rows.num_rows:
        raise CannotShare("two writes touch one entity")
    if len({part.strict for part in parts}) > 1:
        raise CannotShare("some ids must be new, others may exist")
    return TypeChange(parts[0].declared, rows, strict=parts[0].strict, minted=minted)
