"""Columns: values of stored rows that stay in memory, by the files that they are of.

Whole columns, in two parts: an array over the large files of a table, which versions, branches and queries
share, and a short one over the rest. And values that were read one by one, until a column is worth reading.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass

Ordinals: TypeAlias = NDArray[np.int64]
TableKey: TypeAlias = tuple[str, int]
CACHE_BYTES = 1 << 30
FEW = 4_096
EVERY, ALIVE, PICKED, CODED = (
    "#every",
    "#alive",
    "#picked",
    "#coded",
)  # what is kept beside columns; no column has such a name
MOST_PICKS = 20_000  # values that are remembered of a column; with more of them it is read whole
PICK_COST = 50_000  # rows of a column that are read whole in the time of picking a few (measured, local disk)
KEPT_VERSIONS = 2  # of a table, with an array over all of its rows each
FEW_TEXTS = 32  # of which a loop gathers as many as Arrow does in the same time
TEXT = pa.string()
WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}  # what values of so many bits lie in
NOTHING: Ordinals = np.zeros(0, np.int64)


class ColumnCache:
    """Whole columns by the files or the version that they are of, least recently used first out."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._columns = BoundedCache[tuple[Hashable, str], Any](limit, lambda values: values.nbytes)
        self._picks: dict[tuple[Hashable, str], int] = {}
        self._too_large: set[tuple[Hashable, str]] = set()
        self._versions: dict[tuple[str, str], list[TableKey]] = {}
        self._limit = limit
        self._lock = threading.Lock()

    def worth_reading(self, of: Hashable, column: str, rows: int) -> bool:
        """Count one more pick from a column; say whether they have cost as much as reading it whole."""
        with self._lock:
            if (of, column) in self._too_large:
                return False
            if len(self._picks) > FEW:
                self._picks.clear()
            picks = self._picks[(of, column)] = self._picks.get((of, column), 0) + 1
            return picks * PICK_COST > rows

    def give_up(self, of: Hashable, column: str) -> None:
        """Note that a column has no room in memory, so that it is not read whole again without need."""
        with self._lock:
            if len(self._too_large) > FEW:
                self._too_large.clear()
            self._too_large.add((of, column))

    def get(self, of: Hashable, column: str) -> Any:
        """Return a column (or what was derived from it), if it is here."""
        return self._columns.get((of, column))

    def put(self, of: Hashable, column: str, values: Any) -> Any:
        """Keep a column, unless it alone would fill the cache; return the one that is there."""
        return self._columns.put((of, column), values) if values.nbytes <= self._limit // 2 else values

    def put_for_version(self, table: TableKey, name: str, values: Any) -> Any:
        """Keep what holds in one version only, of the newest versions of a table that were asked for.

        Those before it would fill the cache: every write makes a version.
        """
        with self._lock:
            kept = self._versions.setdefault((table[0], name), [])
            if table not in kept:
                kept.append(table)
            for old in kept[:-KEPT_VERSIONS]:
                self._columns.drop((old, name))
            del kept[:-KEPT_VERSIONS]
        return self.put(table, name, values)

    def picks(self, of: Hashable, column: str) -> Picks | None:
        """Return the values of a column that were read one by one, if any were."""
        picks: Picks | None = self._columns.get(((of, PICKED), column))
        return None if picks is None or len(picks.ordinals) > MOST_PICKS else picks

    def keep_picks(self, of: Hashable, column: str, picks: Picks) -> None:
        """Remember values that were read one by one, in the place of those before."""
        with self._lock:
            self._columns.drop(((of, PICKED), column))
            self._columns.put(((of, PICKED), column), picks)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._columns.weight

    def shrink(self, size: int) -> None:
        """Let go of the columns that were not used for longest, until so much is left."""
        self._columns.shrink(size)


@dataclass(frozen=True, eq=False)
class Picks:
    """Values of a column that were read one by one: which rows, ascending, and their values."""

    ordinals: Ordinals
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.ordinals.nbytes + self.values.get_total_buffer_size())

    def missing(self, wanted: Ordinals) -> Ordinals:
        """Return which of some ascending rows are not here."""
        if not len(self.ordinals):
            return wanted
        at = np.minimum(np.searchsorted(self.ordinals, wanted), len(self.ordinals) - 1)
        lacking: Ordinals = wanted[self.ordinals[at] != wanted]
        return lacking

    def merged(self, other: Picks) -> Picks:
        """Return the values of both."""
        ordinals = np.concatenate([self.ordinals, other.ordinals])
        every, first = np.unique(ordinals, return_index=True)  # a few thousand at most
        values = pa.concat_arrays([self.values, other.values])
        return Picks(every, values.take(pa.array(first)))

    def take(
        self, ordinals: Ordinals, absent: NDArray[np.bool_] | None, tail: pa.Array | None, border: int
    ) -> pa.Array:
        """Return the values of some rows, those from a border on from another array; null where absent.

        All of them must be here: whoever takes has asked which are missing, and merged what was read.
        """
        places = np.searchsorted(self.ordinals, ordinals)
        if tail is None:
            return self.values.take(pa.array(places, mask=absent))
        places = np.where(ordinals >= border, len(self.values) + ordinals - border, places)
        return pa.concat_arrays([self.values, tail]).take(pa.array(places, mask=absent))


@dataclass(frozen=True, eq=False)
class SplitColumn:
    """A column in two parts, by ordinal: over the large files, and over the rest."""

    base: pa.Array
    tail: pa.Array

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.base.nbytes + self.tail.nbytes)

    def value_at(self, ordinal: int) -> pa.Array:
        """Return one value."""
        if ordinal < len(self.base):
            return self.base.slice(ordinal, 1)
        return self.tail.slice(ordinal - len(self.base), 1)

    def take(self, ordinals: Ordinals, absent: NDArray[np.bool_] | None) -> pa.Array:
        """Return some values, in their order; null where one is absent."""
        border = len(self.base)
        in_tail = ordinals >= border
        if absent is not None:
            ordinals = np.where(absent, 0, ordinals)
        if not len(self.tail) or not in_tail.any():
            return gathered(self.base if border else self.tail, ordinals, absent)
        if in_tail.all():
            return gathered(self.tail, ordinals - border, absent)
        if not border:
            return gathered(self.tail, ordinals, absent)
        here, there = np.flatnonzero(~in_tail), np.flatnonzero(in_tail)
        parts = [self.base.take(pa.array(ordinals[here])), self.tail.take(pa.array(ordinals[there] - border))]
        back = np.empty(len(ordinals), dtype=np.int64)
        back[np.concatenate([here, there])] = np.arange(len(ordinals))
        return pa.concat_arrays(parts).take(pa.array(back, mask=absent))


def gathered(column: pa.Array, places: Ordinals, absent: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return the values at some places, in their order; null where one is absent.

    A few are gathered here: Arrow lets the interpreter go six times for that, and threads with small reads
    spent half of their time getting it back.
    """
    kind = column.type
    if absent is None and len(places) and not column.null_count:
        if kind == TEXT and len(places) <= FEW_TEXTS:
            return _few_texts(column, places + column.offset)
        if pa.types.is_primitive(kind) and kind.bit_width in WORDS and len(places) <= FEW:
            words = np.frombuffer(column.buffers()[1], WORDS[kind.bit_width])
            return array_of(kind, len(places), words[places + column.offset])
    return column.take(pa.array(places, mask=absent))


def _few_texts(column: pa.Array, places: Ordinals) -> pa.Array:
    _, ends, content = column.buffers()
    ends, content = np.frombuffer(ends, np.int32), memoryview(content or b"")
    starts, stops = ends[places], ends[places + 1]
    texts = b"".join([content[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True)])
    offsets = np.zeros(len(places) + 1, np.int32)
    np.cumsum(stops - starts, out=offsets[1:])
    return array_of(TEXT, len(places), offsets, texts)


def array_of(kind: pa.DataType, count: int, *buffers: Any) -> pa.Array:
    """Make an array without nulls of buffers that are as Arrow wants them.

    What `pickle` calls: it is the one way that does not check them, for which the interpreter is let go.
    """
    return pa.lib._restore_array((kind, count, 0, 0, [None, *map(pa.py_buffer, buffers)], [], None))


@dataclass(frozen=True, eq=False)
class Codes:
    """A column of large files as numbers by ordinal, equal where its values are; the last is for null."""

    numbers: NDArray[np.int32]
    values: pa.Array  # of each number

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.numbers.nbytes + self.values.nbytes)

    @classmethod
    def of(cls, column: pa.Array) -> Codes:
        """Number the values of a column; both zeros are one."""
        encoded = pc.dictionary_encode(_with_one_zero(column))
        null = len(encoded.dictionary)
        numbers = np.asarray(pc.fill_null(encoded.indices, null), dtype=np.int32)
        return cls(numbers, encoded.dictionary)

    def tail_numbers(self, tail: pa.Array) -> tuple[NDArray[np.int32], int]:
        """Return the numbers of values that come after the column, and how many numbers there are then.

        That of null stays; values that the column does not have come after it.
        """
        null = len(self.values)
        if not len(tail):
            return np.zeros(0, np.int32), null + 1
        tail = _with_one_zero(tail)
        fresh = pc.unique(tail.filter(pc.invert(pc.is_in(tail, value_set=self.values))).drop_null())
        places = pc.index_in(tail, value_set=pa.concat_arrays([self.values, fresh]))
        numbers = np.asarray(pc.fill_null(places, -1), dtype=np.int32)
        return np.where(numbers < 0, null, numbers + (numbers >= null)).astype(np.int32), null + 1 + len(
            fresh
        )


def _with_one_zero(column: pa.Array) -> pa.Array:
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column
