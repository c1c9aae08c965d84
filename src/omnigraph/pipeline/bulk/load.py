"""Load: `pipeline.load`, a load of any size as one commit.

    input -> **files written by executors -> checks on Spark -> one publish by the driver**

The driver holds what the executors report, never the rows. A load that fails has published nothing; files
that it wrote are named by nothing, and a cleanup removes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.access import Action
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.assembly import (
    REFUSED,
    Columns,
    LoadMode,
    LoadProgress,
    LoadRequest,
    LoadRun,
    Modes,
    Report,
    silent,
)
from omnigraph.engine.load.conform import LoadProblems, LoadSource
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.load.sources.opening import open_source
from omnigraph.engine.load.sources.splitting import SPLIT_BYTES, split
from omnigraph.engine.load.sources.tables import read_header, renamed
from omnigraph.engine.options import WriteOptions
from omnigraph.engine.validate.relation import SHOWN
from omnigraph.engine.write import Receipt
from omnigraph.pipeline.bulk.draft import BulkDraft, BulkOptions, BulkRead
from omnigraph.pipeline.bulk.load_task import (
    LoadJob,
    TaskOutcome,
    fingerprint_of,
    for_each,
    for_each_partition,
    in_order,
    load_job,
    run_partition,
    run_source,
)
from omnigraph.pipeline.bulk.row_locations import MOST, reject_file
from omnigraph.pipeline.bulk.staged_rows import Way
from omnigraph.pipeline.progress import watched
from omnigraph.pipeline.session import spark_session
from omnigraph.storage.claims import Claims
from omnigraph.storage.manifest.records import CommitRecord
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

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
    branch: str | None = None,
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
    branch = graph.view.write(branch)
    rejects_to = reject_file(rejects) if on_violation == "reject" else None
    request = LoadRequest(
        data=data,
        mode=mode if isinstance(mode, str) else dict(mode),
        branch=branch,
        from_branch=from_branch,
        type=type,
        format=format,
        columns=columns or {},
        replace_types=tuple(replace_types),
        idempotency_key=None if dry_run else idempotency_key,
        sets_aside=on_violation == "reject",
        dry_run=dry_run,
        before_fork=partial(graph.view.allow, Action.BRANCH_CREATE, from_branch, branch),
    )
    options = BulkOptions(
        driver_rows,
        upsert,
        request.sets_aside,
        request.idempotency_key is not None,
        None if dry_run else rejects_to,
    )
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    watch = _Progress(progress or silent)
    reader = SparkReader(spark, store, catalogs, request, options, watch)
    run = LoadRun(store, catalogs, Claims(store.location, store.syncer), request, reader, watch)
    intent = Intent(graph.view.by(actor), message, if_commit, FrozenMap(dict(labels or {})))
    with watched(spark, f"load into {branch}", None if progress is None else watch.tasks):
        return run.run(intent)


def load_by_spark(
    graph: Graph,
    request: LoadRequest,
    options: WriteOptions,
    progress: Report | None,
    *,
    rejects: str | os.PathLike[str] | None,
) -> Receipt:
    """Load as `graph.load(engine="spark")` does: with the session that runs, or one of its own."""
    named = request.type is not None or isinstance(request.data, Mapping)
    return load(
        spark_session(),
        graph,
        request.data,
        mode=request.mode,
        type=request.type,
        format=request.format,
        columns=request.columns if named else None,
        from_branch=request.from_branch,
        replace_types=request.replace_types,
        on_violation="reject" if request.sets_aside else "fail",
        rejects=rejects,
        progress=progress,
        **asdict(options),
    )


class _Progress:
    """Says how far a load is, by its stages and by the tasks of Spark."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = LoadProgress("reading", 0)

    def __call__(self, progress: LoadProgress) -> None:
        self._last = progress
        self._report(progress)

    def tasks(self, done: int, known: int) -> None:
        """Say how many tasks of Spark are done, whatever they are for; comes from a thread of its own."""
        self._report(replace(self._last, tasks_done=done, tasks=known))


class SparkReader:
    """Reads the input of a load in executors, which write its rows as files that nothing names yet."""

    engine = "spark"
    repeatable = True

    def __init__(
        self,
        spark: SparkSession,
        store: GraphStore,
        catalogs: Catalogs,
        request: LoadRequest,
        options: BulkOptions,
        report: Report,
    ) -> None:
        self._spark = spark
        self._store = store
        self._catalogs = catalogs
        self._request = request
        self._options = options
        self._report = report

    def fingerprint(self, branch: str, commit: CommitRecord) -> Fingerprint:
        """Read the input under the schema of a commit, and write nothing."""
        snapshot = self._store.snapshot(branch, at=commit.id)
        read = self._read(snapshot, self._catalogs.get(snapshot.schema), landed=True)
        return fingerprint_of(read.outcomes)

    @contextmanager
    def draft(
        self, base: PinnedSnapshot, catalog: Catalog, modes: Modes, facts: Mapping[str, Any]
    ) -> Iterator[BulkDraft]:
        """Read the input and check each row by itself."""
        yield BulkDraft(self._spark, self._store, self._read(base, catalog), modes, self._options, facts)

    def _read(self, snapshot: PinnedSnapshot, catalog: Catalog, *, landed: bool = False) -> BulkRead:
        request, sets_aside = self._request, self._options.sets_aside
        job = load_job(
            self._store,
            snapshot,
            catalog,
            kept_problems=MOST if sets_aside else SHOWN,
            sets_aside=sets_aside,
            keyed=self._options.keyed,
            landed=landed,
        )
        inputs = open_inputs(
            request.data,
            catalog,
            job.now_ms,
            type=request.type,
            format=request.format,
            columns=request.columns,
        )
        self._report(LoadProgress("reading", 0))
        read = BulkRead.of(catalog, snapshot, read_inputs(self._spark, job, inputs))
        if not sets_aside or any(outcome.of_columns for outcome in read.outcomes):
            read.problems().refuse(REFUSED)
        self._report(LoadProgress("checking", read.rows))
        return read


# -- inputs ------------------------------------------------------------------------------------------
#
# Files are cut into splits that executors open for themselves; a DataFrame is read partition by partition.


@dataclass(frozen=True, eq=False)
class FrameInput:
    """A DataFrame of one type."""

    type: str
    frame: DataFrame
    columns: Mapping[str, str] = FrozenMap()


@dataclass(frozen=True, eq=False)
class Files:
    """Sources that executors open, one for each task."""

    splits: tuple[LoadSource, ...]


Input = FrameInput | Files


def open_inputs(
    data: Any,
    catalog: Catalog,
    now_ms: int,
    *,
    type: str | None = None,
    format: str | None = None,
    columns: Columns,
) -> list[Input]:
    """Recognise an input; nothing but heads and footers of files is read."""
    if isinstance(data, DataFrame):
        if type is None:
            raise InvalidRequest(
                "a DataFrame does not say of which type its rows are", remedy="Give type=, or {type: frame}"
            )
        data = {type: data}
    if not isinstance(data, Mapping):
        mapped = columns.get(type, {}) if type is not None else {}
        return [_files(data, catalog, now_ms, type, format, mapped)]
    unknown = [name for name in columns if name not in data]
    if unknown:
        raise InvalidRequest(f"columns are mapped for {unknown[0]!r}, which is not loaded")
    inputs: list[Input] = []
    for name, source in data.items():
        catalog.named(name)  # a misspelt type is said before anything is read
        mapped = columns.get(name, {})
        if isinstance(source, DataFrame):
            _check_columns(source, catalog.named(name), mapped)
            inputs.append(FrameInput(name, source, dict(mapped)))
        else:
            inputs.append(_files(source, catalog, now_ms, name, format, mapped))
    return inputs


def read_inputs(
    spark: SparkSession | None, job: LoadJob, inputs: Sequence[Input]
) -> list[tuple[LoadSource | None, TaskOutcome]]:
    """Return what came of each task, in the order of the input; with its source, which may be read again."""
    outcomes: list[tuple[LoadSource | None, TaskOutcome]] = []
    splits = [source for files in inputs if isinstance(files, Files) for source in files.splits]
    of_splits = iter(for_each(spark, splits, partial(run_source, job)))
    for one_input in inputs:
        if isinstance(one_input, Files):
            outcomes += [(source, next(of_splits)) for source in one_input.splits]
        else:
            outcomes += [(None, outcome) for outcome in _partitions(job, one_input)]
    return outcomes


def _partitions(job: LoadJob, source: FrameInput) -> list[TaskOutcome]:
    """Read a DataFrame."""
    names = tuple(source.frame.columns)
    work = partial(run_partition, job, source.type, names, source.columns)
    return list(in_order(for_each_partition(source.frame, work)))


def _check_columns(frame: DataFrame, declared: TableType, columns: Mapping[str, str]) -> None:
    """Say at once what is wrong with the names of columns; each task would say it again."""
    origin, report = f"<{declared.name}>", LoadProblems()
    read_header(renamed(frame.columns, columns, origin), declared, report, origin, 1)
    report.findings().refuse(REFUSED)


def _files(
    data: Any, catalog: Catalog, now_ms: int, type: str | None, format: str | None, columns: Mapping[str, str]
) -> Files:
    source = open_source(data, catalog=catalog, now_ms=now_ms, type=type, format=format, columns=columns)
    return Files(tuple(split(source, SPLIT_BYTES)))
