"""Topology: the edges of one type in one version, as adjacency lists of ordinals.

    stored base (edges of large files, by their first places) - deleted edges + edges of other files

A base is opened, not built: it lies beside the edge table and depends on files alone (storage/derived/
adjacency.py). What a version adds or takes away is small, and so is the work after a write: deletion vectors
are compared, the ends of edges in new files are numbered once a file. A node that was updated lives in
another place than the base knows it by; `Places` says where.

Where there is no base that fits (a small graph, an older one), all edges are in the second part, which is
sorted in memory as a base of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.catalog.model import ENDPOINTS, ID
from omnigraph.execution.adjacency import Adjacency, SortedLists, is_among
from omnigraph.execution.columns import NOTHING, Ordinals, TableKey
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.execution.moved_nodes import DeletedRows, Homes, Places, files_of
from omnigraph.storage.derived.adjacency import Base, Cover, Files, Numbers
from omnigraph.storage.tables.layout import FragmentLayout

CACHE_BYTES = 2 << 30
BYTES_PER_EDGE = 40  # at most, while edges that no base covers are numbered and sorted
FEW_ENDS = 4_096  # ends of edges that are looked up one by one; more are joined with all ids
HOMES = 64
ENDS = ENDPOINTS
CHEAP = 200_000  # edges that are numbered without asking whether it is worth it
Ends = tuple[Ordinals, Ordinals, Ordinals]  # (source, target, edge), parallel


# -- one version -------------------------------------------------------------------------------------


class Topology:
    """All edges of a type in one version."""

    def __init__(
        self,
        tables: tuple[EntityTable, EntityTable, EntityTable],
        base: Base | None,
        places: tuple[Places, Places],
        deleted: Ends,
        settled: Ends,
        recent: Ends,
        repair: Callable[[Base], Base],
    ) -> None:
        edges, sources, targets = tables
        self.base = base
        self.covered = 0 if base is None else base.cover.rows  # edges below this number are in the base
        self.count = edges.rows
        self.source_span, self.target_span = sources.span, targets.span
        self.span = max(sources.span, targets.span)
        self.sources_at, self.targets_at = places
        self.deleted = deleted  # edges of the base and of settled files, by home
        self.deleted_edges = np.sort(deleted[2])
        self._settled = settled  # edges of settled files outside the base, by home
        self._recent = recent  # edges of small files, and those whose ends have no home, by where they live
        self._repair = repair

    def repair(self, damaged: Base) -> None:
        """Put what can be worked out from the tables in the place of a damaged file."""
        if self.base is damaged:
            self.base = self._repair(damaged)

    def settled_lists(self, *, forward: bool) -> SortedLists:
        """Return the edges of settled files that the base does not cover."""
        source, target, edge = self._settled
        return SortedLists.of(source, target, edge) if forward else SortedLists.of(target, source, edge)

    def recent_lists(self, *, forward: bool) -> SortedLists:
        """Return the edges of small files."""
        source, target, edge = self._recent
        return SortedLists.of(source, target, edge) if forward else SortedLists.of(target, source, edge)

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

    @property
    def edges(self) -> Numbers:
        """Every edge, by source; parallel to `sources` and `targets`."""
        return self.forward.flat_edges()[2]

    @property
    def targets(self) -> Numbers:
        """The target of each edge."""
        return self.forward.flat_edges()[1]

    @cached_property
    def sources(self) -> Numbers:
        """The source of each edge."""
        return np.repeat(np.arange(self.source_span, dtype=np.int32), np.diff(self.forward.flat()[0]))

    @cached_property
    def pairs(self) -> tuple[Numbers, Numbers]:
        """Each distinct (source, target) once, by source and then target."""
        offsets, targets = self.forward_pairs.flat()
        return np.repeat(np.arange(self.source_span, dtype=np.int32), np.diff(offsets)), targets

    @property
    def one_way(self) -> int:
        """Memory that a query over all edges takes, in one direction."""
        return 12 * self.count

    @property
    def nbytes(self) -> int:
        """Memory taken beside what versions share, once all lists are in use."""
        own = sum(column.nbytes for ends in (self._settled, self._recent, self.deleted) for column in ends)
        flat = (
            side for side in ("forward", "backward", "forward_pairs", "backward_pairs") if side in vars(self)
        )
        return 4 * own + sum(12 * self.count for side in flat if "_flat" in vars(getattr(self, side)))


class Topologies:
    """Topologies by the versions they are of; knows how much look-ups have cost without one."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._known = BoundedCache[tuple[TableKey, ...], Topology](limit, lambda topology: topology.nbytes)
        self._bases = BoundedCache[tuple[str, Cover], Base](limit, lambda base: base.nbytes)
        self._files = BoundedCache[Hashable, Ends](limit // 8, lambda ends: sum(c.nbytes for c in ends))
        self._homes = BoundedCache[Hashable, Homes](HOMES)
        self._places = BoundedCache[Hashable, Places](HOMES, lambda places: 1)
        self._deleted = DeletedRows()
        self._without: set[tuple[str, Cover]] = set()  # files for which no base was stored
        self._spent: dict[tuple[TableKey, ...], int] = {}
        self._lock = threading.Lock()
        self._building: dict[tuple[TableKey, ...], threading.Lock] = {}

    def known(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology | None:
        """Return the topology if it is here, or takes little to make."""
        key = (edges.key, sources.key, targets.key)
        topology = self._known.get(key)
        if topology is None:
            base = self._base(edges, sources, targets)
            covered = 0 if base is None else base.cover.rows
            if edges.settled_span - covered <= CHEAP:
                topology = self.get(edges, sources, targets)
        return topology

    def get(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology:
        """Return the topology, made once."""
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            topology = self._known.get(key)
            if topology is None:
                topology = self._known.put(key, self._made(edges, sources, targets))
        with self._lock:
            self._building.pop(key, None)
            self._spent.pop(key, None)
        return topology

    # -- making one ----------------------------------------------------------------------------------

    def _base(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Base | None:
        """Return the largest base that the files of a version begin with: made here before, or stored."""
        wanted = cover_of(edges, sources, targets)
        table_id = edges.key[0]
        made = self._bases.get((table_id, wanted))
        if made is not None:
            return made
        with self._lock:
            fitting = [base for base in self._bases.values() if base.cover.begins(wanted)]
        largest = max(fitting, key=lambda base: base.cover.rows, default=None)
        covered = 0 if largest is None else largest.cover.rows
        if wanted.rows > covered and (table_id, wanted) not in self._without:
            stored = edges.stored_base(wanted)
            if stored is None or stored.cover.rows <= covered:
                self._without.add(
                    (table_id, wanted)
                )  # whoever writes one later writes it for a later version
            else:
                largest = self._bases.put((table_id, stored.cover), stored)
        return largest

    def _made(self, edges: EntityTable, sources: EntityTable, targets: EntityTable) -> Topology:
        tables = (edges, sources, targets)
        base = self._base(*tables)
        covered = 0 if base is None else base.cover.rows
        if edges.settled_span - covered > CHEAP:
            cover = cover_of(*tables, settled=True)
            base = self._bases.put((edges.key[0], cover), edges.built_base(cover))
        places = (self._place(sources), self._place(targets))
        homes = (self._home(sources), self._home(targets))
        numbered = _Numbered(tables, places, homes, self._files, self._deleted)
        settled, loose = numbered.settled(0 if base is None else len(base.cover.edges))
        left_out = NOTHING if base is None else base.loose
        recent = numbered.recent([left_out, loose])
        deleted = numbered.deleted(left_out)
        return Topology(tables, base, places, deleted, settled, recent, self._repaired(edges))

    def _repaired(self, edges: EntityTable) -> Callable[[Base], Base]:
        def repair(damaged: Base) -> Base:
            built = edges.built_base(damaged.cover)
            self._bases.drop((edges.key[0], damaged.cover))
            return self._bases.put((edges.key[0], damaged.cover), built)

        return repair

    def _home(self, table: EntityTable) -> Homes:
        files = files_of([part for _, part in table.settled])
        return self._homes.get_or_make((table.key[0], files), lambda: Homes(files))

    def _place(self, table: EntityTable) -> Places:
        return self._places.get_or_make(table.key, lambda: Places.of(table, self._deleted))

    # -- memory and cost -----------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Memory taken; what several versions share counts once."""
        return self._known.weight + self._bases.weight + self._files.weight

    def shrink(self, size: int) -> None:
        """Let go of what was not used for longest, until so much is left."""
        self._known.shrink(size)
        self._files.shrink(size)
        self._bases.shrink(size)

    def spend(self, edges: EntityTable, sources: EntityTable, targets: EntityTable, price: int) -> int:
        """Add up what look-ups cost for want of a topology; return the sum."""
        key = (edges.key, sources.key, targets.key)
        with self._lock:
            self._spent[key] = self._spent.get(key, 0) + price
            return self._spent[key]


def cover_of(
    edges: EntityTable, sources: EntityTable, targets: EntityTable, *, settled: bool = False
) -> Cover:
    """Return the files that a base over the large (or all settled) files of a version is about."""

    def files(table: EntityTable) -> Files:
        return files_of([part for _, part in (table.settled if settled else table.large)])

    return Cover(sources.key[0], targets.key[0], files(edges), files(sources), files(targets))


class _Numbered:
    """Numbers the ends of edges that a version has beside its base, a file at a time."""

    def __init__(
        self,
        tables: tuple[EntityTable, EntityTable, EntityTable],
        places: tuple[Places, Places],
        homes: tuple[Homes, Homes],
        files: BoundedCache[Hashable, Ends],
        deleted: DeletedRows,
    ) -> None:
        self._edges, *self._ends = tables
        self._places = places
        self._homes = homes
        self._files = files
        self._deleted = deleted

    def settled(self, covered: int) -> tuple[Ends, Ordinals]:
        """Return the edges of settled files after those covered, by home; and those with an end without."""
        parts = [self._whole(number, part) for number, part in self._edges.settled[covered:]]
        source, target, edge = _together(parts)
        at_home = (source >= 0) & (target >= 0)
        return (source[at_home], target[at_home], edge[at_home]), edge[~at_home]

    def _whole(self, number: int, part: FragmentLayout) -> Ends:
        """Return the homes of the ends of all edges of a file, deleted or not."""

        def made() -> Ends:
            ends = [pa.chunked_array(self._edges.physical([part], name), pa.string()) for name in ENDS]
            source, target = (self._home(side, ends[side]) for side in (0, 1))
            return source, target, np.arange(len(source))

        source, target, edge = self._files.get_or_make(self._key(part), made)
        return source, target, edge + self._edges.start(number)

    def _key(self, part: FragmentLayout) -> Hashable:
        return (self._edges.key[0], part.key[1], *(homes.files for homes in self._homes))

    def _home(self, side: int, ids: pa.ChunkedArray) -> Ordinals:
        table = self._ends[side]
        if len(ids) <= FEW_ENDS:
            return self._homes[side].find(table, ids.combine_chunks())
        every = pa.chunked_array(table.physical([part for _, part in table.settled], ID), pa.string())
        found = pc.fill_null(pc.index_in(ids, value_set=every), MISSING)
        return np.asarray(found, dtype=np.int64)

    def recent(self, loose: Sequence[Ordinals]) -> Ends:
        """Return the edges of small files and those that lists leave out, by where their ends live."""
        ends: list[tuple[pa.Array, pa.Array, Ordinals]] = []
        for number, part in self._edges.parts[len(self._edges.settled) :]:
            source, target, offsets = self._edges.living_ends(number, part)
            ends.append((source, target, offsets + self._edges.start(number)))
        ends += self._edges.ends_at(np.concatenate([NOTHING, *loose]))
        return _together([(self._live(0, s), self._live(1, t), edges) for s, t, edges in ends])

    def _live(self, side: int, ids: pa.Array) -> Ordinals:
        homes = self._homes[side].find(self._ends[side], ids)
        places = self._places[side].places_of(homes)
        homeless = np.flatnonzero(homes == MISSING)
        if len(homeless):
            places = places.copy()
            places[homeless] = self._ends[side].find(ids.take(pa.array(homeless)))
        return places

    def deleted(self, left_out: Ordinals) -> Ends:
        """Return the edges of lists that the version has deleted, by home."""
        parts = []
        for number, part in self._edges.settled:
            if part.metadata.deletion_file is not None:
                rows = self._deleted.of(self._edges, number, part, ENDS)
                offsets = self._edges.deleted(number, part)
                source, target = (self._home(side, rows[name]) for side, name in enumerate(ENDS))
                numbers = offsets + self._edges.start(number)
                listed = (source >= 0) & (target >= 0) & ~is_among(numbers, left_out)
                parts.append((source[listed], target[listed], numbers[listed]))
        return _together(parts)


def _together(parts: Sequence[Ends]) -> Ends:
    if not parts:
        return NOTHING, NOTHING, NOTHING
    source, target, edge = (np.concatenate(column) for column in zip(*parts, strict=True))
    return source, target, edge
