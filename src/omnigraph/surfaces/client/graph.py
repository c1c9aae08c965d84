"""RemoteGraph: a graph behind a server, with the methods of the embedded one.

What `og.connect("http://...")` returns; thread-safe, a context manager. `branch` and `at` return the same
graph bound to one branch or to a past state. Errors are the same classes; what needs the storage itself is
refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from datetime import timedelta
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Any, Literal, NoReturn

from omnigraph.base.arguments import Count, EntityId, Positive, checked_methods
from omnigraph.base.errors import BranchExists, BranchNotFound, ConflictError, ConstraintViolation
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.export.files import ExportReport
from omnigraph.engine.history.changes import Names
from omnigraph.engine.load.assembly import LoadMode, LoadProgress, Report, silent
from omnigraph.engine.load.load import Engine
from omnigraph.engine.merge.conflicts import Granularity, Resolutions, Resolve, Take
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.engine.options import View
from omnigraph.engine.query import QueryText, parameters
from omnigraph.engine.write import Receipt
from omnigraph.execution.plan.explain import Explanation
from omnigraph.execution.result import Result
from omnigraph.storage.cleanup import CleanupListener
from omnigraph.storage.durability import Durability
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.tables.compaction import Fragmentation, OptimizePolicy
from omnigraph.surfaces.client import decode
from omnigraph.surfaces.client.calls import Calls, local_only, moment, no_actor, write_headers
from omnigraph.surfaces.client.changes import RemoteChanges, RemoteDiff, RemoteEntity, difference
from omnigraph.surfaces.client.download import ExportStream, export_folder, refuse_one_text
from omnigraph.surfaces.client.namespaces import RemoteBranches, RemoteCommits, RemoteSchemas, RemoteTags
from omnigraph.surfaces.client.queries import QueryCalls, RemoteQueries
from omnigraph.surfaces.client.rows import RemoteState, RemoteTypeRows
from omnigraph.surfaces.client.transport import RemoteRequest, Transport, segment
from omnigraph.surfaces.client.upload import LoadData, Upload

IN_MEMORY = 16 << 20  # bytes of a body that is spooled; more go to a file
ON_THE_MACHINE = "Open the graph by the address of its storage, on a machine that reaches it"


@checked_methods
class RemoteGraph:
    """One graph of a server. Calls that name no branch mean `main`, or what the graph is bound to."""

    def __init__(self, transport: Transport, *, branch: str = MAIN) -> None:
        self._calls = Calls(transport)
        self._closing: list[Callable[[], object]] | None = [transport.close]  # None: this is a view
        self._bind(View(branch))

    def _bind(self, view: View) -> None:
        self.view = view
        self._run = QueryCalls(self._calls, view)
        self.schema = RemoteSchemas(self._calls, view)
        self.branches = RemoteBranches(self._calls, view)
        self.commits = RemoteCommits(self._calls, view)
        self.tags = RemoteTags(self._calls, view)
        self.changes = RemoteChanges(self._calls, view)
        self.queries = RemoteQueries(self._calls)

    def _bound(self, view: View) -> RemoteGraph:
        """Return the same graph under another view; closing that one closes nothing."""
        bound = copy(self)
        bound._closing = None
        bound._bind(view)
        return bound

    def branch(self, name: str, *, create: bool = False) -> RemoteGraph:
        """Return this graph bound to a branch: calls on it that name no branch mean this one.

        With `create` a missing branch is forked from the state that this graph is bound to.
        """
        if create:
            with suppress(BranchExists):
                self.branches.create(name)
        return self._bound(View(self.branches.get(name).name))

    def at(self, moment: At) -> RemoteGraph:
        """Return this graph as it was: a commit id, a tag, a time, a version or `branch~n`. It only reads.

        The state is looked up now, and stays the same while the branch goes on.
        """
        return self._bound(View(self.view.branch, self.commits.get(moment).id))

    @property
    def uri(self) -> str:
        """Where the graph is."""
        return self._calls.transport.url

    # -- queries -----------------------------------------------------------------------------------

    def query(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        memory_bytes: Positive | None = None,
        **named: Any,
    ) -> Result:
        """Run one read (`.gq` text, or the path of a file) on one snapshot: the head of a branch, or `at`.

        Parameters go in `params` or, where no option has their name, as keywords. A query that needs more
        memory than `memory_bytes`, or than the server allows, ends with `LimitExceeded`.
        """
        given = parameters(params, named)
        return self._run.query(gq, given, query_name, branch, at, memory_bytes)

    def explain(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Describe how a read would run, without running it."""
        return self._run.explain("/explain", gq, parameters(params, named), query_name, branch, at)

    def profile(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Run a read and say what each step did: rows, time, requests, choices."""
        return self._run.explain("/profile", gq, parameters(params, named), query_name, branch, at)

    def mutate(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        dry_run: bool = False,
        **named: Any,
    ) -> Receipt:
        """Run one mutation (`.gq` text, or the path of a file) as one commit.

        Parameters go in `params` or, where no option has their name, as keywords.
        """
        no_actor(actor)
        return self._run.mutate(
            gq,
            parameters(params, named),
            query_name,
            branch,
            if_commit=if_commit,
            key=idempotency_key,
            message=message,
            dry_run=dry_run,
        )

    def run(
        self,
        name: str,
        /,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        at: At | None = None,
        if_commit: str | None = None,
        idempotency_key: str | None = None,
        message: str | None = None,
        actor: str | None = None,
        expect_mutation: bool | None = None,
        **named: Any,
    ) -> Result | Receipt:
        """Run a query that the server keeps, by its name: a read gives its rows, a mutation its receipt.

        With `expect_mutation` one of the other kind is refused.
        """
        no_actor(actor)
        return self._run.stored(
            name,
            parameters(params, named),
            branch,
            at,
            if_commit=if_commit,
            key=idempotency_key,
            message=message,
            expect_mutation=expect_mutation,
        )

    # -- writes ------------------------------------------------------------------------------------

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

        `data` is what an embedded graph takes: a path (JSON lines, CSV, Parquet or Arrow, also compressed),
        a folder or list of paths, a file object, an iterable of dictionaries, an Arrow table or reader, a
        pandas or polars frame, or a mapping of type names to any of these. Files are those of this machine.
        The server reads with one process: Spark and rejected rows are for whoever reaches the storage.
        """
        no_actor(actor)
        if engine == "spark" or on_violation == "reject" or rejects is not None:
            raise local_only("a load by Spark", ON_THE_MACHINE)
        target, report = self.view.write(branch), progress or silent
        options = {
            "branch": target,
            "from": from_branch,
            "mode": mode,
            "replace_types": list(replace_types),
            "message": message,
            "dry_run": dry_run or None,
        }
        headers = write_headers(if_commit, idempotency_key, dry_run=dry_run)
        with SpooledTemporaryFile(IN_MEMORY) as spool:
            given = LoadData(
                data, type, format, columns, lambda: self._schema_of(target, from_branch), report
            )
            upload = given.upload(spool)
            receipt = self._sent(upload, options, headers)
        report(LoadProgress("done", sum(count.given or 0 for count in receipt.types)))
        return receipt

    def _sent(self, upload: Upload, options: Mapping[str, Any], headers: Mapping[str, str]) -> Receipt:
        columns = None if not upload.columns else decode.text_of(dict(upload.columns))
        query = {**options, "type": upload.type, "columns": columns}
        request = RemoteRequest("POST", upload.path, query, upload.body, headers, streams=True)
        try:
            return decode.receipt(self._calls.transport.ask(request))
        except (ConstraintViolation, ConflictError) as error:
            error.message = decode.placed(error.message, upload.name)
            error.fields = {key: decode.placed(value, upload.name) for key, value in error.fields.items()}
            raise

    def _schema_of(self, branch: str, from_branch: str | None) -> Catalog:
        try:
            return self.schema.catalog(branch)
        except BranchNotFound:
            if from_branch is None:
                raise
            return self.schema.catalog(from_branch)

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
        no_actor(actor)
        body = {
            "source": source,
            "target": self.view.write(into),
            "preview": preview or None,
            "resolutions": _resolutions(resolutions),
            "strategy": strategy,
            "granularity": granularity,
            "delete_branch": delete_branch or None,
            "message": message,
        }
        return decode.merge_outcome(
            self._calls.write(
                "POST",
                "/branches/merge",
                body,
                if_commit=if_commit,
                key=idempotency_key,
                dry_run=preview,
            )
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
        no_actor(actor)
        body = {
            "branch": self.view.write(branch),
            "preview": preview or None,
            "resolutions": _resolutions(resolutions),
            "strategy": strategy,
            "message": message,
        }
        path = f"/commits/{segment(commit_id)}/revert"
        return decode.merge_outcome(
            self._calls.write("POST", path, body, key=idempotency_key, dry_run=preview)
        )

    # -- reads -------------------------------------------------------------------------------------

    def diff(
        self, a: At, b: At | None = None, *, kinds: Names = None, types: Names = None, ops: Names = None
    ) -> RemoteDiff:
        """Return what leads from one state to another: schema steps, counts, and changes as a stream.

        A state is a branch, a commit id, a tag, a time or `branch~n`; the second is `main`, or what this
        graph is bound to, unless it is named. `kinds`, `types` and `ops` choose among the changes.
        """
        view = self.view
        end = view.commit_id or view.branch if b is None else b
        return difference(self._calls, a, end, branch=view.branch, kinds=kinds, types=types, ops=ops)

    def entity(self, type: str, id: EntityId) -> RemoteEntity:
        """Return one entity, to read at any moment and to list its versions."""
        return RemoteEntity(self._calls, type, id, self.view)

    def nodes(self, name: str, *, branch: str | None = None, at: At | None = None) -> RemoteTypeRows:
        """Return the nodes of a type, now or at a past commit: in its types, under the names in force now.

        No row is fetched before rows are asked for; `filter` and `select` say which, and `to_arrow`,
        `to_pandas` and the like fetch them.
        """
        state, catalog = self._pinned(branch, at)
        return _rows(self._calls, state, catalog.node(name))

    def edges(self, name: str, *, branch: str | None = None, at: At | None = None) -> RemoteTypeRows:
        """Return the edges of a type, like `nodes`."""
        state, catalog = self._pinned(branch, at)
        return _rows(self._calls, state, catalog.edge(name))

    def _pinned(self, branch: str | None, at: At | None) -> tuple[RemoteState, Catalog]:
        line, at = self.view.read(branch, at)
        commit_id, catalog = self.schema.pinned(line, at)
        return RemoteState(line, commit_id), catalog

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
        """Write one commit into a new or empty folder here, as Parquet or JSON lines that a load takes back.

        The folder may be on an object store, reached with `storage_options`.
        """
        line, at = self.view.read(branch, at)
        stream = ExportStream(self._calls, refuse_one_text(types), line, at, framed=True)
        return export_folder(
            stream,
            lambda commit: self.schema.catalog(line, commit),
            out,
            format=format,
            storage_options=storage_options,
            progress=progress,
        )

    def export_stream(
        self,
        *,
        types: Iterable[str] | None = None,
        branch: str | None = None,
        at: At | None = None,
        framed: bool = False,
    ) -> Iterator[bytes]:
        """Yield one commit as JSON lines, as the server gives them; refusals come with the first piece."""
        line, at = self.view.read(branch, at)
        with ExportStream(self._calls, refuse_one_text(types), line, at, framed).open() as (_, chunks):
            yield from chunks

    def snapshot(self, branch: str | None = None, at: At | None = None) -> dict[str, Any]:
        """Return where a branch stands: its commit, and the number of entities of each type."""
        line, at = self.view.read(branch, at)
        return self._calls.read("/snapshot", branch=line, snapshot=moment(at))

    # -- what a server does not do -------------------------------------------------------------------

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
        progress: Callable[..., None] | None = None,
    ) -> NoReturn:
        """Refuse: a fill asks a provider for long, and is run by whoever reaches the storage."""
        raise local_only("embed", ON_THE_MACHINE)

    def ensure_indexes(self, *, branch: str | None = None, actor: str | None = None) -> NoReturn:
        """Refuse: a server builds indexes by itself, or `optimize` on its storage does."""
        raise local_only("ensure_indexes", ON_THE_MACHINE)

    def optimize(
        self,
        *,
        branch: str | None = None,
        types: Names = None,
        policy: OptimizePolicy | None = None,
        actor: str | None = None,
        progress: Callable[..., None] | None = None,
    ) -> NoReturn:
        """Refuse: tables are rewritten by whoever reaches the storage."""
        raise local_only("optimize", ON_THE_MACHINE)

    def fragmentation(self, *, branch: str | None = None) -> tuple[Fragmentation, ...]:
        """Refuse: what it is for, `optimize`, is for whoever reaches the storage."""
        raise local_only("fragmentation", ON_THE_MACHINE)

    def cleanup(
        self,
        *,
        keep: Count | None = None,
        older_than: timedelta | str | None = None,
        grace: timedelta | str = "7d",
        branch: str | None = None,
        dry_run: bool = True,
        progress: CleanupListener | None = None,
    ) -> NoReturn:
        """Refuse: files are deleted by whoever reaches the storage."""
        raise local_only("cleanup", ON_THE_MACHINE)

    def doctor(
        self,
        *,
        deep: bool = False,
        fix: bool = False,
        branch: str | None = None,
        progress: Callable[..., None] | None = None,
    ) -> NoReturn:
        """Refuse: it looks at the files of the graph."""
        raise local_only("doctor", ON_THE_MACHINE)

    def verify(
        self, *, branch: str | None = None, at: At | None = None, history: bool = False, record: bool = False
    ) -> NoReturn:
        """Refuse: it looks at the files of the graph."""
        raise local_only("verify", ON_THE_MACHINE)

    def backup(
        self,
        destination: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        durability: Durability = "sync",
        progress: Callable[[int, int], None] | None = None,
    ) -> NoReturn:
        """Refuse: history is copied by whoever reaches the storage."""
        raise local_only("backup", f"{ON_THE_MACHINE}; or export one commit with export()")

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
    ) -> NoReturn:
        """Refuse: tables are copied by whoever reaches the storage."""
        raise local_only("clone", f"{ON_THE_MACHINE}; or export one commit with export()")

    def close(self) -> None:
        """Give back the connections; a view closes nothing."""
        for release in self._closing or ():
            release()

    def __repr__(self) -> str:
        view = self.view
        bound = f"branch={view.branch!r}" if view.commit_id is None else f"at={view.commit_id!r}"
        return f"RemoteGraph({self.uri!r}, {bound})"

    def __enter__(self) -> RemoteGraph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _rows(calls: Calls, state: RemoteState, declared: Any) -> RemoteTypeRows:
    local: Any = calls  # in place of the store and the snapshot that a local one reads from
    pinned: Any = state
    return RemoteTypeRows(local, pinned, declared)


def _resolutions(resolutions: Resolutions | None) -> list[dict[str, Any]] | None:
    if resolutions is None:
        return None
    shown: list[dict[str, Any]] = []
    for one in resolutions:
        if not isinstance(one, Resolve):
            shown.append(dict(one))
            continue
        entry: dict[str, Any] = {"type": one.type, "id": one.id}
        if one.property is not None:
            entry["property"] = one.property
        if one.take is not None:
            entry["take"] = one.take
        if one.has_value():
            entry["value"] = one.value
        shown.append(entry)
    return shown
