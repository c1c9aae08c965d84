"""Graph: the façade. Small doors, no logic of its own.

Room    engine. What `og.init` and `og.connect` return for an embedded graph; thread-safe, a context manager.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

from omnigraph.base.arguments import EntityId, Positive, checked, checked_methods
from omnigraph.base.errors import BranchNotFound, InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.base.times import At
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.branches import GraphBranches
from omnigraph.engine.change import Catalogs
from omnigraph.engine.commits import Commits, GraphTags
from omnigraph.engine.export.export import export_files
from omnigraph.engine.export.files import ExportReport
from omnigraph.engine.history.changes import Names
from omnigraph.engine.history.diff import Diff, Diffs
from omnigraph.engine.history.entity import Entity
from omnigraph.engine.history.feed import Changes
from omnigraph.engine.history.resolve_at import read_state
from omnigraph.engine.history.resolve_at import resolve as resolve_moment
from omnigraph.engine.indexes import IndexReport, ensure_indexes
from omnigraph.engine.load.assembly import LoadMode, Report
from omnigraph.engine.load.load import Engine, Loads, chosen_engine, load_engine
from omnigraph.engine.merge.conflicts import Granularity, Resolutions, Take
from omnigraph.engine.merge.merge import MergeOutcome, Merges
from omnigraph.engine.mutate.mutate import Mutations
from omnigraph.engine.query import Queries, QueryText
from omnigraph.engine.receipt import Receipt
from omnigraph.engine.schema.schema import Schemas, SchemaText, load_schema
from omnigraph.engine.table import TableView
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.write import ExecutorFor
from omnigraph.execution.budget import MEMORY_BYTES
from omnigraph.execution.plan.explain import Explanation
from omnigraph.execution.result import Result
from omnigraph.execution.search.embedding import EmbedTexts, embedder_of
from omnigraph.storage.checksums import Verified
from omnigraph.storage.claims import Claims
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.durability import Durability
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable, PinnedSnapshot


@checked_methods
class Graph:
    """One open graph."""

    @checked
    def __init__(
        self,
        store: GraphStore,
        executor: ExecutorFor = LocalExecutor,
        *,
        memory_bytes: Positive = MEMORY_BYTES,
        embedding: str | EmbedTexts | None = None,
    ) -> None:
        self.store = store
        self._catalogs = Catalogs(store.schemas)
        self.schema = Schemas(store, self._catalogs)
        self.branches = GraphBranches(store)
        self.commits = Commits(store)
        self.tags = GraphTags(store)
        claims = Claims(store.location, store.syncer)
        self._mutate = Mutations(store, self._catalogs, claims, executor)
        self._load = Loads(store, self._catalogs, claims, executor)
        self._merge = Merges(store, self._catalogs, executor)
        self._diff = Diffs(store, self._catalogs)
        self.changes = Changes(store, self._catalogs)
        self._query = Queries(store, self._catalogs, memory_bytes, embedder_of(embedding))

    @property
    def uri(self) -> str:
        """Where the graph is."""
        return self.store.location.uri

    def query(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
        at: At | None = None,
        memory_bytes: Positive | None = None,
        **named: Any,
    ) -> Result:
        """Run one read (`.gq` text, or the path of a file) on one snapshot: the head of a branch, or `at`.

        Parameters go in `params` or, where no option has their name, as keywords. A query that needs more
        memory than `memory_bytes` (by default, than the graph was opened with) ends with `ResourceLimit`.
        """
        return self._query.run(
            gq,
            _parameters(params, named),
            query_name=query_name,
            branch=branch,
            at=at,
            memory_bytes=memory_bytes,
        )

    def explain(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Describe how a read would run, without running it."""
        return self._query.explain(
            gq, _parameters(params, named), query_name=query_name, branch=branch, at=at
        )

    def profile(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
        at: At | None = None,
        **named: Any,
    ) -> Explanation:
        """Run a read and say what each step did: rows, time, requests, choices."""
        return self._query.explain(
            gq, _parameters(params, named), query_name=query_name, branch=branch, at=at, profile=True
        )

    def mutate(
        self,
        gq: QueryText,
        params: Mapping[str, Any] | None = None,
        *,
        query_name: str | None = None,
        branch: str = "main",
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
        return self._mutate.mutate(
            gq,
            _parameters(params, named),
            query_name=query_name,
            branch=branch,
            if_commit=if_commit,
            idempotency_key=idempotency_key,
            message=message,
            actor=actor,
            dry_run=dry_run,
        )

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
        engine: Engine = "auto",
        progress: Report | None = None,
        dry_run: bool = False,
        on_violation: Literal["fail", "reject"] = "fail",
        rejects: str | os.PathLike[str] | None = None,
    ) -> Receipt:
        """Load data as one commit: every record of the input, or nothing.

        `data` is a path (JSON lines, CSV, Parquet or Arrow, also compressed), a folder or list of paths, a
        file object, an iterable of dictionaries, an Arrow table or reader, a pandas or polars frame, or a
        mapping of type names to any of these. Tables need `type`, unless their file is named after it;
        `columns` maps names of their columns to properties, `from` or `to`. `engine` is this process
        ("local") or Spark ("spark"); "auto" is this process, unless the files are many gigabytes or rows are
        to be rejected. The receipt says which. With `on_violation="reject"` Spark leaves out the rows that
        break a rule, and writes them to the Parquet file `rejects`.
        """
        if engine == "auto":
            engine = "spark" if on_violation == "reject" else chosen_engine(data)
        other = load_engine(engine)
        options: dict[str, Any] = {
            "mode": mode,
            "type": type,
            "format": format,
            "columns": columns,
            "branch": branch,
            "from_branch": from_branch,
            "replace_types": replace_types,
            "if_commit": if_commit,
            "idempotency_key": idempotency_key,
            "message": message,
            "actor": actor,
            "progress": progress,
            "dry_run": dry_run,
        }
        if other is not None:
            return other(self, data, **options, on_violation=on_violation, rejects=rejects)
        if on_violation != "fail" or rejects is not None:
            raise InvalidRequest("rows are rejected by engine 'spark' only", remedy="Use engine='spark'")
        return self._load.load(data, **options)

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        preview: bool = False,
        resolutions: Resolutions | None = None,
        strategy: Take | None = None,
        granularity: Granularity = "property",
        delete_branch: bool = False,
        if_commit: str | None = None,
        message: str | None = None,
        actor: str | None = None,
    ) -> MergeOutcome:
        """Fold one branch into another, three ways, as one commit; all conflicts are reported at once.

        `preview` says what would happen and writes nothing. `resolutions` decide conflicts by entity or
        property, `strategy` all that are left: "ours" is the branch merged into, "theirs" the other. With
        `granularity="entity"` two changes of one entity are a conflict, whatever properties they touch.
        """
        return self._merge.merge(
            source,
            into,
            preview=preview,
            resolutions=resolutions,
            strategy=strategy,
            granularity=granularity,
            delete_branch=delete_branch,
            if_commit=if_commit,
            message=message,
            actor=actor,
        )

    def revert(
        self,
        commit_id: str,
        *,
        branch: str = "main",
        preview: bool = False,
        resolutions: Resolutions | None = None,
        strategy: Take | None = None,
        message: str | None = None,
        actor: str | None = None,
    ) -> MergeOutcome:
        """Undo one commit by a new one; refused with conflicts where later commits build on it."""
        return self._merge.revert(
            commit_id,
            branch=branch,
            preview=preview,
            resolutions=resolutions,
            strategy=strategy,
            message=message,
            actor=actor,
        )

    def diff(
        self, a: At, b: At = "main", *, kinds: Names = None, types: Names = None, ops: Names = None
    ) -> Diff:
        """Return what leads from one state to another: schema steps, counts, and changes as a stream.

        A state is a branch, a commit id, a tag, a time or `branch~n`. `kinds`, `types` and `ops` choose
        among the changes.
        """
        return self._diff.diff(a, b, kinds=kinds, types=types, ops=ops)

    def entity(self, type: str, id: EntityId) -> Entity:
        """Return one entity, to read at any moment and to list its versions."""
        return Entity(self.store, self._catalogs, type, id)

    def ensure_indexes(self, *, branch: str = "main", actor: str | None = None) -> IndexReport:
        """Build the indexes that the schema asks for and extend them to new rows: one maintenance commit.

        No answer depends on an index. One that cannot be built is in the report, with the reason.
        """
        return ensure_indexes(self.store, self._catalogs, branch, actor=actor)

    def nodes(self, name: str, *, branch: str = "main", at: At | None = None) -> TableView:
        """Return the nodes of a type, now or at a past commit: in its types, under the names in force now."""
        snapshot, catalog = read_state(self.store, self._catalogs, branch, at)
        return TableView(self.store, snapshot, catalog.node(name))

    def edges(self, name: str, *, branch: str = "main", at: At | None = None) -> TableView:
        """Return the edges of a type, like `nodes`."""
        snapshot, catalog = read_state(self.store, self._catalogs, branch, at)
        return TableView(self.store, snapshot, catalog.edge(name))

    def export(
        self,
        out: str | os.PathLike[str],
        *,
        format: str = "parquet",
        types: Iterable[str] | None = None,
        branch: str = "main",
        at: At | None = None,
        storage_options: Mapping[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        """Write one commit into a new or empty folder, as Parquet or JSON lines that a load takes back.

        The folder may be on an object store, reached with `storage_options`: those of the graph if not given.
        """
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

    def verify(
        self, *, branch: str | None = None, at: At | None = None, history: bool = False, record: bool = False
    ) -> Verified:
        """Compare stored files with the checksums that were recorded when they were written.

        Looks at what the heads of all branches need, or one state if `branch` or `at` name it; with
        `history`, at every stored file. `record` gives a checksum to files that have none, as they are now.
        """
        if history and (branch is not None or at is not None):
            raise InvalidRequest("history is all there is", remedy="Leave out branch and at")
        if history:
            return self.store.verify(None, record=record)
        if branch is None and at is None:
            return of_the_newest(lambda: self.store.verify(self._heads(), record=record))
        named = branch or "main"
        return of_the_newest(
            lambda: self.store.verify([resolve_moment(self.store, named, at)], record=record)
        )

    def _heads(self) -> Iterator[PinnedSnapshot]:
        for branch in self.branches.list():
            with suppress(BranchNotFound):  # deleted meanwhile
                yield self.store.snapshot(branch.name)

    def close(self) -> None:
        """Release the graph's threads and handles."""
        self.store.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _parameters(params: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any]:
    both = sorted(set(params or {}) & set(named))
    if both:
        raise InvalidRequest(f"parameter {both[0]!r} is given twice, in params and as a keyword")
    return {**(params or {}), **named}


@checked
def init(
    address: str | os.PathLike[str],
    schema: SchemaText,
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    actor: str | None = None,
    force: bool = False,
    memory_bytes: Positive = MEMORY_BYTES,
    embedding: str | EmbedTexts | None = None,
) -> Graph:
    """Make a graph with a schema (a `.pg` file, or schema text), and open it as `connect` does."""
    catalog = resolve(load_schema(schema), None, IdMinter(new_id())).catalog
    tables = {t.id: NewTable(t.name, t.kind.value, t.stored_schema) for t in catalog.tables}
    store = GraphStore.create(
        address,
        schema=catalog.to_json(),
        tables=tables,
        storage_options=storage_options,
        durability=durability,
        actor=actor,
        force=force,
    )
    return Graph(store, memory_bytes=memory_bytes, embedding=embedding)


@checked
def connect(
    address: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    memory_bytes: Positive = MEMORY_BYTES,
    embedding: str | EmbedTexts | None = None,
    verify: Literal["first-read", "off"] | None = None,
) -> Graph:
    """Open a graph that exists; reads two small objects, writes nothing.

    `memory_bytes` bounds what queries hold: the caches together with the rows of the one that runs.
    `embedding` turns text into vectors for `nearest`: a function from texts to vectors, or "mock" for tests,
    which is also what the environment variable EMBEDDINGS_MOCK=1 means, whatever is given. For a property
    with `@embed(..., model="m")` the function needs the attribute `model = "m"`. `verify="first-read"`
    compares each file with its checksum when this process first opens a table that needs it; if not given,
    the environment variable OMNIGRAPH_VERIFY says, else it is off.
    """
    store = GraphStore.open(address, storage_options=storage_options, durability=durability, verify=verify)
    return Graph(store, memory_bytes=memory_bytes, embedding=embedding)
