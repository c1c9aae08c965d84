"""Paired: a type in two states that may have different schemas.

Room    engine.history. Under diff, merge and entity history. A change of a property's type makes a new
        column, so one property may lie in different columns of two versions; its identity finds it. Rows
        are compared in types that hold the values of both, and shown in the types of their own state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.catalog.past import columns_then, compared_type, types_then
from omnigraph.engine.history.images import image, to_python
from omnigraph.engine.schema.lower import scalar
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.tables.differences import Side
from omnigraph.storage.tables.reads import TableReads

Row = dict[str, Any]


def rows_moved(old: Pin | None, new: Pin | None) -> bool:
    """Say whether the rows of two pins may differ; maintenance does not count."""
    if old is None or new is None:
        return old is not new
    return (old.table_id, old.content) != (new.table_id, new.content)


def pin_of(state: ManifestState, then: Catalog, declared: TableType) -> Pin | None:
    """Return the pin of the table that holds a type in a state, which may be one that was unified with it."""
    found = then.same_table(declared)
    return None if found is None else state.pins.get(found.table_id)


def sides_of(reads: TableReads, old: Pin | None, new: Pin | None) -> tuple[Side, Side]:
    """Return the rows that only one of two pins has; of two tables, all of them."""
    if not rows_moved(old, new):
        return Side(None), Side(None)
    if old is not None and new is not None and old.table_id == new.table_id:
        return reads.differences(old.table_id, old.version, new.version)
    gone = Side(None) if old is None else reads.differences(old.table_id, old.version, None)[0]
    come = Side(None) if new is None else reads.differences(new.table_id, None, new.version)[1]
    return gone, come


@dataclass(frozen=True)
class Pair:
    """One type in two states: compared in types that hold the values of both, shown in the types of each."""

    declared: TableType  # with the names and columns of the newer state, in the wider types
    older: Catalog
    newer: Catalog

    @classmethod
    def of(cls, declared: TableType, older: Catalog, newer: Catalog) -> Pair:
        """Pair the two declarations that a type has in two schemas; names and columns are given."""
        return cls(compared_type(declared, (older, newer)), older, newer)

    def before(self, rows: pa.Table) -> list[Row]:
        """Return rows of the older state as images."""
        return images(rows, self.declared, self.older)

    def after(self, rows: pa.Table) -> list[Row]:
        """Return rows of the newer state as images."""
        return images(rows, self.declared, self.newer)


def images(rows: pa.Table, declared: TableType, then: Catalog) -> list[Row]:
    """Return compared rows as a state with the schema `then` shows them: what it lacks is null."""
    seen = types_then(declared, then)
    known = set(columns_then(declared, then))
    schema = pa.schema([field for field in seen.stored_schema if field.name in known])
    return [image(row, seen) for row in to_python(rows.select(schema.names).cast(schema))]


def under_names(side: Side, then: Catalog, declared: TableType) -> Side:
    """Return a side with its columns under the names of a declaration; `then` is the schema it has now."""
    names = columns_then(declared, then)
    if all(names.get(name) == name for name in declared.stored_schema.names):
        return side
    return _Renamed(side.handle, side.pieces, names)


def fills_of(declared: TableType, state: ManifestState) -> dict[str, pa.Scalar]:
    """Return what a column has where it did not exist yet: the default, as of a state."""
    now_ms = state.commit.authored_at_us // 1000
    return {p.column: scalar(p.default, p.type.arrow, now_ms) for p in declared.properties if p.default}


@dataclass(frozen=True, eq=False)
class _Renamed(Side):
    """A side whose columns go by the names that they have in the other version."""

    names: Mapping[str, str] = FrozenMap()  # name there -> name here

    @property
    def schema(self) -> pa.Schema:
        found = super().schema
        here = set(found.names)
        fields = [found.field(old).with_name(new) for new, old in self.names.items() if old in here]
        return pa.schema(fields)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().batches([self.names[name] for name in columns]):
            yield batch.rename_columns(list(columns))
