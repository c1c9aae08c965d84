"""Mutate: `graph.mutate`.

From text and parameters to a receipt; the statements run in draft.py. Inserts of several threads that wait at
the same time go out in one commit (group.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import CheckedMutation, bind_params, compile_query
from omnigraph.catalog.query.statements import Insert
from omnigraph.engine.change import Catalogs
from omnigraph.engine.mutate.draft import Run
from omnigraph.engine.mutate.group import GroupCommit, Member
from omnigraph.engine.options import WriteOptions
from omnigraph.engine.query import QueryText, read_query
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import (
    EDGES,
    NODES,
    QUERY,
    ChangeWrite,
    Draft,
    ExecutorFor,
    Receipt,
    counts_of,
    replayed,
)
from omnigraph.storage.claims import Claim, Claimed, Claims, spelling
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot, PublishReceipt, WriteTxn

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
        self._group = GroupCommit(store)
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
            done, take = None, None
            if key is not None:
                take = partial(self._claim, key, options.actor, request)
            member = Member(write, key, take)
            if options.dry_run:
                self._store.rehearse(branch, write, options.intent)
            elif options.if_commit is None and only_inserts:
                done = self._group.publish(branch, member, options.intent)
            else:
                done = self._group.publish_alone(branch, member, options.intent)
        receipt = self._receipt(branch, write, runner, done, key)
        return replace(receipt, dry_run=options.dry_run, cost=meter.cost)

    def _receipt(
        self, branch: str, write: ChangeWrite, runner: _Runner, done: PublishReceipt | None, key: str | None
    ) -> Receipt:
        if done is not None and done.replayed and done.commit is not None:
            return replayed(branch, done, self._catalogs.get(done.commit.schema), key)
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

    def _claim(
        self, key: str, actor: str | None, request: Request, base: PinnedSnapshot, shared: str | None
    ) -> Claimed:
        """Return the commit ids of a key; a request that can never be right claims nothing."""
        what = ["mutate", request.source, request.query_name, request.params]
        claim = Claim(key, base, actor, spelling(what).encode())
        try:
            catalog = self._catalogs.get(base.schema)
            bind_params(self.compile(request, catalog).parameters, request.params)
        except InvalidRequest:
            known = self._claims.find(claim)  # it may have been right under an earlier schema
            if known is None:
                raise
            return known
        return self._claims.take(claim, shared)


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
