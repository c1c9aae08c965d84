"""Source: `spark.read.format("omnigraph")`, one type of one pinned snapshot as a DataFrame.

    options -> **pinned scan** -> groups of fragments -> record batches in executors

Room    pipeline. Spark makes the source once for each DataFrame, in a process of its own (at once, or when a
        DataFrame with a schema of the caller's is first used), and sends it on from there: what is resolved
        then holds for every action on that DataFrame, whoever writes meanwhile.
Given   options, all texts: `uri` (or the path of `load`), `type`; `kind` (node or edge, where both have the
        name), `branch`, `at`, `columns` (names with commas between), `partition_bytes`, and storage options
        after `storage.`.
Rule    Spark reads every column of the schema, whatever is selected: `columns` or `.schema(...)` narrow it.
        No filter is taken from Spark: it keeps what a source answers to the filters of one query, and uses it
        for other queries of the same DataFrame (tests/spark/test_source.py shows it), so rows would be lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.moment import At
from omnigraph.catalog.catalog import Catalog, UnknownType
from omnigraph.catalog.model import TableType
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.moments import resolve
from omnigraph.language.suggest import did_you_mean
from omnigraph.pipeline.scan import PARTITION_BYTES, Fragments, Scan, scan_of
from omnigraph.pipeline.session import active
from omnigraph.pipeline.types import spark_schema
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore

NAME = "omnigraph"
STORAGE = "storage."
KNOWN = ("uri", "path", "type", "kind", "branch", "at", "columns", "partition_bytes")


def read(
    spark: SparkSession,
    graph: Graph | str | os.PathLike[str],
    type_name: str,
    *,
    branch: str = "main",
    at: At | None = None,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a type as a DataFrame.

    What an open graph was opened with reaches the executors with the plan; by address, they use their own.
    """
    uri = graph.uri if isinstance(graph, Graph) else Location.parse(graph).uri  # Spark may run elsewhere
    secrets = graph.store.location.options if isinstance(graph, Graph) else {}
    options = {f"{STORAGE}{name}": value for name, value in {**secrets, **(storage_options or {})}.items()}
    options |= {"uri": uri, "type": type_name, "branch": branch}
    options |= {} if at is None else {"at": str(at)}
    options |= {} if columns is None else {"columns": ",".join(columns)}
    register(spark)
    return spark.read.format(NAME).options(**options).load()


def register(spark: SparkSession) -> None:
    """Make the format known to a session; each session has its own list."""
    with active(spark):
        spark.dataSource.register(OmnigraphSource)


@dataclass
class Group(InputPartition):
    """The fragments of one task."""

    fragments: Fragments


class OmnigraphSource(DataSource):
    """One type of one pinned snapshot."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        with _coded():
            _check(options)
            self._scan = _pinned(options)
            self._bytes = _bytes(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns: id, ends, then properties by name."""
        return spark_schema(self._scan.schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns that the schema names."""
        with _coded():
            scan = _chosen(self._scan, schema)
        return Reader(scan, self._bytes)


class Reader(DataSourceReader):
    """Reads groups of fragments."""

    def __init__(self, scan: Scan, partition_bytes: int) -> None:
        self._scan = scan
        self._bytes = partition_bytes

    def partitions(self) -> Sequence[InputPartition]:
        """Return the groups."""
        with _coded():
            return [Group(fragments) for fragments in self._scan.groups(self._bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a group, in an executor."""
        if isinstance(partition, Group):  # for no partitions at all, Spark makes up one without a value
            with _coded():
                yield from self._scan.read(partition.fragments)


# -- options -----------------------------------------------------------------------------------------


def _check(options: Mapping[str, str]) -> None:
    for name in options:
        if name.lower() not in KNOWN and not name.lower().startswith(STORAGE):
            hint = did_you_mean(name.lower(), KNOWN)
            raise InvalidRequest(
                f"unknown option {name!r}" + (f"; {hint}" if hint else ""),
                remedy=f"The options are {', '.join(KNOWN)}, and storage options after {STORAGE!r}",
            )


def _pinned(options: Mapping[str, str]) -> Scan:
    """Say what is read: the only place that asks where a branch stands."""
    uri, type_name = options.get("uri") or options.get("path"), options.get("type")
    if not uri or not type_name:
        raise InvalidRequest(
            f"option {'type' if uri else 'uri'!r} is missing", remedy="Give the graph's address and a type"
        )
    storage = {
        name[len(STORAGE) :]: value for name, value in options.items() if name.lower().startswith(STORAGE)
    }
    branch, at = options.get("branch", "main"), options.get("at")
    with GraphStore.open(uri, storage_options=storage) as store:
        catalogs = Catalogs(store.schemas)
        head = store.snapshot(branch)
        snapshot = head if at is None else resolve(store, branch, at)
        current = _type(catalogs.get(head.schema), type_name, options.get("kind"))
        scan = scan_of(store.location, snapshot, current, catalogs.get(snapshot.schema))
    columns = options.get("columns")
    return scan if columns is None else scan.narrowed([name.strip() for name in columns.split(",")])


def _type(catalog: Catalog, name: str, kind: str | None) -> TableType:
    if kind not in (None, "node", "edge"):
        raise InvalidRequest(f"option 'kind' is {kind!r}", remedy="Use 'node' or 'edge'")
    node = None if kind == "edge" else catalog.find_node(name)
    edge = None if kind == "node" else catalog.find_edge(name)
    if node is not None and edge is not None:
        raise InvalidRequest(
            f"{name!r} is a node type and an edge type", remedy="Set option 'kind' to 'node' or 'edge'"
        )
    found = node or edge
    if found is None:
        hint = did_you_mean(name, [one.name for one in catalog.tables])
        raise UnknownType(f"the schema has no type {name!r}" + (f"; {hint}" if hint else ""), name=name)
    return found


def _bytes(options: Mapping[str, str]) -> int:
    text = options.get("partition_bytes", str(PARTITION_BYTES))
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise InvalidRequest(f"option 'partition_bytes' is {text!r}", remedy="Give a whole number above 0")
    return int(text)


def _chosen(scan: Scan, schema: StructType) -> Scan:
    """Return the scan of the columns that Spark's schema names; another type is refused, not guessed."""
    chosen = scan.narrowed(schema.names)
    for asked, declared in zip(schema, spark_schema(chosen.schema), strict=True):
        if asked.dataType != declared.dataType:
            raise InvalidRequest(
                f"column {asked.name!r} is {declared.dataType.simpleString()}, "
                f"not {asked.dataType.simpleString()}",
                remedy="Name the column with its own type, and cast it afterwards",
            )
    return chosen


@contextmanager
def _coded() -> Iterator[None]:
    """Only the text of an error leaves a process of Spark's: let it hold the code."""
    try:
        yield
    except GraphError as error:
        error.add_note(f"omnigraph error code: {error.code}")
        raise
