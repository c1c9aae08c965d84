"""Topology: the edges of one type as adjacency lists of dense numbers.

Built from one version of an edge table and of its endpoint tables, so it never changes; cached by those
versions, which branches share as long as they pin the same. Building one reads both ends of every edge and
sorts them twice, which is worth it for large or deep traversals (expand.py decides). It takes four arrays of
32-bit numbers for each direction used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.execution.entities import EntityTable, Ordinals, TableKey
from omnigraph.storage.tables.layout import ADDRESS

CACHE_BYTES = 2 << 30
STRETCH = 2_000_000  # edges numbered at a time
BYTES_PER_EDGE = 40  # at most, while one is built and sorted
Numbers = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Adjacency:
    """For each node, the edges on one side of it and the nodes at their other end."""

    offsets: NDArray[np.int64]
    edges: Numbers
    others: Numbers

    def of(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return (position in `nodes`, edge, other node) of every edge of these nodes."""
        starts = self.offsets[nodes]
        counts = self.offsets[nodes + 1] - starts
        total = int(counts.sum())
        places = np.repeat(np.arange(len(nodes)), counts)
        before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(nodes) else np.zeros(0, np.int64)
        at = np.arange(total) - np.repeat(before - starts, counts)
        return places, self.edges[at].astype(np.int64), self.others[at].astype(np.int64)

    def degrees(self) -> NDArray[np.int64]:
        """Return how many edges each node has on this side."""
        return np.diff(self.offsets)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.offsets.nbytes + self.edges.nbytes + self.others.nbytes)


@dataclass(frozen=True, eq=False)
class Topology:
    """All edges of a type: `edges`, `sources` and `targets` are parallel, one entry for each edge."""

    edges: Numbers
    sources: Numbers
    targets: Numbers
    source_span: int
    target_span: int

    @cached_property
    def forward(self) -> Adjacency:
        """By source."""
        return _adjacency(self.sources, self.targets, self.edges, self.source_span)

    @cached_property
    def backward(self) -> Adjacency:
        """By target."""
        return _adjacency(self.targets, self.sources, self.edges, self.target_span)

    @cached_property
    def pairs(self) -> tuple[Numbers, Numbers]:
        """Each distinct (source, target) once, by source and then target."""
        keys = self.sources.astype(np.int64) * max(self.target_span, 1) + self.targets
        keys.sort()
        distinct = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
        sources, targets = np.divmod(distinct, max(self.target_span, 1))
        return sources.astype(np.int32), targets.astype(np.int32)

    @cached_property
    def forward_pairs(self) -> Adjacency:
        """By source, each target once."""
        sources, targets = self.pairs  # in this order already
        return Adjacency(_offsets(sources, self.source_span), targets, targets)

    @cached_property
    def backward_pairs(self) -> Adjacency:
        """By target, each source once."""
        sources, targets = self.pairs
        return _adjacency(targets, sources, sources, self.target_span)

    @property
    def one_way(self) -> int:
        """Memory taken while one direction is in use."""
        return 2 * int(self.edges.nbytes + self.sources.nbytes + self.targets.nbytes)

    @property
    def nbytes(self) -> int:
        """Memory taken once both directions are in use, each edge and each pair."""
        return 2 * self.one_way


def build(edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology:
    """Read both ends of every edge and number them, a stretch at a time: text takes far more room."""
    source_ids = sources.column(ID)
    target_ids = source_ids if targets.key == sources.key else targets.column(ID)
    numbered: list[tuple[Numbers, Numbers, Numbers]] = []
    with ThreadPoolExecutor(2) as pool:  # Arrow looks ids up without holding the interpreter
        for part in _stretches(edges):
            ends = [
                pool.submit(_numbered, part["src"], source_ids),
                pool.submit(_numbered, part["dst"], target_ids),
            ]
            numbers = edges.ordinals(part[ADDRESS].to_numpy()).astype(np.int32)
            numbered.append((numbers, ends[0].result(), ends[1].result()))
    columns = [np.concatenate(column) for column in zip(*numbered, strict=True)]
    if not columns:
        columns = [np.zeros(0, np.int32)] * 3
    return Topology(columns[0], columns[1], columns[2], sources.span, targets.span)


def _stretches(edges: EntityTable) -> Iterator[pa.Table]:
    scanner = edges.handle.scanner(columns=["src", "dst"], with_row_address=True, scan_in_order=True)
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in scanner.to_batches():
        held.append(batch)
        rows += batch.num_rows
        if rows >= STRETCH:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _numbered(ends: pa.ChunkedArray, ids: pa.Array) -> Numbers:
    places = pc.index_in(ends, value_set=ids)
    return np.concatenate([chunk.to_numpy(zero_copy_only=False) for chunk in places.chunks]).astype(np.int32)


def _adjacency(by: Numbers, others: Numbers, edges: Numbers, span: int) -> Adjacency:
    order = np.argsort(by, kind="stable")
    return Adjacency(_offsets(by, span), edges[order], others[order])


def _offsets(by: Numbers, span: int) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(by, minlength=span))]).astype(np.int64)


class Topologies:
    """Topologies by the versions they were built from; knows how much look-ups have cost without one."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._known = BoundedCache[tuple[TableKey, ...], Topology](limit, lambda topology: topology.nbytes)
        self._spent: dict[tuple[TableKey, ...], int] = {}
        self._lock = threading.Lock()
        self._building: dict[tuple[TableKey, ...], threading.Lock] = {}

    def known(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology | None:
        """Return the topology if it was built before."""
        return self._known.get((edges.key, sources.key, targets.key))

    def get(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology:
        """Return the topology, building it once."""
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            topology = self.known(edges, sources, targets)
            if topology is None:
                topology = build(edges, sources, targets)
                self._keep(key, topology)
        return topology

    def _keep(self, key: tuple[TableKey, ...], topology: Topology) -> None:
        self._known.put(key, topology)
        with self._lock:
            self._building.pop(key, None)
            self._spent.pop(key, None)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._known.weight

    def shrink(self, size: int) -> None:
        """Let go of the topologies that were not used for longest, until so much is left."""
        self._known.shrink(size)

    def spend(self, edges: EntityTable, sources: EntityTable, targets: EntityTable, price: int) -> int:
        """Add up what look-ups cost for want of a topology; return the sum."""
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            self._spent[key] = self._spent.get(key, 0) + price
            return self._spent[key]
