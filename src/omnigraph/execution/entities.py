"""Entities: the rows of one stored version as dense numbers.

A query holds entities as ordinals, not as ids: the ordinal of a row is its place in the table's files,
counted through all fragments, the large ones first. It is arithmetic on Lance's row address, so it costs no
look-up; it is good for one version of one table, and deleted rows just leave holes. Versions that begin with
the same files number the rows of those alike, which is what stored adjacency rests on (topology.py).

`EntityTable` scans a table, turns ids into ordinals and reads columns by ordinal. A column is kept as two
arrays: one over the large files, which versions, branches and queries share, and a short one over the rest.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.errors import LimitExceeded
from omnigraph.catalog.model import ID, NodeType, TableType
from omnigraph.catalog.types import Scalar
from omnigraph.execution.arrays import sorted_distinct, take
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import (
    ALIVE,
    CODED,
    EVERY,
    FEW,
    NOTHING,
    Codes,
    ColumnCache,
    Ordinals,
    Picks,
    SplitColumn,
    TableKey,
)
from omnigraph.storage.derived.adjacency import Base, Cover, Numberer
from omnigraph.storage.lance_reads import scanner, take_rows
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK, TIERS, FragmentLayout, FragmentSize, Layout
from omnigraph.storage.tables.predicate import Holds, Predicate, find
from omnigraph.storage.tables.reads import TableReads

UNKNOWN = -2
MISSING = -1  # the ordinal of an optional variable that matched nothing
SCANS_LIKE_PICKS = 8  # picking a few values so many times costs what one scan does (measured, local disk)
WHOLE_ABOVE = 0.02  # of a column's rows: beyond this share, reading all of it is cheaper than picking


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
        self._every: ref[Ordinals] | None = None  # the cache holds it, so that it is on the account
        layout = reads.layout(self.handle)
        self.columns_read = layout.columns  # names the columns, as the files are read
        self.parts = in_order(layout)
        lengths = np.array([part.metadata.physical_rows for _, part in self.parts], dtype=np.int64)
        self._fragments = np.array([number for number, _ in self.parts], dtype=np.int64)
        self._by_number = np.argsort(self._fragments)
        self._numbers = self._fragments[self._by_number]
        self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.span = int(self._starts[-1])  # ordinals are below this
        self.rows = layout.rows
        self._large = sum(_is_large(part) for _, part in self.parts)
        self._small = layout.small
        self._same_as_id = _same_as_id(declared)
        self._remembered: dict[str, int] = {}  # ordinals of ids that were asked for, the missing among them
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
        at = self._by_number[np.searchsorted(self._numbers, raw >> 32)]
        return self._starts[at] + (raw & 0xFFFFFFFF)

    def addresses(self, ordinals: Ordinals) -> NDArray[np.uint64]:
        """Return the row addresses of ordinals."""
        at = np.searchsorted(self._starts, ordinals, side="right") - 1
        raw = (self._fragments[at] << 32) | (ordinals - self._starts[at])
        return raw.astype(np.uint64)

    def every(self) -> Ordinals:
        """Return the ordinals of all rows, ascending; the same array while there is room for it."""
        ordinals: Ordinals | None = self._columns.get(self.key, EVERY)
        if ordinals is None:
            alive = self._alive
            ordinals = np.arange(self.span) if alive is None else np.flatnonzero(alive)
            ordinals.setflags(write=False)
            self._columns.put_for_version(self.key, EVERY, ordinals)
        self._every = ref(ordinals)
        return ordinals

    def is_every(self, ordinals: Ordinals) -> bool:
        """Say whether ordinals are those of all rows, as `every` gave them."""
        return self._every is not None and ordinals is self._every()

    @property
    def _alive(self) -> NDArray[np.bool_] | None:
        """Return which ordinals have a row; None if all do."""
        if self.rows == self.span:
            return None
        alive: NDArray[np.bool_] | None = self._columns.get(self.key, ALIVE)
        if alive is None:
            alive = np.ones(self.span, dtype=bool)
            alive[self._deleted_in(self.parts)] = False
            alive.setflags(write=False)
            self._columns.put_for_version(self.key, ALIVE, alive)
        return alive

    def _deleted_in(self, parts: Sequence[tuple[int, FragmentLayout]]) -> Ordinals:
        """Return the ordinals of the first fragments that have no row, ascending."""
        deleted = [NOTHING]
        for start, (number, part) in zip(self._starts.tolist(), parts, strict=False):
            if part.metadata.deletion_file is not None:
                deleted.append(start + self.deleted(number, part))
        return np.concatenate(deleted)

    def where(self, predicate: Predicate, columns: Sequence[str], holds: Holds) -> Ordinals:
        """Return the ordinals of the rows for which a condition on some columns holds, ascending."""
        matching = find(self.handle, predicate, columns, holds)
        return np.sort(self.ordinals(matching[ADDRESS].to_numpy()))

    def by_value(self, column: str, values: pa.Array) -> tuple[Ordinals, pa.Array]:
        """Return the rows whose column is one of the values, and which value each of them has."""
        rows = self._reads.addressed(*self.key, column, values)
        return self.ordinals(rows[ADDRESS].to_numpy()), rows[column].combine_chunks()

    def find(self, ids: pa.Array) -> Ordinals:
        """Return the ordinal of each id, or `MISSING`."""
        if len(ids) <= FEW:
            return self.find_texts(ids.to_pylist())
        order, there = self.by_value(ID, pc.unique(ids))
        if not len(order):
            return np.full(len(ids), MISSING, dtype=np.int64)
        place = pc.index_in(ids, value_set=there)
        ordinals = order[pc.fill_null(place, 0).to_numpy(zero_copy_only=False)]
        return np.where(place.is_valid().to_numpy(zero_copy_only=False), ordinals, MISSING)

    def find_texts(self, texts: Sequence[str]) -> Ordinals:
        """Return the ordinals of a few ids: what may have one is compared with what is known of the rows."""
        ordinals = np.array([self._remembered.get(text, UNKNOWN) for text in texts], dtype=np.int64)
        if (ordinals != UNKNOWN).all():
            return ordinals
        for number, part in self._small.items():
            at = self._reads.tail(self.handle, number, part).places(texts)
            ordinals = np.where(at >= 0, self.start(number) + at, ordinals)
        left = np.flatnonzero(ordinals == UNKNOWN)
        if len(left):
            ordinals[left] = self._compared(pa.array([texts[at] for at in left.tolist()], pa.string()))
        if len(self._remembered) > FEW:
            self._remembered.clear()
        self._remembered.update(zip(texts, ordinals.tolist(), strict=True))
        return ordinals

    def _compared(self, ids: pa.Array) -> Ordinals:
        """Return the ordinals of ids in files past the tail."""
        ordinals = np.full(len(ids), MISSING, dtype=np.int64)
        which, addresses = self._reads.candidates(*self.key, ID, ids)
        if len(addresses):
            places = self.ordinals(addresses)
            same = np.asarray(pc.fill_null(pc.equal(self.take(ID, places), ids.take(pa.array(which))), False))
            ordinals[which[same]] = places[same]
        return ordinals

    # -- settled files, as adjacency numbers them ----------------------------------------------------

    @cached_property
    def settled(self) -> tuple[tuple[int, FragmentLayout], ...]:
        """The fragments that writes do not rewrite all the time, in order: large ones, then others.

        Of nodes that are few, all fragments: many edges may lead to them, and a write of edges leaves them.
        """
        kept = tuple(entry for entry in self.parts if _rank(entry[1]) < len(TIERS))
        if isinstance(self.declared, NodeType) and 2 * int(self._starts[len(kept)]) < self.span:
            return self.parts
        return kept

    @cached_property
    def settled_deleted(self) -> Ordinals:
        """The ordinals of settled files that have no row any more, ascending."""
        return self._deleted_in(self.settled)

    @property
    def settled_parts(self) -> tuple[FragmentLayout, ...]:
        """The settled fragments alone."""
        return tuple(part for _, part in self.settled)

    @property
    def unsettled(self) -> tuple[tuple[int, FragmentLayout], ...]:
        """The fragments that writes rewrite all the time, in order."""
        return self.parts[len(self.settled) :]

    @property
    def large(self) -> tuple[tuple[int, FragmentLayout], ...]:
        """The fragments that only maintenance rewrites."""
        return self.parts[: self._large]

    @property
    def settled_span(self) -> int:
        """Ordinals of settled files are below this."""
        return int(self._starts[len(self.settled)])

    @property
    def start_of_rest(self) -> int:
        """Ordinals of large files are below this."""
        return int(self._starts[self._large])

    def start(self, number: int) -> int:
        """Return the first ordinal of a fragment."""
        return int(self._starts[self._by_number[np.searchsorted(self._numbers, number)]])

    def deleted(self, number: int, part: FragmentLayout) -> Ordinals:
        """Return the offsets of the rows of a fragment that this version has deleted, ascending."""
        return self._reads.deleted(self.handle, number, part)

    def physical_rows(self, part: FragmentLayout, offsets: Ordinals, columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows of a fragment, deleted or not."""
        if not len(offsets):
            return pa.schema([self.handle.schema.field(name) for name in columns]).empty_table()
        return self._reads.physical_rows(self.handle, part, offsets, columns)

    def first_places(self, ids: pa.Array) -> Ordinals:
        """Return the first ordinal in settled files of each id, deleted or not, or `MISSING`."""
        at, offsets = self._reads.first_rows(self.handle, [part for _, part in self.settled], ID, ids)
        return np.where(at < 0, MISSING, self._starts[at] + offsets)

    def physical(self, parts: Sequence[FragmentLayout], name: str) -> list[pa.Array]:
        """Return a column of some fragments with all their rows."""
        return list(self._reads.physical(self.handle, parts, name))

    def physical_at(self, ordinals: Ordinals, columns: Sequence[str]) -> pa.Table:
        """Return some columns of rows of settled files, deleted or not, by their ascending ordinals."""
        tables = [self.physical_rows(self.settled[0][1], NOTHING, columns)] if self.settled else []
        borders = np.searchsorted(ordinals, self._starts[: len(self.settled) + 1])
        for at, (_, part) in enumerate(self.settled):
            offsets = ordinals[borders[at] : borders[at + 1]] - self._starts[at]
            if len(offsets):
                tables.append(self.physical_rows(part, offsets, columns))
        return pa.concat_tables(tables)

    def living(
        self, number: int, part: FragmentLayout, columns: Sequence[str]
    ) -> tuple[list[pa.Array], Ordinals]:
        """Return some columns of the living rows of a small fragment, and their offsets."""
        if number in self._small:
            tail = self._reads.tail(self.handle, number, part)
            return [_single_array(tail.rows[name]) for name in columns], tail.offsets
        fragment = self.handle.get_fragment(number)
        rows = scanner(
            self.handle, columns=list(columns), fragments=[fragment], with_row_address=True
        ).to_table()
        offsets = rows[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK
        return [_single_array(rows[name]) for name in columns], offsets

    def are_alive(self, ordinals: Ordinals) -> NDArray[np.bool_]:
        """Say which ordinals have a row."""
        alive = self._alive
        return np.ones(len(ordinals), dtype=bool) if alive is None else alive[ordinals]

    def stored_base(self, cover: Cover) -> Base | None:
        """Return the largest stored adjacency that files begin with, if there is one."""
        return self._reads.bases.newest(self.key[0], cover)

    def built_base(self, cover: Cover, numberer: Numberer | None = None) -> Base:
        """Return the adjacency of some files, worked out here."""
        with ThreadPoolExecutor(2) as pool:  # Arrow and numpy work without holding the interpreter
            return self._reads.bases.build(self.key[0], cover, pool, numberer)

    # -- columns -----------------------------------------------------------------------------------

    def column(self, name: str) -> pa.Array:
        """Return a whole column by ordinal; at a hole there is null, or what was there before."""
        if name in self.absent:
            return self._nulls(name, self.span)
        name = self._read_as(name)
        column = self._whole_column(name)
        if not len(column.tail):
            return column.base
        whole: pa.Array | None = self._columns.get(self.key, name)
        if whole is None:
            self._budget.check_bytes(column.nbytes, f"column {name} of {self.declared.name}")
            whole = self._columns.put(self.key, name, pa.concat_arrays([column.base, column.tail]))
        return whole

    def at_hand(self, name: str) -> bool:
        """Say whether a column is in memory, so that picking from it or judging it takes no read."""
        return name in self.absent or self._known(self._read_as(name)) is not None

    def kept_for_scans(self, name: str) -> bool:
        """Say whether a column is in memory; one that is scanned again and again is read."""
        if self.at_hand(name):
            return True
        if not self._columns.worth_reading(self._base_key, name, self.rows // SCANS_LIKE_PICKS):
            return False
        return self._if_there_is_room(self._read_as(name)) is not None

    def _read_as(self, name: str) -> str:
        """Return the column to read for another: a text that is the key of its node is its id as well."""
        return ID if name == self._same_as_id else name

    def _known(self, name: str) -> SplitColumn | None:
        """Return a column if its large part is at hand; the rest is read."""
        base = self._budget.held((self._base_key, name))
        if base is None:
            base = self._columns.get(self._base_key, name)
        return None if base is None else SplitColumn(base, self._tail(name))

    def _whole_column(self, name: str) -> SplitColumn:
        """Return a column, read where it is not at hand."""
        column = self._known(name)
        if column is None:
            base = self._read([part for _, part in self.parts[: self._large]], name)
            self._hold(name, base)
            column = SplitColumn(self._columns.put(self._base_key, name, base), self._tail(name))
        self._hold(name, column.base)
        return column

    def has_codes(self, name: str) -> bool:
        """Say whether the values of a column have been numbered."""
        return self._columns.get((self._base_key, CODED), self._read_as(name)) is not None

    def codes_of(self, name: str, ordinals: Ordinals) -> tuple[NDArray[np.int32], int]:
        """Return a column of some rows as numbers, equal where its values are, and how many there are.

        One of them is for null, and for what is `MISSING`.
        """
        name = self._read_as(name)
        column = self._whole_column(name)
        codes: Codes | None = self._columns.get((self._base_key, CODED), name)
        if codes is None:
            codes = self._columns.put((self._base_key, CODED), name, Codes.of(column.base))
        self._budget.hold(
            ((self._base_key, CODED), name), codes, codes.nbytes, f"column {name} of {self.declared.name}"
        )
        tail, count = codes.tail_numbers(column.tail)
        border = len(codes.numbers)
        elsewhere = np.flatnonzero(ordinals.view(np.uint64) >= border)  # -1 is the largest of these
        if not len(elsewhere):
            return take(codes.numbers, ordinals), count
        later = ordinals[elsewhere]
        numbers = np.empty(len(ordinals), np.int32)
        if border:
            here = ordinals.copy()
            here[elsewhere] = 0
            numbers = take(codes.numbers, here).copy()
        numbers[elsewhere] = np.append(tail, np.int32(len(codes.values)))[
            np.where(later < 0, -1, later - border)
        ]
        return numbers, count

    @cached_property
    def _tail_key(self) -> Hashable:
        return (self.columns_read, *(part.key[1:] for _, part in self.parts[self._large :]))

    @cached_property
    def _base_key(self) -> Hashable:
        files = tuple(part.key[1] for _, part in self.parts[: self._large])
        return (self.columns_read, files)

    def _hold(self, name: str, base: pa.Array) -> None:
        self._budget.hold((self._base_key, name), base, base.nbytes, f"column {name} of {self.declared.name}")

    def _tail(self, name: str) -> pa.Array:
        """Return a column over the files that are not large: small ones are kept by whoever reads rows."""
        values: pa.Array | None = self._columns.get(self._tail_key, name)
        if values is None:
            files = [self._column_of_small_file(*entry, name) for entry in self.parts[self._large :]]
            values = self._columns.put(self._tail_key, name, pa.concat_arrays([self._nulls(name, 0), *files]))
        return values

    def _column_of_small_file(self, number: int, part: FragmentLayout, name: str) -> pa.Array:
        if number not in self._small:
            values: pa.Array | None = self._columns.get(part.key[:2], name)
            return (
                self._columns.put(part.key[:2], name, self._read([part], name)) if values is None else values
            )
        living = self._reads.tail(self.handle, number, part)
        values = _single_array(living.rows[name])
        rows = part.metadata.physical_rows
        if len(values) == rows:
            return values
        places = np.full(rows, -1, dtype=np.int64)
        places[living.offsets] = np.arange(len(values))
        return values.take(pa.array(places, mask=places < 0))

    def _read(self, parts: Sequence[FragmentLayout], name: str) -> pa.Array:
        """Read a column of some files with all their rows, as long as there is room for it."""
        batches: list[pa.Array] = [self._nulls(name, 0)]
        size = 0
        for batch in self._reads.physical(self.handle, parts, name):
            batches.append(batch)
            size += batch.nbytes
            self._budget.check_bytes(2 * size, f"column {name} of {self.declared.name}")
        return pa.concat_arrays(batches)

    def _if_there_is_room(self, name: str) -> SplitColumn | None:
        """Read a whole column that could as well be picked from."""
        try:
            return self._whole_column(name)
        except LimitExceeded:
            self._columns.give_up(self._base_key, name)
            return None

    def take_all(self, names: Sequence[str], ordinals: Ordinals) -> dict[str, pa.Array]:
        """Return several columns for some rows; those that must be picked are picked together."""
        stored = {name: self._read_as(name) for name in names}
        pick = [
            name
            for name in dict.fromkeys(stored.values())
            if name not in self.absent
            and self._known(name) is None
            and self._read_whole(name, len(ordinals)) is None
        ]
        absent = ordinals < 0
        picked: dict[str, pa.Array] = {}
        if len(pick) > 1 and not absent.all():
            picked = dict(zip(pick, self._picked(pick, ordinals, absent), strict=True))
        return {
            name: picked[read] if (read := stored[name]) in picked else self.take(name, ordinals)
            for name in names
        }

    def take(self, name: str, ordinals: Ordinals) -> pa.Array:
        """Return the values of a column for some rows, in their order; null for `MISSING`."""
        if name in self.absent:
            return self._nulls(name, len(ordinals))
        name = self._read_as(name)
        column = self._known(name)
        if column is not None and len(ordinals) == 1 and ordinals[0] >= 0:
            return column.value_at(int(ordinals[0]))  # no copy: a look-up of one node is all slices
        if column is not None and self.is_every(ordinals):
            return self._without_holes(name, self.column(name))
        absent = ordinals < 0
        missing = bool(absent.any())
        if missing and absent.all():
            return self._nulls(name, len(ordinals))
        if column is None:
            column = self._read_whole(name, len(ordinals))
        if column is None:
            return self._picked([name], ordinals, absent)[0]
        if len(ordinals) > FEW:
            self._hold(name, column.base)
            needed = len(ordinals) * column.nbytes // max(self.span, 1)
            self._budget.check_bytes(needed, f"{len(ordinals)} values of column {name}")
        return column.take(ordinals, absent if missing else None)

    def _without_holes(self, name: str, whole: pa.Array) -> pa.Array:
        alive = self._alive
        if alive is None:
            return whole
        self._budget.check_bytes(whole.nbytes, f"{self.rows} values of column {name}")
        return whole.filter(pa.array(alive))

    def _many(self, count: int) -> bool:
        """Say whether reading a column whole is cheaper than picking so many of its values."""
        return count > max(FEW, self.rows * WHOLE_ABOVE)

    def _read_whole(self, name: str, count: int) -> SplitColumn | None:
        """Return a whole column where many values are wanted now, or few have been again and again."""
        if self._many(count):
            return self._whole_column(name)
        wide = pa.types.is_nested(self.declared.stored_schema.field(name).type)
        if wide or not self._columns.worth_reading(self._base_key, name, self.rows):
            return None
        return self._if_there_is_room(name)

    def _nulls(self, name: str, count: int) -> pa.Array:
        return pa.nulls(count, self.declared.stored_schema.field(name).type)

    def _picked(self, names: Sequence[str], ordinals: Ordinals, absent: NDArray[np.bool_]) -> list[pa.Array]:
        """Return columns for a few rows: those of large files are read and remembered, others are here."""
        border = self.start_of_rest
        distinct = sorted_distinct(np.sort(ordinals[~absent & (ordinals < border)]))
        picks = self._picks(names, distinct)
        masked = absent if absent.any() else None
        rest = bool((ordinals >= border).any())
        return [
            picks[name].take(ordinals, masked, self._tail(name) if rest else None, border) for name in names
        ]

    def _picks(self, names: Sequence[str], distinct: Ordinals) -> dict[str, Picks]:
        """Return some rows of columns, perhaps more; columns that lack the same rows are read together."""
        known = {name: self._remembered_picks(name) for name in names}
        together: dict[bytes, tuple[Ordinals, list[str]]] = {}
        for name, picks in known.items():
            lacking = picks.missing(distinct)
            if len(lacking):
                together.setdefault(lacking.tobytes(), (lacking, []))[1].append(name)
        for lacking, columns in together.values():
            table = take_rows(self.handle, self.addresses(lacking).tolist(), columns)
            for name in columns:
                known[name] = known[name].merged(Picks(lacking, _single_array(table[name])))
                self._columns.keep_picks(self._base_key, name, known[name])
        return known

    def _remembered_picks(self, name: str) -> Picks:
        picks = self._columns.picks(self._base_key, name)
        return Picks(NOTHING, self._nulls(name, 0)) if picks is None else picks


def _same_as_id(declared: TableType) -> str | None:
    """Return the column whose text is the id of its node: that of a key of one text."""
    if isinstance(declared, NodeType) and len(declared.key) == 1:
        member = declared.property_by_id(declared.key[0])
        if member.type.scalar is Scalar.STRING:
            return member.column
    return None


def in_order(layout: Layout) -> tuple[tuple[int, FragmentLayout], ...]:
    """Return the fragments of a version as ordinals count through them: large, then settled, then small.

    New files come after those of their size: versions that follow one another begin alike.
    """
    return tuple(sorted(layout.parts.items(), key=lambda entry: (_rank(entry[1]), entry[0])))


def _rank(part: FragmentLayout) -> int:
    weight = FragmentSize(part.metadata.physical_rows, part.stored_bytes).weight  # the same in every version
    return sum(weight < ceiling for ceiling in TIERS)


def _is_large(part: FragmentLayout) -> bool:
    return _rank(part) == 0


def _single_array(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
