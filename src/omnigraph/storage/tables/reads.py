"""Reads: rows of a pinned version by the values of one column.

What validation, updates and queries ask of committed rows, as Arrow tables. The small fragments at the end of
a table answer from memory (differences.py), the rest by key hashes (derived/rows.py); many values at once, or
those of a column without key hashes, take a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.ids import new_id
from omnigraph.storage.cost import stage as cost_stage
from omnigraph.storage.derived.adjacency import Bases
from omnigraph.storage.derived.key_hashes import spread
from omnigraph.storage.derived.rows import RowFinder
from omnigraph.storage.lance_reads import provider, scanner
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle, Opener
from omnigraph.storage.tables.differences import OneSided, TailCache, TailFragment, differences
from omnigraph.storage.tables.effects import ID
from omnigraph.storage.tables.keys import PROBE_LIMIT, scan_where_in
from omnigraph.storage.tables.layout import ADDRESS, NOTHING, FragmentLayout, Layout, Layouts, Offsets
from omnigraph.storage.tables.predicate import Holds, Predicate, both_zeros, find

if TYPE_CHECKING:
    from datafusion import SessionContext


class TableReads:
    """Reads of one store's tables; shares its handles and what it knows of their tails."""

    def __init__(
        self, opener: Opener, layouts: Layouts, tail: TailCache, finder: RowFinder, bases: Bases
    ) -> None:
        self._opener = opener
        self._layouts = layouts
        self._tail = tail
        self.finder = finder
        self.bases = bases

    def handle(self, table_id: str, version: int) -> Handle:
        """Return the table at a version."""
        return self._opener.table(table_id, version)

    def rows(self, table_id: str, version: int) -> int:
        """Return how many rows there are."""
        return self._layouts.get(self.handle(table_id, version)).rows

    def exists(self, table_id: str, version: int, ids: pa.Array) -> pa.Array:
        """Return, for each id, whether a row has it."""
        handle = self.handle(table_id, version)
        layout = self._layouts.get(handle)
        if len(ids) == 0 or not layout.parts:
            return pa.repeat(pa.scalar(False), len(ids))
        tail_ids = [self._tail.get(handle, fragment, part.key).ids for fragment, part in layout.small.items()]
        present = pc.is_in(ids, value_set=pa.chunked_array(tail_ids, pa.string()).combine_chunks())
        if not layout.big or pc.all(present).as_py():
            return present
        open_ids = pc.unique(ids.filter(pc.invert(present)))
        cost_stage()
        there = self._from_big(handle, layout, ID, open_ids, [ID])[ID].combine_chunks()
        return pc.or_(present, pc.is_in(ids, value_set=there))

    def lookup(
        self, table_id: str, version: int, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        """Return some columns of the rows whose `column` is one of the values."""
        handle = self.handle(table_id, version)
        layout = self._layouts.get(handle)
        schema = pa.schema([layout.schema.field(name) for name in columns])
        if len(values) == 0 or not layout.parts:
            return schema.empty_table()
        values = both_zeros(values)
        matches = []
        for fragment, part in layout.small.items():
            rows = self._tail.get(handle, fragment, part.key).rows
            matching = pc.is_in(rows[column], value_set=values)
            if pc.any(matching).as_py():
                matches.append(rows.filter(matching).select(columns))
        if layout.big:
            cost_stage()
            matches.append(self._from_big(handle, layout, column, pc.unique(values), columns))
        return pa.concat_tables([part.cast(schema) for part in matches]) if matches else schema.empty_table()

    def count_candidates(self, table_id: str, version: int, column: str, values: pa.Array) -> int | None:
        """Return how many rows past the tail `lookup` would read; None if it would scan them all."""
        handle = self.handle(table_id, version)
        layout = self._layouts.get(handle)
        if len(values) == 0 or not layout.big:
            return 0
        if not self.finder.can_find(handle, layout, column):
            return None
        _, addresses = self.finder.candidates(handle, layout.big, column, pc.unique(values))
        return len(addresses)

    def layout(self, handle: Handle) -> Layout:
        """Return what a version is made of."""
        return self._layouts.get(handle)

    def deleted(self, handle: Handle, number: int, part: FragmentLayout) -> Offsets:
        """Return the offsets of the deleted rows of a fragment, ascending."""
        return self._layouts.deleted(handle, number, part)

    def tail(self, handle: Handle, number: int, part: FragmentLayout) -> TailFragment:
        """Return the living rows of a small fragment."""
        return self._tail.get(handle, number, part.key)

    def physical(self, handle: Handle, parts: Sequence[FragmentLayout], column: str) -> Iterator[pa.Array]:
        """Yield a column of some fragments with all their rows, whatever the version has deleted of them."""
        try:
            yield from self.finder.physical(handle, parts, column)
        except (OSError, pa.ArrowInvalid) as error:
            raise storage_failure("reading a column", error) from error

    def physical_rows(
        self, handle: Handle, part: FragmentLayout, offsets: Offsets, columns: Sequence[str]
    ) -> pa.Table:
        """Return some columns of rows of a fragment, deleted or not."""
        try:
            return self.finder.physical_rows(handle, part, offsets, columns)
        except OSError as error:
            raise storage_failure("reading rows", error) from error

    def first_rows(
        self, handle: Handle, parts: Sequence[FragmentLayout], column: str, values: pa.Array
    ) -> tuple[Offsets, Offsets]:
        """Return (place among the parts, offset) of the first row that has each value, deleted or not."""
        try:
            return self.finder.first_rows(handle, parts, column, values)
        except OSError as error:
            raise storage_failure("looking rows up", error) from error

    def addressed(self, table_id: str, version: int, column: str, values: pa.Array) -> pa.Table:
        """Return the address and the value of the rows whose `column` is one of the values."""
        handle = self.handle(table_id, version)
        layout = self._layouts.get(handle)
        schema = pa.schema([layout.schema.field(column), pa.field(ADDRESS, pa.uint64())])
        matches = []
        for fragment, part in layout.small.items():
            tail = self._tail.get(handle, fragment, part.key)
            matching = pc.is_in(tail.rows[column], value_set=values)
            if pc.any(matching).as_py():
                at = pa.array(tail.offsets.astype("uint64") | (fragment << 32), pa.uint64())
                rows = tail.rows.select([column]).append_column(ADDRESS, at)
                matches.append(rows.filter(matching).cast(schema))
        if layout.big:
            cost_stage()
            matches.append(self._from_big(handle, layout, column, pc.unique(values), [column, ADDRESS]))
        return pa.concat_tables([part.cast(schema) for part in matches]) if matches else schema.empty_table()

    def candidates(
        self, table_id: str, version: int, column: str, values: pa.Array
    ) -> tuple[Offsets, Offsets]:
        """Return (which value, address) of the rows past the tail that may hold one of a few values."""
        handle = self.handle(table_id, version)
        layout = self._layouts.get(handle)
        if not layout.big:
            return NOTHING, NOTHING
        cost_stage()
        try:
            if self.finder.can_find(handle, layout, column):
                return self.finder.candidates(handle, layout.big, column, values)
        except OSError as error:
            raise storage_failure("looking rows up", error) from error
        distinct = pc.unique(values)
        rows = self._from_big(handle, layout, column, distinct, [column, ADDRESS])
        # A value may stand among them twice: each row goes with all places of its value.
        codes = np.asarray(pc.index_in(values, value_set=distinct))
        stored = np.asarray(pc.index_in(rows[column].combine_chunks(), value_set=distinct))
        order = np.argsort(codes, kind="stable")
        begins, ends = (np.searchsorted(codes[order], stored, side) for side in ("left", "right"))
        row, at = spread(begins, ends - begins)
        return order[at], rows[ADDRESS].to_numpy().astype(np.int64)[row]

    def differences(self, table_id: str, before: int | None, after: int | None) -> tuple[OneSided, OneSided]:
        """Return the rows that only one of two versions has; None is a version without rows."""
        handles = [None if version is None else self.handle(table_id, version) for version in (before, after)]
        return differences(handles[0], handles[1], self._layouts, self._tail)

    def scan(self, table_id: str, version: int, columns: Sequence[str]) -> pa.RecordBatchReader:
        """Stream some columns of all rows."""
        return scanner(self.handle(table_id, version), columns=list(columns)).to_reader()

    def frame(self, context: SessionContext, table_id: str, version: int) -> Any:
        """Return all rows as a DataFusion frame that scans as it is read."""
        return frame(context, self.handle(table_id, version))

    def where(
        self, table_id: str, version: int, predicate: Predicate | None, columns: Sequence[str], holds: Holds
    ) -> pa.Table:
        """Return some columns of the rows for which a condition holds; the predicate prunes the scan."""
        cost_stage()
        return find(self.handle(table_id, version), predicate, columns, holds).drop_columns([ADDRESS])

    def _from_big(
        self, handle: Handle, layout: Layout, column: str, values: pa.Array, columns: Sequence[str]
    ) -> pa.Table:
        try:
            if len(values) > PROBE_LIMIT or not self.finder.can_find(handle, layout, column):
                return scan_where_in(handle, column, values, list(layout.big), list(columns))
            stored = [name for name in columns if name != ADDRESS]
            matches = self.finder.find(handle, layout, column, values, stored)
            rows = matches.rows.select(stored)
            if ADDRESS in columns:
                rows = rows.append_column(ADDRESS, pa.array(matches.addresses, pa.uint64()))
            return rows.select(list(columns))
        except (OSError, pa.ArrowInvalid) as error:
            raise storage_failure("looking rows up", error) from error


def frame(context: SessionContext, handle: Handle) -> Any:
    """Return all rows of an open table as a DataFusion frame that scans as it is read."""
    name = f"t_{new_id()}"
    context.register_table(name, provider(handle, addresses=False))
    return context.table(name)
