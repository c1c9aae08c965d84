"""Documents for search tests: a graph of one type with a text and a vector, changed through real writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph import Graph
from omnigraph.catalog.model import ID
from omnigraph.execution.columns import ColumnCache, Ordinals
from omnigraph.execution.entities import EntityTable
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from tests.support.contents import change, stored_rows

SCHEMA = """
node Doc {
    text: String?
    kind: enum(note, report)?
    size: I64?
    embedding: Vector(4)?
}
"""
Record = Mapping[str, Any]


class Documents:
    """A graph with one type of documents."""

    def __init__(self, path: Path, schema: str = SCHEMA) -> None:
        self.graph: Graph = og.init(path, schema, durability="os")

    def put(self, records: Iterable[Record], branch: str = "main") -> None:
        """Insert or replace documents by id, as one commit."""
        declared = self.graph.schema.catalog(branch).node("Doc")
        change(self.graph, "Doc", Upsert(stored_rows(declared, list(records))), branch)

    def delete(self, ids: Sequence[str], branch: str = "main") -> None:
        """Delete documents by id, as one commit."""
        change(self.graph, "Doc", DeleteIds(pa.array(ids, pa.string())), branch)

    def table(self, branch: str = "main", at: str | None = None) -> EntityTable:
        """Return the documents as queries see them, with cold caches."""
        snapshot = self.graph.store.snapshot(branch, at=at)
        declared = self.graph.schema.catalog(branch).node("Doc")
        pin = snapshot.pin(declared.id)
        return EntityTable(declared, pin.table_id, pin.version, self.graph.store.reads, ColumnCache())


def ids(table: EntityTable, ordinals: Ordinals) -> list[str]:
    """Return the ids of entities, in their order."""
    return [str(one) for one in table.take(ID, ordinals).to_pylist()]


def places(table: EntityTable, wanted: Sequence[str]) -> Ordinals:
    """Return the ordinals of ids."""
    return table.find(pa.array(wanted, pa.string()))


def texts(table: EntityTable, column: str = "text") -> dict[str, str | None]:
    """Return the text of each document by its id."""
    every = table.every()
    return dict(zip(ids(table, every), table.take(column, every).to_pylist(), strict=True))


def by_id(table: EntityTable, ordinals: Ordinals, values: Any) -> dict[str, float]:
    """Return values by the ids of their entities."""
    return dict(zip(ids(table, ordinals), np.asarray(values).tolist(), strict=True))
