"""Parts: what search derives from a column, fragment by fragment.

A data file never changes, so what is derived from a column of one fragment (its postings, its vectors) is
right for ever and shared by all versions and branches that hold it. After a write only new fragments are
read; deleted rows are masked, not forgotten, because an earlier version may still have them.

`PartsCache` gives, for one column of one table version, each fragment's part, where its ordinals start,
and which of its rows are alive. It is bounded by the bytes of the distinct parts that the cached versions
hold; the version that was not used for longest goes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.execution.columns import TableKey
from omnigraph.execution.entities import EntityTable
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.tables.layout import ADDRESS, Layout
from omnigraph.storage.tables.layout import FragmentLayout as Fragment

CACHE_BYTES = 2 << 30
COUNTED = 1_024
Mask = NDArray[np.bool_]
_OFFSET = 0xFFFFFFFF


class Derived(Protocol):
    """Made from one fragment's column, for each of its rows in order, deleted ones included."""

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        ...


D = TypeVar("D", bound=Derived)
V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class SearchFragment(Generic[D]):
    """One fragment's share of a version; `alive` is None when no row is deleted."""

    derived: D
    start: int
    alive: Mask | None


def fragments(table: EntityTable) -> tuple[tuple[int, Fragment], ...]:
    """Return the fragments of a version by number."""
    return tuple(sorted(Layout.of(table.handle).parts.items()))


def _alive(table: EntityTable, number: int, fragment: Fragment) -> Mask | None:
    if fragment.metadata.deletion_file is None:
        return None
    scan = scanner(
        table.handle, columns=[], fragments=[table.handle.get_fragment(number)], with_row_address=True
    )
    mask = np.zeros(fragment.metadata.physical_rows, dtype=bool)
    mask[scan.to_table()[ADDRESS].to_numpy().astype(np.int64) & _OFFSET] = True
    return mask


def _values(table: EntityTable, number: int, column: str) -> pa.ChunkedArray:
    """Read a column of a fragment, deleted rows too."""
    if column in table.absent:
        rows = table.handle.get_fragment(number).physical_rows
        return pa.chunked_array([pa.nulls(rows, table.declared.stored_schema.field(column).type)])
    scan = scanner(
        table.handle,
        columns=[column],
        fragments=[table.handle.get_fragment(number)],
        with_row_id=True,
        include_deleted_rows=True,
        scan_in_order=True,
    )
    return scan.to_table()[column]


class PartsCache(Generic[D, V]):
    """Columns of table versions, as something made of parts."""

    def __init__(
        self,
        derive: Callable[[pa.ChunkedArray], D],
        assemble: Callable[
            [int, Sequence[SearchFragment[D]]], V
        ],  # from the span of the ordinals and the parts
        limit: int = CACHE_BYTES,
    ) -> None:
        self._derive = derive
        self._assemble = assemble
        self._lock = threading.Lock()
        self._building: dict[tuple[TableKey, str], threading.Lock] = {}
        self._known = BoundedCache[tuple[TableKey, str], tuple[V, tuple[SearchFragment[D], ...]]](
            limit, total=_bytes
        )
        self._counts: dict[tuple[TableKey, str], int] = {}
        self._derived: WeakValueDictionary[tuple[str, bytes, str, str], D] = WeakValueDictionary()

    def known(self, table: EntityTable, column: str) -> V | None:
        """Return a column of a version if it is at hand."""
        entry = self._known.get((table.key, column))
        return None if entry is None else entry[0]

    def count(self, table: EntityTable, column: str, rows: int) -> int:
        """Count rows that are asked for without the whole column; return how many there have been."""
        with self._lock:
            if len(self._counts) > COUNTED:
                self._counts.clear()
            total = self._counts[(table.key, column)] = self._counts.get((table.key, column), 0) + rows
            return total

    def get(self, table: EntityTable, column: str) -> V:
        """Return a column of a version, reading only fragments that no cached version has."""
        at_hand = self.known(table, column)
        if at_hand is not None:
            return at_hand
        key = (table.key, column)
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            entry = self._known.get(key)
            if entry is None:
                parts = tuple(
                    self._part(table, column, *numbered_fragment) for numbered_fragment in fragments(table)
                )
                entry = (self._assemble(table.span, parts), parts)
                self._keep(key, entry)
        return entry[0]

    def _part(self, table: EntityTable, column: str, number: int, fragment: Fragment) -> SearchFragment[D]:
        columns, files, _ = fragment.key
        key = (table.key[0], columns, files, column)
        with self._lock:
            derived = self._derived.get(key)
        if derived is None:
            derived = self._derive(_values(table, number, column))
            with self._lock:
                self._derived[key] = derived
        start = int(table.ordinals(np.array([number << 32]))[0])
        return SearchFragment(derived, start, _alive(table, number, fragment))

    def _keep(self, key: tuple[TableKey, str], entry: tuple[V, tuple[SearchFragment[D], ...]]) -> None:
        self._known.put(key, entry)
        with self._lock:
            self._building.pop(key, None)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._known.weight

    def shrink(self, size: int) -> None:
        """Let go of the versions that were not used for longest, until so much is left."""
        self._known.shrink(size)


def _bytes(entries: Collection[tuple[object, tuple[SearchFragment[Any], ...]]]) -> int:
    """Return the memory that entries take together: what several of them share counts once."""
    distinct = {id(part.derived): part.derived.nbytes for _, parts in entries for part in parts}
    masks = (part.alive.nbytes for _, parts in entries for part in parts if part.alive is not None)
    return int(sum(distinct.values()) + sum(masks))
