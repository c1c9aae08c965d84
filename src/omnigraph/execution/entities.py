"""Entities: the rows of one stored version as dense numbers, and the rows of a match made of them.

A query holds entities as ordinals, not as ids: the ordinal of a row is its place in the table's files,
counted through all fragments. It is arithmetic on Lance's row address, so it costs no look-up; it is good
for one version of one table, and deleted rows just leave holes.

`EntityTable` scans a table, turns ids into ordinals and reads columns by ordinal; whole columns stay in a
bounded cache. `Rows` is what a match has bound so far.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import ResourceLimit
from omnigraph.catalog.model import ID, TableType
from omnigraph.catalog.query.expressions import Variable
from omnigraph.execution.budget import Budget
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS
from omnigraph.storage.tables.predicate import Holds, Predicate, find
from omnigraph.storage.tables.reads import TableReads

Ordinals: TypeAlias = NDArray[np.int64]
TableKey: TypeAlias = tuple[str, int]
MISSING = -1  # the ordinal of an optional variable that matched nothing
CACHE_BYTES = 1 << 30
WHOLE_ABOVE = 0.02  # of a column's rows: beyond this share, reading all of it is cheaper than picking
FEW = 4_096
SORTED, EVERY = "id#sorted", "#every"  # what is kept beside columns; no column has such a name
PICK_COST = 50_000  # rows of a column that are read whole in the time of picking a few (measured, local disk)
WIDEST_ID = 128  # bytes; longer ids are not worth a sorted copy


class ColumnCache:
    """Whole columns by table version, least recently used first out."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._columns = BoundedCache[tuple[TableKey, str], Any](limit, lambda values: values.nbytes)
        self._picks: dict[tuple[TableKey, str], int] = {}
        self._too_large: set[tuple[TableKey, str]] = set()
        self._limit = limit
        self._lock = threading.Lock()

    def worth_reading(self, table: TableKey, column: str, rows: int) -> bool:
        """Count one more pick from a column; say whether they have cost as much as reading it whole."""
        with self._lock:
            if (table, column) in self._too_large:
                return False
            if len(self._picks) > FEW:
                self._picks.clear()
            picks = self._picks[(table, column)] = self._picks.get((table, column), 0) + 1
            return picks * PICK_COST > rows

    def give_up(self, table: TableKey, column: str) -> None:
        """Note that a column has no room in memory, so that it is not read whole again without need."""
        with self._lock:
            if len(self._too_large) > FEW:
                self._too_large.clear()
            self._too_large.add((table, column))

    def get(self, table: TableKey, column: str) -> Any:
        """Return a column (or what was derived from it), if it is here."""
        return self._columns.get((table, column))

    def put(self, table: TableKey, column: str, values: Any) -> None:
        """Keep a column, unless it alone would fill the cache."""
        if values.nbytes <= self._limit // 2:
            self._columns.put((table, column), values)

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._columns.weight

    def shrink(self, size: int) -> None:
        """Let go of the columns that were not used for longest, until so much is left."""
        self._columns.shrink(size)


class EntityTable:
    """One table at one version."""

    def __init__(
        self,
        declared: TableType,
        table_id: str,
        version: int,
        reads: TableReads,
        columns: ColumnCache,
    ) -> None:
        self.declared = declared
        self.handle: Handle = reads.handle(table_id, version)
        self.key: TableKey = (table_id, version)
        self._reads = reads
        self._columns = columns
        self._budget = Budget()
        self._every: Ordinals | None = None
        self._scanned: dict[str, int] = {}
        layout = reads.layout(self.handle)
        self._parts = parts = sorted(layout.parts.items())
        lengths = np.array([part.metadata.physical_rows for _, part in parts], dtype=np.int64)
        self._fragments = np.array([number for number, _ in parts], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.span = int(self._starts[-1])  # ordinals are below this
        self.rows = sum(part.size.rows for _, part in parts)
        # In the past, properties of today may be missing: then they are null in every row.
        self.absent = frozenset({*declared.stored_schema.names} - {*layout.schema.names})

    @property
    def as_declared(self) -> bool:
        """Say whether the version has the columns of today, so that it can be filtered by them."""
        return not self.absent

    def under(self, budget: Budget) -> EntityTable:
        """Return the same table, on the account of one query."""
        mine = copy.copy(self)
        mine._budget = budget
        return mine

    # -- ordinals ----------------------------------------------------------------------------------

    def ordinals(self, addresses: Any) -> Ordinals:
        """Return the ordinals of row addresses."""
        raw = np.asarray(addresses, dtype=np.uint64).astype(np.int64)
        at = np.searchsorted(self._fragments, raw >> 32)
        return self._starts[at] + (raw & 0xFFFFFFFF)

    def addresses(self, ordinals: Ordinals) -> NDArray[np.uint64]:
        """Return the row addresses of ordinals."""
        at = np.searchsorted(self._starts, ordinals, side="right") - 1
        raw = (self._fragments[at] << 32) | (ordinals - self._starts[at])
        return raw.astype(np.uint64)

    def every(self) -> Ordinals:
        """Return the ordinals of all rows, ascending; the same array each time."""
        if self._every is None:
            ordinals: Ordinals | None = self._columns.get(self.key, EVERY)
            if ordinals is None:
                ordinals = np.arange(self.span) if self._alive is None else np.flatnonzero(self._alive)
                ordinals.setflags(write=False)
                self._columns.put(self.key, EVERY, ordinals)
            self._every = ordinals
        return self._every

    def is_every(self, ordinals: Ordinals) -> bool:
        """Say whether ordinals are those of all rows, as `every` gave them."""
        return ordinals is self._every

    @cached_property
    def _alive(self) -> NDArray[np.bool_] | None:
        """Return which ordinals have a row; None if all do."""
        if self.rows == self.span:
            return None
        alive = np.ones(self.span, dtype=bool)
        for start, (number, part) in zip(self._starts[:-1].tolist(), self._parts, strict=True):
            alive[start + self._reads.deleted(self.handle, number, part)] = False
        return alive

    def where(self, predicate: Predicate, columns: Sequence[str], holds: Holds) -> Ordinals:
        """Return the ordinals of the rows for which a condition on some columns holds, ascending."""
        matching = find(self.handle, predicate, columns, holds)
        return np.sort(self.ordinals(matching[ADDRESS].to_numpy()))

    def by_value(self, column: str, values: pa.Array) -> tuple[Ordinals, pa.Array]:
        """Return the rows whose column is one of the values, and which value each of them has."""
        whole = self._whole(column)
        if whole is not None:
            at = np.flatnonzero(pc.is_in(whole, value_set=values).to_numpy(zero_copy_only=False))
            return at, whole.take(pa.array(at))
        rows = self._reads.addressed(*self.key, column, values)
        order = self.ordinals(rows[ADDRESS].to_numpy())
        return order, rows[column].combine_chunks()

    def scanned_by(self, column: str) -> int:
        """Return how many rows a look-up by this column must scan, for want of an index over them."""
        if column not in self._scanned:
            covered: set[int] = set()
            for index in self.handle.describe_indices():
                if column in index.field_names:
                    for segment in index.segments:
                        covered |= set(segment.fragment_ids)
            big = self._reads.layout(self.handle).big
            self._scanned[column] = sum(
                part.size.rows for number, part in big.items() if number not in covered
            )
        return self._scanned[column]

    def find(self, ids: pa.Array) -> Ordinals:
        """Return the ordinal of each id, or `MISSING`."""
        whole = self._whole(ID)
        if whole is None and self._columns.worth_reading(self.key, ID, self.rows):
            whole = self._if_there_is_room(ID)
        if whole is not None and len(ids) <= FEW:
            sorted_ids = self._sorted_ids(whole)
            if sorted_ids is not None:
                return sorted_ids.find(ids, whole)
        if len(ids) == 1:
            address = self._reads.locate(*self.key, ids[0].as_py())
            ordinal = MISSING if address is None else int(self.ordinals([address])[0])
            return np.array([ordinal], dtype=np.int64)
        order, there = self.by_value(ID, pc.unique(ids))
        if not len(order):
            return np.full(len(ids), MISSING, dtype=np.int64)
        place = pc.index_in(ids, value_set=there)
        ordinals = order[pc.fill_null(place, 0).to_numpy(zero_copy_only=False)]
        return np.where(place.is_valid().to_numpy(zero_copy_only=False), ordinals, MISSING)

    def _sorted_ids(self, ids: pa.Array) -> SortedIds | None:
        sorted_ids: SortedIds | None = self._columns.get(self.key, SORTED)
        if sorted_ids is None:
            sorted_ids = SortedIds.of(ids)
            if sorted_ids is not None:
                self._columns.put(self.key, SORTED, sorted_ids)
        return sorted_ids

    # -- columns -----------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """Return a whole column by ordinal; holes are null."""
        if name in self.absent:
            return self._nulls(name, self.span)
        kept = self._whole(name)
        if kept is not None:
            self._hold(name, kept)
            return kept
        scanned = self._scanned_column(name)
        values = _one(scanned[name])
        if self.rows != self.span:
            places = np.full(self.span, -1, dtype=np.int64)
            places[self.ordinals(scanned[ADDRESS].to_numpy())] = np.arange(len(values))
            values = values.take(pa.array(places, mask=places < 0))
        self._hold(name, values)
        self._columns.put(self.key, name, values)
        return values

    def _whole(self, name: str) -> pa.Array | None:
        """Return a whole column if it is at hand; picking a few values from it counts for nothing."""
        kept = self._budget.held((self.key, name))
        return self._columns.get(self.key, name) if kept is None else kept

    def _hold(self, name: str, values: pa.Array) -> None:
        self._budget.hold((self.key, name), values, values.nbytes, f"column {name} of {self.declared.name}")

    def _scanned_column(self, name: str) -> pa.Table:
        """Read a whole column, as long as there is room for it and for putting its pieces together."""
        scanner = self.handle.scanner(columns=[name], with_row_address=True, scan_in_order=True)
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in scanner.to_batches():
            batches.append(batch)
            size += batch.nbytes
            self._budget.check_bytes(2 * size, f"column {name} of {self.declared.name}")
        return pa.Table.from_batches(batches, scanner.projected_schema)

    def _if_there_is_room(self, name: str) -> pa.Array | None:
        """Read a whole column that could as well be picked from."""
        try:
            return self.column(name)
        except ResourceLimit:
            self._columns.give_up(self.key, name)
            return None

    def take_all(self, names: Sequence[str], ordinals: Ordinals) -> dict[str, pa.Array]:
        """Return several columns for some rows; those that must be picked are picked together."""
        columns: dict[str, pa.Array] = {}
        absent = ordinals < 0
        pick = [
            name
            for name in dict.fromkeys(names)
            if name not in self.absent
            and self._whole(name) is None
            and self._read_whole(name, len(ordinals)) is None
        ]
        if len(pick) > 1 and not absent.all():
            columns = dict(zip(pick, self._picked(pick, ordinals, absent), strict=True))
        for name in names:
            if name not in columns:
                columns[name] = self.take(name, ordinals)
        return columns

    def take(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return the values of a column for some rows, in their order; null for `MISSING`."""
        if name in self.absent:
            return self._nulls(name, len(ordinals))
        whole = self._whole(name)
        if whole is not None and len(ordinals) == 1 and ordinals[0] >= 0:
            return whole.slice(int(ordinals[0]), 1)  # no copy: a look-up of one node is all slices
        if whole is not None and self.is_every(ordinals):
            self._hold(name, whole)
            return self._without_holes(name, whole)
        absent = ordinals < 0
        if absent.any():
            indices = pa.array(np.where(absent, 0, ordinals), mask=absent)
            if absent.all():
                return self._nulls(name, len(ordinals))
        else:
            indices = pa.array(ordinals)
        if whole is None:
            whole = self._read_whole(name, len(ordinals))
        if whole is not None:
            if len(ordinals) > FEW:
                self._hold(name, whole)
                needed = len(ordinals) * whole.nbytes // max(len(whole), 1)
                self._budget.check_bytes(needed, f"{len(ordinals)} values of column {name}")
            return whole.take(indices)
        return self._picked([name], ordinals, absent)[0]

    def _without_holes(self, name: str, whole: pa.Array) -> pa.Array:
        if self._alive is None:
            return whole
        self._budget.check_bytes(whole.nbytes, f"{self.rows} values of column {name}")
        return whole.filter(pa.array(self._alive))

    def _many(self, count: int) -> bool:
        """Say whether reading a column whole is cheaper than picking so many of its values."""
        return count > max(FEW, self.rows * WHOLE_ABOVE)

    def _read_whole(self, name: str, count: int) -> pa.Array | None:
        """Return a whole column where many values are wanted now, or few have been again and again."""
        if self._many(count):
            return self.column(name)
        wide = pa.types.is_nested(self.declared.stored_schema.field(name).type)
        if wide or not self._columns.worth_reading(self.key, name, self.rows):
            return None
        return self._if_there_is_room(name)

    def _nulls(self, name: str, count: int) -> pa.Array:
        return pa.nulls(count, self.declared.stored_schema.field(name).type)

    def _picked(self, names: Sequence[str], ordinals: Ordinals, absent: NDArray[np.bool_]) -> list[pa.Array]:
        distinct, back = np.unique(ordinals[~absent], return_inverse=True)
        table = self.handle._take_rows(self.addresses(distinct).tolist(), columns=list(names))
        places = np.zeros(len(ordinals), dtype=np.int64)
        places[~absent] = back
        return [_one(table[name]).take(pa.array(places, mask=absent)) for name in names]


@dataclass(frozen=True, eq=False)
class SortedIds:
    """The ids of a table in order, for look-ups in memory."""

    texts: NDArray[np.bytes_]
    order: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.texts.nbytes + self.order.nbytes)

    @classmethod
    def of(cls, ids: pa.Array) -> SortedIds | None:
        """Sort ids, unless one of them is so long that all would take its room."""
        widest = pc.max(pc.binary_length(ids)).as_py() or 0
        if widest > WIDEST_ID:
            return None
        texts = np.array(pc.fill_null(ids.cast(pa.binary()), b""), dtype=f"S{max(widest, 1)}")
        order = np.argsort(texts, kind="stable").astype(np.int32)
        return cls(texts[order], order)

    def find(self, ids: pa.Array, whole: pa.Array) -> Ordinals:
        """Return the ordinal of each id, or `MISSING`; what looks alike is compared in full."""
        if not len(self.order):
            return np.full(len(ids), MISSING, dtype=np.int64)
        if len(ids) == 1:  # by far the most frequent, and Arrow's calls cost more than the search
            text = ids[0].as_py()
            place = min(int(np.searchsorted(self.texts, text.encode())), len(self.order) - 1)
            ordinal = int(self.order[place])
            return np.array([ordinal if whole[ordinal].as_py() == text else MISSING], dtype=np.int64)
        texts = np.array(ids.cast(pa.binary()).to_pylist(), dtype="S")
        at = np.minimum(np.searchsorted(self.texts, texts), len(self.order) - 1)
        ordinals = self.order[at].astype(np.int64)
        same = pc.fill_null(pc.equal(whole.take(pa.array(ordinals)), ids), False)
        return np.where(same.to_numpy(zero_copy_only=False), ordinals, MISSING)


def _one(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


# -- rows of a match -------------------------------------------------------------------------------
#
# A row binds each variable to one entity, held as its ordinal. Inside a block every row also knows which
# outer row it belongs to. Every operator that makes rows asks the budget first (budget.py).


@dataclass(frozen=True, eq=False)
class MatchRows:
    """Bindings, column by column."""

    count: int
    bound: Mapping[Variable, Ordinals]
    origin: Ordinals | None = None  # the outer row of each, inside a block

    def take(self, index: Ordinals) -> MatchRows:
        """Return some rows, possibly repeated."""
        if self.count <= 1 and len(index) == self.count:
            return self
        bound = {variable: ordinals[index] for variable, ordinals in self.bound.items()}
        return MatchRows(len(index), bound, None if self.origin is None else self.origin[index])

    def part(self, start: int, stop: int) -> MatchRows:
        """Return the rows from one number to another, without a copy."""
        bound = {variable: ordinals[start:stop] for variable, ordinals in self.bound.items()}
        origin = None if self.origin is None else self.origin[start:stop]
        return MatchRows(min(stop, self.count) - start, bound, origin)

    def keep(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> MatchRows:
        """Return the rows of a mask."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def bind(self, variable: Variable, ordinals: Ordinals) -> MatchRows:
        """Return the rows with one more variable."""
        return MatchRows(self.count, {**self.bound, variable: ordinals}, self.origin)


def joined(parts: Sequence[MatchRows]) -> MatchRows:
    """Return the rows of several parts, which bind the same variables, in their order."""
    if len(parts) == 1:
        return parts[0]
    bound = {v: np.concatenate([part.bound[v] for part in parts]) for v in parts[0].bound}
    return MatchRows(sum(part.count for part in parts), bound)


ONE_EMPTY_ROW = MatchRows(1, {})
