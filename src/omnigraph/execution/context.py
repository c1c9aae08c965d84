"""Context: everything one run of a query may touch, and the caches that outlive it.

A run has one snapshot and the values of its parameters; nothing resolves a branch again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.ids import Clock
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, TableType
from omnigraph.catalog.query.expressions import Values
from omnigraph.execution.arrays import keep_freed_memory
from omnigraph.execution.budget import MEMORY_BYTES, Budget
from omnigraph.execution.columns import ColumnCache
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search.embedding import Embeddings
from omnigraph.execution.search.search_cache import Search
from omnigraph.execution.topology import BYTES_PER_EDGE, Topologies, Topology
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.tables.reads import TableReads
from omnigraph.storage.transaction import PinnedSnapshot

Traversal = Literal["auto", "lookup", "csr"]
TABLES = 256


@dataclass(eq=False)
class Caches:
    """What outlives a query: columns, topologies and texts, by immutable table versions."""

    columns: ColumnCache
    topologies: Topologies
    search: Search
    limit: int
    tables: dict[tuple[str, int], EntityTable] = field(default_factory=dict)

    @classmethod
    def within(cls, limit: int = MEMORY_BYTES, clock: Clock | None = None) -> Caches:
        """Make empty caches that together take no more than so many bytes."""
        keep_freed_memory()
        quarter = limit // 4
        return cls(ColumnCache(quarter), Topologies(quarter, clock), Search(quarter), limit)

    @property
    def nbytes(self) -> int:
        """How much the caches have."""
        return self.columns.nbytes + self.search.nbytes + self.topologies.nbytes

    def make_room(self, needed: int) -> None:
        """Let go of as much as it takes for `needed` bytes beside the caches."""
        self.keep_at_most(max(self.limit - needed, 0))

    def keep_at_most(self, size: int) -> None:
        """Let go of what is beyond so many bytes, topologies last."""
        for cache in (self.columns, self.search, self.topologies):
            over = self.nbytes - size
            if over <= 0:
                return
            cache.shrink(max(cache.nbytes - over, 0))

    def table(self, declared: TableType, pin: Pin, reads: TableReads) -> EntityTable:
        """Return a table at a version; `declared` is the type as that version has it."""
        key = (pin.table_id, pin.version)
        table = self.tables.get(key)
        if table is None or table.declared is not declared:  # other names may have come since
            if len(self.tables) >= TABLES:
                self.tables.clear()  # cheap to make again
            table = EntityTable(declared, pin.table_id, pin.version, reads, self.columns)
            self.tables[key] = table
        return table


@dataclass
class Context:
    """One run."""

    snapshot: PinnedSnapshot
    catalog: Catalog  # whose names the query uses, with the types and columns of the snapshot
    reads: TableReads
    caches: Caches
    values: Values
    now_ms: int
    embeddings: Embeddings
    budget: Budget = field(default_factory=Budget)
    traversal: Traversal = "auto"
    note: Callable[[str], None] = lambda _: None  # what was chosen on the way, for explain and profile
    _tables: dict[str, EntityTable] = field(default_factory=dict)

    def table(self, type_id: str) -> EntityTable:
        """Return a type's rows in the snapshot."""
        table = self._tables.get(type_id)
        if table is None:
            pin = self.snapshot.pin(type_id)
            table = self.caches.table(self.catalog.table(type_id), pin, self.reads).under(self.budget)
            self._tables[type_id] = table
        return table

    def ends(self, edge: EdgeType) -> tuple[EntityTable, EntityTable, EntityTable]:
        """Return the tables of an edge type and of its two ends."""
        return self.table(edge.id), self.table(edge.source), self.table(edge.target)

    def topology(self, edge: EdgeType) -> Topology:
        """Return the topology of an edge type; refused if there is no room to build it."""
        held: Topology | None = self.budget.held(edge.id)
        if held is not None:
            return held
        edges, sources, targets = self.ends(edge)
        topology = self.caches.topologies.known(edges, sources, targets)
        if topology is None:
            self.budget.check_bytes(edges.rows * BYTES_PER_EDGE, f"building the topology of {edge.name}")
            topology = self.caches.topologies.get(edges, sources, targets)
        self.budget.hold(edge.id, topology, topology.one_way, f"the topology of {edge.name}")
        return topology

    def rows(self, type_id: str) -> int:
        """Return how many rows a type has, without opening it."""
        return self.snapshot.pin(type_id).rows
