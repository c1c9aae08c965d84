"""Feed: `spark.readStream.format("omnigraph")`, what each commit of a branch changed.

    offset -> commits after it -> **one task for some commits** -> changes as rows

The change feed of `graph.changes` for Spark: an offset is a place on the line of a branch, after whole
commits, and Spark's checkpoint is the only memory of it.

Given   options: `changes` (true); `type` for images as structs, or `types` (names with commas between) or
        neither for images as JSON; `branch`, `starting` (now, earliest, or a state: after it), `max_commits`.
Gives   rows: what happened to one entity, its images before and after, and the commit that did it.
Rule    what was cleaned cannot be read: an offset below it is an error, never a gap that nobody sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import ChangeFeedGap, HistoryReclaimed, InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, Property, TableType
from omnigraph.catalog.past import columns_then
from omnigraph.catalog.types import Scalar
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.changes import ChangeFilter, Op, kind_of
from omnigraph.engine.history.comparison import StateComparison, changes_in
from omnigraph.engine.history.delta import Delta, Pair, column_name
from omnigraph.engine.history.feed import rejected
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.pipeline.options import (
    Options,
    check_columns,
    coded,
    location_of,
    number,
    open_store,
    type_name,
)
from omnigraph.pipeline.reading.scan import BATCH_ROWS, INSTANT, spark_type, to_spark, travels_as
from omnigraph.storage.history import Gap
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import MAIN, ChainPosition, CommitRecord, ManifestState
from omnigraph.storage.store import GraphStore

# -- feed rows ---------------------------------------------------------------------------------------
#
#   two states -> deltas by type (engine.history) -> **columns** -> batches
#
# What one commit changed, or what two states do not share, as record batches for Spark. Runs in executors.
# With one type its images are structs of stored values, column by column; with several they are JSON, in
# the formats of query results. Properties are found by identity, whatever they are called in a commit. A
# struct has those that the type had when the stream was made: one that a commit lacks is null, one of
# another type is refused, unless its values fit.


JSON_ROWS = 4_096  # of one batch: their images are held as Python values
NAMES = pa.list_(pa.field("element", pa.string()))
# What a row says of its commit: column, Arrow type, Spark's type.
COMMIT: tuple[tuple[str, pa.DataType, DataType], ...] = (
    ("commit_id", pa.string(), StringType()),
    ("version", pa.int64(), LongType()),
    ("committed_at", INSTANT, TimestampType()),
    ("commit_kind", pa.string(), StringType()),
    ("branch", pa.string(), StringType()),
    ("actor", pa.string(), StringType()),
    ("message", pa.string(), StringType()),
)


@dataclass(frozen=True)
class Images:
    """How the images of entities are shown."""

    declared: TableType | None = None  # the one type, as it was when the stream was made

    @property
    def schema(self) -> StructType:
        """The columns of a feed as Spark sees them: the change, and its commit."""
        return StructType([*self.of_changes, *(StructField(name, kind) for name, _, kind in COMMIT)])

    @property
    def of_changes(self) -> StructType:
        """The columns of a change."""
        image: DataType = StringType()
        if self.declared is not None:
            ends = [StructField(name, StringType()) for name in self._ends]
            members = [StructField(p.name, spark_type(p.type.arrow)) for p in self._members]
            image = StructType([*ends, *members])
        names = [StructField(name, StringType()) for name in ("op", "kind", "type", ID)]
        images = [StructField("fields", ArrayType(StringType())), StructField("before", image)]
        return StructType([*names, *images, StructField("after", image)])

    def rows(self, comparison: StateComparison) -> Iterator[pa.RecordBatch]:
        """Yield the changes between the states before and after a commit."""
        for declared in comparison.types:
            for delta in comparison.deltas(declared):
                for changes in self.changes(delta, comparison.pair(declared)):
                    yield _with_commit(changes, comparison.after.commit)

    def changes(self, delta: Delta, pair: Pair) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one type."""
        shown = self._json(delta, pair) if self.declared is None else self._structs(delta, pair)
        for part in shown:
            yield _batch(part, pair.declared)

    # -- one type ----------------------------------------------------------------------------------

    def _structs(self, delta: Delta, pair: Pair) -> Iterator[_Part]:
        for op, old, new in (
            (Op.INSERT, None, delta.inserted),
            (Op.UPDATE, delta.before, delta.after),
            (Op.DELETE, delta.deleted, None),
        ):
            rows = new if new is not None else old
            assert rows is not None
            names = _names_of_changed(delta, pair.declared) if op is Op.UPDATE else [None] * rows.num_rows
            for low in range(0, rows.num_rows, BATCH_ROWS):
                ids = rows[ID].slice(low, BATCH_ROWS).combine_chunks()
                before, after = (
                    pa.nulls(len(ids), self._image)
                    if side is None
                    else self._struct(side.slice(low, BATCH_ROWS), pair.declared, then)
                    for side, then in ((old, pair.older), (new, pair.newer))
                )
                ops = pa.repeat(pa.scalar(op.value), len(ids))
                fields = pa.array(names[low : low + BATCH_ROWS], NAMES)
                yield _Part(ops, ids, fields, before, after)

    def _struct(self, rows: pa.Table, compared: TableType, then: Catalog) -> pa.Array:
        """Return compared rows of a state as structs; what its schema lacks is null."""
        known = columns_then(compared, then)
        here = {p.id: p for p in compared.properties if p.column in known}
        columns = [_one(rows[name]) for name in self._ends]
        columns += [_values(rows, p, here.get(p.id)) for p in self._members]
        return pa.StructArray.from_arrays(columns, fields=list(self._image))

    @property
    def _image(self) -> pa.StructType:
        ends = [pa.field(name, pa.string()) for name in self._ends]
        return pa.struct([*ends, *(pa.field(p.name, travels_as(p.type.arrow)) for p in self._members)])

    @property
    def _ends(self) -> tuple[str, ...]:
        return ENDPOINTS if isinstance(self.declared, EdgeType) else ()

    @property
    def _members(self) -> tuple[Property, ...]:
        properties = () if self.declared is None else self.declared.properties
        return tuple(p for p in properties if p.type.scalar is not Scalar.BLOB)

    # -- several types -----------------------------------------------------------------------------

    def _json(self, delta: Delta, pair: Pair) -> Iterator[_Part]:
        every = changes_in(delta, pair)
        while some := list(islice(every, JSON_ROWS)):
            yield _Part(
                pa.array([one.op.value for one in some], pa.string()),
                pa.array([one.id for one in some], pa.string()),
                pa.array([list(one.fields) if one.op is Op.UPDATE else None for one in some], NAMES),
                pa.array([_text(one.before) for one in some], pa.string()),
                pa.array([_text(one.after) for one in some], pa.string()),
            )


@dataclass(frozen=True, eq=False)
class _Part:
    """Some changes of one type."""

    ops: pa.Array
    ids: pa.Array
    fields: pa.Array
    before: pa.Array
    after: pa.Array


def _batch(part: _Part, declared: TableType) -> pa.RecordBatch:
    count = len(part.ids)
    return pa.RecordBatch.from_pydict(
        {
            "op": part.ops,
            "kind": pa.repeat(pa.scalar(kind_of(declared)), count),
            "type": pa.repeat(pa.scalar(declared.name), count),
            ID: part.ids,
            "fields": part.fields,
            "before": part.before,
            "after": part.after,
        }
    )


def _with_commit(changes: pa.RecordBatch, commit: CommitRecord) -> pa.RecordBatch:
    facts: dict[str, Any] = {
        "commit_id": commit.id,
        "version": commit.manifest_version,
        "committed_at": commit.authored_at_us,
        "commit_kind": commit.kind.value,
        "branch": commit.branch,
        "actor": commit.actor,
        "message": commit.message,
    }
    columns = dict(zip(changes.schema.names, changes.columns, strict=True))
    added = {name: pa.repeat(pa.scalar(facts[name], kind), changes.num_rows) for name, kind, _ in COMMIT}
    return pa.RecordBatch.from_pydict(columns | added)


def _values(rows: pa.Table, declared: Property, here: Property | None) -> pa.Array:
    """Return the values of a property in the type that the stream gives it."""
    goal = declared.type.arrow
    if here is None:
        return pa.nulls(rows.num_rows, travels_as(goal))
    if here.type.arrow != goal and not here.type.widens_to(declared.type):
        raise InvalidRequest(
            f"property {here.name!r} is now of type {here.type}, and this stream reads it as {declared.type}",
            remedy="Start the query again: it takes the columns of the schema of then",
            property=here.name,
        )
    return to_spark(_one(rows[here.column]).cast(goal), goal)


def _names_of_changed(delta: Delta, now: TableType) -> list[list[str] | None]:
    """Return, for each row that was updated, the names of what differs."""
    columns = list(delta.changed)
    if not columns:
        return [[] for _ in range(delta.after.num_rows)]
    names = [column_name(column, now) for column in columns]
    differs = np.array([delta.changed[column] for column in columns]).T
    return [sorted(names[at] for at in np.flatnonzero(row)) for row in differs]


def _text(image: Any) -> str | None:
    return None if image is None else json.dumps(dict(image), ensure_ascii=False)


def _one(values: pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


# -- feed --------------------------------------------------------------------------------------------


MAX_COMMITS = 1_000  # of one batch
TASKS = 32  # of one batch: beyond that, commits share them
EARLIEST = {"commit": "", "chain": MAIN, "version": 1}
Offset = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """Which changes are read, and how they are shown."""

    location: Location
    branch: str
    wanted: ChangeFilter
    images: Images
    starting: str
    max_commits: int

    @property
    def schema(self) -> StructType:
        """The columns."""
        return self.images.schema

    def changes(self, place: ChainPosition) -> Iterator[pa.RecordBatch]:
        """Yield what one commit changed."""
        with GraphStore(self.location) as store:
            chain = store.branches.chain(place[0])
            chain.latest()  # knows what was reclaimed since
            try:
                before, after = chain.at(place[1] - 1), chain.at(place[1])
                comparison = StateComparison(store, Catalogs(store.schemas), before, after, self.wanted)
                yield from self.images.rows(comparison)
            except HistoryReclaimed as error:
                raise gap(self.branch, error) from error


def feed_of(options: Options) -> Feed:
    """Read which changes are meant; types and columns are those of the schema of now."""
    location, branch = location_of(options), options.get("branch", "main")
    if "type" in options and "types" in options:
        raise InvalidRequest("options 'type' and 'types' exclude each other", remedy="Give one of them")
    if "kind" in options and "type" not in options:
        raise InvalidRequest("option 'kind' goes with 'type'", remedy="Give 'type', or no kind")
    with open_store(location) as store:
        catalog = Catalogs(store.schemas).get(store.snapshot(branch).schema)
    if "type" in options:
        declared = catalog.named(type_name(options))
        wanted, images = ChangeFilter.of_type(declared), Images(declared)
    else:
        names = [name.strip() for name in options.get("types", "").split(",") if name.strip()]
        wanted, images = ChangeFilter.read([catalog], None, names, None), Images()
    # Where to start is asked of a new query only: one that goes on may have been started long ago.
    starting, most = options.get("starting", "now"), number(options, "max_commits", MAX_COMMITS)
    return Feed(location, branch, wanted, images, starting, most)


@dataclass
class FeedCommits(InputPartition):
    """The commits of one task."""

    places: tuple[ChainPosition, ...]


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads batches of changes; Spark keeps one for planning and makes others for tasks."""

    def __init__(self, feed: Feed, schema: StructType) -> None:
        check_columns(schema, feed.schema)
        self._feed = feed
        self._names = schema.names
        self._opened: GraphStore | None = None  # while planning: one look at the head for each call
        self._until: ManifestState | None = None  # where this run ends, if it is to end

    def initialOffset(self) -> Offset:
        """Return where a new query begins."""
        with coded():
            return _start(self._store, self._feed.branch, self._feed.starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how many commits a batch takes; Spark has no limit of that name."""
        return ReadMaxFiles(self._feed.max_commits)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return where a batch that begins at an offset ends."""
        with coded():
            head = self._until or self._head()
            if head.position == _place(start):
                return start
            if not isinstance(limit, ReadMaxFiles):
                return _offset(head)
            last = start
            for state in islice(self._after(start, head), limit.max_files):
                last = _offset(state)
            return last

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the head of now as the end of this run."""
        with coded():
            self._until = self._head()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the commits between two offsets, a task for each or for some."""
        if _place(start) == _place(end):
            return []
        with coded():
            try:
                last = self._store.branches.chain(end["chain"]).at(end["version"])
            except HistoryReclaimed as error:
                raise gap(self._feed.branch, error) from error
            places = [state.position for state in self._after(start, last)]
        size = -(-len(places) // TASKS) or 1
        return [FeedCommits(tuple(places[low : low + size])) for low in range(0, len(places), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some commits, in an executor."""
        with coded():
            for place in partition.places if isinstance(partition, FeedCommits) else ():
                for batch in self._feed.changes(place):
                    yield batch.select(self._names)

    def stop(self) -> None:
        """Let go of the graph."""
        if self._opened is not None:
            self._opened.close()

    # -- parts -------------------------------------------------------------------------------------

    @property
    def _store(self) -> GraphStore:
        if self._opened is None:
            self._opened = open_store(self._feed.location)
        return self._opened

    def _head(self) -> ManifestState:
        return self._store.snapshot(self._feed.branch).state

    def _after(self, start: Offset, head: ManifestState) -> Iterator[ManifestState]:
        """Yield the states that commits after an offset made, up to one of them."""
        line, place = self._store.history.line(head), _place(start)
        if start["commit"] and not line.holds(place, start["commit"]):
            raise rejected(f"it is not on branch {self._feed.branch!r}, or of an earlier branch of this name")
        try:
            for _, state in line.after(place):
                yield state
        except HistoryReclaimed as error:
            raise gap(self._feed.branch, error) from error


def gap(branch: str, error: HistoryReclaimed) -> ChangeFeedGap:
    """Return the error about changes that are no longer stored."""
    return ChangeFeedGap(
        f"what follows the offset on branch {branch!r} was cleaned: {error.message}",
        remedy="Read the state of now, and start a new query, with a new checkpoint, after its commit",
        first_unreadable_commit_id=error.commit_id if isinstance(error, Gap) else None,
    )


def _start(store: GraphStore, branch: str, starting: str) -> Offset:
    head = store.snapshot(branch).state
    if starting == "now":
        return _offset(head)
    if starting == "earliest":
        return EARLIEST
    state = resolve(store, branch, starting).state
    if not store.history.line(head).holds(state.position, state.head):
        raise InvalidRequest(
            f"commit {state.head} did not lead to the head of branch {branch!r}",
            remedy="Name a state of the branch's own history, 'now' or 'earliest'",
        )
    return _offset(state)


def _offset(state: ManifestState) -> Offset:
    chain, version = state.position
    return {"commit": state.head, "chain": chain, "version": version}


def _place(offset: Offset) -> ChainPosition:
    return str(offset["chain"]), int(offset["version"])
