"""Graph: the façade. Typed keyword arguments and documentation, no logic of its own.

What `og.init` and `og.connect` return for an embedded graph; thread-safe, a context manager. `branch` and
`at` return the same graph bound to one branch or to a past state (options.View).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal

from omnigraph.base.arguments import Count, EntityId, Positive, checked, checked_methods
from omnigraph.base.errors import BranchExists, InvalidRequest
from omnigraph.base.times import At, read_duration
from omnigraph.engine.access import Access, Action, Guard
from omnigraph.engine.backup import CloneReport, CopyReport, back_up
from omnigraph.engine.backup import clone as make_clone
from omnigraph.engine.branches import GraphBranches, heads
from omnigraph.engine.change import Catalogs
from omnigraph.engine.commits import Commits, GraphTags
from omnigraph.engine.doctor.checks import DoctorListener
from omnigraph.engine.doctor.doctor import examine
from omnigraph.engine.doctor.report import DoctorReport
from omnigraph.engine.embed.fill import Fills
from omnigraph.engine.embed.request import EmbedListener, EmbedReport, FillRequest
from omnigraph.engine.export.export import export_files
from omnigraph.engine.export.files import ExportReport
from omnigraph.engine.history.changes import Names
from omnigraph.engine.history.diff import Diff, Diffs
from omnigraph.engine.history.entity import Entity
from omnigraph.engine.history.feed import Changes
from omnigraph.engine.history.resolve_at import read_state
from omnigraph.engine.history.resolve_at import resolve as resolve_moment
from omnigraph.engine.indexes import IndexReport, ensure_indexes
from omnigraph.engine.load.assembly import LoadMode, LoadRequest, Report
from omnigraph.engine.load.load import Engine, Loads, chosen_engine, load_engine
from omnigraph.engine.merge.conflicts import Granularity, Resolutions, Take
from omnigraph.engine.merge.merge import MergeOutcome, Merges
from omnigraph.engine.mutate.mutate import Mutations
from omnigraph.engine.optimize import OptimizeListener, fragmentation, optimize
from omnigraph.engine.options import MergeOptions, View
from omnigraph.engine.query import Queries
from omnigraph.engine.runs import RunsQueries
from omnigraph.engine.schema.schema import Schemas
from omnigraph.engine.stored import GraphQueries, stored_in
from omnigraph.engine.table import TypeRows
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import ExecutorFor, Receipt
from omnigraph.execution.budget import MEMORY_BYTES
from omnigraph.execution.memory import Memory
from omnigraph.execution.search.embedding import EmbeddingChoice, embedder_of
from omnigraph.storage.checksums import Verified
from omnigraph.storage.claims import Claims
from omnigraph.storage.cleanup import Cleaned, CleanupListener
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.durability import Durability
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.compaction import Fragmentation, OptimizePolicy


@checked_methods
class Graph(RunsQueries):
    """One open graph. Calls that name no branch mean `main`, or what the graph is bound to."""

    @checked
    def __init__(
        self,
        store: GraphStore,
        executor: ExecutorFor = LocalExecutor,
        *,
        memory_bytes: Positive = MEMORY_BYTES,
        embedding: EmbeddingChoice = None,
        branch: str = MAIN,
        actor: str | None = None,
        guard: Guard | None = None,
        queries: str | os.PathLike[str] | None = None,
        memory: Memory | None = None,
        strict: bool = False,
    ) -> None:
        self.store = store
        self._closing: list[Callable[[], object]] | None = [store.close]  # None: this is a view
        self._catalogs = Catalogs(store.schemas)
        claims = Claims(store.location, store.syncer)
        self._mutate = Mutations(store, self._catalogs, claims, executor)
        self._load = Loads(store, self._catalogs, claims, executor)
        self._merge = Merges(store, self._catalogs, executor)
        self._diff = Diffs(store, self._catalogs)
        embedder = embedder_of(embedding)
        self._query = Queries(store, self._catalogs, memory_bytes, embedder, memory, strict=strict)
        self._fills = Fills(store, self._catalogs, embedder, executor)
        self._stored = stored_in(queries, Schemas(store, self._catalogs, View(branch)))
        bound = actor is not None or guard is not None
        self._bind(View(branch, access=Access(store, actor, guard) if bound else None))

    def _bind(self, view: View) -> None:
        self.view = view
        self.schema = Schemas(self.store, self._catalogs, view)
        self.branches = GraphBranches(self.store, view)
        self.commits = Commits(self.store, view)
        self.tags = GraphTags(self.store, view)
        self.changes = Changes(self.store, self._catalogs, view)
        self.queries = GraphQueries(self._stored, view)

    def _bound(self, view: View) -> Graph:
        """Return the same graph under another view; closing that one closes nothing."""
        bound = copy(self)
        bound._closing = None
        bound._bind(view)
        return bound

    def branch(self, name: str, *, create: bool = False) -> Graph:
        """Return this graph bound to a branch: calls on it that name no branch mean this one.

        With `create` a missing branch is forked from the state that this graph is bound to.
        """
        if create:
            with suppress(BranchExists):
                self.branches.create(name)
        self.view.allow(Action.READ, name)
        branch = self.store.snapshot(name).branch
        return self._bound(replace(self.view, branch=branch, commit_id=None))

    def at(self, moment: At) -> Graph:
        """Return this graph as it was: a commit id, a tag, a time, a version or `branch~n`. It only reads.

        The state is looked up now, and stays the same while the branch goes on.
        """
        state = resolve_moment(self.store, *self.view.read(self.view.branch, moment))
        return self._bound(replace(self.view, branch=state.branch, commit_id=state.commit_id))

    def acting(self, actor: str | None, guard: Guard | None = None) -> Graph:
        """Return this graph as one actor uses it: writes are the actor's, and the guard is asked before all.

        Every operation asks for its action on its branch first, and raises `PermissionDenied` where the
        guard does; without a guard everything is allowed. Other actors are refused.
        """
        if self.view.access is not None:
            raise InvalidRequest(
                f"this graph acts for {self.view.access.actor!r} already",
                remedy="Take the graph that it was made of",
            )
        return self._bound(replace(self.view, access=Access(self.store, actor, guard)))

    @property
    def uri(self) -> str:
        """Where the graph is."""
        return self.store.location.uri

    def load(
        self,
        data: Any,
        *,
        mode: LoadMode,
        type: str | None = None,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
        branch: str | None = None,
        from_branch: str | None = None,
        replace_types: Iterable[str] = (),
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        engine: Engine = "auto",
        progress: Report | None = None,
        dry_run: bool = False,
        on_violation: Literal["fail", "reject"] = "fail",
        rejects: str | os.PathLike[str] | None = None,
    ) -> Receipt:
        """Load data as one commit: every record of the input, or nothing.

        `data` is a path (JSON lines, CSV, Parquet or Arrow, also compressed), a folder or list of paths, a
        file object, an iterable of dictionaries, an Arrow table or reader, a frame, or a mapping of type
        names to any of these. Tables need `type`, unless their file is named after it; `columns` maps names
        of their columns to properties, `from` or `to`. `engine` is "local", "spark" or "auto": this process
        unless files have many gigabytes, or rows are to be rejected: `on_violation="reject"` needs Spark.
        """
        options = self.view.write_options(
            self.store, self.view.write(branch), if_commit, idempotency_key, message, actor, dry_run=dry_run
        )
        if engine == "auto":
            engine = "spark" if on_violation == "reject" else chosen_engine(data)
        by_other_engine = load_engine(engine)
        if by_other_engine is None and (on_violation != "fail" or rejects is not None):
            raise InvalidRequest("rows are rejected by engine 'spark' only", remedy="Use engine='spark'")
        names = list(data) if isinstance(data, Mapping) else [type]
        request = LoadRequest(
            data=data,
            mode=mode,
            branch=options.branch,
            from_branch=from_branch,
            type=type,
            format=format,
            columns={str(name): columns for name in names} if columns else {},
            replace_types=tuple(replace_types),
            idempotency_key=options.idempotency_key,
            sets_aside=on_violation == "reject",
            dry_run=dry_run,
            before_fork=partial(self.view.allow, Action.BRANCH_CREATE, from_branch, options.branch),
        )
        if by_other_engine is not None:
            return by_other_engine(self, request, options, progress, rejects=rejects)
        return self._load.load(request, options, progress)

    def merge(
        self,
        source: str,
        into: str | None = None,
        *,
        preview: bool = False,
        resolutions: Resolutions | None = None,
        strategy: Take | None = None,
        granularity: Granularity = "property",
        delete_branch: bool = False,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
    ) -> MergeOutcome:
        """Fold one branch into another, three ways, as one commit; all conflicts are reported at once.

        `into` is `main`, or the branch that this graph is bound to, unless it is named.
        `preview` says what would happen and writes nothing. `resolutions` decide conflicts by entity or
        property, `strategy` all that are left: "ours" is the branch merged into, "theirs" the other. With
        `granularity="entity"` two changes of one entity are a conflict, whatever properties they touch.
        """
        target = self.view.merge(source, into, preview=preview, delete_branch=delete_branch)
        return self._merge.merge(
            source,
            self.view.write_options(
                self.store, target, if_commit, idempotency_key, message, actor, dry_run=preview
            ),
            MergeOptions(resolutions, strategy, granularity, delete_branch),
        )

    def revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        preview: bool = False,
        resolutions: Resolutions | None = None,
        strategy: Take | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
    ) -> MergeOutcome:
        """Undo one commit by a new one; refused with conflicts where later commits build on it."""
        options = self.view.write_options(
            self.store, self.view.write(branch), None, idempotency_key, message, actor, dry_run=preview
        )
        commit_id = self.view.readable_commit(self.store, options.branch, commit_id)
        return self._merge.revert(commit_id, options, MergeOptions(resolutions, strategy))

    def diff(
        self, a: At, b: At | None = None, *, kinds: Names = None, types: Names = None, ops: Names = None
    ) -> Diff:
        """Return what leads from one state to another: schema steps, counts, and changes as a stream.

        A state is a branch, a commit id, a tag, a time or `branch~n`; the second is `main`, or what this
        graph is bound to, unless it is named. `kinds`, `types` and `ops` choose among the changes.
        """
        before, after = (self.view.side(self.store, named) for named in (a, b))
        return self._diff.diff(before, after, kinds=kinds, types=types, ops=ops)

    def entity(self, type: str, id: EntityId) -> Entity:
        """Return one entity, to read at any moment and to list its versions."""
        return Entity(self.store, self._catalogs, type, id, self.view)

    def embed(
        self,
        *,
        types: Names = None,
        select: Mapping[str, Mapping[str, Any]] | None = None,
        reembed_all: bool = False,
        clean: bool = False,
        branch: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        dry_run: bool = False,
        batch: Positive = 128,
        spool: str | os.PathLike[str] | None = None,
        progress: EmbedListener | None = None,
    ) -> EmbedReport:
        """Make the vectors that `@embed` properties lack from their texts, and publish them as one commit.

        `types` names node types, `select` rows of them by values: `{"Note": {"kind": "memo"}}`. `reembed_all`
        makes all vectors anew, `clean` removes them. Texts go to the graph's embedder, `batch` at a time.
        Finished vectors wait in the folder `spool`: after an interruption the same call asks for the rest
        only. A row whose text changes meanwhile is left, and counted in the report.
        """
        self.view.read(branch, None)  # the embedder is told what texts there are
        options = self.view.write_options(
            self.store, self.view.write(branch), None, None, message, actor, dry_run=dry_run
        )
        request = FillRequest.read(types, select, reembed_all=reembed_all, clean=clean)
        return self._fills.fill(request, options, spool, batch, progress)

    def ensure_indexes(self, *, branch: str | None = None, actor: str | None = None) -> IndexReport:
        """Build the indexes that the schema asks for and extend them to new rows: one maintenance commit.

        No answer depends on an index. One that cannot be built is in the report, with the reason. Derived
        files that are missing or damaged are written too, beside the tables and without a commit.
        """
        target, by = self.view.administer(branch), self.view.by(actor)
        return ensure_indexes(self.store, self._catalogs, target, actor=by)

    def optimize(
        self,
        *,
        branch: str | None = None,
        types: Names = None,
        policy: OptimizePolicy | None = None,
        actor: str | None = None,
        progress: OptimizeListener | None = None,
    ) -> IndexReport:
        """Merge small fragments, rewrite those with many deleted rows, and do what `ensure_indexes` does.

        One maintenance commit by `system:optimize` (or `actor`), or none if nothing is worth it. No answer
        changes, no version is deleted, writers go on. `policy` says what is worth it.
        """
        return optimize(
            self.store,
            self._catalogs,
            self.view.administer(branch),
            types=types,
            policy=policy,
            actor=self.view.by(actor),
            progress=progress,
        )

    def fragmentation(self, *, branch: str | None = None) -> tuple[Fragmentation, ...]:
        """Return how tables lie in fragments; `OptimizePolicy().is_due(...)` of it says whether to optimize.

        Reads no rows: a request to look at the branch, and one or two for each table that changed.
        """
        return fragmentation(self.store, self._catalogs, self.view.line(branch))

    def nodes(self, name: str, *, branch: str | None = None, at: At | None = None) -> TypeRows:
        """Return the nodes of a type, now or at a past commit: in its types, under the names in force now.

        Nothing is read before rows are asked for; `filter` and `select` say which, and `to_arrow`,
        `to_pandas` and the like read them.
        """
        snapshot, catalog = read_state(self.store, self._catalogs, *self.view.read(branch, at))
        return TypeRows(self.store, snapshot, catalog.node(name))

    def edges(self, name: str, *, branch: str | None = None, at: At | None = None) -> TypeRows:
        """Return the edges of a type, like `nodes`."""
        snapshot, catalog = read_state(self.store, self._catalogs, *self.view.read(branch, at))
        return TypeRows(self.store, snapshot, catalog.edge(name))

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = "parquet",
        types: Iterable[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Write one commit into a new or empty folder, as Parquet or JSON lines that a load takes back.

        The folder may be on an object store: `storage_options` reach it, those of the graph if not given.
        """
        branch, at = self.view.read(branch, at, Action.EXPORT)
        return export_files(
            self.store,
            out,
            format=format,
            types=types,
            branch=branch,
            at=at,
            storage_options=storage_options,
            progress=progress,
        )

    def backup(
        self,
        destination: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "sync",
        progress: Callable[[int, int], None] | None = None,
    ) -> CopyReport:
        """Copy the whole graph, with history, branches and tags, to another address while writers go on.

        Repeated, it gets what is new or missing. A destination that holds another graph, or was written to,
        is refused with `DestinationRefused`. `storage_options` reach it: those of the graph if not given.
        """
        self.view.allow(Action.ADMIN)
        return back_up(
            self.store,
            destination,
            storage_options=storage_options,
            durability=durability,
            progress=progress,
        )

    def clone(
        self,
        destination: str | os.PathLike[str],
        branch: str | None = None,
        at: At | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "sync",
        actor: str | None = None,
        force: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CloneReport:
        """Make a new graph whose first commit has what one commit of this graph has: all rows, no history.

        Ids, types and indexes stay as they are; other branches, tags and earlier commits are left behind.
        `force` clears what a clone or an init that failed has left at the destination.
        """
        self.view.allow(Action.ADMIN)
        branch, at = self.view.named(branch, at)
        return make_clone(
            self.store,
            destination,
            branch,
            at,
            storage_options=storage_options,
            durability=durability,
            actor=self.view.by(actor),
            force=force,
            progress=progress,
        )

    def verify(
        self, *, branch: str | None = None, at: At | None = None, history: bool = False, record: bool = False
    ) -> Verified:
        """Compare stored files with the checksums that were recorded when they were written.

        Looks at what all heads need, or one state that `branch` or `at` name; with `history`, at every stored
        file. `record` gives a checksum to files that have none, as they are now.
        """
        self.view.allow(Action.ADMIN)
        if history and (branch is not None or at is not None):
            raise InvalidRequest("history is all there is", remedy="Leave out branch and at")
        if history:
            return self.store.verify(None, record=record)
        if branch is None and at is None:
            return of_the_newest(lambda: self.store.verify(heads(self.store), record=record))
        named = self.view.line_named(branch)
        return of_the_newest(
            lambda: self.store.verify([resolve_moment(self.store, named, at)], record=record)
        )

    def doctor(
        self,
        *,
        deep: bool = False,
        fix: bool = False,
        branch: str | None = None,
        progress: DoctorListener | None = None,
    ) -> DoctorReport:
        """Look at the whole graph, or at one branch, and report what is wrong, where, and what to do.

        Reads only. `deep` reads every byte that heads and tags need, and compares every index with its rows.
        `fix` makes anew what can be worked out from the data (derived files, indexes), takes automatic
        cleanup out of the configuration of datasets, and does nothing else; the report says what it did.
        `progress` is told how far it is.
        """
        self.view.allow(Action.ADMIN)
        if fix:
            self.view.writable(branch)  # the past cannot be mended
        return examine(self.store, deep=deep, fix=fix, branch=branch, progress=progress)

    def cleanup(
        self,
        *,
        keep: Count | None = None,
        older_than: timedelta | str | None = None,
        grace: timedelta | str = "7d",
        branch: str | None = None,
        dry_run: bool = True,
        progress: CleanupListener | None = None,
    ) -> Cleaned:
        """Say how much space can be got back or, with `dry_run=False`, delete those files.

        Every branch gives up its history but for the newest `keep` commits and those younger than
        `older_than` (a timedelta, or text such as "30d"); `branch` names one that alone does, as does a view
        of a branch. The report says which history goes, which takes effect at once. Heads, tags and what
        merges of live branches start from always stay. Files that nothing needs go from the whole graph.
        Files younger than `grace` stay: they may be of a writer that is about to publish. So do commits that
        were the head at some time within it: another process may be reading them.
        `progress` is told how far it is.
        """
        self.view.allow(Action.ADMIN)
        bound = self.view.writable(branch)
        retention = Retention(
            keep,
            None if older_than is None else read_duration(older_than),
            read_duration(grace),
            bound if branch is not None or bound != MAIN else None,
        )
        return self.store.cleanup(retention, dry_run=dry_run, progress=progress)

    def close(self) -> None:
        """Release the graph's threads and handles, and a temporary graph's files; a view closes nothing."""
        for release in self._closing or ():
            release()

    def __repr__(self) -> str:
        view = self.view
        bound = f"branch={view.branch!r}" if view.commit_id is None else f"at={view.commit_id!r}"
        acting = "" if view.access is None else f", actor={view.access.actor!r}"
        return f"Graph({self.uri!r}, {bound}{acting})"

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
