"""Tail: the small fragments at the end of a table, kept in memory by the processes that write it.

Room    storage.tables. A cache of immutable things: a data file never changes, and a deletion file
        has its own identity, so an entry is right for ever. It only saves requests: a writer knows
        what it just wrote, so looking for a key in the tail, or folding it, asks nothing of storage.
Bound   by bytes, least recently used first; a missing entry is read back (one request a fragment).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import ID
from omnigraph.storage.tables.layout import ADDRESS, NOTHING, OFFSET_MASK, FragmentKey, Offsets

CACHE_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class TailFragment:
    """The living rows of one small fragment, and where each of them is."""

    rows: pa.Table
    offsets: Offsets

    @property
    def held(self) -> int:
        """How much memory it keeps from being freed."""
        return int(self.rows.get_total_buffer_size()) + self.offsets.nbytes

    @cached_property
    def ids(self) -> pa.Array:
        """The ids, in one piece."""
        return (
            pa.concat_arrays(self.rows[ID].chunks) if self.rows[ID].num_chunks else pa.array([], pa.string())
        )

    @cached_property
    def _position(self) -> dict[str, int]:
        return dict(zip(self.rows[ID].to_pylist(), self.offsets.tolist(), strict=True))

    def find(self, ids: Iterable[str]) -> Offsets:
        """Return the offsets of the rows with these ids, sorted."""
        position = self._position
        found = [position[i] for i in ids if i in position]
        return np.array(sorted(found), dtype=np.int64) if found else NOTHING

    def without(self, offsets: Offsets) -> TailFragment:
        """Return what is left after removing rows."""
        if not len(offsets):
            return self
        keep = ~np.isin(self.offsets, offsets)
        return TailFragment(self.rows.filter(pa.array(keep)), self.offsets[keep])


class TailCache:
    """Small fragments by identity, shared by all tables of a store."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._entries: OrderedDict[FragmentKey, TailFragment] = OrderedDict()
        self._bytes = 0
        self._limit = limit
        self._lock = threading.Lock()

    def get(self, handle: Handle, fragment_id: int, key: FragmentKey) -> TailFragment:
        """Return a fragment of this version, reading it only if nobody here wrote or read it before."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
        scan = handle.scanner(
            fragments=[handle.get_fragment(fragment_id)], with_row_address=True, scan_in_order=True
        )
        table = scan.to_table()
        offsets = table[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK
        entry = TailFragment(table.drop_columns([ADDRESS]), offsets)
        self.put(key, entry)
        return entry

    def put(self, key: FragmentKey, entry: TailFragment) -> None:
        """Remember a fragment that was just written or read."""
        with self._lock:
            if key in self._entries:
                return
            self._entries[key] = entry
            self._bytes += entry.held
            while self._bytes > self._limit and self._entries:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.held


def written(rows: pa.Table) -> TailFragment:
    """Return the entry of a fragment written from these rows, in this order."""
    return TailFragment(rows, np.arange(rows.num_rows, dtype=np.int64))
