"""Query source: the rows of a read query at one pinned snapshot, as a DataFrame.

    options -> **pinned query** -> one task runs it -> record batches

Snapshot, schema and clock are settled when the source is made; the columns are those of the checked query,
so nothing runs before rows are wanted. Each action on the DataFrame runs the query again, with the same
rows as its answer.

Given   options: `query` (`.gq` text, or the path of a file), `query_name`, `params` (a JSON object).
Rule    one partition: the engine answers a query in one process, whatever the number of executors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, TableType
from omnigraph.catalog.query import CheckedMutation, CheckedRead, bind_params, compile_query
from omnigraph.catalog.query.expressions import EntityValue, OutputRef, type_of
from omnigraph.catalog.query.statements import Output
from omnigraph.catalog.types import Scalar
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.resolve_at import check_existed, read_state
from omnigraph.engine.query import read_query
from omnigraph.execution.answer import Answerer
from omnigraph.execution.budget import Budget
from omnigraph.execution.context import Caches, Context
from omnigraph.execution.plan.rules import plan
from omnigraph.execution.search.embedding import Embeddings, embedder_of
from omnigraph.pipeline.options import Options, check_columns, coded, location_of, open_store
from omnigraph.pipeline.reading.scan import BATCH_ROWS, sent_as, spark_type, travels_as
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


@dataclass(frozen=True)
class QueryTask:
    """A read that is ready to run, in any process."""

    location: Location
    snapshot: PinnedSnapshot
    catalog: Catalog  # names of today, types of the snapshot
    text: str
    file: str
    query_name: str | None
    params: Mapping[str, Any] = field(repr=False)
    now_ms: int
    schema: StructType

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Run the query, and yield its rows in the types that travel."""
        with GraphStore(self.location) as store:
            read = _compiled(self.text, self.file, self.query_name, self.catalog)
            caches = Caches.within()
            context = Context(
                snapshot=self.snapshot,
                catalog=self.catalog,
                reads=store.reads,
                caches=caches,
                values=bind_params(read.parameters, self.params),
                now_ms=self.now_ms,
                embeddings=Embeddings(embedder_of(None)),
                budget=Budget(caches.limit, caches.make_room),
            )
            counts = {table_id: pin.rows for table_id, pin in self.snapshot.state.pins.items()}
            tables = [declared.table_id for declared in read.operation.reads]
            with store.reading(self.snapshot.state, tables=tables):
                columns = Answerer(context, plan(read, counts)).run()
        fields = [pa.field(output.name, travelling(output, read.outputs)) for output in read.outputs]
        arrays = [sent_as(column, output.type) for column, output in zip(columns, fields, strict=True)]
        yield from pa.table(arrays, schema=pa.schema(fields)).to_batches(max_chunksize=BATCH_ROWS)


def query_of(options: Options) -> QueryTask:
    """Check a query against the state that it will read."""
    location, branch, at = location_of(options), options.get("branch", "main"), options.get("at")
    params = _params(options.get("params"))
    text, file = read_query(options["query"])
    with open_store(location) as store:
        snapshot, catalog = read_state(store, Catalogs(store.schemas), branch, at)
        read = _compiled(text, file, options.get("query_name"), catalog)
        for declared in read.operation.reads:
            check_existed(snapshot, declared)
        bind_params(read.parameters, params)  # what is wrong with them is said now
        now_ms = store.clock.now_us() // 1000
    return QueryTask(
        location,
        snapshot,
        catalog,
        text,
        file,
        options.get("query_name"),
        params,
        now_ms,
        StructType([StructField(output.name, _spark(output, read.outputs)) for output in read.outputs]),
    )


class QueryReader(DataSourceReader):
    """Reads the result of a query."""

    def __init__(self, query: QueryTask, schema: StructType) -> None:
        check_columns(schema, query.schema)
        self._query = query
        self._names = schema.names

    def partitions(self) -> Sequence[InputPartition]:
        """Return the one partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run the query, in an executor."""
        with coded():
            for batch in self._query.rows():
                yield batch.select(self._names)


# -- types of results --------------------------------------------------------------------------------


def travelling(output: Output, outputs: Sequence[Output]) -> pa.DataType:
    """Return the Arrow type in which a column of a result goes to Spark; a node is a struct."""
    declared, kind = _meant(output, outputs)
    if kind is not None:
        return travels_as(kind)
    members = [pa.field(name, travels_as(member)) for name, member in _members(declared)]
    return pa.struct([pa.field(ID, pa.string()), *members])


def _spark(output: Output, outputs: Sequence[Output]) -> Any:
    declared, kind = _meant(output, outputs)
    if kind is not None:
        return spark_type(kind)
    members = [StructField(name, spark_type(member)) for name, member in _members(declared)]
    return StructType([StructField(ID, StringType()), *members])


def _meant(output: Output, outputs: Sequence[Output]) -> tuple[TableType | None, pa.DataType | None]:
    """Return the stored type of a column, or the type whose nodes it holds."""
    value = output.value
    while isinstance(value, OutputRef):
        value = outputs[value.position].value
    if isinstance(value, EntityValue):
        return value.variable.type, None
    value_type = type_of(value)
    return None, None if value_type is None else value_type.arrow


def _members(declared: TableType | None) -> list[tuple[str, pa.DataType]]:
    """Return what a whole node shows besides its id: every property but blobs."""
    properties = () if declared is None else declared.properties
    return [(p.name, p.type.arrow) for p in properties if p.type.scalar is not Scalar.BLOB]


# -- parts -------------------------------------------------------------------------------------------


def _compiled(text: str, file: str, name: str | None, catalog: Catalog) -> CheckedRead:
    checked = compile_query(text, catalog, name, file=file)
    if isinstance(checked, CheckedMutation):
        raise InvalidRequest(f"query {checked.name!r} changes the graph", remedy="Run it with graph.mutate")
    return checked


def _params(text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        params = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"option 'params' is not JSON: {error}", remedy="Give a JSON object") from error
    if not isinstance(params, dict):
        raise InvalidRequest("option 'params' is not a JSON object", remedy='Write it as {"name": value}')
    return params
