"""Adjacency: the edges of settled files as lists of numbers, kept beside them.

One base for an edge type covers some data files of the edge table and of the tables at its ends. An edge is
numbered by its row, counted through the edge files in their order; a node by the first row that has its id,
counted through the node files. All rows count, deleted or not, so a base depends on files alone and is good
in every version that begins with them. Edges with an end in no file covered are listed as `loose`.

    forward.offsets   where the list of each source begins; one more at the end
    forward.others    the targets, source by source; a list ascends by target, then by edge
    forward.edges     the edges, parallel to the targets
    forward.degrees   how many different targets each source has
    backward...       the same by target
    loose             edges that are in no list

Who opens one takes off the rows that its version has deleted, and adds the edges of other files
(execution/edge_layers.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.derived.blocks import Array, BlockFile, Unusable
from omnigraph.storage.derived.files import FOLDER, DerivedFiles, is_unfinished
from omnigraph.storage.derived.key_hashes import Hashes, KeyHashes, hashes_of, row_bits

KIND = "adjacency"
FEW_LISTS = 4_096  # lists that are checked one by one; of more, all are
WIDEST = np.iinfo(np.int32).max  # of edges and nodes in one base
TEXT_BYTES = 2_000_000_000  # of the ids of one node table: what one Arrow array holds
KEPT_SUPERSEDED = 2
ARROW_ABOVE = 100_000  # values, from which on Arrow gathers them
SIDES = ("forward", "backward")
PARTS = ("offsets", "others", "edges", "degrees")
Numbers = NDArray[np.int32]
Ordinals = NDArray[np.int64]
Files = tuple[tuple[str, int], ...]  # data files in order, with their rows


def is_adjacency(file: str) -> bool:
    """Say whether a file of a table lies where adjacency does."""
    return file.startswith(f"{FOLDER}/{KIND}/")


@dataclass(frozen=True)
class Cover:
    """The files that a base is about."""

    source_table: str
    target_table: str
    edges: Files
    sources: Files
    targets: Files

    @property
    def edge_files(self) -> frozenset[str]:
        """The data files of the edge table."""
        return frozenset(file for file, _ in self.edges)

    @property
    def rows(self) -> int:
        """How many edges the files have."""
        return sum(rows for _, rows in self.edges)

    @property
    def name(self) -> str:
        """The name of the file, inside the edge table; of two, the one with more edges sorts last."""
        digest = hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()[:32]
        return f"{FOLDER}/{KIND}/{self.rows:012d}-{digest}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "source_table": self.source_table,
            "target_table": self.target_table,
            "edges": [list(file) for file in self.edges],
            "sources": [list(file) for file in self.sources],
            "targets": [list(file) for file in self.targets],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cover:
        """Read what `to_json` wrote."""
        edges, sources, targets = (
            tuple((str(file), int(rows)) for file, rows in value[side])
            for side in ("edges", "sources", "targets")
        )
        return cls(str(value["source_table"]), str(value["target_table"]), edges, sources, targets)

    def begins(self, other: Cover) -> bool:
        """Say whether other files begin with these: then the numbers are the same there."""
        return (
            (self.source_table, self.target_table) == (other.source_table, other.target_table)
            and other.edges[: len(self.edges)] == self.edges
            and other.sources[: len(self.sources)] == self.sources
            and other.targets[: len(self.targets)] == self.targets
        )


@dataclass(frozen=True, eq=False)
class BaseSide:
    """The lists of one direction. `file` is what they are mapped from, and checks what is touched."""

    offsets: Array
    others: Numbers
    edges: Numbers
    degrees: Numbers
    name: str = ""
    file: BlockFile | None = None

    @property
    def span(self) -> int:
        """How many nodes have a list."""
        return len(self.offsets) - 1

    def pair_degrees(self) -> Array:
        """Return how many different nodes each list names, checked."""
        return self.degrees if self.file is None else self.file.whole(f"{self.name}.degrees")

    def array(self, part: str) -> Array:
        """Return an array; of a file, ask for it after what is wanted was checked."""
        values: Array = getattr(self, part) if self.file is None else self.file.arrays[f"{self.name}.{part}"]
        return values

    def spans(self, nodes: Ordinals) -> tuple[Ordinals, Ordinals]:
        """Return where the lists of some nodes begin and end; of a few, only those places are touched."""
        if self.file is None or len(nodes) > FEW_LISTS:
            offsets = self.starts()
        else:
            self.file.ensure_at(f"{self.name}.offsets", np.concatenate([nodes, nodes + 1]))
            offsets = self.array("offsets")
        return offsets[nodes].astype(np.int64), offsets[nodes + 1].astype(np.int64)

    def starts(self) -> Array:
        """Return where lists begin, all of it checked."""
        return self.offsets if self.file is None else self.file.whole(f"{self.name}.offsets")

    def all_others(self) -> Numbers:
        """Return all lists, checked."""
        return self.others if self.file is None else self.file.whole(f"{self.name}.others")

    def all_edges(self) -> Numbers:
        """Return the edges of all lists, checked."""
        return self.edges if self.file is None else self.file.whole(f"{self.name}.edges")

    def ensure(self, starts: Ordinals, stops: Ordinals, *, edges: bool) -> None:
        """Make sure that some lists are here and undamaged."""
        if self.file is None:
            return
        ranges = list(zip(starts.tolist(), stops.tolist(), strict=True)) if len(starts) <= FEW_LISTS else None
        for part in ("others", "edges") if edges else ("others",):
            name = f"{self.name}.{part}"
            if ranges is None:
                self.file.whole(name)
            else:
                self.file.ensure(name, ranges)


@dataclass(frozen=True, eq=False)
class Base:
    """The adjacency of some files."""

    cover: Cover
    forward: BaseSide
    backward: BaseSide
    loose: Ordinals
    file: BlockFile | None = None

    @property
    def nbytes(self) -> int:
        """Memory taken by this process alone: what is mapped is the system's to keep or drop."""
        if self.file is not None:
            return self.file.held_bytes
        return sum(array.nbytes for array in self.to_file()[1].values())

    def to_file(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return what a derived file holds of it."""
        sides = zip(SIDES, (self.forward, self.backward), strict=True)
        arrays = {f"{name}.{part}": getattr(side, part) for name, side in sides for part in PARTS}
        return self.cover.to_json(), {**arrays, "loose": self.loose}

    @classmethod
    def of_file(cls, file: BlockFile) -> Base:
        """Return what a derived file holds."""
        cover = cover_in(file)
        try:
            forward, backward = (_mapped_side(file, name) for name in SIDES)
            return cls(cover, forward, backward, file.whole("loose"), file)
        except KeyError as error:
            raise Unusable("it has not all the lists") from error


def _mapped_side(file: BlockFile, name: str) -> BaseSide:
    offsets, others, edges, degrees = (file.arrays[f"{name}.{part}"] for part in PARTS)
    return BaseSide(offsets, others, edges, degrees, name, file)


def cover_in(file: BlockFile) -> Cover:
    """Return the files that a stored base is about."""
    if file.header.kind != KIND:
        raise Unusable("it is no adjacency")
    try:
        return Cover.from_json(file.header.covers)
    except (KeyError, ValueError, TypeError) as error:
        raise Unusable("it says nothing that can be read") from error


class Bases:
    """The stored adjacencies of one graph."""

    def __init__(self, files: DerivedFiles) -> None:
        self._files = files

    def newest(self, edge_table: str, wanted: Cover) -> Base | None:
        """Return the largest stored base that files begin with; the one that covers them all, if there is."""
        for name in self._names(edge_table, wanted):
            try:
                base = Base.of_file(self._files.open(edge_table, name))
            except Unusable:
                continue
            if base.cover.begins(wanted):
                return base
        return None

    def _names(self, edge_table: str, wanted: Cover) -> Iterable[str]:
        yield wanted.name
        stored = self._stored(edge_table)
        yield from (name for name in sorted(stored, reverse=True) if name != wanted.name)

    def build(self, edge_table: str, cover: Cover, pool: Executor, numberer: Numberer | None = None) -> Base:
        """Number both ends of every edge of some files, and sort them by either."""
        spans = (sum(rows for _, rows in cover.sources), sum(rows for _, rows in cover.targets))
        if max(cover.rows, *spans) > WIDEST:
            raise Unusable("there are more edges or nodes than one base can number")
        numberer = numberer or ByText(self._files, edge_table, cover)
        numbered = [
            (pool.submit(numberer.sources, file, rows), pool.submit(numberer.targets, file, rows))
            for file, rows in cover.edges
        ]
        sources, targets = (_joined([pair[side] for pair in numbered]) for side in (0, 1))
        return base_of(cover, sources, targets, spans, pool)

    def write(self, edge_table: str, base: Base) -> bool:
        """Keep a base beside the edge table; say whether that could be done."""
        covers, arrays = base.to_file()
        if not self._files.write(edge_table, base.cover.name, KIND, covers, arrays):
            return False
        self._drop_superseded(edge_table, base.cover)
        return True

    def _drop_superseded(self, edge_table: str, cover: Cover) -> None:
        """Delete bases that a larger one took the place of, but for the last few: for readers of the past."""
        superseded = []
        for name in self._stored(edge_table):
            with suppress(Unusable):
                before = cover_in(self._files.open(edge_table, name))
                if before != cover and before.begins(cover):
                    superseded.append((before.rows, name))
        for _, name in sorted(superseded)[:-KEPT_SUPERSEDED]:
            self._files.delete(edge_table, name)

    def drop_damaged(self, edge_table: str) -> None:
        """Delete bases that are of no use to anybody."""
        for name in self._stored(edge_table):
            if not self._files.is_whole(edge_table, name):
                self._files.delete(edge_table, name)

    def _stored(self, edge_table: str) -> list[str]:
        names = self._files.names(edge_table, f"{FOLDER}/{KIND}")
        return [name for name in names if not is_unfinished(name)]


# -- numbers of nodes ------------------------------------------------------------------------------


class Numberer(Protocol):
    """Whoever knows the nodes at the ends of edges by number; -1 stands for one that no file covered has."""

    def sources(self, file: str, rows: int) -> Numbers:
        """Return the source of each edge of a file."""
        ...

    def targets(self, file: str, rows: int) -> Numbers:
        """Return the target of each edge of a file."""
        ...


class ByText:
    """Numbers ends by comparing ids: right whatever the files hold."""

    def __init__(self, files: DerivedFiles, edge_table: str, cover: Cover) -> None:
        self._files = files
        self._edge_table = edge_table
        self._sources = self._ids(cover.source_table, cover.sources)
        same = (cover.target_table, cover.targets) == (cover.source_table, cover.sources)
        self._targets = self._sources if same else self._ids(cover.target_table, cover.targets)

    def sources(self, file: str, rows: int) -> Numbers:
        """Return the source of each edge of a file."""
        return self._numbered(file, "src", self._sources)

    def targets(self, file: str, rows: int) -> Numbers:
        """Return the target of each edge of a file."""
        return self._numbered(file, "dst", self._targets)

    def _ids(self, table_id: str, files: Files) -> pa.Array:
        chunks: list[pa.Array] = []
        for file, _ in files:
            chunks += self._files.column(table_id, file, "id").chunks
        if sum(chunk.nbytes for chunk in chunks) > TEXT_BYTES:
            raise Unusable("the ids of the nodes take more than one array")
        return pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())

    def _numbered(self, file: str, column: str, ids: pa.Array) -> Numbers:
        ends = self._files.column(self._edge_table, file, column)
        places = pc.fill_null(pc.index_in(ends, value_set=ids), -1)  # the first place, if there are several
        numbers = [np.asarray(chunk, dtype=np.int32) for chunk in places.chunks]
        return np.concatenate(numbers) if numbers else np.zeros(0, np.int32)


# -- by hash ---------------------------------------------------------------------------------------
#
# Comparing the ids of ten million edges with those of a million nodes takes longer than everything else that
# adjacency is made of. The key hashes of both are there and sorted, so joining them is a merge. It is exact
# where every end of every edge is the id of a node that lives: edges of which none is deleted, in a version
# that was checked. Whoever asks sees to it (engine/derive.py). Then the node with the hash of an end is the
# one: the right node has that hash, and no other has. Hashes that several nodes share, be it that one of them
# is in no file covered, are few, and left to a comparison of ids.


KeysOf = Callable[[str, str, str, int], KeyHashes | None]  # (table, data file, column, rows)


@dataclass(frozen=True, eq=False)
class NodeHashes:
    """All nodes of some files: what their hash begins with above, their number below; sorted."""

    packed: Hashes
    bits: np.uint64  # of a number
    doubtful: Hashes  # beginnings that several ids share, sorted
    ids: pa.Array  # of the rows that have those
    numbers: NDArray[np.int64]  # of the same rows

    @classmethod
    def of(
        cls, files: DerivedFiles, keys: KeysOf, least: int, table_id: str, covered: Files, outside: pa.Array
    ) -> NodeHashes:
        """Read the hashes of some node files, and the ids of those that cannot be told by them.

        `least` is how many low bits of a hash the edges do not have; `outside` are the ids of living nodes
        that no file has.
        """
        bits = np.uint64(max(row_bits(sum(rows for _, rows in covered)), least))
        packed = _packed_nodes(keys, table_id, covered, bits)
        begins = packed >> bits
        strangers = hashes_of(outside) >> bits
        alike = (begins[1:][begins[1:] == begins[:-1]], strangers[_among(strangers, begins)])
        doubtful = np.unique(np.concatenate(alike))
        places = np.flatnonzero(_among(begins, doubtful))
        numbers = np.sort((packed[places] & _low(bits)).astype(np.int64))
        return cls(packed, bits, doubtful, _ids_at(files, table_id, covered, numbers), numbers)


def _packed_nodes(keys: KeysOf, table_id: str, covered: Files, bits: np.uint64) -> Hashes:
    parts: list[Hashes] = []
    start = 0
    for file, rows in covered:
        known = keys(table_id, file, "id", rows)
        if known is None:
            raise Unusable("a file of nodes has no key hashes")
        entries = known.whole()
        row = entries & _low(np.uint64(row_bits(rows)))
        parts.append((entries >> bits << bits) | (row + np.uint64(start)))
        start += rows
    packed = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    if len(parts) > 1:
        packed.sort()
    return packed


def _among(values: Hashes, ordered: Hashes) -> NDArray[np.bool_]:
    """Say of each value whether it is one of others, which are in order."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.equal(ordered[at], values)


def _low(bits: np.uint64) -> np.uint64:
    """Return a number whose low bits are set."""
    return (np.uint64(1) << bits) - np.uint64(1)


def _ids_at(files: DerivedFiles, table_id: str, covered: Files, numbers: NDArray[np.int64]) -> pa.Array:
    chunks, start = [pa.array([], pa.string())], 0
    for file, rows in covered:
        own = numbers[(numbers >= start) & (numbers < start + rows)] - start
        if len(own):
            chunks += files.rows(table_id, file, own, ["id"])["id"].chunks
        start += rows
    return pa.concat_arrays(chunks)


class ByHash:
    """Numbers ends by their hashes."""

    def __init__(
        self, files: DerivedFiles, keys: KeysOf, edge_table: str, nodes: Sequence[NodeHashes]
    ) -> None:
        self._files = files
        self._keys = keys
        self._edge_table = edge_table
        self._nodes = nodes

    @classmethod
    def of(
        cls,
        files: DerivedFiles,
        keys: KeysOf,
        edge_table: str,
        cover: Cover,
        outside: tuple[pa.Array, pa.Array],
    ) -> ByHash:
        """Prepare the join; `outside` are the ids of living sources and targets that no file covered has."""
        sides = ((cover.source_table, cover.sources), (cover.target_table, cover.targets))
        least = max((row_bits(rows) for _, rows in cover.edges), default=0)
        nodes = {
            side: NodeHashes.of(files, keys, least, *side, ids)
            for side, ids in dict(zip(sides, outside, strict=True)).items()
        }
        return cls(files, keys, edge_table, [nodes[side] for side in sides])

    def sources(self, file: str, rows: int) -> Numbers:
        """Return the source of each edge of a file."""
        return self._numbered(file, rows, "src", self._nodes[0])

    def targets(self, file: str, rows: int) -> Numbers:
        """Return the target of each edge of a file."""
        return self._numbered(file, rows, "dst", self._nodes[1])

    def _numbered(self, file: str, rows: int, column: str, nodes: NodeHashes) -> Numbers:
        keys = self._keys(self._edge_table, file, column, rows)
        if keys is None:
            raise Unusable("a file of edges has no key hashes")
        entries = keys.whole()
        begins = entries >> nodes.bits
        edges = (entries & _low(np.uint64(row_bits(rows)))).view(np.int64)
        numbers = np.full(rows, -1, dtype=np.int32)
        if not len(nodes.packed):
            return numbers
        at = np.minimum(np.searchsorted(nodes.packed, begins << nodes.bits), len(nodes.packed) - 1)
        candidates = nodes.packed[at]
        hit = (candidates >> nodes.bits) == begins
        numbers[edges] = np.where(hit, (candidates & _low(nodes.bits)).view(np.int64), -1)
        if len(nodes.doubtful):
            self._compare(file, column, nodes, np.sort(edges[_among(begins, nodes.doubtful)]), numbers)
        return numbers

    def _compare(
        self, file: str, column: str, nodes: NodeHashes, edges: NDArray[np.int64], numbers: Numbers
    ) -> None:
        if len(edges):
            ends = self._files.rows(self._edge_table, file, edges, [column])[column].combine_chunks()
            place = np.asarray(pc.fill_null(pc.index_in(ends, value_set=nodes.ids), -1))
            numbers[edges] = np.where(place >= 0, nodes.numbers[place], -1)


# -- lists -----------------------------------------------------------------------------------------


def base_of(cover: Cover, sources: Numbers, targets: Numbers, spans: tuple[int, int], pool: Executor) -> Base:
    """Sort numbered edges by either end; those with an end that has no number are loose."""
    edges = np.arange(len(sources), dtype=np.int32)
    loose = np.zeros(0, np.int64)
    if len(edges) and min(sources.min(), targets.min()) < 0:
        whole = (sources >= 0) & (targets >= 0)
        loose = np.flatnonzero(~whole)
        sources, targets, edges = sources[whole], targets[whole], edges[whole]
    backward = pool.submit(sorted_side, targets, sources, edges, spans[::-1])
    return Base(cover, sorted_side(sources, targets, edges, spans), backward.result(), loose)


def sorted_side(by: Numbers, others: Numbers, edges: Numbers, spans: tuple[int, int]) -> BaseSide:
    """Return the lists by one end; `edges` ascend, `spans` are how many nodes there are at either end."""
    by_bits, other_bits = map(row_bits, spans)
    edge_bits = int(edges[-1]).bit_length() if len(edges) else 0
    if by_bits + other_bits + edge_bits <= 64:
        ordered, edges = _packed_lists(by, others, edges, np.uint64(other_bits), np.uint64(edge_bits))
    else:
        # Two sorts of packed numbers, the less important first: far quicker than by an order (argsort).
        bits = np.uint64(max(len(by) - 1, 1).bit_length())
        order = _packed_order(_packed_order(None, others, bits), by, bits)
        ordered, edges = take(others, order), take(edges, order)
    offsets = np.zeros(spans[0] + 1, np.int32)
    np.cumsum(np.bincount(by, minlength=spans[0]), out=offsets[1:])
    return BaseSide(offsets, ordered, edges, _pair_degrees(offsets, ordered))


def _packed_lists(
    by: Numbers, others: Numbers, edges: Numbers, other_bits: np.uint64, edge_bits: np.uint64
) -> tuple[Numbers, Numbers]:
    """Return others and edges in order, by one sort of all three numbers in one: nothing is gathered then."""
    packed = by.astype(np.uint64)
    packed <<= other_bits
    packed |= others.view(np.uint32)
    packed <<= edge_bits
    packed |= edges.view(np.uint32)
    packed.sort()
    ordered_edges = packed.astype(np.uint32)
    ordered_edges &= np.uint32((1 << int(edge_bits)) - 1)
    packed >>= edge_bits
    ordered = packed.astype(np.uint32)
    ordered &= np.uint32((1 << int(other_bits)) - 1)
    return ordered.view(np.int32), ordered_edges.view(np.int32)


def _pair_degrees(offsets: Array, others: Numbers) -> Numbers:
    """Count the different nodes of each list: repeats are neighbours there."""
    first = np.ones(len(others) + 1, dtype=np.int8)
    np.not_equal(others[1:], others[:-1], out=first[1:-1].view(bool))
    counts = np.diff(offsets).astype(np.int32)
    filled = counts > 0
    begins = offsets[:-1][filled]
    first[begins] = 1
    if len(begins):
        counts[filled] = np.add.reduceat(first[:-1], begins, dtype=np.int32)
    return counts


def _packed_order(before: Ordinals | None, keys: Numbers, bits: np.uint64) -> Ordinals:
    """Return the order of some numbers, equal ones in the order they had before."""
    values = keys if before is None else take(keys, before)
    packed = values.astype(np.uint64)
    packed <<= bits
    packed |= np.arange(len(packed), dtype=np.uint64)
    packed.sort()
    packed &= (np.uint64(1) << bits) - np.uint64(1)
    places = packed.view(np.int64)
    return places if before is None else take(before, places)


def take(values: NDArray[Any], places: NDArray[Any]) -> Any:
    """Return the values at some places, -1 being the last one's; Arrow gathers many in half the time."""
    if len(places) <= ARROW_ABOVE or values.dtype == bool or values.dtype == object or int(places.min()) < 0:
        return values[places]
    return pc.take(pa.array(values), pa.array(places)).to_numpy(zero_copy_only=False)


def _joined(parts: Sequence[Future[Numbers]]) -> Numbers:
    numbers = [part.result() for part in parts]
    return np.concatenate(numbers) if numbers else np.zeros(0, np.int32)
