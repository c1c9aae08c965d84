"""Door: `graph.load`.

Room    engine.load. Reads the input once, checks it whole, publishes it as one commit.
Given   any input that `open_source` knows, a mode, a branch.
Gives   a receipt; or an error that names file and line, with nothing published.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from omnigraph.base.errors import (
    BranchExists,
    BranchNotFound,
    GraphError,
    InvalidRequest,
    ReadSetConflict,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.load.block import Source
from omnigraph.engine.load.draft import Input, LoadDraft, Mode
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.load.spool import Spools
from omnigraph.engine.receipt import KEY, Receipt, TypeCount, counts_of
from omnigraph.engine.validate.local import LocalExecutor
from omnigraph.engine.write import ChangeWrite, ExecutorFor
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import WriteTxn

LoadMode = Literal["append", "merge", "overwrite"]
REFUSED = "the load was refused"


@dataclass(frozen=True)
class LoadProgress:
    """How far a load is; on Spark, by tasks that are done and known so far, which grow as it plans."""

    stage: Literal["reading", "checking", "writing", "done"]
    rows: int
    bytes_read: int = 0
    bytes_total: int | None = None
    tasks_done: int = 0
    tasks: int = 0


Report = Callable[[LoadProgress], None]


@dataclass(frozen=True)
class LoadRequest:
    """One call of `load`."""

    data: Any
    mode: Mode
    type: str | None = None
    format: str | None = None
    replace_types: tuple[str, ...] = ()
    idempotency_key: str | None = None
    columns: Mapping[str, str] = FrozenMap()


class LoadDoor:
    """Loads data into one graph."""

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

    def load(
        self,
        data: Any,
        *,
        mode: LoadMode,
        type: str | None = None,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        branch: str = "main",
        from_branch: str | None = None,
        replace_types: Iterable[str] = (),
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        progress: Report | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        """Load an input as one commit, whole or not at all."""
        key = None if dry_run else idempotency_key
        request = LoadRequest(
            data, Mode.read(mode), type, format, tuple(replace_types), key, dict(columns or {})
        )
        if request.replace_types and request.mode is not Mode.OVERWRITE:
            raise InvalidRequest(
                "replace_types empties types, which only mode overwrite does", remedy="Use mode='overwrite'"
            )
        with measured() as meter:
            created = branch_for(self._store, branch, from_branch, dry_run=dry_run)
            intent = Intent(actor, message, if_commit)
            base = from_branch if created and dry_run and from_branch is not None else branch
            try:
                receipt = self._run(request, base, intent, progress or _silent, dry_run=dry_run)
            except GraphError as error:
                if created and not dry_run:
                    say_created(error, branch, from_branch)
                raise
        facts = {
            "mode": mode,
            "base_branch": from_branch,
            "branch_created": created and not dry_run,
            "engine": "local",
            "total_entities": receipt.affected_nodes + receipt.affected_edges,
        }
        return Receipt(**{**vars(receipt), "branch": branch, "cost": meter.cost, "facts": facts})

    def _run(
        self, request: LoadRequest, branch: str, intent: Intent, report: Report, *, dry_run: bool
    ) -> Receipt:
        """Read and publish; read again when the schema changed meanwhile and the input allows it."""
        while True:
            catalog = self._catalogs.get(self._store.snapshot(branch).schema)
            spools = Spools(digest=request.idempotency_key is not None)
            try:
                read = self._read(request, catalog, spools, report)
                return self._publish(request, read, branch, intent, report, dry_run=dry_run)
            except ReadSetConflict as conflict:
                again = request.mode is not Mode.OVERWRITE and _can_read_again(request.data)
                if conflict.fields.get("member") != "schema" or not again:
                    raise
            finally:
                spools.close()

    def _read(self, request: LoadRequest, catalog: Catalog, spools: Spools, report: Report) -> Input:
        now_ms = self._store.clock.now_us() // 1000
        source: Source = open_source(
            request.data,
            catalog=catalog,
            now_ms=now_ms,
            type=request.type,
            format=request.format,
            columns=request.columns,
        )
        problems, rows, total = Problems(), 0, source.size_bytes
        at = [0]

        def advanced(done: int) -> None:
            at[0] = done

        for block in source.blocks(catalog, problems, advanced):
            if not problems:
                spools.add(block)
            rows += block.rows.num_rows
            report(LoadProgress("reading", rows, at[0], total))
        problems.findings().refuse(REFUSED)
        report(LoadProgress("checking", rows, at[0], total))
        return Input(catalog, spools.by_type, spools.digest())

    def _publish(
        self,
        request: LoadRequest,
        read: Input,
        branch: str,
        intent: Intent,
        report: Report,
        *,
        dry_run: bool,
    ) -> Receipt:
        # A type that is named has exactly the rows given for it, also when there are none.
        named = request.data if request.mode is Mode.OVERWRITE and isinstance(request.data, Mapping) else ()
        replaced = [_named(read.catalog, name).id for name in (*request.replace_types, *named)]
        draft = LoadDraft(read, request.mode, replaced)
        change = ChangeWrite(
            draft,
            self._catalogs,
            CommitKind.LOAD,
            REFUSED,
            always_commit=True,
            locate=draft.locate,
            executor=self._executor,
        )
        write = _Announced(change, lambda: report(LoadProgress("writing", read.rows)))
        done = None
        if dry_run:
            types = _foreseen(read, request.mode, replaced, self._store.rehearse(branch, write, intent))
        else:
            done = self._store.publish(branch, write, self._claimed(request, read, branch, intent))
            types = _with_lines(counts_of(done, change.catalog or read.catalog), read)
        report(LoadProgress("done", read.rows))
        nodes = sum(s.rows for s in read.spools.values() if not isinstance(s.declared, EdgeType))
        edges = sum(s.rows for s in read.spools.values() if isinstance(s.declared, EdgeType))
        return Receipt(
            branch=branch,
            commit=None if done is None else done.commit,
            types=types,
            affected_nodes=nodes,
            affected_edges=edges,
            replayed=done is not None and done.replayed,
            dry_run=dry_run,
            attempts=1 if done is None else done.attempts,
            warnings=() if done is None else done.warnings,
        )

    def _claimed(self, request: LoadRequest, read: Input, branch: str, intent: Intent) -> Intent:
        """Return the intent under the commit id of the idempotency key, if there is one."""
        key = request.idempotency_key
        if key is None:
            return intent
        what = ["load", request.mode.value, sorted(request.replace_types), read.digest]
        claim = Claim(key, branch, intent.actor, json.dumps(what).encode())
        return claimed(self._claims, claim, intent)


class _Announced:
    """A write that tells when its checks are over and writing begins."""

    def __init__(self, write: ChangeWrite, writing: Callable[[], None]) -> None:
        self._write = write
        self._writing = writing

    def prepare(self, txn: Any) -> Any:
        """Say what to publish."""
        return self._write.prepare(txn)

    def validate(self, txn: Any, plan: Any) -> None:
        """Judge it."""
        self._write.validate(txn, plan)
        self._writing()


def claimed(claims: Claims, claim: Claim, intent: Intent) -> Intent:
    """Return the intent under the commit id of an idempotency key, which the commit remembers."""
    labels = FrozenMap({**intent.labels, KEY: claim.key})
    return replace(intent, commit_id=claims.take(claim), labels=labels)


def branch_for(store: GraphStore, branch: str, from_branch: str | None, *, dry_run: bool) -> bool:
    """Create a missing branch where the caller says from what; say whether that was needed."""
    if from_branch is None:
        return False
    try:
        store.snapshot(branch)
    except BranchNotFound:
        if dry_run:
            return True
        try:
            store.branches.create(branch, from_branch)
        except BranchExists:
            return False  # somebody else made it meanwhile
        return True
    return False


def say_created(error: GraphError, branch: str, origin: str | None) -> None:
    """Add to an error that the branch, made in a step of its own, stays."""
    remedy = f"Branch {branch!r} was created from {origin!r} and stays"
    if error.remedy is not None:
        remedy = f"{error.remedy}. {remedy}"
    GraphError.__init__(error, error.message, remedy=remedy, **{**error.fields, "branch_created": branch})


def _foreseen(read: Input, mode: Mode, replaced: Iterable[str], base: WriteTxn) -> tuple[TypeCount, ...]:
    """Return what a load would do on a base; entities that exist are not told from new ones."""
    counts = []
    for type_id in dict.fromkeys((*read.spools, *replaced)):
        declared = read.catalog.table(type_id)
        rows = read.spools[type_id].rows if type_id in read.spools else 0
        gone = base.rows(declared.table_id) if mode is Mode.OVERWRITE else 0
        counts.append(TypeCount(declared.name, declared.kind.value, rows, deleted=gone, given=rows))
    return tuple(sorted(counts, key=lambda count: (count.kind == "edge", count.name)))


def _with_lines(counts: tuple[TypeCount, ...], read: Input) -> tuple[TypeCount, ...]:
    """Add how many records of the input were of each type."""
    lines = {(s.declared.kind.value, s.declared.name): s.rows for s in read.spools.values()}
    return tuple(replace(count, given=lines.get((count.kind, count.name), 0)) for count in counts)


def _named(catalog: Catalog, name: str) -> TableType:
    found = catalog.find_node(name) or catalog.find_edge(name)
    return found if found is not None else catalog.node(name)


def _can_read_again(data: Any) -> bool:
    """Say whether reading a second time gives the same: not for iterators, readers and open files."""
    return (
        not hasattr(data, "__next__") and not hasattr(data, "read") and not hasattr(data, "read_next_batch")
    )


def _silent(progress: LoadProgress) -> None:
    """Report to nobody."""
