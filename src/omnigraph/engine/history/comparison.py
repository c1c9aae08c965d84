"""Comparison: the changes between two states of a graph, type by type, as a stream.

    two states -> tables whose pins disagree -> rows they do not share -> deltas -> **changes in order**

Under diff, commit changes, feed and baseline; the older state may be nothing at all. Changes come nodes
before edges, by type id, by entity id (contract T-13), counts by type.

Types and properties are paired by identity. Names and columns are those of the newer state; what it no longer
declares is not shown, and a property that the older state lacked counts there as its default. Values are
compared in the wider of two types; each image is in the types of its own state, as every read of that state
shows it. A table whose pins agree is not opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from operator import attrgetter

import numpy as np
import pyarrow as pa

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.engine.change import Catalogs
from omnigraph.engine.history.changes import ALL, Change, ChangeFilter, Op, kind_of
from omnigraph.engine.history.delta import (
    Delta,
    Pair,
    column_name,
    deltas,
    fills_of,
    pin_of,
    rows_moved,
    sides_of,
    under_names,
)
from omnigraph.storage.manifest.chain import check_kept
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.differences import OneSided

ROWS_AT_ONCE = 1_024  # rows that are turned into images at a time
KEPT_ROWS = 10_000  # changes of a type that are kept when they were read once


@dataclass(frozen=True, slots=True)
class TypeChanges:
    """How many entities of one type changed."""

    declared: TableType
    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    @property
    def total(self) -> int:
        """How many there are of all sorts."""
        return self.inserted + self.updated + self.deleted


class StateComparison:
    """Two states of one graph; `before` is None for everything there is in the newer one."""

    def __init__(
        self,
        store: GraphStore,
        catalogs: Catalogs,
        before: ManifestState | None,
        after: ManifestState,
        change_filter: ChangeFilter = ALL,
    ) -> None:
        self._store = store
        self.before = before
        self.after = after
        self.change_filter = change_filter
        self.older = Catalog() if before is None else catalogs.get(before.schema)
        self.newer = catalogs.get(after.schema)
        self._kept: dict[str, tuple[Delta, ...]] = {}  # small ones, so that counting them costs nothing more

    @property
    def types(self) -> tuple[TableType, ...]:
        """The types that may have changed and are asked for, in order; of each, the newer declaration."""
        gone = [declared for declared in self.older.tables if self.newer.same_table(declared) is None]
        changed = [
            declared
            for declared in (*gone, *self.newer.tables)
            if self.change_filter.takes(declared) and rows_moved(*self._pins(declared))
        ]
        return tuple(
            sorted(changed, key=lambda declared: (isinstance(declared, EdgeType), declared.table_id))
        )

    def deltas(self, declared: TableType) -> Iterator[Delta]:
        """Compare the rows of one type, a range of ids at a time, in the order of ids."""
        kept = self._kept.get(declared.table_id)
        if kept is not None:
            yield from kept
            return
        small: tuple[Delta, ...] | None = ()
        for delta in self._compared(declared):
            yield delta
            if small is not None:
                small = (*small, delta) if sum(part.total for part in (*small, delta)) <= KEPT_ROWS else None
        if small is not None:
            self._kept[declared.table_id] = small

    def count(self, declared: TableType) -> TypeChanges:
        """Count the changes of one type that are asked for."""
        counts = [0, 0, 0]
        for delta in self.deltas(declared):
            for index, (_, table, _) in enumerate(_parts(delta, self.change_filter)):
                counts[index] += table.num_rows
        return TypeChanges(declared, *counts)

    def changes(self, after: tuple[bool, str, str] | None = None) -> Iterator[Change]:
        """Stream the changes in order, all or those after a sort key."""
        for declared in self.types:
            here = (isinstance(declared, EdgeType), declared.table_id)
            if after is not None and here < after[:2]:
                continue
            beyond = after[2] if after is not None and here == after[:2] else None
            for delta in self.deltas(declared):
                yield from changes_in(delta, self.pair(declared), self.change_filter, beyond)

    def pair(self, declared: TableType) -> Pair:
        """Return how rows of a type are compared and shown."""
        return Pair.of(declared, self.older, self.newer)

    def sides(self, declared: TableType) -> tuple[OneSided, OneSided]:
        """Return the rows of one type that only one of the states has: those gone and those come."""
        with self._readable(declared):
            return sides_of(self._store.reads, *self._pins(declared))

    # -- parts -------------------------------------------------------------------------------------

    def _pins(self, declared: TableType) -> tuple[Pin | None, Pin | None]:
        """Return the tables of a type in the two states, which two identities may be that were unified."""
        before = None if self.before is None else pin_of(self.before, self.older, declared)
        return before, pin_of(self.after, self.newer, declared)

    def _compared(self, declared: TableType) -> Iterator[Delta]:
        with self._readable(declared):
            gone, come = self.sides(declared)
            wide = self.pair(declared).declared
            sides = under_names(gone, self.older, wide), under_names(come, self.newer, wide)
            yield from deltas(sides, wide.stored_schema, fills_of(wide, self.after))

    @contextmanager
    def _readable(self, declared: TableType) -> Iterator[None]:
        """Say what is the matter when a version is gone: its history may have been reclaimed."""
        states = [state for state in (self.before, self.after) if state is not None]
        tables = {pin.table_id for pin in self._pins(declared) if pin is not None}
        for state in states:
            for table in tables:
                check_kept(self._store.branches.chain(state.line.incarnation), state, table)
        with self._store.reading(*states, tables=tuple(sorted(tables))):
            yield


def changes_in(
    delta: Delta, pair: Pair, change_filter: ChangeFilter = ALL, beyond: str | None = None
) -> Iterator[Change]:
    """Stream the changes of a delta by id, all or those beyond an id."""
    columns = list(delta.changed)
    names = [column_name(column, pair.declared) for column in columns]
    differs = np.array([delta.changed[column] for column in columns]).T if columns else None
    streams = [
        _stream(op, before, after, pair, beyond, names, differs)
        for op, after, before in _parts(delta, change_filter)
    ]
    yield from merge(*streams, key=attrgetter("id"))


def _parts(delta: Delta, change_filter: ChangeFilter) -> list[tuple[Op, pa.Table, pa.Table]]:
    """Return what was inserted, updated and deleted: the newer rows and the older; empty if not asked for."""
    none = delta.inserted.slice(0, 0)
    parts = [
        (Op.INSERT, delta.inserted, none),
        (Op.UPDATE, delta.after, delta.before),
        (Op.DELETE, delta.deleted, delta.deleted),
    ]
    return [(op, new, old) if change_filter.does(op) else (op, none, none) for op, new, old in parts]


def _stream(
    op: Op,
    before: pa.Table,
    after: pa.Table,
    pair: Pair,
    beyond: str | None,
    names: list[str],
    differs: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | None,
) -> Iterator[Change]:
    """Yield the changes of one sort, building images as they are asked for."""
    start = 0 if beyond is None else _first_beyond(after[ID], beyond)
    declared, kind = pair.declared, kind_of(pair.declared)
    for low in range(start, after.num_rows, ROWS_AT_ONCE):
        ids = after[ID].slice(low, ROWS_AT_ONCE).to_pylist()
        none = [None] * len(ids)
        old = none if op is Op.INSERT else pair.before(before.slice(low, ROWS_AT_ONCE))
        new = none if op is Op.DELETE else pair.after(after.slice(low, ROWS_AT_ONCE))
        for row, (entity, was, now) in enumerate(zip(ids, old, new, strict=True)):
            fields: tuple[str, ...] = ()
            if op is Op.UPDATE and differs is not None:
                fields = tuple(sorted(names[at] for at in np.flatnonzero(differs[low + row])))
            yield Change(
                kind,
                declared.table_id,
                declared.name,
                entity,
                op,
                before=was,
                after=now,
                fields=fields,
            )


def _first_beyond(ids: pa.ChunkedArray, beyond: str) -> int:
    """Return the number of the first id after one; ids are in order."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if ids[middle].as_py() <= beyond:
            low = middle + 1
        else:
            high = middle
    return low
