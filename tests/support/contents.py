"""Graphs for engine tests: rows written under the names of the schema in force, and whole states as values.

Room    tests. Also imported by spawned processes: no pytest here.
Why     `Insert` stands for any data write: it looks its type up in the schema of its base, so that after a
        lost race it is prepared again under whatever schema is accepted then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph import Graph
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.keys import derive_id
from omnigraph.catalog.model import NodeType, TableType
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, Effect
from omnigraph.storage.transaction import PlannedWrite, PublishPlan, PublishReceipt, WriteTxn

if TYPE_CHECKING:  # a spawned process has no use for pytest
    from tests.support.places import Place
    from tests.support.s3 import S3Server

Record = Mapping[str, Any]
Rows = Mapping[str, Sequence[Record]]  # by type name, then by property name
SURE = {"id", "src", "dst"}


def catalog_of(store: GraphStore, digest: str) -> Catalog:
    """Return the catalog of a schema hash, past any cache of the engine."""
    return Catalog.from_json(store.schemas.get(digest))


def type_of(catalog: Catalog, name: str) -> TableType:
    """Return the node or edge type of a name."""
    return catalog.find_node(name) or catalog.edge(name)


def stored_rows(declared: TableType, records: Sequence[Record]) -> pa.Table:
    """Return records as the table of their type holds them; what a record leaves out is null."""
    names = {field.name: field.name for field in declared.stored_schema if field.name in SURE}
    names |= {p.column: p.name for p in declared.properties}
    columns = {
        column: [_id(declared, one) if column == "id" else one.get(name) for one in records]
        for column, name in names.items()
    }
    schema = declared.stored_schema
    return pa.table({f.name: pa.array(columns[f.name], f.type) for f in schema}, schema=schema)


def _id(declared: TableType, record: Record) -> str:
    if isinstance(declared, NodeType) and declared.key:
        return derive_id(declared, {p.column: record.get(p.name) for p in declared.properties})
    return str(record["id"])


@dataclass(frozen=True)
class Insert:
    """A data write: new rows of any types."""

    store: GraphStore
    rows: Rows

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Lay the rows out as the base's schema has them, in the order of the base's columns."""
        catalog = catalog_of(self.store, txn.snapshot.schema)
        effects: dict[str, Effect] = {}
        for name, records in self.rows.items():
            declared = type_of(catalog, name)
            effects[declared.table_id] = Append(stored_rows(declared, records))
        return PublishPlan(CommitKind.MUTATION, effects=effects)

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Accept."""


def insert(graph: Graph, rows: Rows, branch: str = "main") -> PublishReceipt:
    """Write rows as one commit."""
    return graph.store.publish(branch, Insert(graph.store, rows))


def change(
    graph: Graph, type_name: str, effect: Effect, branch: str = "main", at: str | None = None
) -> PublishReceipt:
    """Publish one effect on the table of a type."""
    table = type_of(graph.schema.catalog(branch, at), type_name).table_id
    plan = PublishPlan(CommitKind.MUTATION, effects={table: effect})
    return graph.store.publish(branch, PlannedWrite(plan))


def read(graph: Graph, name: str, **where: Any) -> list[dict[str, Any]]:
    """Return the rows of a type by id, without the ids of keyed nodes."""
    if graph.schema.catalog(where.get("branch", "main")).find_node(name) is not None:
        return list(graph.nodes(name, **where).to_arrow().to_pylist())
    return list(graph.edges(name, **where).to_arrow().to_pylist())


@dataclass(frozen=True)
class BranchState:
    """Everything that a branch shows."""

    head: str
    version: int
    source: str
    rows: dict[str, list[dict[str, Any]]]


def state(graph: Graph, branch: str = "main") -> BranchState:
    """Return what a branch shows, as a value to compare with."""
    head = graph.store.snapshot(branch)
    catalog = graph.schema.catalog(branch)
    rows = {t.name: read(graph, t.name, branch=branch) for t in catalog.tables}
    return BranchState(head.commit_id, head.state.version, catalog.source, rows)


def check_whole(graph: Graph, branch: str = "main", at: str | None = None) -> None:
    """Assert that schema and tables are of one commit: same types, same names, same columns."""
    snapshot = graph.store.snapshot(branch, at=at)
    catalog = catalog_of(graph.store, snapshot.schema)
    pins = snapshot.state.pins
    assert {t.table_id: t.name for t in catalog.tables} == {i: pin.name for i, pin in pins.items()}
    for declared in catalog.tables:
        handle = graph.store.table(snapshot, declared.table_id)
        stored = {field.name: field.type for field in handle.schema}
        assert stored == {field.name: field.type for field in declared.stored_schema}, declared.name
        assert handle.count_rows() == pins[declared.table_id].rows


def objects_at(place: Place, server: S3Server | None = None) -> dict[str, int]:
    """Return every stored object of a graph with its size."""
    if not place.address.startswith("s3://"):
        root = Path(place.address)
        return {str(p.relative_to(root)): p.stat().st_size for p in root.rglob("*") if p.is_file()}
    assert server is not None
    bucket, _, prefix = place.address.removeprefix("s3://").partition("/")
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
    return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
