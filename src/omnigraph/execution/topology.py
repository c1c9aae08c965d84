"""Topology: the edges of one type in one version, as adjacency lists of ordinals.

    stored base (edges of large files, by their first places) - deleted edges + edges of other files

A base is opened, not built: it lies beside the edge table and depends on files alone (storage/derived/
adjacency.py). What a version adds or takes away is small, and so is the work after a write (edge_layers.py).
A node that was updated lives in another place than the base knows it by; `Places` says where.

Where there is no base that fits (a small graph, an older one), a base of all settled files is worked out in
memory, once for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import cached_property

import numpy as np

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import LimitExceeded
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.execution.adjacency import Adjacency, Wide, count_in_lists, pair_keys, pair_of
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import NOTHING, Ordinals, TableKey
from omnigraph.execution.edge_layers import EdgeNumbering, Ends, NumberedFiles, SettledEdges, SortedLists
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.moved_nodes import Homes, MovedNodes, Places, files_of
from omnigraph.storage.derived.adjacency import Base, Cover, Files
from omnigraph.storage.derived.blocks import Unreadable, Unusable

CACHE_BYTES = 2 << 30
BYTES_PER_EDGE = 40  # at most, while edges that no base covers are numbered and sorted
SETS_OF_FILES = 16
OUTSIDE_SHARE = 50  # one node in so many may be outside the files of nodes that a base covers
CHEAP = 200_000  # edges that are numbered without asking whether it is worth it
LOOK_AGAIN_S = (
    30  # after which a base that was not stored is looked for again: a load derives after it publishes
)
VERSIONS = 1_024  # of which it is remembered what look-ups have cost
KEPT_FLAT = 2  # versions of one edge type that keep arrays over all edges
Tables = tuple[EntityTable, EntityTable, EntityTable]  # edges, sources, targets
VersionKey = tuple[TableKey, TableKey, TableKey]


# -- one version -------------------------------------------------------------------------------------


class Topology:
    """All edges of a type in one version."""

    def __init__(
        self,
        tables: Tables,
        base: Base | None,
        places: tuple[Places, Places],
        numbering: EdgeNumbering,
        repair: Callable[[Base], Base],
    ) -> None:
        edges, sources, targets = tables
        left_out = NOTHING if base is None else base.loose
        self.base = base
        self.count = edges.rows
        self.edge_span = edges.span
        self.source_span, self.target_span = sources.span, targets.span
        self.span = max(sources.span, targets.span)
        self.sources_at, self.targets_at = places
        self.settled: SettledEdges = numbering.settled
        self.gone: Ends = numbering.deleted(left_out)  # edges of the base and of settled files, by home
        self.recent: Ends = numbering.recent(left_out)  # by where their ends live
        self.grown: Callable[[], None] = lambda: None  # called when arrays over all edges were made
        self._repair = repair
        self._recent_lists: dict[bool, SortedLists] = {}
        self._gone_homes: dict[bool, Ordinals] = {}

    @property
    def deleted_edges(self) -> Ordinals:
        """The numbers of the edges that are in lists and deleted, ascending."""
        return self.gone.edge

    def repair(self, damaged: Base) -> None:
        """Put what can be worked out from the tables in the place of a damaged file."""
        if self.base is damaged:
            self.base = self._repair(damaged)

    def recent_lists(self, *, forward: bool) -> SortedLists:
        """Return the edges of small files, sorted by one end."""
        if forward not in self._recent_lists:
            self._recent_lists[forward] = SortedLists.of(self.recent, forward=forward)
        return self._recent_lists[forward]

    def gone_homes(self, *, forward: bool) -> Ordinals:
        """Return the homes of one end of the deleted edges, ascending."""
        if forward not in self._gone_homes:
            self._gone_homes[forward] = np.sort(self.gone.source if forward else self.gone.target)
        return self._gone_homes[forward]

    def edges_between(self, sources: Ordinals, targets: Ordinals) -> Ordinals:
        """Return how many edges the base and settled files have between homes, deleted ones among them."""
        return self.settled.edges_between(pair_keys(sources, targets), self._counted)

    def _counted(self, pairs: Ordinals) -> Ordinals:
        """Count the edges between pairs, in the lists of the nodes that more of the pairs have in common."""
        sources, targets = pair_of(pairs)
        counts = np.zeros(len(pairs), np.int64)
        if self.base is not None:
            base = self.base
            by_source = _times_there(sources) >= _times_there(targets)
            try:
                counts[by_source] = count_in_lists(base.forward, sources[by_source], targets[by_source])
                counts[~by_source] = count_in_lists(base.backward, targets[~by_source], sources[~by_source])
            except Unusable:
                self.repair(base)
                return self._counted(pairs)
        settled = self.settled.lists(forward=True)
        if len(settled.by):
            keys = pair_keys(settled.by, settled.others)
            counts += np.searchsorted(keys, pairs, "right") - np.searchsorted(keys, pairs, "left")
        return counts

    @cached_property
    def forward(self) -> Adjacency:
        """By source."""
        return Adjacency(self, forward=True, pairs=False)

    @cached_property
    def backward(self) -> Adjacency:
        """By target."""
        return Adjacency(self, forward=False, pairs=False)

    @cached_property
    def forward_pairs(self) -> Adjacency:
        """By source, each target once."""
        return Adjacency(self, forward=True, pairs=True)

    @cached_property
    def backward_pairs(self) -> Adjacency:
        """By target, each source once."""
        return Adjacency(self, forward=False, pairs=True)

    def every_edge(self) -> tuple[Wide, Wide, Wide]:
        """Return (source, target, edge) of all edges, by source."""
        offsets, targets, edges = self.forward.flat_edges()
        return _owners(offsets), targets, edges

    def every_pair(self) -> tuple[Wide, Wide]:
        """Return each distinct (source, target) once, by source and then target."""
        offsets, targets = self.forward_pairs.flat()
        return _owners(offsets), targets

    @property
    def one_way(self) -> int:
        """Memory that a query over all edges takes, in one direction."""
        return 12 * self.count

    @property
    def sides(self) -> list[Adjacency]:
        """The adjacencies that are in use."""
        names = ("forward", "backward", "forward_pairs", "backward_pairs")
        return [vars(self)[name] for name in names if name in vars(self)]

    @property
    def nbytes(self) -> int:
        """Memory taken beside what versions share: its own edges, sorted both ways, and arrays over all."""
        return 4 * (self.recent.nbytes + self.gone.nbytes) + sum(side.nbytes for side in self.sides)

    def drop_flat(self) -> None:
        """Let go of the arrays over all edges."""
        for side in self.sides:
            side.drop_flat()


def _times_there(numbers: Ordinals) -> Ordinals:
    """Return how often each of some numbers stands among them."""
    ascending = np.sort(numbers)
    return np.searchsorted(ascending, numbers, "right") - np.searchsorted(ascending, numbers, "left")


def _owners(offsets: Ordinals) -> Wide:
    return np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))


# -- all versions ------------------------------------------------------------------------------------


class Topologies:
    """Topologies by the versions they are of; knows how much look-ups have cost without one."""

    def __init__(self, limit: int = CACHE_BYTES, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known = BoundedCache[VersionKey, Topology](limit, lambda topology: topology.nbytes)
        self._bases = BoundedCache[tuple[str, Cover], Base](limit, lambda base: base.nbytes)
        self._files = NumberedFiles(limit // 4)
        self._homes = BoundedCache[Hashable, Homes](SETS_OF_FILES)
        self._moved = MovedNodes(limit // 16)
        self._without = BoundedCache[tuple[str, Cover], float](VERSIONS)  # when no base was stored for files
        self._flat: list[VersionKey] = []  # versions with arrays over all edges, the last one last
        self._spent: dict[VersionKey, int] = {}
        self._lock = threading.Lock()
        self._building: dict[VersionKey, threading.Lock] = {}

    def known(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology | None:
        """Return the topology if it is here, or takes little to make."""
        key = (edges.key, sources.key, targets.key)
        topology = self._known.get(key)
        if topology is None:
            base = self._cached_or_stored_base(edges, sources, targets)
            covered = 0 if base is None else base.cover.rows
            if edges.settled_span - covered <= CHEAP:
                topology = self._made_once((edges, sources, targets), base)
        return topology

    def get(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology:
        """Return the topology, made once."""
        known = self._known.get((edges.key, sources.key, targets.key))
        if known is not None:
            return known
        base = self._cached_or_stored_base(edges, sources, targets)
        return self._made_once((edges, sources, targets), base)

    def _made_once(self, tables: Tables, base: Base | None) -> Topology:
        """Return the topology; of several threads that want it, one makes it."""
        edges, sources, targets = tables
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        try:
            with building:
                topology = self._known.get(key)
                if topology is None:
                    topology = self._build_topology(tables, base)
                    topology.grown = lambda: self._has_grown(key)
                    self._known.put(key, topology)
                return topology
        finally:
            with self._lock:
                self._building.pop(key, None)
                self._spent.pop(key, None)

    def _has_grown(self, key: VersionKey) -> None:
        """Count arrays over all edges, and drop those of versions before: a write makes them again."""
        with self._lock:
            same_type = [each for each in self._flat if each[0][0] == key[0][0] and each != key]
            superseded = same_type[: 1 - KEPT_FLAT]
            self._flat = [each for each in self._flat if each not in superseded and each != key]
            self._flat = [*self._flat[-VERSIONS:], key]
        for each in superseded:
            topology = self._known.get(each)
            if topology is not None:
                topology.drop_flat()
                self._known.reweigh(each)
        self._known.reweigh(key)

    # -- making one ----------------------------------------------------------------------------------

    def _cached_or_stored_base(
        self, edges: EntityTable, sources: EntityTable, targets: EntityTable
    ) -> Base | None:
        """Return the largest base that a version's settled files begin with: worked out here, or stored."""
        table_id, settled = edges.key[0], cover_of(edges, sources, targets, settled=True)
        fitting = [
            base for key, base in self._bases.items() if key[0] == table_id and base.cover.begins(settled)
        ]
        largest = max(fitting, key=lambda base: base.cover.rows, default=None)
        covered = 0 if largest is None else largest.cover.rows
        wanted = cover_of(edges, sources, targets)
        if wanted.rows > covered and self._may_be_stored(table_id, wanted):
            stored = edges.stored_base(wanted)
            if stored is None or stored.cover.rows <= covered:
                self._without.drop((table_id, wanted))
                self._without.put((table_id, wanted), self._clock.monotonic())
            else:
                largest = self._bases.put((table_id, stored.cover), stored)
        return largest

    def _may_be_stored(self, table_id: str, wanted: Cover) -> bool:
        looked = self._without.get((table_id, wanted))
        return looked is None or self._clock.monotonic() - looked > LOOK_AGAIN_S

    def _build_topology(self, tables: Tables, base: Base | None) -> Topology:
        edges, sources, targets = tables
        covered = 0 if base is None else base.cover.rows
        if edges.settled_span - covered > CHEAP:
            base = self._built(edges, cover_of(*tables, settled=True))
        homes = (self._home(sources), self._home(targets))
        places = (self._moved.of(sources, homes[0]), self._moved.of(targets, homes[1]))
        numbering = EdgeNumbering(tables, base, places, homes, self._files)
        # A topology outlives the query that asked for it: it must not keep what that query holds.
        unbound = edges.under(Budget())

        def repair(damaged: Base) -> Base:
            self._bases.drop((unbound.key[0], damaged.cover))
            return self._built(unbound, damaged.cover)

        return Topology(tables, base, places, numbering, repair)

    def _built(self, edges: EntityTable, cover: Cover) -> Base:
        """Work out a base, and keep it."""
        try:
            base = edges.built_base(cover)
        except Unreadable:
            raise
        except Unusable as error:
            raise LimitExceeded(
                f"The edges of {edges.declared.name} cannot be listed: {error}",
                remedy="Ask for fewer nodes at a time, which are looked up one by one",
                resource="topology",
            ) from error
        return self._bases.put((edges.key[0], cover), base)

    def _home(self, table: EntityTable) -> Homes:
        files = files_of(table.settled_parts)
        return self._homes.get_or_make((table.key[0], files), lambda: Homes(files))

    # -- memory and cost -----------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Memory taken; what several versions share counts once."""
        return self._known.weight + self._bases.weight + self._files.nbytes + self._moved.nbytes

    def shrink(self, size: int) -> None:
        """Let go of what was not used for longest, until so much is left."""
        self._known.shrink(max(size - (self.nbytes - self._known.weight), 0))
        self._moved.shrink(max(size - (self.nbytes - self._moved.nbytes), 0))
        self._files.shrink(max(size - (self.nbytes - self._files.nbytes), 0))
        self._bases.shrink(max(size - (self.nbytes - self._bases.weight), 0))

    def spend(self, edges: EntityTable, sources: EntityTable, targets: EntityTable, price: int) -> int:
        """Add up what look-ups cost for want of a topology; return the sum."""
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            spent = self._spent[key] = self._spent.pop(key, 0) + price
            if len(self._spent) > VERSIONS:
                del self._spent[next(iter(self._spent))]
            return spent


def cover_of(
    edges: EntityTable, sources: EntityTable, targets: EntityTable, *, settled: bool = False
) -> Cover:
    """Return the files that a base is about: large files of edges, or all settled ones; and those of nodes.

    Of nodes, large files alone where they have nearly all rows, since only maintenance rewrites these; else
    settled files as well, or most edges would be in no list.
    """

    def node_files(table: EntityTable) -> Files:
        few_outside = (table.settled_span - table.start_of_rest) * OUTSIDE_SHARE <= table.settled_span
        return files_of([part for _, part in (table.large if few_outside and not settled else table.settled)])

    edge_parts = edges.settled if settled else edges.large
    edge_files = files_of([part for _, part in edge_parts])
    return Cover(sources.key[0], targets.key[0], edge_files, node_files(sources), node_files(targets))
