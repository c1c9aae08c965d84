"""Feed: `spark.readStream.format("omnigraph")`, what each commit of a branch changed.

    offset -> commits after it -> **one task for some commits** -> changes as rows (feed_rows.py)

Room    pipeline. The change feed of `graph.changes` for Spark: an offset is a place on the line of a branch,
        after whole commits, and Spark's checkpoint is the only memory of it.
Given   options: `changes` (true); `type` for images as structs, or `types` (names with commas between) or
        neither for images as JSON; `branch`, `starting` (now, earliest, or a state: after it), `max_commits`.
Gives   rows: what happened to one entity, its images before and after, and the commit that did it.
Rule    what was cleaned cannot be read: an offset below it is an error, never a gap that nobody sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from omnigraph.base.errors import ChangeFeedGap, HistoryReclaimed, InvalidRequest
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.history.change import Wanted
from omnigraph.engine.history.comparison import Comparison
from omnigraph.engine.history.line import Gap, Line, Place
from omnigraph.engine.history.moments import resolve
from omnigraph.engine.history.tokens import rejected
from omnigraph.pipeline.feed_rows import Images
from omnigraph.pipeline.options import (
    Options,
    check_columns,
    coded,
    location_of,
    number,
    open_store,
    type_name,
)
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.store import GraphStore

MAX_COMMITS = 1_000  # of one batch
TASKS = 32  # of one batch: beyond that, commits share them
EARLIEST = {"commit": "", "chain": MAIN, "version": 1}
Offset = dict[str, Any]


@dataclass(frozen=True)
class Feed:
    """Which changes are read, and how they are shown."""

    location: Location
    branch: str
    wanted: Wanted
    images: Images
    starting: str
    max_commits: int

    @property
    def schema(self) -> StructType:
        """The columns."""
        return self.images.schema

    def changes(self, place: Place) -> Iterator[pa.RecordBatch]:
        """Yield what one commit changed."""
        with GraphStore(self.location) as store:
            chain = store.branches.chain(place[0])
            chain.latest()  # knows what was reclaimed since
            try:
                before, after = chain.at(place[1] - 1), chain.at(place[1])
                found = Comparison(store, Catalogs(store.schemas), before, after, self.wanted)
                yield from self.images.rows(found)
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
        wanted, images = Wanted.of_type(declared), Images(declared)
    else:
        names = [name.strip() for name in options.get("types", "").split(",") if name.strip()]
        wanted, images = Wanted.read([catalog], None, names, None), Images()
    # Where to start is asked of a new query only: one that goes on may have been started long ago.
    starting, most = options.get("starting", "now"), number(options, "max_commits", MAX_COMMITS)
    return Feed(location, branch, wanted, images, starting, most)


@dataclass
class Commits(InputPartition):
    """The commits of one task."""

    places: tuple[Place, ...]


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
            if head.place == _place(start):
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
            places = [state.place for state in self._after(start, last)]
        size = -(-len(places) // TASKS) or 1
        return [Commits(tuple(places[low : low + size])) for low in range(0, len(places), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some commits, in an executor."""
        with coded():
            for place in partition.places if isinstance(partition, Commits) else ():
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
        line, place = Line(self._store, head), _place(start)
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
    if not Line(store, head).holds(state.place, state.head):
        raise InvalidRequest(
            f"commit {state.head} did not lead to the head of branch {branch!r}",
            remedy="Name a state of the branch's own history, 'now' or 'earliest'",
        )
    return _offset(state)


def _offset(state: ManifestState) -> Offset:
    chain, version = state.place
    return {"commit": state.head, "chain": chain, "version": version}


def _place(offset: Offset) -> Place:
    return str(offset["chain"]), int(offset["version"])
