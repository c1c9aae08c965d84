"""A table of documents for tests of table effects: the kinds of columns that a graph schema has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable

DOC = "t-doc"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("vector", pa.list_(pa.float32(), 3)),
    ]
)
Row = dict[str, Any]


def doc(name: str, size: int | None = 0, tags: list[str] | None = None) -> Row:
    """Return a row; its vector is told from its size."""
    vector = None if size is None else [float(size), 0.5, -1.0]
    return {"id": name, "size": size, "tags": tags, "vector": vector}


def table(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def ids(*names: str) -> pa.Array:
    return pa.array(names, pa.string())


class Stream:
    """Rows that come in batches, again from the start whenever somebody asks."""

    def __init__(self, *batches: pa.Table) -> None:
        self.schema = SCHEMA
        self._batches = batches
        self.started = 0

    def reader(self) -> pa.RecordBatchReader:
        self.started += 1
        found = [batch for one in self._batches for batch in one.to_batches()]
        return pa.RecordBatchReader.from_batches(self.schema, iter(found))


START = [doc("a", 1, ["x"]), doc("b", 2, []), doc("c", None)]


def make_docs(address: str, schema: pa.Schema = SCHEMA, **options: Any) -> GraphStore:
    """Make a graph with one empty table."""
    tables = {DOC: NewTable("Doc", "node", schema)}
    return GraphStore.create(address, schema=b"docs", tables=tables, durability="os", **options)


def rows(store: GraphStore, **at: Any) -> list[Row]:
    found: list[Row] = store.table(store.snapshot(**at), DOC).to_table().to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))
