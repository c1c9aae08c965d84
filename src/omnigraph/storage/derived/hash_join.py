"""Hash join: the nodes at the ends of edges by the key hashes of both, without comparing ids.

Comparing the ids of ten million edges with those of a million nodes takes longer than everything else that
adjacency is made of. The hashes are there and sorted, so joining them is a merge. It is exact where this
holds, and whoever asks sees to it (engine/derive.py):

- Every end of every edge is the id of a node that lives: edges of which none is deleted, in a version that
  was checked.
- Every living node is in the files covered, or its hash is that of no other node there.

Then the node with the hash of an end is the one: the right node has that hash, and no other has. Hashes that
several nodes share are few, and left to a comparison of ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.derived.adjacency import Cover, Files, Numbers
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.key_hashes import Hashes, KeyHashes, hashes_of, row_bits

KeysOf = Callable[[str, str, str, int], KeyHashes | None]  # (table, data file, column, rows)


@dataclass(frozen=True, eq=False)
class NodeHashes:
    """All nodes of some files: what their hash begins with above, their number below; sorted."""

    table_id: str
    packed: Hashes
    bits: np.uint64  # of a number
    doubtful: Hashes  # beginnings that several ids share, sorted
    ids: pa.Array  # of the rows that have those
    numbers: NDArray[np.int64]  # of the same rows

    @classmethod
    def of(cls, files: DerivedFiles, keys: KeysOf, least: int, table_id: str, covered: Files) -> NodeHashes:
        """Read the hashes of some node files, and the ids of those that are alike.

        `least` is how many low bits of a hash the edges do not have.
        """
        bits = np.uint64(max(row_bits(sum(rows for _, rows in covered)), least))
        parts: list[Hashes] = []
        start = 0
        for file, rows in covered:
            found = keys(table_id, file, "id", rows)
            if found is None:
                raise Unusable("a file of nodes has no key hashes")
            entries, own = found.whole(), np.uint64(row_bits(rows))
            row = entries & ((np.uint64(1) << own) - np.uint64(1))
            parts.append((entries >> bits << bits) | (row + np.uint64(start)))
            start += rows
        packed = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
        if len(parts) > 1:
            packed.sort()
        begins = packed >> bits
        alike = np.flatnonzero(begins[1:] == begins[:-1])
        places = np.flatnonzero(np.isin(begins, begins[alike]))
        numbers = np.sort((packed[places] & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64))
        ids = _ids_at(files, table_id, covered, numbers)
        return cls(table_id, packed, bits, np.unique(begins[alike]), ids, numbers)

    def refuse_strangers(self, ids: pa.Array) -> None:
        """Say that hashes cannot decide, if one of some ids that no file has is like one that a file has."""
        begins = hashes_of(ids) >> self.bits
        at = np.minimum(np.searchsorted(self.packed >> self.bits, begins), max(len(self.packed) - 1, 0))
        if len(self.packed) and ((self.packed[at] >> self.bits) == begins).any():
            raise Unusable("a node outside has the hash of one inside")


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
        sides = [(cover.source_table, cover.sources), (cover.target_table, cover.targets)]
        least = max((row_bits(rows) for _, rows in cover.edges), default=0)
        nodes = [NodeHashes.of(files, keys, least, *side) for side in dict.fromkeys(sides)]
        for side, ids in zip((nodes[0], nodes[-1]), outside, strict=True):
            side.refuse_strangers(ids)
        return cls(files, keys, edge_table, (nodes[0], nodes[-1]))

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
        entries, own = keys.whole(), np.uint64(row_bits(rows))
        begins = entries >> nodes.bits
        numbers = np.full(rows, -1, dtype=np.int32)
        if not len(nodes.packed):
            return numbers
        at = np.minimum(np.searchsorted(nodes.packed, begins << nodes.bits), len(nodes.packed) - 1)
        candidates = nodes.packed[at]
        low = (np.uint64(1) << nodes.bits) - np.uint64(1)
        hit = (candidates >> nodes.bits) == begins
        edges = (entries & ((np.uint64(1) << own) - np.uint64(1))).astype(np.int64)
        numbers[edges[hit]] = (candidates[hit] & low).astype(np.int32)
        if len(nodes.doubtful):
            self._compare(file, column, nodes, np.sort(edges[np.isin(begins, nodes.doubtful)]), numbers)
        return numbers

    def _compare(
        self, file: str, column: str, nodes: NodeHashes, edges: NDArray[np.int64], numbers: Numbers
    ) -> None:
        if len(edges):
            ends = self._files.rows(self._edge_table, file, edges, [column])[column].combine_chunks()
            place = np.asarray(pc.fill_null(pc.index_in(ends, value_set=nodes.ids), -1))
            numbers[edges] = np.where(place >= 0, nodes.numbers[place], -1)
