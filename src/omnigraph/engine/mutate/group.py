"""Group commit: inserts of several threads that wait at the same time go out in one commit.

One line for each branch, actor and message of a process. While one publish is in flight the others line up;
whoever is first then takes all that can go together and publishes for them. A writer whose turn comes with
its answer at hand leaves at once.

Only writes that no rows decide may share a commit (inserts and upserts of different ids), so that no order
between them can be observed. Each gets its own receipt. If the union breaks a constraint, each is published
alone, in the order of arrival, and gets its own answer.

A write under an idempotency key claims two ids then: that of the common commit and that of a commit of its
own. Whoever publishes under one of them makes sure on every base that the other is not there, so at most one
lands.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, Kind, OutcomeUnknown
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import new_id
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.write import KEY, MEMBERS, ChangeWrite, Draft, member_label
from omnigraph.storage.claims import Claimed
from omnigraph.storage.manifest.records import TableChange
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot, PublishReceipt, WriteTxn
from omnigraph.storage.turns import FairLock, Turn

GROUPED = 64  # writes in one commit


@dataclass(eq=False)
class Member:
    """One write, the claim that it makes if it has a key, and how it ended."""

    write: ChangeWrite
    key: str | None = None
    claim: Callable[[PinnedSnapshot, str | None], Claimed] | None = None  # by base and shared id
    claimed: Claimed | None = None
    receipt: PublishReceipt | None = None
    error: Exception | None = None

    def may_share(self, shared: str) -> bool:
        """Say whether it may be in a common commit: under a key, if it was claimed for that one just now."""
        known = self.claimed
        claimed = self.claim is None or (known is not None and known.fresh and known.shared == shared)
        return claimed and self.error is None

    def intent(self, intent: Intent) -> Intent:
        """Return what is said of a commit of its own."""
        known = self.claimed
        if known is None or self.key is None:
            return intent
        twins = () if known.shared is None else (known.shared,)
        labels = FrozenMap({KEY: self.key})
        return replace(intent, commit_id=known.alone, chain=known.chain, twins=twins, labels=labels)


@dataclass(eq=False)
class _Line:
    turns: FairLock = field(default_factory=FairLock)
    waiting: deque[Member] = field(default_factory=deque)


class GroupCommit:
    """Publishes writes, together where they come together."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store
        # Those in use, by branch, actor and message.
        self._lines: WeakValueDictionary[tuple[str | None, ...], _Line] = WeakValueDictionary()
        self._lock = threading.Lock()

    def publish_alone(self, branch: str, member: Member, intent: Intent) -> PublishReceipt:
        """Publish a write as a commit of its own."""
        if member.claim is not None and member.claimed is None:
            member.claimed = member.claim(self._store.snapshot(branch), None)
        return self._store.publish(branch, member.write, member.intent(intent))

    def publish(self, branch: str, mine: Member, intent: Intent) -> PublishReceipt:
        """Publish a write that no rows decide, alone or with others that say the same of themselves."""
        with self._lock:
            line = self._lines.setdefault((branch, intent.actor, intent.message), _Line())
        turn = Turn(line.turns)
        with turn.held:
            try:
                line.waiting.append(mine)
                turn.wait()
            finally:
                with self._lock:  # also when interrupted: nobody shall publish it then
                    if mine in line.waiting:  # else somebody has begun to publish for us
                        line.waiting.remove(mine)
            if mine.receipt is None and mine.error is None:
                self._lead(branch, intent, line, mine)
        if mine.error is not None:
            raise mine.error
        if mine.receipt is None:
            raise AssertionError("a write ended without an answer")
        return mine.receipt

    def _lead(self, branch: str, intent: Intent, line: _Line, mine: Member) -> None:
        """Publish our own write, and those of all who wait."""
        # Whoever drafted it for us was told to stop, and is gone; its claim would tell whether it landed.
        if mine.write.commit_id is not None and mine.claim is None:
            raise OutcomeUnknown(mine.write.commit_id, branch=branch)
        group = [mine]
        with self._lock:
            while line.waiting and len(group) < GROUPED:
                group.append(line.waiting.popleft())
        if len(group) > 1:
            shared = new_id()
            self._claim(branch, group, shared)
            # Whoever was told of a failure may have claimed nevertheless: the common commit must not be made
            # without a write that looks for itself in it.
            if all(member.error is None or _one_may_be_at_fault(member.error) for member in group):
                able = [member for member in group if member.may_share(shared)]
                self._together(branch, intent, able, shared)
        for member in group:
            if member.receipt is None and member.error is None:
                try:
                    member.receipt = self.publish_alone(branch, member, intent)
                except Exception as error:  # noqa: BLE001 (handed to the thread whose write it is)
                    member.error = error

    def _claim(self, branch: str, group: Sequence[Member], shared: str) -> None:
        """Let all who have a key claim their ids, at the same time."""
        unclaimed = [member for member in group if member.claim is not None and member.claimed is None]
        if not unclaimed:
            return

        def claim(member: Member, base: PinnedSnapshot) -> None:
            assert member.claim is not None
            try:
                member.claimed = member.claim(base, shared)
            except Exception as error:  # noqa: BLE001 (handed to the thread whose write it is)
                member.error = error

        try:
            base = self._store.snapshot(branch)
            list(self._store.threads.map(claim, unclaimed, [base] * len(unclaimed)))
        except Exception as error:  # noqa: BLE001 (told to each, in the thread whose write it is)
            for member in unclaimed:
                member.error = member.error or error

    def _together(self, branch: str, intent: Intent, group: Sequence[Member], shared: str) -> None:
        """Publish writes as one; whoever has neither a receipt nor an error then must be published alone."""
        if len(group) < 2:
            return
        claimed = [member.claimed for member in group if member.claimed is not None]
        if claimed:
            own_ids = tuple(one.alone for one in claimed)
            intent = replace(intent, commit_id=shared, chain=claimed[0].chain, twins=own_ids)
        union = _Union(group)
        try:
            done = self._store.publish(branch, union.write, intent)
        except Exception as error:  # noqa: BLE001 (told to each, in the thread whose write it is)
            if not _one_may_be_at_fault(error):  # of storage, perhaps after it landed: again could be twice
                for member in group:
                    member.error = error
            return
        if not done.replayed:  # else one of them was repeated elsewhere meanwhile, and has landed alone
            for number, member in enumerate(group):
                member.receipt = replace(done, tables=union.counts[number])


def _one_may_be_at_fault(error: Exception) -> bool:
    kinds = (Kind.INVALID, Kind.NOT_FOUND, Kind.CONFLICT)
    return isinstance(error, GraphError) and error.kind in kinds and not error.retryable


class _Union:
    """Several writes as one."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._base: WriteTxn | None = None
        self.write = members[0].write.like(self._draft)
        self.write.staged_labels = self._staged_labels
        self.counts: list[tuple[TableChange, ...]] = [() for _ in members]  # what each did, once it is staged

    def _draft(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        self._base = txn
        drafts = [member.write.redraft(txn, catalog) for member in self._members]
        types: dict[str, list[TypeChange]] = {}
        for draft in drafts:
            for table_id, change in draft.change.types.items():
                types.setdefault(table_id, []).append(change)
        changes = [_merged(parts) for parts in types.values()]
        return Draft(ChangeSet.of(catalog, changes), frozenset().union(*(d.decided_by for d in drafts)))

    def _staged_labels(self, tables: tuple[TableChange, ...]) -> Mapping[str, str]:
        """Note what each write did, and say what the commit keeps of those under a key."""
        kept = {}
        for number, member in enumerate(self._members):
            draft, labels = member.write.draft, member.write.labels
            if draft is None:
                raise AssertionError("published before it was drafted")
            mine = draft.change.types
            counts = tuple(self._part(mine[c.table_id], c) for c in tables if c.table_id in mine)
            self.counts[number] = counts
            if member.key is not None and labels is not None:
                kept[member.key] = member_label(counts, labels(draft))
        return {MEMBERS: json.dumps(kept)} if kept else {}

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
