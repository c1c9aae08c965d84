"""Edge layers: the edges that a version has beside its base, and those that it has lost.

    settled   edges of settled files that the base does not cover: sorted once for these files
    deleted   edges of the base and of settled files that the version has deleted
    recent    edges of small files, and those with an end that has no home

What is known of a file is kept for all versions that hold it, and of deleted edges what was known of the
version before: a version costs what it changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from weakref import ReferenceType, ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ENDPOINTS
from omnigraph.execution.arrays import in_sorted, repeated, sorted_distinct
from omnigraph.execution.columns import NOTHING, Ordinals
from omnigraph.execution.degrees import SharedDegrees
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.execution.moved_nodes import Homes, Places
from omnigraph.storage.derived.adjacency import Base, BaseSide
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.tables.layout import FragmentLayout

LISTED_PER_EDGE = (
    64  # entries of the lists of deleted nodes that are looked through for a deleted edge, at most
)


@dataclass(frozen=True, eq=False)
class Ends:
    """Edges: source, target and number, parallel."""

    source: Ordinals
    target: Ordinals
    edge: Ordinals

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.source.nbytes + self.target.nbytes + self.edge.nbytes

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ends:
        """Return some of them."""
        return Ends(self.source[chosen], self.target[chosen], self.edge[chosen])


NO_EDGES = Ends(NOTHING, NOTHING, NOTHING)


def concatenated(parts: Sequence[Ends]) -> Ends:
    """Return the edges of several parts, in their order."""
    if len(parts) <= 1:
        return parts[0] if parts else NO_EDGES
    return Ends(*(np.concatenate([getattr(p, side) for p in parts]) for side in ("source", "target", "edge")))


@dataclass(frozen=True, eq=False)
class SortedLists:
    """Some edges by one of their ends: `by` ascends, and for equal ones `others` does."""

    by: Ordinals
    others: Ordinals
    edges: Ordinals

    @classmethod
    def of(cls, ends: Ends, *, forward: bool) -> SortedLists:
        """Sort edges by one end, then by the other."""
        by, others = (ends.source, ends.target) if forward else (ends.target, ends.source)
        order = np.lexsort((others, by))
        return cls(by[order], others[order], ends.edge[order])

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.by.nbytes + self.others.nbytes + self.edges.nbytes

    def spans(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Return where the lists of some nodes begin and end."""
        return np.searchsorted(self.by, nodes, "left"), np.searchsorted(self.by, nodes, "right")


class SettledEdges:
    """Edges of settled files that a base does not cover, by home, deleted ones too; versions share them."""

    def __init__(self, ends: Ends, loose: Ordinals) -> None:
        self.ends = ends
        self.loose = loose  # edges of these files with an end that has no home
        self.grown: Callable[[], None] = lambda: None
        self._lists: dict[bool, SortedLists] = {}
        # By side, and by the base they count; the caches decide how long that one stays.
        self._degrees: dict[tuple[bool, bool], tuple[ReferenceType[Base] | None, SharedDegrees]] = {}
        self._between: tuple[Ordinals, Ordinals] = (NOTHING, NOTHING)  # pairs, ascending, and their edges

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        lists = sum(lists.nbytes for lists in tuple(self._lists.values()))  # other threads may add one
        degrees = sum(shared.nbytes for _, shared in tuple(self._degrees.values()))
        between = sum(column.nbytes for column in self._between)
        return self.ends.nbytes + self.loose.nbytes + lists + degrees + between

    def lists(self, *, forward: bool) -> SortedLists:
        """Return the edges, sorted by one end."""
        if forward not in self._lists:
            self._lists[forward] = SortedLists.of(self.ends, forward=forward)
            self.grown()
        return self._lists[forward]

    def degrees(
        self, base: Base | None, make: Callable[[], SharedDegrees], *, forward: bool, pairs: bool
    ) -> SharedDegrees:
        """Return the degrees of a base and of these edges together, made once for each side."""
        of, shared = self._degrees.get((forward, pairs), (None, None))
        if shared is None or (of and of()) is not base:
            shared = make()
            self._degrees[(forward, pairs)] = (None if base is None else ref(base), shared)
            self.grown()
        return shared

    def edges_between(self, pairs: Ordinals, count: Callable[[Ordinals], Ordinals]) -> Ordinals:
        """Return how many edges the base and these files have between pairs; each is counted once."""
        known, counts = self._between
        ascending = sorted_distinct(np.sort(pairs))
        fresh = ascending[~in_sorted(ascending, known)]
        if len(fresh):
            at = np.searchsorted(known, fresh)
            known, counts = np.insert(known, at, fresh), np.insert(counts, at, count(fresh))
            self._between = (known, counts)
            self.grown()
        return counts[np.searchsorted(known, pairs)]


# -- numbering ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _TextEnds:
    """Edges whose ends are numbered anew in each version: distinct ids, their homes, and who has which."""

    ids: tuple[pa.Array, pa.Array]
    homes: tuple[Ordinals, Ordinals]
    codes: tuple[Ordinals, Ordinals]
    edges: Ordinals

    @property
    def nbytes(self) -> int:
        numbers = sum(column.nbytes for pair in (self.homes, self.codes) for column in pair)
        return int(sum(ids.nbytes for ids in self.ids) + numbers + self.edges.nbytes)


@dataclass(frozen=True, eq=False)
class _KnownDeleted:
    """What was worked out of deleted edges: by file their offsets and ends, and the nodes deleted by then."""

    files: Mapping[str, Ends]
    nodes: tuple[Ordinals, Ordinals]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return sum(ends.nbytes for ends in self.files.values()) + sum(nodes.nbytes for nodes in self.nodes)


class NumberedFiles:
    """What is known of the edges of files, for all versions."""

    def __init__(self, limit: int) -> None:
        self.parts = BoundedCache[Hashable, Ends | SettledEdges | _TextEnds](limit, lambda part: part.nbytes)
        self.deleted = BoundedCache[Hashable, _KnownDeleted](limit, lambda known: known.nbytes)
        self.lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.parts.weight + self.deleted.weight

    def shrink(self, size: int) -> None:
        """Let go of what was not used for longest, until so much is left."""
        self.parts.shrink(max(size - self.deleted.weight, 0))
        self.deleted.shrink(size)


class EdgeNumbering:
    """Numbers the ends of the edges of one version."""

    def __init__(
        self,
        tables: tuple[EntityTable, EntityTable, EntityTable],
        base: Base | None,
        places: tuple[Places, Places],
        homes: tuple[Homes, Homes],
        known: NumberedFiles,
    ) -> None:
        self._edges, *self._ends = tables
        self._base = base
        self._covered = 0 if base is None else len(base.cover.edges)
        self._places = places
        self._homes = homes
        self._known = known
        self._key = (self._edges.key[0], *(table.key[0] for table in self._ends))
        self._files = tuple(each.files for each in homes)

    # -- settled files -------------------------------------------------------------------------------

    @cached_property
    def settled(self) -> SettledEdges:
        """The edges of settled files that the base does not cover."""
        entries = self._edges.settled[self._covered :]
        base = None if self._base is None else self._base.cover.name
        key = ("settled", *self._key, base, tuple(part.key[1] for _, part in entries), *self._files)
        layer = self._known.parts.get(key)
        if not isinstance(layer, SettledEdges):
            ends = concatenated(self._whole_files(entries))
            at_home = (ends.source >= 0) & (ends.target >= 0)
            fresh = SettledEdges(ends.where(at_home), ends.edge[~at_home])
            kept = self._known.parts  # not through `self`: the layer outlives the query
            fresh.grown = lambda: kept.reweigh(key)
            layer = kept.put(key, fresh)
            assert isinstance(layer, SettledEdges)
        return layer

    def _whole_files(self, entries: Sequence[tuple[int, FragmentLayout]]) -> list[Ends]:
        """Return the homes of all ends in files, of deleted edges too; unknown files are read together."""
        keys = {number: ("file", *self._key, part.key[1], *self._files) for number, part in entries}
        known = {number: self._known.parts.get(key) for number, key in keys.items()}
        unknown = [(number, part) for number, part in entries if known[number] is None]
        if unknown:
            texts = [
                pa.chunked_array(self._edges.physical([part for _, part in unknown], name), pa.string())
                for name in ENDPOINTS
            ]
            source, target = self._homes_of(*(_single(column) for column in texts))
            first = 0
            for number, part in unknown:
                last = first + int(part.metadata.physical_rows)
                ends = Ends(source[first:last].copy(), target[first:last].copy(), np.arange(last - first))
                known[number] = self._known.parts.put(keys[number], ends)
                first = last
        parts = []
        for number, ends_or_none in known.items():
            assert isinstance(ends_or_none, Ends)
            start = self._edges.start(number)
            parts.append(Ends(ends_or_none.source, ends_or_none.target, ends_or_none.edge + start))
        return parts

    def _homes_of(self, sources: pa.Array, targets: pa.Array) -> tuple[Ordinals, Ordinals]:
        """Return the homes of both ends of edges; of one table they are looked for together."""
        if self._homes[0] is not self._homes[1]:
            return self._homes[0].find(self._ends[0], sources), self._homes[1].find(self._ends[1], targets)
        both = self._homes[0].find(self._ends[0], pa.concat_arrays([sources, targets]))
        return both[: len(sources)], both[len(sources) :]

    # -- small files, and loose edges ----------------------------------------------------------------

    def recent(self, left_out: Ordinals) -> Ends:
        """Return the edges of small files and those that lists leave out, by where their ends live."""
        parts = []
        for number, part in self._edges.unsettled:
            ends = self._small_file(number, part)
            start = self._edges.start(number)
            parts.append(Ends(self._live(0, ends), self._live(1, ends), ends.edges + start))
        loose = np.concatenate([left_out, self.settled.loose])
        if len(loose):
            ends = self._loose(loose)
            listed = Ends(self._live(0, ends), self._live(1, ends), ends.edges)
            parts.append(listed.where(self._edges.are_alive(listed.edge)))
        every = concatenated(parts)
        there = (every.source >= 0) & (every.target >= 0)
        return every if there.all() else every.where(there)

    def _small_file(self, number: int, part: FragmentLayout) -> _TextEnds:
        key = ("small", *self._key, part.key, *self._files)
        known = self._known.parts.get(key)
        if not isinstance(known, _TextEnds):
            (sources, targets), offsets = self._edges.living(number, part, ENDPOINTS)
            known = self._text_ends(sources, targets, offsets)
            self._known.parts.put(key, known)
        return known

    def _loose(self, ordinals: Ordinals) -> _TextEnds:
        files = tuple(part.key[1] for _, part in self._edges.settled)
        base = None if self._base is None else self._base.cover.name
        key = ("loose", *self._key, base, files, *self._files)
        known = self._known.parts.get(key)
        if not isinstance(known, _TextEnds):
            ascending = np.sort(ordinals)
            rows = self._edges.physical_at(ascending, ENDPOINTS)
            sources, targets = (_single(rows[name]) for name in ENDPOINTS)
            known = self._text_ends(sources, targets, ascending)
            self._known.parts.put(key, known)
        return known

    def _text_ends(self, sources: pa.Array, targets: pa.Array, edges: Ordinals) -> _TextEnds:
        first, second = pc.dictionary_encode(sources), pc.dictionary_encode(targets)
        return _TextEnds(
            (first.dictionary, second.dictionary),
            self._homes_of(first.dictionary, second.dictionary),
            (np.asarray(first.indices, dtype=np.int64), np.asarray(second.indices, dtype=np.int64)),
            edges,
        )

    def _live(self, side: int, ends: _TextEnds) -> Ordinals:
        """Return where the nodes at one end of edges live."""
        homes, ids = ends.homes[side], ends.ids[side]
        places = self._places[side].places_of(homes)
        homeless = np.flatnonzero(homes == MISSING)
        if len(homeless):
            places = places.copy()
            places[homeless] = self._ends[side].find(ids.take(pa.array(homeless)))
        return places[ends.codes[side]]

    # -- deleted edges -------------------------------------------------------------------------------

    def deleted(self, left_out: Ordinals) -> Ends:
        """Return the edges of lists that the version has deleted, by home; their numbers ascend."""
        entries = [entry for entry in self._edges.settled if entry[1].metadata.deletion_file is not None]
        if not entries:
            return NO_EDGES
        key = (*self._key, *self._files)
        known = self._known.deleted.get(key) or _KnownDeleted({}, (NOTHING, NOTHING))
        offsets = {number: self._edges.deleted(number, part) for number, part in entries}
        fresh: dict[int, Ordinals] = {}
        for number, part in entries:
            file = known.files.get(part.key[1], NO_EDGES)
            if file.edge is not offsets[number]:
                fresh[number] = offsets[number][~in_sorted(offsets[number], file.edge)]
        files = dict(known.files)
        if any(len(new) for new in fresh.values()):
            self._add(files, dict(entries), fresh, known.nodes)
        parts = []
        for number, part in entries:
            file = files[part.key[1]] = _those(files[part.key[1]], offsets[number])
            start = self._edges.start(number)
            parts.append(Ends(file.source, file.target, file.edge + start))
        if fresh:
            nodes = (self._ends[0].settled_deleted, self._ends[1].settled_deleted)
            with self._known.lock:
                self._known.deleted.drop(key)
                self._known.deleted.put(key, _KnownDeleted(files, nodes))
        every = concatenated(parts)
        listed = (every.source >= 0) & (every.target >= 0)
        if len(left_out):
            listed &= ~in_sorted(every.edge, left_out)
        return every if listed.all() else every.where(listed)

    def _add(
        self,
        files: dict[str, Ends],
        parts: Mapping[int, FragmentLayout],
        fresh: Mapping[int, Ordinals],
        nodes_before: tuple[Ordinals, Ordinals],
    ) -> None:
        """Add freshly deleted edges to what is known of their files."""
        ordered = sorted(fresh, key=self._edges.start)
        numbers = np.concatenate([fresh[number] + self._edges.start(number) for number in ordered])
        ends = self._ends_of(numbers, nodes_before)
        first = 0
        for number in ordered:
            last = first + len(fresh[number])
            file, before = parts[number].key[1], files.get(parts[number].key[1], NO_EDGES)
            at = np.searchsorted(before.edge, fresh[number])
            files[file] = Ends(
                np.insert(before.source, at, ends.source[first:last]),
                np.insert(before.target, at, ends.target[first:last]),
                np.insert(before.edge, at, fresh[number]),
            )
            first = last

    def _ends_of(self, numbers: Ordinals, nodes_before: tuple[Ordinals, Ordinals]) -> Ends:
        """Return the homes of the ends of edges of settled files, by their ascending numbers.

        Who deletes a node deletes its edges: most of them are in the lists of nodes deleted since.
        """
        source, target = (np.full(len(numbers), MISSING) for _ in range(2))
        open_edges = np.ones(len(numbers), dtype=bool)
        for forward, table, before in (
            (True, self._ends[0], nodes_before[0]),
            (False, self._ends[1], nodes_before[1]),
        ):
            deleted = table.settled_deleted
            nodes = deleted[~in_sorted(deleted, before)]
            near, far, edges = self._listed(nodes, len(numbers), forward=forward)
            among = in_sorted(edges, numbers)
            at = np.searchsorted(numbers, edges[among])
            source[at], target[at] = (near[among], far[among]) if forward else (far[among], near[among])
            open_edges[at] = False
        left = np.flatnonzero(open_edges)
        if len(left):
            rows = self._edges.physical_at(numbers[left], ENDPOINTS)
            source[left], target[left] = self._homes_of(*(_single(rows[name]) for name in ENDPOINTS))
        return Ends(source, target, numbers)

    def _listed(self, nodes: Ordinals, wanted: int, *, forward: bool) -> tuple[Ordinals, Ordinals, Ordinals]:
        """Return (node, other, edge) of the base's lists of some nodes, unless they are much too long."""
        nothing = (NOTHING, NOTHING, NOTHING)
        if self._base is None or not len(nodes):
            return nothing
        side: BaseSide = self._base.forward if forward else self._base.backward
        nodes = nodes[nodes < side.span]
        try:
            starts, counts = stretches(side, nodes)
            if int(counts.sum()) > LISTED_PER_EDGE * wanted:
                return nothing
            side.ensure(starts, starts + counts, edges=True)
        except Unusable:
            return nothing
        which, at = repeated(counts, starts)
        others, edges = (side.array(part)[at].astype(np.int64) for part in ("others", "edges"))
        return nodes[which], others, edges


def stretches(side: BaseSide, homes: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Return where the lists of some homes begin, and how long they are; a home beyond the last has none."""
    listed = homes < side.span
    within = homes if listed.all() else np.where(listed, homes, 0)
    if not side.span:
        return within, np.zeros_like(within)
    starts, stops = side.spans(within)
    return starts, np.where(listed, stops - starts, 0)


def _those(file: Ends, offsets: Ordinals) -> Ends:
    """Return what is known of some deleted edges of a file, with their own array of offsets."""
    if len(file.edge) == len(offsets):
        return Ends(file.source, file.target, offsets)
    at = np.searchsorted(file.edge, offsets)
    return Ends(file.source[at], file.target[at], offsets)


def _single(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
