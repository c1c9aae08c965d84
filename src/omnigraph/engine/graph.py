"""Graph: the façade. Small doors, no logic of its own.

Room    engine. What `og.init` and `og.connect` return for an embedded graph; thread-safe, a context manager.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType

from omnigraph.base.ids import new_id
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import TableType
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.schema.door import SchemaDoor, SchemaText, load_schema
from omnigraph.engine.table import TableView
from omnigraph.storage.durability import Durability
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable


class Graph:
    """One open graph."""

    def __init__(self, store: GraphStore) -> None:
        self.store = store
        self._catalogs = Catalogs(store.schemas)
        self.schema = SchemaDoor(store, self._catalogs)

    @property
    def uri(self) -> str:
        """Where the graph is."""
        return self.store.location.uri

    def nodes(self, name: str, *, branch: str = "main", at: str | int | None = None) -> TableView:
        """Return the nodes of a type, now or at a past commit, under the names of the schema in force now."""
        current = self.schema.catalog(branch).node(name)
        return self._view(current, branch, at)

    def edges(self, name: str, *, branch: str = "main", at: str | int | None = None) -> TableView:
        """Return the edges of a type, like `nodes`."""
        current = self.schema.catalog(branch).edge(name)
        return self._view(current, branch, at)

    def close(self) -> None:
        """Release the graph's threads and handles."""
        self.store.close()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _view(self, current: TableType, branch: str, at: str | int | None) -> TableView:
        snapshot = self.store.snapshot(branch, at=at)
        return TableView(self.store, snapshot, current, self._catalogs.get(snapshot.schema))


def init(
    address: str | os.PathLike[str],
    schema: SchemaText,
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    actor: str | None = None,
    force: bool = False,
) -> Graph:
    """Make a graph with a schema (a `.pg` file, or schema text)."""
    catalog = resolve(load_schema(schema), None, IdMinter(new_id())).catalog
    tables = {t.id: NewTable(t.name, t.kind.value, t.stored_schema) for t in catalog.tables}
    store = GraphStore.create(
        address,
        schema=catalog.to_json(),
        tables=tables,
        storage_options=storage_options,
        durability=durability,
        actor=actor,
        force=force,
    )
    return Graph(store)


def connect(
    address: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
) -> Graph:
    """Open a graph that exists; reads two small objects, writes nothing."""
    return Graph(GraphStore.open(address, storage_options=storage_options, durability=durability))
