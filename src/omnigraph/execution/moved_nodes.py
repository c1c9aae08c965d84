"""Moved nodes: where the nodes of a version live, next to where stored adjacency knows them.

Adjacency numbers a node by its home: the first row with its id in the settled files, deleted or not. A node
that was updated since lives elsewhere: in a small file, or in a settled file that came later. What is known
of files and of the version before is kept, so a version costs what it changed.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.execution.arrays import first_of_runs, in_sorted
from omnigraph.execution.columns import NOTHING, Ordinals, TableKey
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.storage.derived.adjacency import Files
from omnigraph.storage.tables.layout import FragmentLayout, data_files

MANY = 4_096  # numbers from which on a byte map of all nodes is quicker than a search for each
FEW_IDS = 4_096  # ids that are looked up one by one; more are joined with those of all nodes
KEPT_HOMES = 32_768  # ids whose homes are remembered, for each set of files


def files_of(parts: Sequence[FragmentLayout]) -> Files:
    """Return what names the rows of fragments: the file that holds their ids, and how many there are."""
    return tuple((data_files(part.metadata)[0], int(part.metadata.physical_rows)) for part in parts)


class Homes:
    """The homes of ids in some settled files; those of a few ids are remembered."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known: dict[str, int] = {}

    def find(self, table: EntityTable, ids: pa.Array) -> Ordinals:
        """Return the home of each id, or `MISSING` for one that the files do not have."""
        if len(ids) > FEW_IDS:
            return self._joined(table, ids)
        known = self._known
        texts = ids.to_pylist()
        homes = [known.get(text) for text in texts]
        unknown = list(dict.fromkeys(text for text, home in zip(texts, homes, strict=True) if home is None))
        if unknown:
            places = table.first_places(pa.array(unknown, pa.string())).tolist()
            fresh = dict(zip(unknown, places, strict=True))
            homes = [fresh[text] if home is None else home for text, home in zip(texts, homes, strict=True)]
            # Other threads may read what is known: it is added to or replaced, never emptied.
            if len(known) + len(fresh) > KEPT_HOMES:
                self._known = fresh
            else:
                known.update(fresh)
        return np.array(homes, dtype=np.int64)

    def _joined(self, table: EntityTable, ids: pa.Array) -> Ordinals:
        every = pa.chunked_array(table.physical(table.settled_parts, ID), pa.string())
        return np.asarray(pc.fill_null(pc.index_in(ids, value_set=every), MISSING), dtype=np.int64)


# -- places ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Places:
    """Where the nodes of one version live that do not live at home: parallel, by home."""

    homes: Ordinals
    places: Ordinals
    span: int  # of ordinals

    @property
    def any(self) -> bool:
        """Say whether any node has moved."""
        return len(self.homes) > 0

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return 4 * self.homes.nbytes

    def moved(self, homes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Say which of some homes have been left."""
        return _are_among(homes, self.homes, self.span)

    def places_of(self, homes: Ordinals) -> Ordinals:
        """Return where nodes live, given their homes."""
        return _translated(homes, self.homes, self.places, self.span) if self.any else homes

    def homes_of(self, places: Ordinals) -> Ordinals:
        """Return the homes of nodes, given where they live; of one without a home, where it lives."""
        return _translated(places, *self._by_place, self.span) if self.any else places

    @cached_property
    def _by_place(self) -> tuple[Ordinals, Ordinals]:
        order = np.argsort(self.places)
        return self.places[order], self.homes[order]


def _are_among(numbers: NDArray[np.integer[Any]], ascending: Ordinals, span: int) -> NDArray[np.bool_]:
    """Return which numbers stand in a sorted array; -1 is none.

    The map for many numbers is not kept: each version would hold a byte for each node.
    """
    if len(numbers) <= MANY or not len(ascending):
        return in_sorted(numbers, ascending)
    present = np.zeros(span + 1, dtype=np.bool_)  # the last is what -1 reads
    present[ascending] = True
    return np.take(present, numbers)


def _translated(numbers: Ordinals, keys: Ordinals, values: Ordinals, span: int) -> Ordinals:
    """Return numbers with those that are keys replaced; the keys ascend."""
    among = np.flatnonzero(_are_among(numbers, keys, span))
    if not len(among):
        return numbers
    translated = numbers.copy()
    translated[among] = values[np.searchsorted(keys, numbers[among])]
    return translated


# -- from version to version -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _SettledMoves:
    """Deleted rows of settled files, ascending, and where in settled files their nodes live now."""

    deleted: Ordinals
    living: Ordinals  # `MISSING` where the node is gone, or lives in a small file

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.deleted.nbytes + self.living.nbytes


@dataclass(frozen=True, eq=False)
class _SmallFile:
    """The living nodes of a small file: their offsets and their homes."""

    offsets: Ordinals
    homes: Ordinals

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.offsets.nbytes + self.homes.nbytes


class MovedNodes:
    """Works out which nodes of a version have moved, from what changed since a version before."""

    def __init__(self, limit: int) -> None:
        self.places = BoundedCache[TableKey, Places](limit, lambda places: places.nbytes)
        self._settled = BoundedCache[Hashable, _SettledMoves](limit, lambda moves: moves.nbytes)
        self._small = BoundedCache[Hashable, _SmallFile](limit, lambda file: file.nbytes)
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.places.weight + self._settled.weight + self._small.weight

    def shrink(self, size: int) -> None:
        """Let go of what was not used for longest, until so much is left."""
        for cache in (self.places, self._small, self._settled):
            cache.shrink(max(size - (self.nbytes - cache.weight), 0))

    def of(self, table: EntityTable, homes: Homes) -> Places:
        """Return where the nodes of a version live that do not live at home."""
        return self.places.get_or_make(table.key, lambda: self._places(table, homes))

    def _places(self, table: EntityTable, homes: Homes) -> Places:
        deleted = table.settled_deleted
        if not len(deleted):  # whoever lives elsewhere has left a deleted row behind
            self._settled.put((table.key[0], homes.files), _SettledMoves(NOTHING, NOTHING))
            return Places(NOTHING, NOTHING, table.span)
        left, living = self._within_settled(table, deleted, homes.files)
        small = [self._small_file(table, homes, *entry) for entry in table.unsettled]
        left = np.concatenate([left, *(file_homes for file_homes, _ in small)])
        living = np.concatenate([living, *(places for _, places in small)])
        order = np.argsort(left)
        return Places(left[order], living[order], table.span)

    def _within_settled(
        self, table: EntityTable, deleted: Ordinals, files: Files
    ) -> tuple[Ordinals, Ordinals]:
        """Return (home, place) of the nodes that moved from one settled file to another."""
        moves = self._moves(table, deleted, (table.key[0], files))
        there = moves.living != MISSING
        homes, living = moves.deleted[there], moves.living[there]
        # Of several deleted rows of one node the first is its home, unless it lives before that.
        order = np.lexsort((homes, living))
        homes, living = homes[order], living[order]
        moved = first_of_runs(living) & (homes < living)
        return homes[moved], living[moved]

    def _moves(self, table: EntityTable, deleted: Ordinals, key: Hashable) -> _SettledMoves:
        known = self._settled.get(key)
        if known is None or not in_sorted(known.deleted, deleted).all():  # of another branch, or a later one
            moves = _SettledMoves(deleted, self._living(table, deleted))
        else:
            fresh = deleted[~in_sorted(deleted, known.deleted)]
            if not len(fresh):
                return known
            # A row that was alive then was the only one of its node, and no settled file came since: nodes
            # that were deleted since are gone, or live in small files.
            living = np.where(in_sorted(known.living, fresh), MISSING, known.living)
            at = np.searchsorted(known.deleted, fresh)
            moves = _SettledMoves(deleted, np.insert(living, at, MISSING))
        with self._lock:
            self._settled.drop(key)
            self._settled.put(key, moves)
        return moves

    def _living(self, table: EntityTable, deleted: Ordinals) -> Ordinals:
        """Return where in settled files the nodes of deleted rows live, by their ids."""
        ids = table.physical_at(deleted, [ID])[ID]
        living = table.find(pa.concat_arrays(ids.chunks))
        return np.where(living < table.settled_span, living, MISSING)

    def _small_file(
        self, table: EntityTable, homes: Homes, number: int, part: FragmentLayout
    ) -> tuple[Ordinals, Ordinals]:
        """Return (home, place) of the nodes of a small file that have a home elsewhere."""

        def numbered() -> _SmallFile:
            (ids,), offsets = table.living(number, part, [ID])
            return _SmallFile(offsets, homes.find(table, ids))

        file = self._small.get_or_make((table.key[0], part.key, homes.files), numbered)
        there = file.homes != MISSING
        return file.homes[there], file.offsets[there] + table.start(number)
