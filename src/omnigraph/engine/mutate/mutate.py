"""Mutate: `graph.mutate`.

From text and parameters to a receipt; the statements run in draft.py. Inserts of several threads that wait at
the same time go out in one commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest, Kind, OutcomeUnknown
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID
from omnigraph.catalog.query import CheckedMutation, bind_params, compile_query
from omnigraph.catalog.query.statements import Insert
from omnigraph.engine.change import Catalogs, ChangeSet, TypeChange
from omnigraph.engine.mutate.draft import Run
from omnigraph.engine.options import WriteOptions
from omnigraph.engine.query import QueryText, read_query
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import (
    EDGES,
    KEY,
    NODES,
    QUERY,
    ChangeWrite,
    Draft,
    ExecutorFor,
    Receipt,
    counts_of,
    replayed,
)
from omnigraph.storage.claims import Claim, Claims, spelling
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind, TableChange
from omnigraph.storage.publish import Intent, Publisher
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PublishReceipt, WriteTxn
from omnigraph.storage.turns import FairLock, Turn

UNNAMED = "query.gq"  # what messages call a text
COMPILED = 256  # queries kept ready
REFUSED = "the mutation was refused"


@dataclass(frozen=True)
class Request:
    """One call of `mutate`."""

    source: str
    file: str
    query_name: str | None
    params: Mapping[str, Any]
    now_ms: int


class Mutations:
    """Runs mutations on one graph."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        claims: Claims,
        executor: ExecutorFor = LocalExecutor,
    ) -> None:
        self._store = store
        self._catalogs = catalogs
        self._claims = claims
        self._executor = executor
        self._group = GroupCommit(store.publisher)
        self._compiled = BoundedCache[tuple[str, str | None, str], CheckedMutation](COMPILED)
        # Texts checked before that only insert: no rows decide what they write.
        self._inserts = BoundedCache[tuple[str, str | None], Literal[True]](COMPILED)

    def mutate(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        options: WriteOptions,
    ) -> Receipt:
        """Run one mutation; one commit, or none when nothing matched."""
        only_inserts = self._inserts.get((gq, query_name)) if type(gq) is str else None
        if only_inserts:
            text, file = str(gq), UNNAMED  # it was checked before, so it is no path
        else:
            text, file = read_query(gq)
            only_inserts = self._inserts.get((text, query_name))
        request = Request(text, file, query_name, dict(params or {}), self._store.clock.now_us() // 1000)
        runner = _Runner(self, request)
        branch, key = options.branch, options.idempotency_key
        write = ChangeWrite(
            runner,
            self._catalogs,
            CommitKind.MUTATION,
            REFUSED,
            executor=self._executor,
            labels=None if key is None else runner.labels,
        )
        with measured() as meter:
            intent = Intent(options.actor, options.message, options.if_commit)
            if key is not None:
                commit_id = self._claim(key, options, request)
                intent = replace(intent, labels=FrozenMap({KEY: key}), commit_id=commit_id)
            done = None
            if options.dry_run:
                self._store.rehearse(branch, write, intent)
            elif options.if_commit is None and key is None and only_inserts:
                done = self._group.publish(branch, write, intent)
            else:
                done = self._store.publish(branch, write, intent)
        receipt = self._receipt(branch, write, runner, done)
        return replace(receipt, dry_run=options.dry_run, cost=meter.cost)

    def _receipt(
        self, branch: str, write: ChangeWrite, runner: _Runner, done: PublishReceipt | None
    ) -> Receipt:
        if done is not None and done.replayed and done.commit is not None:
            return replayed(branch, done, self._catalogs.get(done.commit.schema))
        draft, catalog = write.draft, write.catalog
        return Receipt(
            branch=branch,
            commit=None if done is None else done.commit,
            types=() if done is None or catalog is None else counts_of(done, catalog),
            affected_nodes=0 if draft is None else draft.affected_nodes,
            affected_edges=0 if draft is None else draft.affected_edges,
            query_name=None if runner.checked is None else runner.checked.name,
            attempts=1 if done is None else done.attempts,
            warnings=() if done is None else done.warnings,
        )

    def compile(self, request: Request, catalog: Catalog) -> CheckedMutation:
        """Return the checked mutation of a text, from the cache when it was checked before."""
        key = (request.source, request.query_name, catalog.identity)
        known = self._compiled.get(key)
        if known is not None:
            return known
        checked = compile_query(request.source, catalog, name=request.query_name, file=request.file)
        if not isinstance(checked, CheckedMutation):
            raise InvalidRequest(
                f"query {checked.name!r} reads and changes nothing", remedy="Run it with query, not mutate"
            )
        if all(isinstance(statement, Insert) for statement in checked.statements):
            self._inserts.put(key[:2], True)
        return self._compiled.put(key, checked)

    def _claim(self, key: str, options: WriteOptions, request: Request) -> str:
        """Return the commit id of a key; a request that can never be right claims nothing."""
        what = ["mutate", request.source, request.query_name, request.params]
        base = self._store.snapshot(options.branch)
        claim = Claim(key, base, options.actor, spelling(what).encode())
        try:
            catalog = self._catalogs.get(base.schema)
            bind_params(self.compile(request, catalog).parameters, request.params)
        except InvalidRequest:
            known = self._claims.find(claim)  # it may have been right under an earlier schema
            if known is None:
                raise
            return known
        return self._claims.take(claim)


@dataclass(eq=False)
class _Runner:
    """A request as a drafter: checked against the schema of each base it runs on."""

    mutations: Mutations
    request: Request
    checked: CheckedMutation | None = None

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        self.checked = self.mutations.compile(self.request, catalog)
        values = bind_params(self.checked.parameters, self.request.params)
        return Run(self.checked, values, self.request.now_ms).draft(txn, catalog)

    def labels(self, draft: Draft) -> dict[str, str]:
        """Return what a repetition of the request will be told."""
        name = "" if self.checked is None else self.checked.name
        return {QUERY: name, NODES: str(draft.affected_nodes), EDGES: str(draft.affected_edges)}


# -- group commit ----------------------------------------------------------------------------------
#
# Writes of several threads that wait at the same time go out in one commit. One line for each branch and
# actor of a process. While one publish is in flight the others line up; whoever is first then takes all that
# can go together and publishes for them. A writer whose turn comes with its answer at hand leaves at once.
#
# Only writes that no rows decide may share a commit (inserts and upserts of different ids), so that no order
# between them can be observed. Each gets its own receipt. If the union breaks a constraint, each is published
# alone, in the order of arrival, and gets its own answer.


GROUPED = 64  # writes in one commit


@dataclass(eq=False)
class _Waiting:
    write: ChangeWrite
    receipt: PublishReceipt | None = None
    error: Exception | None = None


@dataclass(eq=False)
class _Line:
    turns: FairLock = field(default_factory=FairLock)
    waiting: deque[_Waiting] = field(default_factory=deque)


class GroupCommit:
    """Publishes writes, together where they come together."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # Those in use, by branch, actor and message.
        self._lines: WeakValueDictionary[tuple[str | None, ...], _Line] = WeakValueDictionary()
        self._lock = threading.Lock()

    def publish(self, branch: str, write: ChangeWrite, intent: Intent) -> PublishReceipt:
        """Publish a write that no rows decide, alone or with others that say the same of themselves."""
        mine = _Waiting(write)
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

    def _lead(self, branch: str, intent: Intent, line: _Line, mine: _Waiting) -> None:
        """Publish our own write, and those of all who wait."""
        if mine.write.commit_id is not None:  # whoever drafted it for us was told to stop, and is gone
            raise OutcomeUnknown(mine.write.commit_id, branch=branch)
        group = [mine]
        with self._lock:
            while line.waiting and len(group) < GROUPED:
                group.append(line.waiting.popleft())
        try:
            if len(group) > 1 and self._together(branch, intent, group):
                return
        except Exception as error:  # noqa: BLE001 (told to each, in the thread whose write it is)
            for member in group:
                member.error = error if member.receipt is None else None
            return
        for member in group:
            try:
                member.receipt = self._publisher.publish(branch, member.write, intent)
            except Exception as error:  # noqa: BLE001 (handed to the thread whose write it is)
                member.error = error

    def _together(self, branch: str, intent: Intent, group: Sequence[_Waiting]) -> bool:
        """Publish writes as one; say whether each has its receipt, or must be published alone."""
        union = _Union([member.write for member in group])
        try:
            done = self._publisher.publish(branch, union.write, intent)
        except GraphError as error:
            if not _one_may_be_at_fault(error):
                raise  # of storage, perhaps after the commit landed: trying again could write twice
            return False
        for member in group:
            member.receipt = union.share(member.write, done)
        return True


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
