"""Plan: what an export is made of, decided once.

    **plan** -> rows -> files -> destination -> report

The only place that asks where a branch stands; every engine exports what it says.

Given   a store, a state of the graph, names of types.
Gives   one pinned snapshot, and the types in order: nodes by name, then edges by name.
Rule    an export is in the schema of its commit, not in that of today: what is loaded into a graph of that
        schema is equal to what was exported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import At
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

Format = Literal["parquet", "jsonl"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class ExportPlan:
    """Some types of one commit."""

    snapshot: PinnedSnapshot
    catalog: Catalog
    types: tuple[TableType, ...]

    def rows_of(self, declared: TableType) -> int:
        """Return how many entities a type has."""
        return self.snapshot.pin(declared.table_id).rows

    @property
    def rows(self) -> int:
        """How many entities there are in all."""
        return sum(map(self.rows_of, self.types))


def plan_export(
    store: GraphStore, types: Iterable[str] | None = None, branch: str = "main", at: At | None = None
) -> ExportPlan:
    """Pin a state and choose types of it; all of them unless some are named."""
    snapshot = resolve(store, branch, at)
    catalog = Catalogs(store.schemas).get(snapshot.schema)
    if types is None:
        return ExportPlan(snapshot, catalog, catalog.tables)
    if isinstance(types, str):
        raise InvalidRequest(f"types={types!r} is one text", remedy="Give a list of names")
    chosen = {catalog.named(name).id for name in types}
    return ExportPlan(snapshot, catalog, tuple(t for t in catalog.tables if t.id in chosen))


def check_format(format: str) -> Format:
    """Return a format that there is."""
    for known in FORMATS:
        if format == known:
            return known
    raise InvalidRequest(
        f"there is no export format {format!r}", remedy=f"The formats are {', '.join(FORMATS)}", format=format
    )


def columns_of(declared: TableType) -> dict[str, str]:
    """Return the names of a type's columns, and where each is stored: id, ends, then properties."""
    fixed = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    return {name: name for name in fixed} | {p.name: p.column for p in declared.properties}


def schema_of(declared: TableType) -> pa.Schema:
    """Return the columns of a type under their names, in the types that are declared."""
    stored = declared.stored_schema
    return pa.schema([pa.field(name, stored.field(at).type) for name, at in columns_of(declared).items()])
