"""Moved nodes: where the nodes of a version live, next to where stored adjacency knows them.

Adjacency numbers a node by its home: the first row with its id in the settled files, deleted or not. A node
that was updated since lives elsewhere. Few have moved, and what is known of a file is kept from version to
version: the ids of its deleted rows, and the homes of ids that were looked for.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.entities import MISSING, EntityTable
from omnigraph.storage.derived.adjacency import Files, gathered
from omnigraph.storage.tables.layout import FragmentLayout, data_files

MANY = 20_000  # numbers that are translated by a table of all homes; fewer are searched for
KEPT_FILES = 4_096
NO_IDS = pa.array([], pa.string())
NOTHING: Ordinals = np.zeros(0, np.int64)


def files_of(parts: Sequence[FragmentLayout]) -> Files:
    """Return what names the rows of fragments: the file that holds their ids, and how many there are."""
    return tuple((data_files(part.metadata)[0], int(part.metadata.physical_rows)) for part in parts)


@dataclass(frozen=True, eq=False)
class _Deleted:
    """Deleted rows of a file, as far as they are known: offsets, ascending, and some columns of them."""

    offsets: Ordinals
    rows: pa.Table


class DeletedRows:
    """What deleted rows of settled files held; read once, whichever version deleted them."""

    def __init__(self) -> None:
        self._known = BoundedCache[tuple[str, str], _Deleted](KEPT_FILES)
        self._lock = threading.Lock()

    def of(self, table: EntityTable, number: int, part: FragmentLayout, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows of a fragment that a version has deleted, by their offsets."""
        offsets = table.deleted(number, part)
        key = (table.key[0], part.key[1])
        known = self._known.get(key)
        if known is None:
            known = _Deleted(NOTHING, table.physical_rows(part, NOTHING, columns))
        fresh = np.setdiff1d(offsets, known.offsets, assume_unique=True)
        if len(fresh):
            every = np.concatenate([known.offsets, fresh])
            rows = pa.concat_tables([known.rows, table.physical_rows(part, fresh, columns)])
            order = np.argsort(every)
            known = _Deleted(every[order], rows.take(pa.array(order)))
            with self._lock:
                self._known.drop(key)
                self._known.put(key, known)
        if len(known.offsets) == len(offsets):
            return known.rows
        return known.rows.take(pa.array(np.searchsorted(known.offsets, offsets)))


class Homes:
    """The homes of ids in some settled files, remembered."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._known: dict[str, int] = {}

    def find(self, table: EntityTable, ids: pa.Array) -> Ordinals:
        """Return the home of each id, or `MISSING` for one that the files do not have."""
        if len(self._known) > KEPT_FILES * 32:
            self._known.clear()
        texts = ids.to_pylist()
        unknown = [text for text in dict.fromkeys(texts) if text not in self._known]
        if unknown:
            homes = table.first_places(pa.array(unknown, pa.string()))
            self._known.update(zip(unknown, homes.tolist(), strict=True))
        return np.array([self._known[text] for text in texts], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Places:
    """Where the nodes of one version live that do not live at home: parallel, by home."""

    homes: Ordinals
    places: Ordinals
    span: int  # of ordinals

    @classmethod
    def of(cls, table: EntityTable, deleted: DeletedRows) -> Places:
        """Work out which nodes have moved: those whose id has deleted rows, and lives on."""
        ids, at = [NO_IDS], [NOTHING]
        for number, part in table.settled:
            if part.metadata.deletion_file is not None:
                ids += deleted.of(table, number, part, [ID])[ID].chunks
                at.append(table.start(number) + table.deleted(number, part))
        every, places = pa.concat_arrays(ids), np.concatenate(at)
        if not len(places):
            return cls(NOTHING, NOTHING, table.span)
        living = table.find(every)
        alive = living != MISSING
        homes, living = places[alive], living[alive]
        # Of several deleted rows of one node the first is its home, unless it lives before that.
        order = np.lexsort((homes, living))
        homes, living = homes[order], living[order]
        first = np.concatenate([[True], living[1:] != living[:-1]]) if len(living) else np.zeros(0, bool)
        moved = first & (homes < living)
        order = np.argsort(homes[moved])
        return cls(homes[moved][order], living[moved][order], table.span)

    @property
    def any(self) -> bool:
        """Say whether any node has moved."""
        return len(self.homes) > 0

    def moved(self, homes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Say which of some homes have been left."""
        if not self.any:
            return np.zeros(len(homes), dtype=bool)
        left = np.zeros(max(self.span, int(homes.max(initial=0)) + 1), dtype=np.bool_)
        left[self.homes] = True
        return np.take(left, homes)

    def places_of(self, homes: Ordinals) -> Ordinals:
        """Return where nodes live, given their homes."""
        if not self.any:
            return homes
        if len(homes) > MANY and int(homes.min()) >= 0:
            return gathered(self._table, homes).astype(np.int64)  # type: ignore[no-any-return]
        return _translated(homes, self.homes, self.places)

    def homes_of(self, places: Ordinals) -> Ordinals:
        """Return the homes of nodes, given where they live; of one without a home, where it lives."""
        return _translated(places, *self._by_place) if self.any else places

    @cached_property
    def _table(self) -> NDArray[np.int32]:
        table = np.arange(self.span, dtype=np.int32)
        table[self.homes] = self.places
        return table

    @cached_property
    def _by_place(self) -> tuple[Ordinals, Ordinals]:
        order = np.argsort(self.places)
        return self.places[order], self.homes[order]


def _translated(numbers: Ordinals, keys: Ordinals, values: Ordinals) -> Ordinals:
    at = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
    return np.where(keys[at] == numbers, values[at], numbers)
