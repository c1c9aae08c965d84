"""Indexes: the indexes of a branch, built by Spark's executors and published by the driver.

    pinned snapshot -> what indexes lack -> **parts, then one segment each; key hashes** -> engine.indexes

What an index is and how it is published is in storage and engine; here the building, which is all of the
work, is done by many processes side by side.

Given   a session, a graph and a branch.
Gives   the report of `graph.ensure_indexes`, as one maintenance commit.
Rule    a task builds over the fragments it is given, at the version that the driver pinned. Nothing names
        what it builds until the driver publishes. What tasks could not build, and rows that others wrote
        meanwhile, are left to the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any

from pyspark.sql import SparkSession

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError
from omnigraph.catalog.catalog import Catalog
from omnigraph.engine.change import Catalogs
from omnigraph.engine.derive import lacking_key_hashes
from omnigraph.engine.graph import Graph
from omnigraph.engine.indexes import IndexReport, Ready, declared_indexes
from omnigraph.engine.indexes import ensure_indexes as publish
from omnigraph.pipeline.bulk.load_task import for_each
from omnigraph.pipeline.progress import Report, watched
from omnigraph.pipeline.reading.scan import Fragments, grouped
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import BuildIndexes, IndexSpec, Lack, StoredIndexKind
from omnigraph.storage.tables.indexes import build_segment, built_for, lacks, merge_segments
from omnigraph.storage.tables.layout import Layout
from omnigraph.storage.transaction import PinnedSnapshot

PART_ROWS = 4_000_000  # of one task; a fragment is never cut
Segment = Any  # of Lance; a value that travels


@dataclass(frozen=True)
class Missing:
    """What one index of one table lacks."""

    table_id: str
    version: int
    spec: IndexSpec
    lack: Lack
    parts: tuple[Fragments, ...]


@dataclass(frozen=True)
class KeyHashTask:
    """Fragments of one table whose key hashes one task writes."""

    table_id: str
    version: int
    fragments: Fragments
    columns: tuple[str, ...]


@checked
def ensure_indexes(
    spark: SparkSession,
    graph: Graph,
    *,
    branch: str | None = None,
    actor: str | None = None,
    part_rows: int = PART_ROWS,
    progress: Report | None = None,
) -> IndexReport:
    """Build the indexes that the schema asks for, on Spark; `progress` is told tasks done and known."""
    store, catalogs = graph.store, Catalogs(graph.store.schemas)
    branch = graph.view.administer(branch)
    snapshot = store.snapshot(branch)
    catalog = catalogs.get(snapshot.schema)
    effects = {declared.id: BuildIndexes(declared_indexes(declared)) for declared in catalog.tables}
    with watched(spark, f"indexes of {branch}", progress):
        build_segments(spark, store, opened(store, snapshot, effects), effects, part_rows)
        derived = derive_key_hashes(spark, store, catalog, snapshot, part_rows)
    ready = Ready(snapshot.state.version, effects, derived)
    return publish(store, catalogs, branch, actor=graph.view.by(actor), ready=ready)


def opened(store: GraphStore, snapshot: PinnedSnapshot, tables: Iterable[str]) -> dict[str, Handle]:
    """Return tables of a snapshot by id, but for those that cannot be read."""
    handles = {}
    for table_id in tables:
        with suppress(GraphError):  # the driver meets it too, and reports it beside what becomes of others
            handles[table_id] = store.table(snapshot, table_id)
    return handles


def build_segments(
    spark: SparkSession,
    store: GraphStore,
    handles: Mapping[str, Handle],
    effects: Mapping[str, BuildIndexes],
    part_rows: int,
) -> None:
    """Have executors build what the indexes of some versions lack; the effects remember it."""
    layouts = {table_id: store.reads.layout(handle) for table_id, handle in handles.items()}
    missing = [
        lacking
        for table_id, handle in handles.items()
        for lacking in _missing(handle, layouts[table_id], table_id, effects[table_id], part_rows)
    ]
    for lacking, segment in _built(spark, store.location, missing):
        built = built_for(layouts[lacking.table_id], lacking.lack, segment)
        effects[lacking.table_id].work.built[lacking.spec] = built


def _missing(
    handle: Handle, layout: Layout, table_id: str, effect: BuildIndexes, part_rows: int
) -> Iterator[Missing]:
    for spec, lack in lacks(handle, layout, effect.specs).items():
        rows = {number: layout.parts[number].size.rows for number in lack.fragments}
        # Parts of a vector index that were trained apart cannot be merged.
        whole = spec.kind is StoredIndexKind.VECTOR
        parts = [lack.fragments] if whole else grouped(rows, part_rows)
        yield Missing(table_id, handle.version, spec, lack, tuple(parts))


def _built(spark: SparkSession, place: Location, missing: list[Missing]) -> Iterator[tuple[Missing, Segment]]:
    """Build every part, then make one segment of the parts of each index."""
    tasks = [(lacking, part) for lacking in missing for part in lacking.parts]
    segments = for_each(spark, tasks, partial(_part, place))
    segments_of = [(lacking, segment) for (lacking, _), segment in zip(tasks, segments, strict=True)]
    whole: list[tuple[Missing, list[Segment]]] = []
    for lacking, parts in groupby(segments_of, key=lambda pair: pair[0]):
        built = [segment for _, segment in parts]
        if None not in built:
            whole.append((lacking, built))
    several = [pair for pair in whole if len(pair[1]) > 1]
    merged = for_each(spark, several, partial(_merged, place))
    yield from ((lacking, built[0]) for lacking, built in whole if len(built) == 1)
    yield from ((lacking, segment) for (lacking, _), segment in zip(several, merged, strict=True) if segment)


def derive_key_hashes(
    spark: SparkSession,
    store: GraphStore,
    catalog: Catalog,
    snapshot: PinnedSnapshot,
    part_rows: int,
    tables: Collection[str] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Have executors write the key hashes that files lack; return the columns, by table."""
    tasks = [
        KeyHashTask(table_id, version, fragments, catalog.table(table_id).looked_up)
        for (table_id, version), rows in lacking_key_hashes(store, catalog, snapshot).items()
        if tables is None or table_id in tables
        for fragments in grouped(rows, part_rows)
    ]
    derived: dict[str, tuple[str, ...]] = {}
    for task, columns in zip(tasks, for_each(spark, tasks, partial(_hashed, store.location)), strict=True):
        derived[task.table_id] = tuple(sorted({*derived.get(task.table_id, ()), *columns}))
    return {table_id: columns for table_id, columns in derived.items() if columns}


def _hashed(place: Location, task: KeyHashTask) -> tuple[str, ...]:
    """Write the key hashes of some fragments, in an executor; return the columns."""
    with GraphStore(place) as store, ThreadPoolExecutor(1) as pool:
        try:
            handle = store.reads.handle(task.table_id, task.version)
            parts = [store.reads.layout(handle).parts[number] for number in task.fragments]
            return store.finder.complete(handle, parts, pool, task.columns)
        except (OSError, GraphError):  # the driver tries again
            return ()


def _part(place: Location, task: tuple[Missing, Fragments]) -> Segment | None:
    """Build one part, in an executor."""
    lacking, fragments = task
    with GraphStore(place) as store:
        handle = store.reads.handle(lacking.table_id, lacking.version)
        try:
            return build_segment(handle, store.reads.layout(handle), lacking.spec, fragments)
        except (OSError, RuntimeError, ValueError):  # the driver tries again, and reports what it meets
            return None


def _merged(place: Location, task: tuple[Missing, list[Segment]]) -> Segment | None:
    """Merge the parts of one index, in an executor."""
    lacking, segments = task
    with GraphStore(place) as store:
        handle: Handle = store.reads.handle(lacking.table_id, lacking.version)
        try:
            return merge_segments(handle, lacking.spec, segments)
        except (OSError, RuntimeError, ValueError):
            return None
