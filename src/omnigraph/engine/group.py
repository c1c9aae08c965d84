"""Group: writes of several threads that wait at the same time go out in one commit.

Room    engine. One line for each branch and actor of a process. While one publish is in flight the others
        line up; whoever is first then takes all that can go together and publishes for them.
Rule    only writes that no rows decide may share a commit (inserts and upserts of different ids), so that no
        order between them can be observed. Each gets its own receipt. If the union breaks a constraint, each
        is published alone, in the order of arrival, and gets its own answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.base.errors import GraphError
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.write import ChangeWrite, Draft
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import Receipt, WriteTxn

MOST = 64  # writes in one commit


@dataclass(eq=False)
class _Waiting:
    write: ChangeWrite
    turn: threading.Event = field(default_factory=threading.Event)
    receipt: Receipt | None = None
    error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self.receipt is not None or self.error is not None


@dataclass(eq=False)
class _Line:
    waiting: deque[_Waiting] = field(default_factory=deque)
    busy: bool = False


class GroupCommit:
    """Publishes writes, together where they come together."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        self._lines: dict[tuple[str, Intent], _Line] = {}
        self._lock = threading.Lock()

    def publish(self, branch: str, write: ChangeWrite, intent: Intent) -> Receipt:
        """Publish a write that no rows decide, alone or with others."""
        mine = _Waiting(write)
        with self._lock:
            line = self._lines.setdefault((branch, intent), _Line())
            if line.busy:
                line.waiting.append(mine)
            else:
                line.busy = True
                mine.turn.set()
        mine.turn.wait()
        if not mine.done:  # it is our turn to publish, for ourselves and for those who wait
            try:
                self._lead(branch, intent, line, mine)
            finally:
                self._hand_over(line, (branch, intent))
        if mine.error is not None:
            raise mine.error
        if mine.receipt is None:
            raise AssertionError("a write ended without an answer")
        return mine.receipt

    def _lead(self, branch: str, intent: Intent, line: _Line, mine: _Waiting) -> None:
        with self._lock:
            group = [mine]
            while line.waiting and len(group) < MOST:
                group.append(line.waiting.popleft())
        try:
            self._together(branch, intent, group)
        except BaseException as error:  # noqa: BLE001 (whatever it is, the others must not wait for ever)
            for one in group:
                one.error = one.error or (None if one.done else error)
        finally:
            for one in group[1:]:
                one.turn.set()

    def _hand_over(self, line: _Line, key: tuple[str, Intent]) -> None:
        with self._lock:
            if line.waiting:
                line.waiting.popleft().turn.set()
            else:
                line.busy = False
                self._lines.pop(key, None)

    def _together(self, branch: str, intent: Intent, group: Sequence[_Waiting]) -> None:
        if len(group) > 1:
            union = _Union([one.write for one in group])
            try:
                done = self._store.publish(branch, union.write, intent)
            except GraphError:
                pass  # perhaps only one of them is at fault: ask for each
            else:
                for one in group:
                    one.receipt = done
                return
        for one in group:
            try:
                one.receipt = self._store.publish(branch, one.write, intent)
            except Exception as error:  # noqa: BLE001 (handed to the thread whose write it is)
                one.error = error


class _Union:
    """Several writes as one."""

    def __init__(self, writes: Sequence[ChangeWrite]) -> None:
        self._writes = writes
        self.write = writes[0].like(self._draft)

    def _draft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        drafts = [one.redraft(txn, catalog) for one in self._writes]
        types: dict[str, list[TypeChange]] = {}
        for draft in drafts:
            for table_id, change in draft.change.types.items():
                types.setdefault(table_id, []).append(change)
        changes = [_merged(parts) for parts in types.values()]
        return Draft(ChangeSet.of(catalog, changes), frozenset().union(*(d.decided_by for d in drafts)))


class CannotShare(GraphError):
    """Two writes touch one entity; each must be published alone."""


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
