"""Differences: which rows two versions of a table do not share, and the cache of small fragments under it.

A data file never changes, so fragments with the same files hold the same rows, and only their deletions can
differ; nothing of them is read. What is left is read whole, small fragments from the tail cache: a process
that wrote them lately reads nothing. The outcome is two streams of rows, one for each version. A row that was
only moved, by folding or compaction, is in both: for changes, compare values (engine/history/delta.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.cancellation import stoppable
from omnigraph.base.dataclass import dataclass
from omnigraph.storage.lance_reads import scanner, take_rows
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import ID
from omnigraph.storage.tables.layout import (
    ADDRESS,
    NOTHING,
    OFFSET_MASK,
    FragmentKey,
    FragmentLayout,
    Layouts,
    Offsets,
)

# -- tail cache ------------------------------------------------------------------------------------
#
# The small fragments at the end of a table, kept in memory by the processes that write it. Entries are right
# for ever: a data file never changes, and a deletion file has its own identity. A writer knows what it just
# wrote, so looking for a key in the tail, or folding it, asks nothing of storage. Bounded by bytes, least
# recently used out first; a missing entry is read back (one request a fragment). Of fragments that a write
# replaced only the last few are kept, for whoever lost a race or still reads the version before.


CACHE_BYTES = 64 << 20
RETIRED = 64  # replaced fragments that are kept


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
        offsets = [position[i] for i in ids if i in position]
        return np.array(sorted(offsets), dtype=np.int64) if offsets else NOTHING

    def places(self, ids: Iterable[str]) -> Offsets:
        """Return the offset of the row with each id, or -1."""
        position = self._position
        return np.array([position.get(i, -1) for i in ids], dtype=np.int64)

    def without(self, offsets: Offsets) -> TailFragment:
        """Return what is left after removing rows."""
        if not len(offsets):
            return self
        keep = ~np.isin(self.offsets, offsets)
        return TailFragment(self.rows.filter(pa.array(keep)), self.offsets[keep])


class TailCache:
    """Small fragments by identity, shared by all tables of a store."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._fragments = BoundedCache[FragmentKey, TailFragment](limit, lambda fragment: fragment.held)
        self._retired = BoundedCache[FragmentKey, TailFragment](RETIRED)

    def get(self, handle: Handle, fragment_id: int, key: FragmentKey) -> TailFragment:
        """Return a fragment of this version, reading it only if nobody here wrote or read it before."""
        fragment = self._fragments.get(key) or self._retired.get(key)
        if fragment is not None:
            return fragment
        scan = scanner(
            handle, fragments=[handle.get_fragment(fragment_id)], with_row_address=True, scan_in_order=True
        )
        table = scan.to_table()
        offsets = table[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK
        return self._fragments.put(key, TailFragment(table.drop_columns([ADDRESS]), offsets))

    def put(self, key: FragmentKey, fragment: TailFragment) -> None:
        """Remember a fragment that was just written or read."""
        self._fragments.put(key, fragment)

    def retire(self, key: FragmentKey) -> None:
        """Note that a write replaced a fragment: newer versions do not have it."""
        fragment = self._fragments.get(key)
        if fragment is not None:
            self._retired.put(key, fragment)
            self._fragments.drop(key)


# -- differences ---------------------------------------------------------------------------------


BATCH = 8_192


@dataclass(frozen=True, eq=False)
class FragmentRows:
    """Rows of one fragment: all that are alive, or those at some offsets; `held` where they are in memory."""

    fragment: int
    rows: int
    offsets: Offsets | None = None
    held: pa.Table | None = None


@dataclass(frozen=True, eq=False)
class OneSided:
    """What one version has and the other has not."""

    handle: Handle | None  # None: there is no such version
    pieces: tuple[FragmentRows, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the version."""
        schema: pa.Schema = pa.schema([]) if self.handle is None else self.handle.schema
        return schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream some columns of the rows."""
        return stoppable(self._batches(columns))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for piece in self.pieces:
            if piece.held is not None:
                yield from piece.held.select(list(columns)).to_batches()
        stored = [piece for piece in self.pieces if piece.held is None]
        whole = [piece.fragment for piece in stored if piece.offsets is None]
        if whole and self.handle is not None:
            fragments = [self.handle.get_fragment(number) for number in whole]
            yield from scanner(self.handle, columns=list(columns), fragments=fragments).to_batches()
        for piece in stored:
            if piece.offsets is not None:
                yield from self._picked(piece, columns)

    def _picked(self, piece: FragmentRows, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self.handle is not None
        assert piece.offsets is not None
        for start in range(0, len(piece.offsets), BATCH):
            addresses = (piece.fragment << 32) | piece.offsets[start : start + BATCH]
            table: Any = take_rows(self.handle, addresses.tolist(), columns)
            yield from table.to_batches()


@dataclass(frozen=True, eq=False)
class _Version:
    """One version and its fragments by what they hold: fragment numbers mean nothing elsewhere."""

    handle: Handle
    parts: Mapping[tuple[bytes, str], tuple[int, FragmentLayout]]
    small: frozenset[int]
    layouts: Layouts
    tail: TailCache

    def whole(self, files: tuple[bytes, str]) -> FragmentRows:
        """Return all rows of a fragment."""
        number, part = self.parts[files]
        held = self._held(number, part)
        return FragmentRows(number, part.size.rows, held=None if held is None else held.rows)

    def some(self, files: tuple[bytes, str], offsets: Offsets) -> FragmentRows:
        """Return the rows of a fragment at some offsets."""
        number, part = self.parts[files]
        held = self._held(number, part)
        rows = None if held is None else held.rows.filter(pa.array(np.isin(held.offsets, offsets)))
        return FragmentRows(number, len(offsets), offsets, rows)

    def deleted(self, files: tuple[bytes, str]) -> Offsets:
        """Return the offsets of the deleted rows of a fragment."""
        number, part = self.parts[files]
        return self.layouts.deleted(self.handle, number, part)

    def _held(self, number: int, part: FragmentLayout) -> TailFragment | None:
        return self.tail.get(self.handle, number, part.key) if number in self.small else None


def differences(
    before: Handle | None, after: Handle | None, layouts: Layouts, tail: TailCache
) -> tuple[OneSided, OneSided]:
    """Return what only the first version has, and what only the second has."""
    old, new = _version(before, layouts, tail), _version(after, layouts, tail)
    gone: list[FragmentRows] = []
    come: list[FragmentRows] = []
    for files in sorted({*(old.parts if old else ()), *(new.parts if new else ())}):
        here = old.parts.get(files) if old else None
        there = new.parts.get(files) if new else None
        if new is None or there is None:
            assert old is not None
            gone.append(old.whole(files))
        elif old is None or here is None:
            come.append(new.whole(files))
        elif here[1].key != there[1].key:
            was, now = old.deleted(files), new.deleted(files)
            lost, restored = np.setdiff1d(now, was), np.setdiff1d(was, now)
            gone += [old.some(files, lost)] if len(lost) else []
            come += [new.some(files, restored)] if len(restored) else []
    return OneSided(before, tuple(gone)), OneSided(after, tuple(come))


def _version(handle: Handle | None, layouts: Layouts, tail: TailCache) -> _Version | None:
    if handle is None:
        return None
    layout = layouts.get(handle)
    parts = {part.key[:2]: (number, part) for number, part in layout.parts.items()}
    return _Version(handle, parts, frozenset(layout.small), layouts, tail)
