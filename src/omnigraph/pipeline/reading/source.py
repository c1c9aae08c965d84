"""Source: the format `omnigraph`, for reading and writing, at once and as a stream.

    options -> **what is meant** -> scan, query, feed, sink

Spark makes the source once for each DataFrame, in a process of its own (at once, or when a DataFrame with a
schema of the caller's is first used), and sends it on from there: what is resolved then holds for every
action on that DataFrame, whoever writes meanwhile. Spark does not say what a source is made for, so
whatever the options describe is resolved, and each use checks them again.

Given   options, all texts: `uri` (or the path of `load`), `branch`, storage options after `storage.`, and
          a type      `type`; `kind` (node or edge, where both have the name), `at`, `columns` (names with
                      commas between), `partition_bytes`
          a query     query.py
          a feed      feed.py
          a write     sink.py
Rule    Spark reads every column of the schema, whatever is selected: `columns` or `.schema(...)` narrow it.
        No filter is taken from Spark: it keeps what a source answers to the filters of one query, and uses it
        for other queries of the same DataFrame (tests/spark/test_source.py shows it), so rows would be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import At
from omnigraph.engine.change import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.resolve_at import read_state
from omnigraph.pipeline.options import (
    CHANGES,
    NAME,
    QUERY,
    READ,
    Options,
    check_columns,
    check_names,
    check_use,
    coded,
    flag,
    location_of,
    number,
    open_store,
    type_name,
)
from omnigraph.pipeline.reading.feed import Feed, FeedReader, feed_of
from omnigraph.pipeline.reading.query import QueryReader, QueryTask, query_of
from omnigraph.pipeline.reading.scan import PARTITION_BYTES, Fragments, TableScan, scan_of, spark_schema
from omnigraph.pipeline.session import active, frame_of
from omnigraph.pipeline.streaming.sink import batch_sink, stream_sink
from omnigraph.storage.store import GraphStore

BYTES = ("partition_bytes", PARTITION_BYTES)


@checked
def read(
    spark: SparkSession,
    graph: Graph | str | os.PathLike[str],
    type_name: str,
    *,
    branch: str | None = None,
    at: At | None = None,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a type as a DataFrame, read at one commit whatever happens afterwards.

    It has the rows that `spark.read.format("omnigraph")` gives, and gives them faster. What an open graph was
    opened with reaches the executors with the plan; by address, they use what is said here, or their own.
    """
    if isinstance(graph, Graph):
        scan = _scan(graph.store, type_name, *graph.view.read(branch, at))
    else:
        with GraphStore.open(graph, storage_options=storage_options) as store:
            scan = _scan(store, type_name, "main" if branch is None else branch, at)
    return frame_of(spark, scan if columns is None else scan.narrowed(columns))


@checked
def register(spark: SparkSession) -> None:
    """Make the format known to a session; each session has its own list."""
    with active(spark):
        spark.dataSource.register(OmnigraphSource)


@dataclass
class Group(InputPartition):
    """The fragments of one task."""

    fragments: Fragments


class OmnigraphSource(DataSource):
    """A type, a query or the changes of a graph to read; or a type to write."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with coded():
            check_names(options)
            self._meant = _meant(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns that are read: for a type id, ends, then properties by name."""
        with coded():
            self._check_reading()
        return spark_schema(self._meant.schema) if isinstance(self._meant, TableScan) else self._meant.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns that the schema names."""
        with coded():
            self._check_reading()
            if isinstance(self._meant, QueryTask):
                return QueryReader(self._meant, schema)
            if isinstance(self._meant, Feed):
                raise InvalidRequest("changes are a stream", remedy="Use spark.readStream")
            return Reader(_chosen(self._meant, schema), number(self.options, *BYTES))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes rows of these columns as one commit."""
        with coded():
            return batch_sink(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of changes."""
        with coded():
            self._check_reading()
            if not isinstance(self._meant, Feed):
                raise InvalidRequest(
                    "a stream reads the changes of a graph", remedy="Set option 'changes' to 'true'"
                )
            return FeedReader(self._meant, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what writes each batch of these columns as one commit."""
        with coded():
            return stream_sink(self.options, schema, overwrite)

    def _check_reading(self) -> None:
        match self._meant:
            case QueryTask():
                check_use(self.options, QUERY, "reading a query")
            case Feed():
                check_use(self.options, CHANGES, "reading changes")
            case TableScan():
                check_use(self.options, READ, "reading a type")
                number(self.options, *BYTES)


class Reader(DataSourceReader):
    """Reads groups of fragments."""

    def __init__(self, scan: TableScan, partition_bytes: int) -> None:
        self._scan = scan
        self._bytes = partition_bytes

    def partitions(self) -> Sequence[InputPartition]:
        """Return the groups."""
        with coded():
            return [Group(fragments) for fragments in self._scan.groups(self._bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group, in an executor."""
        if isinstance(partition, Group):  # for no partitions at all, Spark makes up one without a value
            with coded():
                yield from self._scan.read(partition.fragments)


# -- what options mean -------------------------------------------------------------------------------


def _meant(options: Options) -> TableScan | QueryTask | Feed:
    """Say what is read: the only place that asks where a branch stands."""
    if flag(options, "changes"):
        return feed_of(options)
    if "query" not in options:
        return _pinned(options)
    if "type" in options:
        raise InvalidRequest("options 'type' and 'query' exclude each other", remedy="Give one of them")
    return query_of(options)


def _pinned(options: Options) -> TableScan:
    location, named = location_of(options), type_name(options)
    with open_store(location) as store:
        scan = _scan(store, named, options.get("branch", "main"), options.get("at"))
    columns = options.get("columns")
    return scan if columns is None else scan.narrowed([name.strip() for name in columns.split(",")])


def _scan(store: GraphStore, named: str, branch: str, at: At | None) -> TableScan:
    snapshot, catalog = read_state(store, Catalogs(store.schemas), branch, at)
    return scan_of(store.location, snapshot, catalog.named(named))


def _chosen(scan: TableScan, schema: StructType) -> TableScan:
    """Return the scan of the columns that Spark's schema names."""
    chosen = scan.narrowed(schema.names)
    check_columns(schema, spark_schema(chosen.schema))
    return chosen
