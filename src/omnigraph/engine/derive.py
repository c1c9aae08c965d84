"""Derive: complete what lies beside the tables of a branch, so that nobody has to work it out to read.

    what a snapshot pins -> what its files lack -> **key hashes and adjacency, written beside them**

Loads do it for what they wrote, `ensure_indexes` for everything, damaged files included. Nothing here is a
commit: the files are derived from data files that never change, and whoever lacks one does without.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pyarrow as pa

from omnigraph.base.errors import GraphError
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType
from omnigraph.execution.columns import ColumnCache
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.topology import cover_of
from omnigraph.storage.derived.adjacency import ByHash, Cover, Files
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.key_hashes import KeyHashes
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.layout import FragmentLayout
from omnigraph.storage.transaction import PinnedSnapshot

UNCOVERED_SHARE = 50  # one edge in so many may lie outside the stored adjacency before it is made anew


ADJACENCY = "adjacency"  # as reports call it
FAILURES = (Unusable, OSError, GraphError, pa.ArrowException)  # nobody needs what could not be written


Told = Callable[[int, int], None]  # how many tables are done, and of how many


def complete(
    store: GraphStore,
    catalog: Catalog,
    snapshot: PinnedSnapshot,
    tables: Collection[str] | None = None,
    told: Told = lambda done, total: None,
) -> dict[str, tuple[str, ...]]:
    """Write all that files of a snapshot lack; return what, by type id: columns, and `adjacency`.

    `tables` are the tables to look at; None means all. `told` is called after each; an edge counts twice.
    """
    total = sum(tables is None or declared.id in tables for declared in (*catalog.tables, *catalog.edges))
    steps = count(1)

    def done() -> None:
        told(next(steps), total)

    written = complete_key_hashes(store, catalog, snapshot, tables, done)
    for edge in catalog.edges:
        if tables is None or edge.id in tables:
            with suppress(*FAILURES):
                store.reads.bases.drop_damaged(edge.id)
    for type_id in complete_adjacency(store, catalog, snapshot, tables, done):
        written[type_id] = (*written.get(type_id, ()), ADJACENCY)
    return written


def complete_adjacency(
    store: GraphStore,
    catalog: Catalog,
    snapshot: PinnedSnapshot,
    tables: Collection[str] | None = None,
    done: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Write the adjacency of edge types whose files have outgrown it; return their ids.

    `tables` are the edge tables to look at; None means all.
    """
    built = []
    for edge in catalog.edges:
        if tables is None or edge.id in tables:
            with suppress(*FAILURES):
                if _complete(store, catalog, snapshot, edge):
                    built.append(edge.id)
            done()
    return tuple(sorted(built))


def _complete(store: GraphStore, catalog: Catalog, snapshot: PinnedSnapshot, edge: EdgeType) -> bool:
    edges, sources, targets = (
        _table(store, catalog, snapshot, t) for t in (edge.id, edge.source, edge.target)
    )
    cover = cover_of(edges, sources, targets)
    stored = edges.stored_base(cover)
    covered = 0 if stored is None else stored.cover.rows
    if cover.rows - covered <= cover.rows // UNCOVERED_SHARE:
        return False
    base = edges.built_base(cover, _hash_join(store, cover, edges, sources, targets))
    return store.reads.bases.write(edge.id, base)


def _hash_join(
    store: GraphStore, cover: Cover, edges: EntityTable, sources: EntityTable, targets: EntityTable
) -> ByHash | None:
    """Return the quick way to number the ends of edges, where it is exact."""
    if any(part.metadata.deletion_file is not None for _, part in edges.large):
        return None
    handles = {table.key[0]: table.handle for table in (edges, sources, targets)}

    def keys(table_id: str, data_file: str, column: str, rows: int) -> KeyHashes | None:
        return store.finder.stored_hashes(handles[table_id], data_file, column, rows)

    outside = (_outside(sources, cover.sources), _outside(targets, cover.targets))
    try:
        return ByHash.of(store.finder.files, keys, edges.key[0], cover, outside)
    except Unusable:
        return None


def _outside(nodes: EntityTable, covered: Files) -> pa.Array:
    """Return the ids of the living nodes that the files covered do not have: these come first."""
    every = nodes.every()
    return nodes.take(ID, every[every >= sum(rows for _, rows in covered)])


def complete_key_hashes(
    store: GraphStore,
    catalog: Catalog,
    snapshot: PinnedSnapshot,
    tables: Collection[str] | None = None,
    done: Callable[[], None] = lambda: None,
) -> dict[str, tuple[str, ...]]:
    """Write the key hashes that files of a snapshot lack; return the columns, by type id."""
    written = {}
    for declared in catalog.tables:
        if tables is not None and declared.id not in tables:
            continue
        with suppress(*FAILURES), ThreadPoolExecutor(2) as pool:
            table = _table(store, catalog, snapshot, declared.id)
            columns = store.finder.complete(table.handle, _with_hashes(table), pool, declared.looked_up)
            if columns:
                written[declared.id] = columns
        done()
    return written


def lacking_key_hashes(
    store: GraphStore, catalog: Catalog, snapshot: PinnedSnapshot
) -> dict[tuple[str, int], dict[int, int]]:
    """Return the fragments that lack key hashes, with their rows, by table and version."""
    lacking = {}
    for declared in catalog.tables:
        with suppress(*FAILURES):
            table = _table(store, catalog, snapshot, declared.id)
            parts = store.finder.lacking(table.handle, _with_hashes(table), declared.looked_up)
            if parts:
                lacking[table.key] = {part.metadata.id: int(part.metadata.physical_rows) for part, _ in parts}
    return lacking


def _with_hashes(table: EntityTable) -> list[FragmentLayout]:
    """Return the fragments that have key hashes; of smaller ones the rows are read."""
    return [part for _, part in table.parts if part.was_settled]


def _table(store: GraphStore, catalog: Catalog, snapshot: PinnedSnapshot, type_id: str) -> EntityTable:
    version = snapshot.pin(type_id).version
    return EntityTable(catalog.table(type_id), type_id, version, store.reads, ColumnCache())
