"""Load: `graph.load`.

Room    engine.load. Reads the input once, checks it whole, publishes it as one commit.
Given   any input that `open_source` knows, a mode, a branch.
Gives   a receipt; or an error that names file and line, with nothing published.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Protocol

from omnigraph.base.errors import (
    BranchExists,
    BranchNotFound,
    GraphError,
    InvalidRequest,
    ReadSetConflict,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.change import Catalogs
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.draft import Input, LoadDraft, Spools, WriteMode
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.receipt import KEY, Receipt, TypeCount, in_order, landed, replayed
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import ChangeWrite, ExecutorFor
from omnigraph.storage.claims import Claim, Claims, spelling
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot, WriteTxn

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
    mode: WriteMode
    type: str | None = None
    format: str | None = None
    replace_types: tuple[str, ...] = ()
    idempotency_key: str | None = None
    columns: Mapping[str, str] = FrozenMap()
    facts: Mapping[str, Any] = FrozenMap()  # of the receipt: how the load was asked for

    def claim(self, fingerprint: Fingerprint, base: PinnedSnapshot, actor: str | None) -> Claim:
        """Return what the key stands for: the rows and arguments as they were given, whatever the schema."""
        assert self.idempotency_key is not None
        names = list(self.data) if isinstance(self.data, Mapping) else [self.type]
        columns = {str(name): dict(self.columns) for name in names} if self.columns else {}
        request = load_request(self.mode.value, self.replace_types, self.format, columns, fingerprint)
        return Claim(self.idempotency_key, base, actor, request)


def load_request(
    mode: LoadMode | Mapping[str, LoadMode],
    replace_types: Iterable[str],
    format: str | None,
    columns: Mapping[str, Mapping[str, str]],
    fingerprint: Fingerprint,
    *,
    sets_aside: bool = False,
) -> bytes:
    """Return what tells a load from another, whichever engine carries it out."""
    request = ["load", mode, sorted(replace_types), format, columns, fingerprint.digest()]
    return spelling([*request, "reject"] if sets_aside else request).encode()


class Loads:
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
            data, WriteMode.read(mode), type, format, tuple(replace_types), key, dict(columns or {})
        )
        if request.replace_types and request.mode is not WriteMode.OVERWRITE:
            raise InvalidRequest(
                "replace_types empties types, which only mode overwrite does", remedy="Use mode='overwrite'"
            )
        with measured() as meter:
            created = branch_for(self._store, branch, from_branch, dry_run=dry_run)
            facts = {
                "mode": mode,
                "base_branch": from_branch,
                "branch_created": created and not dry_run,
                "engine": "local",
            }
            request = replace(request, facts=facts)
            intent = Intent(actor, message, if_commit)
            base = from_branch if created and dry_run and from_branch is not None else branch
            try:
                receipt = self._run(request, base, intent, progress or _silent, dry_run=dry_run)
            except GraphError as error:
                if created and not dry_run:
                    say_created(error, branch, from_branch)
                raise
        return replace(receipt, branch=branch, cost=meter.cost)

    def _run(
        self, request: LoadRequest, branch: str, intent: Intent, report: Report, *, dry_run: bool
    ) -> Receipt:
        """Read and publish; read again when the schema changed meanwhile and the input allows it."""
        if request.idempotency_key is not None:
            first = self._first(request, branch, intent.actor)
            if first is not None:
                return first
        while True:
            base = self._store.snapshot(branch)
            spools = Spools()
            try:
                read = self._read(request, self._catalogs.get(base.schema), spools, report)
                return self._publish(request, read, base, intent, report, dry_run=dry_run)
            except ReadSetConflict as conflict:
                again = request.mode is not WriteMode.OVERWRITE and _can_read_again(request.data)
                if conflict.fields.get("member") != "schema" or not again:
                    raise
            finally:
                spools.close()

    def _first(self, request: LoadRequest, branch: str, actor: str | None) -> Receipt | None:
        """Return the receipt of the load that landed under the key; another request is refused.

        The input is read as it was then, under the schema that it was accepted with: names that have changed
        since are not in its way.
        """
        key = request.idempotency_key
        assert key is not None
        base = self._store.snapshot(branch)
        first = landed(self._store, key, base, actor)
        if first is None or first.commit is None:
            return None
        problems = LoadProblems(fingerprint=Fingerprint())
        catalog = self._catalogs.get(first.commit.schema)
        for _ in self._source(request, catalog).blocks(catalog, problems, lambda _: None):
            pass
        problems.findings().refuse(REFUSED)
        assert problems.fingerprint is not None
        self._claims.find(request.claim(problems.fingerprint, base, actor))
        return first

    def _source(self, request: LoadRequest, catalog: Catalog) -> LoadSource:
        return open_source(
            request.data,
            catalog=catalog,
            now_ms=self._store.clock.now_us() // 1000,
            type=request.type,
            format=request.format,
            columns=request.columns,
        )

    def _read(self, request: LoadRequest, catalog: Catalog, spools: Spools, report: Report) -> Input:
        source = self._source(request, catalog)
        fingerprint = None if request.idempotency_key is None else Fingerprint()
        problems, rows, total = LoadProblems(fingerprint=fingerprint), 0, source.size_bytes
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
        return Input(catalog, spools.by_type, fingerprint)

    def _publish(
        self,
        request: LoadRequest,
        read: Input,
        base: PinnedSnapshot,
        intent: Intent,
        report: Report,
        *,
        dry_run: bool,
    ) -> Receipt:
        # A type that is named has exactly the rows given for it, also when there are none.
        named = (
            request.data if request.mode is WriteMode.OVERWRITE and isinstance(request.data, Mapping) else ()
        )
        replaced = [read.catalog.named(name).id for name in (*request.replace_types, *named)]
        draft = LoadDraft(read, request.mode, replaced)
        branch = base.branch
        loaded = draft.loaded(request.facts)
        fingerprint = read.fingerprint
        write = ChangeWrite(
            draft,
            self._catalogs,
            CommitKind.LOAD,
            REFUSED,
            always_commit=True,
            locate=draft.locate,
            executor=self._executor,
            labels=None if fingerprint is None else lambda _: loaded.label(),
            accepted=lambda: report(LoadProgress("writing", read.rows)),
        )
        if dry_run:
            seen = self._store.rehearse(branch, write, intent)
            report(LoadProgress("done", read.rows))
            return Receipt(
                branch,
                None,
                _foreseen(read, request.mode, replaced, seen),
                loaded.affected_nodes,
                loaded.affected_edges,
                dry_run=True,
                facts=loaded.facts,
            )
        if fingerprint is not None:
            intent = claimed(self._claims, request.claim(fingerprint, base, intent.actor), intent)
        done = self._store.publish(branch, write, intent)
        report(LoadProgress("done", read.rows))
        if done.replayed and done.commit is not None:
            return replayed(branch, done, self._catalogs.get(done.commit.schema))
        return loaded.receipt(branch, done, write.catalog or read.catalog)


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


def _foreseen(read: Input, mode: WriteMode, replaced: Iterable[str], base: WriteTxn) -> tuple[TypeCount, ...]:
    """Return what a load would do on a base; entities that exist are not told from new ones."""
    counts = []
    for type_id in dict.fromkeys((*read.spools, *replaced)):
        declared = read.catalog.table(type_id)
        rows = read.spools[type_id].rows if type_id in read.spools else 0
        gone = base.rows(declared.table_id) if mode is WriteMode.OVERWRITE else 0
        counts.append(TypeCount(declared.name, declared.kind.value, rows, deleted=gone, given=rows))
    return in_order(counts)


def _can_read_again(data: Any) -> bool:
    """Say whether reading a second time gives the same: not for iterators, readers and open files."""
    return (
        not hasattr(data, "__next__") and not hasattr(data, "read") and not hasattr(data, "read_next_batch")
    )


def _silent(progress: LoadProgress) -> None:
    """Report to nobody."""


# -- engines -------------------------------------------------------------------------------------
#
# Who carries a load out, found by name.
# The engine in this process is always there. Others are plug-ins that an installed package
# announces under the entry point `omnigraph.engines`; Spark is one, so nothing here imports it.


Engine = Literal["auto", "local", "spark"]
GROUP = "omnigraph.engines"
SPARK_ABOVE = 8 << 30  # bytes of files; below, one process is done before a cluster would have started


class LoadEngine(Protocol):
    """Loads data into an open graph; takes what `graph.load` takes."""

    def __call__(self, graph: Any, data: Any, **options: Any) -> Receipt:
        """Load it as one commit."""
        ...


def load_engine(name: str) -> LoadEngine | None:
    """Return the engine of a name; None is the one in this process."""
    if name == "local":
        return None
    found = _plugins(name)
    if not found:
        known = ", ".join(sorted({"auto", "local", *(point.name for point in _plugins())}))
        raise InvalidRequest(
            f"there is no engine {name!r}",
            remedy="Install it with: pip install 'omnigraph[spark]'" if name == "spark" else f"Use {known}",
        )
    engine: LoadEngine = found[0].load()
    return engine


def chosen_engine(data: Any) -> Engine:
    """Return the engine that suits an input: this process, unless the files are many gigabytes."""
    sources = data.values() if isinstance(data, Mapping) else [data]
    size = sum(_size(path) for source in sources for path in _paths(source))
    return "spark" if size >= SPARK_ABOVE and _plugins("spark") else "local"


def _plugins(name: str | None = None) -> list[EntryPoint]:
    return [point for point in entry_points(group=GROUP) if name is None or point.name == name]


def _paths(source: Any) -> list[Path]:
    """Return the files or folders that a source names; what records hold is never a path."""
    listed = source if isinstance(source, list | tuple) else [source]
    if not listed or not isinstance(listed[0], str | os.PathLike):
        return []
    return [Path(one) for one in listed if isinstance(one, str | os.PathLike) and os.fspath(one)]


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
        return path.stat().st_size
    except (OSError, ValueError):
        return 0  # whoever reads it says what is wrong
