"""Scan: the rows of one pinned table, as executors read them.

Room    pipeline. The driver says once what is read, as a value; executors open the graph for themselves and
        read the fragments that they are given, at the version that the value names.
Given   a graph's address, a snapshot, and columns by name.
Gives   groups of fragments for the driver, record batches in the types that travel for the executors.
Rule    no handle is part of it, and nobody who holds one asks for "latest".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.catalog.past import stored_column
from omnigraph.engine.history.moments import check_existed
from omnigraph.pipeline.types import to_spark, travelling_schema
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore

PARTITION_BYTES = 64 << 20  # of stored files; what Spark makes of them is a few times as much
SMALL_BYTES = 4 << 20  # less than this is not worth a task of its own
BATCH_ROWS = 65_536
Fragments = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column under the name that readers know, and where it is stored: nowhere, if it came later."""

    name: str
    stored: str | None
    type: pa.DataType

    @property
    def field(self) -> pa.Field:
        """The column as it is declared."""
        return pa.field(self.name, self.type)


@dataclass(frozen=True)
class Scan:
    """Some columns of one table at one version."""

    location: Location
    snapshot: PinnedSnapshot
    table_id: str
    columns: tuple[Column, ...]
    version: int | None = None  # of the table, where it is not the one that the snapshot pins

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are declared."""
        return pa.schema([column.field for column in self.columns])

    def narrowed(self, names: Sequence[str]) -> Scan:
        """Return the scan of some columns, in the order given."""
        known = {column.name: column for column in self.columns}
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise InvalidRequest(
                f"there is no column {unknown[0]!r}" if unknown else "no column is named",
                remedy=f"The columns are {', '.join(known)}",
            )
        return replace(self, columns=tuple(known[name] for name in names))

    def groups(self, partition_bytes: int = PARTITION_BYTES, slots: int = 1) -> list[Fragments]:
        """Return the table's fragments in groups of about so many stored bytes, in their order.

        `slots` is how many groups are read at a time.
        """
        with self._open() as store:
            handle = self._table(store)
            with self._reading(store):
                sizes = {n: part.size.bytes for n, part in store.reads.layout(handle).parts.items()}
        return grouped(sizes, partition_bytes, slots)

    def read(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the types that travel."""
        for batch in self.stored(fragments):
            arrays = [to_spark(batch.column(c.name), c.type) for c in self.columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=travelling_schema(self.schema))

    def stored(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some fragments, in the types that are declared."""
        stored = [column.stored for column in self.columns if column.stored is not None]
        with self._open() as store:
            handle = self._table(store)
            with self._reading(store):
                scanner = handle.scanner(
                    columns=stored or [ID],  # a column that came later is null for each row there is
                    fragments=[handle.get_fragment(number) for number in fragments],
                    batch_size=BATCH_ROWS,
                )
                for batch in scanner.to_batches():
                    yield self._named(batch)

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [
            pa.nulls(batch.num_rows, column.type)
            if column.stored is None
            else batch.column(column.stored).cast(column.type)
            for column in self.columns
        ]
        return pa.RecordBatch.from_arrays(found, schema=self.schema)

    def _table(self, store: GraphStore) -> Handle:
        if self.version is None:
            return store.table(self.snapshot, self.table_id)
        with self._reading(store):
            return store.reads.handle(self.table_id, self.version)

    def _reading(self, store: GraphStore) -> AbstractContextManager[None]:
        return store.reading(self.snapshot.state, tables=(self.table_id,))

    def _open(self) -> GraphStore:
        return GraphStore(self.location)  # reads nothing: the version is known


def scan_of(location: Location, snapshot: PinnedSnapshot, declared: TableType) -> Scan:
    """Return the scan of a type that is declared as the snapshot has it: id, ends, then properties."""
    check_existed(snapshot, declared)
    fixed = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    return Scan(
        location,
        snapshot,
        declared.table_id,
        (
            *(Column(name, name, pa.string()) for name in fixed),
            *(Column(p.name, stored_column(p), p.type.arrow) for p in declared.properties),
        ),
    )


def grouped(sizes: Mapping[int, int], limit: int, slots: int = 1) -> list[Fragments]:
    """Put neighbours together in groups of about a size, as many in each slot.

    >>> grouped({1: 4, 2: 5, 3: 20, 4: 1}, 10)
    [(1, 2), (3,), (4,)]
    >>> grouped({n: 20 << 20 for n in range(10)}, 40 << 20, slots=2)
    [(0, 1), (2, 3, 4), (5, 6), (7, 8, 9)]
    """
    total = sum(sizes.values())
    if slots > 1 and total > SMALL_BYTES * slots:
        return _even(sizes, total, slots * max(round(total / limit / slots), 1))
    groups: list[Fragments] = []
    held = 0
    for number, size in sorted(sizes.items()):
        if groups and held + size <= limit:
            groups[-1] = (*groups[-1], number)
            held += size
        else:
            groups.append((number,))
            held = size
    return groups


def _even(sizes: Mapping[int, int], total: int, count: int) -> list[Fragments]:
    """Cut the fragments into so many groups of nearly one size: each goes where its middle is."""
    groups: dict[int, Fragments] = {}
    before = 0
    for number, size in sorted(sizes.items()):
        at = int((before + size / 2) * count / total)
        groups[at] = (*groups.get(at, ()), number)
        before += size
    return list(groups.values())
