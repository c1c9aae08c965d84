"""Load: `pipeline.load`, a load of any size as one commit.

    input -> **files written by executors -> checks on Spark -> one publish by the driver**

Room    pipeline.bulk. The driver holds what the executors tell it, never the rows.
Given   a session, an open graph, DataFrames or paths by type.
Gives   a receipt; or an error with nothing published. Files that a failed load wrote are named by nothing,
        and a cleanup takes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.errors import GraphError, InvalidRequest, ReadSetConflict
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.draft import WriteMode
from omnigraph.engine.load.load import (
    REFUSED,
    LoadMode,
    LoadProgress,
    Report,
    branch_for,
    claimed,
    load_request,
    say_created,
)
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.load.sources.splitting import PIECE_BYTES, split
from omnigraph.engine.load.sources.tables import read_header, renamed
from omnigraph.engine.receipt import Receipt, landed, replayed
from omnigraph.engine.validate.relation import SHOWN
from omnigraph.engine.write import ChangeWrite
from omnigraph.pipeline.bulk.draft import BulkDraft, BulkOptions, BulkRead, Modes
from omnigraph.pipeline.bulk.ids import Way
from omnigraph.pipeline.bulk.load_task import (
    LoadJob,
    TaskOutcome,
    fingerprint_of,
    for_each,
    for_each_partition,
    in_order,
    run_partition,
    run_source,
)
from omnigraph.pipeline.bulk.row_locations import MOST, reject_file, write_rejects
from omnigraph.pipeline.progress import watched
from omnigraph.pipeline.session import spark_session
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.transaction import PinnedSnapshot

# -- inputs --------------------------------------------------------------------------------------
#
# What a bulk load is given, and the Spark jobs that read it.
# Files are cut into pieces that executors open for themselves; a DataFrame is read
# partition by partition.
# Gives   outcomes in the order of the input: by type name for a mapping, then pieces, then rows.


Columns = Mapping[str, Mapping[str, str]]  # type name -> column of the input -> property
Path = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class FrameInput:
    """A DataFrame of one type."""

    type: str
    frame: DataFrame
    columns: Mapping[str, str] = FrozenMap()


@dataclass(frozen=True, eq=False)
class Files:
    """Sources that executors open."""

    pieces: tuple[LoadSource, ...]


Input = FrameInput | Files


def open_inputs(
    data: Any,
    catalog: Catalog,
    now_ms: int,
    *,
    type: str | None = None,
    format: str | None = None,
    columns: Columns | None = None,
) -> list[Input]:
    """Recognise an input; nothing but heads and footers of files is read."""
    wanted = columns or {}
    if isinstance(data, DataFrame):
        if type is None:
            raise InvalidRequest(
                "a DataFrame does not say of which type its rows are", remedy="Give type=, or {type: frame}"
            )
        data = {type: data}
    if not isinstance(data, Mapping):
        mapped = wanted.get(type, {}) if type is not None else {}
        return [_files(data, catalog, now_ms, type, format, mapped)]
    unknown = [name for name in wanted if name not in data]
    if unknown:
        raise InvalidRequest(f"columns are mapped for {unknown[0]!r}, which is not loaded")
    found: list[Input] = []
    for name, one in data.items():
        catalog.named(name)  # a misspelt type is said before anything is read
        mapped = wanted.get(name, {})
        if isinstance(one, DataFrame):
            _check_columns(one, catalog.named(name), mapped)
            found.append(FrameInput(name, one, dict(mapped)))
        else:
            found.append(_files(one, catalog, now_ms, name, format, mapped))
    return found


def read_inputs(
    spark: SparkSession | None, job: LoadJob, inputs: Sequence[Input]
) -> list[tuple[LoadSource | None, TaskOutcome]]:
    """Read everything, and return what came of each piece; with the source, where it can be read again."""
    found: list[tuple[LoadSource | None, TaskOutcome]] = []
    files = [piece for one in inputs if isinstance(one, Files) for piece in one.pieces]
    outcomes = iter(for_each(spark, files, partial(run_source, job)))
    for one in inputs:
        if isinstance(one, Files):
            found += [(piece, next(outcomes)) for piece in one.pieces]
        else:
            found += [(None, outcome) for outcome in _partitions(job, one)]
    return found


def _partitions(job: LoadJob, given: FrameInput) -> list[TaskOutcome]:
    """Read a DataFrame."""
    names = tuple(given.frame.columns)
    work = partial(run_partition, job, given.type, names, given.columns)
    return list(in_order(for_each_partition(given.frame, work)))


def _check_columns(frame: DataFrame, declared: TableType, columns: Mapping[str, str]) -> None:
    """Say at once what is wrong with the names of columns; each task would say it again."""
    origin, report = f"<{declared.name}>", LoadProblems()
    read_header(renamed(frame.columns, columns, origin), declared, report, origin, 1)
    report.findings().refuse(REFUSED)


def _files(
    data: Any, catalog: Catalog, now_ms: int, type: str | None, format: str | None, columns: Mapping[str, str]
) -> Files:
    source = open_source(data, catalog=catalog, now_ms=now_ms, type=type, format=format, columns=columns)
    return Files(tuple(split(source, PIECE_BYTES)))


# -- door ----------------------------------------------------------------------------------------


OnViolation = Literal["fail", "reject"]
DRIVER_ROWS = 1_000_000  # few enough for one process, which is done before Spark has planned a join


@checked
def load(
    spark: SparkSession,
    graph: Graph,
    data: Any,
    *,
    mode: LoadMode | Mapping[str, LoadMode],
    type: str | None = None,
    format: str | None = None,
    columns: Columns | None = None,
    branch: str = "main",
    from_branch: str | None = None,
    replace_types: Iterable[str] = (),
    if_commit: str | None = None,
    idempotency_key: str | None = None,
    message: str | None = None,
    actor: str | None = None,
    labels: Mapping[str, str] | None = None,
    on_violation: OnViolation = "fail",
    rejects: str | os.PathLike[str] | None = None,
    driver_rows: int = DRIVER_ROWS,
    upsert: Way | None = None,
    progress: Report | None = None,
    dry_run: bool = False,
) -> Receipt:
    """Load DataFrames or files by Spark, as one commit, whole or not at all.

    `data` is a mapping of type names to DataFrames or paths, or a path (JSON lines, CSV, Parquet or Arrow, a
    folder of these). `mode` is one for all types or one for each. `columns` maps names of columns to
    properties, `from` or `to`, for each type. With `on_violation="reject"` the rows that break a rule are
    left out and written to the Parquet file `rejects`.
    """
    request = _Request(
        data,
        mode if isinstance(mode, str) else dict(mode),
        type,
        format,
        columns,
        tuple(replace_types),
        None if dry_run else idempotency_key,
        upsert,
        driver_rows,
        on_violation == "reject",
        reject_file(rejects) if on_violation == "reject" else None,  # a wrong one is refused before any work
    )
    intent = Intent(actor, message, if_commit, FrozenMap(dict(labels or {})))
    with measured() as meter:
        created = branch_for(graph.store, branch, from_branch, dry_run=dry_run)
        base = from_branch if created and dry_run and from_branch is not None else branch
        facts = {
            "mode": request.mode,
            "base_branch": from_branch,
            "branch_created": created and not dry_run,
            "engine": "spark",
        }
        try:
            loading = _Loading(spark, graph, replace(request, facts=facts), progress or (lambda _: None))
            with watched(spark, f"load into {branch}", None if progress is None else loading.tell_tasks):
                receipt = loading.run(base, intent, dry_run=dry_run)
        except GraphError as error:
            if created and not dry_run:
                say_created(error, branch, from_branch)
            raise
    return replace(receipt, branch=branch, cost=meter.cost)


def load_by_spark(
    graph: Graph, data: Any, *, columns: Mapping[str, str] | None = None, **options: Any
) -> Receipt:
    """Load as `graph.load(engine="spark")` does: with the session that runs, or one of its own."""
    names = list(data) if isinstance(data, Mapping) else [options.get("type")]
    mapped = {name: columns for name in names if name is not None} if columns else None
    return load(spark_session(), graph, data, columns=mapped, **options)


@dataclass(frozen=True)
class _Request:
    """One call of `load`."""

    data: Any
    mode: LoadMode | Mapping[str, LoadMode]
    type: str | None
    format: str | None
    columns: Columns | None
    replace_types: tuple[str, ...]
    idempotency_key: str | None
    upsert: Way | None
    driver_rows: int
    sets_aside: bool
    rejects: str | None
    facts: Mapping[str, Any] = FrozenMap()  # of the receipt: how the load was asked for

    def claim(self, outcomes: Iterable[TaskOutcome], base: PinnedSnapshot, actor: str | None) -> Claim:
        """Return what the key stands for: the rows and arguments as they were given, whatever the schema."""
        assert self.idempotency_key is not None
        columns = {name: dict(mapped) for name, mapped in (self.columns or {}).items()}
        request = load_request(
            self.mode,
            self.replace_types,
            self.format,
            columns,
            fingerprint_of(outcomes),
            sets_aside=self.sets_aside,
        )
        return Claim(self.idempotency_key, base, actor, request)


class _Loading:
    """One load on its way."""

    def __init__(self, spark: SparkSession, graph: Graph, request: _Request, report: Report) -> None:
        self._spark = spark
        self._store = graph.store
        self._catalogs = Catalogs(graph.store.schemas)
        self._claims = Claims(graph.store.location, graph.store.syncer)
        self._request = request
        self._tell = report
        self._last = LoadProgress("reading", 0)

    def tell_tasks(self, done: int, known: int) -> None:
        """Say how many tasks of Spark are done, whatever they are for; comes from a thread of its own."""
        self._tell(replace(self._last, tasks_done=done, tasks=known))

    def _report(self, now: LoadProgress) -> None:
        self._last = now
        self._tell(now)

    def run(self, branch: str, intent: Intent, *, dry_run: bool) -> Receipt:
        """Read, check, publish; all of it again when the schema changed meanwhile."""
        if self._request.idempotency_key is not None:
            first = self._first(branch, intent.actor)
            if first is not None:
                return first
        while True:
            try:
                return self._once(branch, intent, dry_run=dry_run)
            except ReadSetConflict as conflict:
                modes = self._request.mode
                replaces = "overwrite" in (modes.values() if isinstance(modes, Mapping) else [modes])
                if conflict.fields.get("member") != "schema" or replaces:
                    raise

    def _first(self, branch: str, actor: str | None) -> Receipt | None:
        """Return the receipt of the load that landed under the key; another request is refused.

        The input is read as it was then, under the schema that it was accepted with, and nothing is written.
        """
        key = self._request.idempotency_key
        assert key is not None
        base = self._store.snapshot(branch)
        first = landed(self._store, key, base, actor)
        if first is None or first.commit is None:
            return None
        snapshot = self._store.snapshot(branch, at=first.commit.id)
        read = self._read(snapshot, self._catalogs.get(snapshot.schema), landed=True)
        self._claims.find(self._request.claim(read.outcomes, base, actor))
        return first

    def _once(self, branch: str, intent: Intent, *, dry_run: bool) -> Receipt:
        snapshot = self._store.snapshot(branch)
        catalog = self._catalogs.get(snapshot.schema)
        modes = _modes(self._request, catalog)
        read = self._read(snapshot, catalog)
        request = self._request
        options = BulkOptions(request.driver_rows, request.upsert, request.sets_aside)
        draft = BulkDraft(self._spark, self._store, read, modes, options)

        def facts() -> dict[str, Any]:
            return {
                **request.facts,
                "total_entities": read.rows,
                "rejected": draft.rows_left_out,
                "rejects": request.rejects if draft.rejected else None,
            }

        def accepted() -> None:
            if draft.rejected and request.rejects is not None and not dry_run:
                # Before the publish: a load whose rejects cannot be kept must not land.
                write_rejects(request.rejects, self._store, draft.rejected)

        write = ChangeWrite(
            draft,
            self._catalogs,
            CommitKind.LOAD,
            REFUSED,
            always_commit=True,
            locate=draft.locate,
            executor=draft.executor,
            labels=None if request.idempotency_key is None else lambda _: draft.loaded(facts()).label(),
            accepted=accepted,
        )
        if dry_run:
            self._store.rehearse(branch, write, intent)
            loaded = draft.loaded({**facts(), "rejects": None})
            self._report(LoadProgress("done", read.rows))
            return Receipt(
                branch,
                None,
                draft.foreseen(),
                loaded.affected_nodes,
                loaded.affected_edges,
                dry_run=True,
                facts=loaded.facts,
            )
        self._report(LoadProgress("writing", read.rows))
        if request.idempotency_key is not None:
            intent = claimed(self._claims, request.claim(read.outcomes, snapshot, intent.actor), intent)
        done = self._store.publish(branch, write, intent)
        self._report(LoadProgress("done", read.rows))
        if done.replayed and done.commit is not None:
            return replayed(branch, done, self._catalogs.get(done.commit.schema))
        return draft.loaded(facts()).receipt(branch, done, catalog)

    def _read(self, snapshot: PinnedSnapshot, catalog: Catalog, *, landed: bool = False) -> BulkRead:
        request = self._request
        now_ms = self._store.clock.now_us() // 1000
        inputs = open_inputs(
            request.data, catalog, now_ms, type=request.type, format=request.format, columns=request.columns
        )
        job = LoadJob(
            self._store.location,
            catalog,
            {table.table_id: snapshot.pin(table.table_id).version for table in catalog.tables},
            now_ms,
            MOST if request.sets_aside else SHOWN,
            request.sets_aside,
            keyed=request.idempotency_key is not None,
            landed=landed,
        )
        self._report(LoadProgress("reading", 0))
        read = BulkRead.of(catalog, snapshot, read_inputs(self._spark, job, inputs))
        if not request.sets_aside or any(outcome.of_columns for outcome in read.outcomes):
            read.problems().refuse(REFUSED)
        self._report(LoadProgress("checking", read.rows))
        return read


def _modes(request: _Request, catalog: Catalog) -> Modes:
    """Return the mode of each type by its id, and the types to be emptied."""
    named = request.mode if isinstance(request.mode, Mapping) else {}
    by_type = {catalog.named(name).id: WriteMode.read(one) for name, one in named.items()}
    every = None if isinstance(request.mode, Mapping) else WriteMode.read(request.mode)
    if request.replace_types and every not in (None, WriteMode.OVERWRITE):
        raise InvalidRequest(
            "replace_types empties types, which only mode overwrite does", remedy="Use mode='overwrite'"
        )
    modes = Modes(every, by_type)
    given = request.data if isinstance(request.data, Mapping) else ()
    # A type that is named has exactly the rows given for it, also when there are none.
    ids = (catalog.named(name).id for name in given)
    emptied = [type_id for type_id in ids if modes.of(type_id) is WriteMode.OVERWRITE]
    replaced = [*(catalog.named(name).id for name in request.replace_types), *emptied]
    return replace(modes, replaced=tuple(dict.fromkeys(replaced)))
