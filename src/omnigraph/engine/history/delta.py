"""Delta: what happened to the entities of one type between two versions, which may have different schemas.

    two versions -> rows they do not share (storage) -> **by id, by value** -> inserted, updated, deleted

Under diff, merge, feed and revert. Equality is of values: null is not an empty text, a list is compared item
by item, NaN is NaN; where rows lie never counts. Many rows are compared a range of ids at a time, so memory
does not follow the size of the change; ranges come in the order of ids, and so do the rows of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.cancellation import stoppable
from omnigraph.base.dataclass import dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import END_NAMES, ID, EdgeType, TableType
from omnigraph.catalog.past import columns_then, compared_type, types_then
from omnigraph.catalog.types import Scalar, numbers_in
from omnigraph.engine.schema.existing import scalar
from omnigraph.execution.result import json_value
from omnigraph.storage.manifest.records import ManifestState, Pin
from omnigraph.storage.tables.differences import OneSided
from omnigraph.storage.tables.reads import TableReads

# -- entities as plain values ----------------------------------------------------------------------
#
# Days and instants pass through Python as numbers, because Python's dates hold less than the stored ones;
# what people see is in the formats of query results.


def to_python(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as stored values by column."""
    rows: list[dict[str, Any]] = table.cast(_numbers(table.schema)).to_pylist()
    return rows


def from_python(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows that `to_python` gave as a table again."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=_numbers(schema)).cast(schema)


def image(row: Mapping[str, Any], declared: TableType) -> dict[str, Any]:
    """Return an entity as surfaces show it: id, ends, then every property but blobs, by name.

    A property whose column the row lacks is null.
    """
    ends = END_NAMES if isinstance(declared, EdgeType) else {}
    fixed = {ID: row[ID], **{name: row[column] for column, name in ends.items()}}
    members = {
        p.name: json_value(row.get(p.column), p.type.arrow) for p in declared.properties if not _blob(p.type)
    }
    return {**fixed, **members}


def column_name(column: str, declared: TableType) -> str:
    """Return the name of a stored column."""
    return END_NAMES.get(column) or next((p.name for p in declared.properties if p.column == column), column)


def _blob(kind: Any) -> bool:
    return bool(kind.scalar is Scalar.BLOB)


def _numbers(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(numbers_in(field.type)) for field in schema])


# -- delta ---------------------------------------------------------------------------------------


RANGE_ROWS = 500_000  # rows of both sides that are compared at a time
SAMPLES = 64  # ids looked at for each range when the bounds are chosen
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Delta:
    """Changes by id; `before` and `after` are the two images of what was updated, row by row."""

    inserted: pa.Table
    deleted: pa.Table
    before: pa.Table
    after: pa.Table
    changed: Mapping[str, Mask]  # by column: which of the updated rows differ in it

    @property
    def total(self) -> int:
        """How many entities changed."""
        return int(self.inserted.num_rows + self.deleted.num_rows + self.after.num_rows)

    @property
    def ids(self) -> pa.Array:
        """The ids of all entities that changed."""
        parts = [table[ID].combine_chunks() for table in (self.inserted, self.after, self.deleted)]
        return pa.concat_arrays(parts)


Fills = Mapping[str, pa.Scalar]
NO_FILLS: Fills = FrozenMap()


def deltas(sides: tuple[OneSided, OneSided], schema: pa.Schema, fills: Fills = NO_FILLS) -> Iterator[Delta]:
    """Compare two sides as rows of one schema, a range of ids at a time.

    A column that one lacks is null there, or what `fills` says.
    """
    for low, high in stoppable(_ranges(sides)):
        before, after = (_rows(side, schema, fills, low, high) for side in sides)
        yield compare(before, after)


def delta(sides: tuple[OneSided, OneSided], schema: pa.Schema, fills: Fills = NO_FILLS) -> Delta:
    """Compare two sides at once."""
    return compare(_rows(sides[0], schema, fills), _rows(sides[1], schema, fills))


def touched(sides: tuple[OneSided, OneSided]) -> pa.Array:
    """Return the ids of all rows that two versions do not share: those that changed are among them."""
    ids = [batch[ID] for side in sides for batch in side.batches([ID])]
    return pc.unique(pa.chunked_array(ids, pa.string()))


def nothing(schema: pa.Schema) -> Delta:
    """Return a delta without changes."""
    none = schema.empty_table()
    return compare(none, none)


def compare(before: pa.Table, after: pa.Table) -> Delta:
    """Match rows by id and tell them apart by value; both are in the order of ids."""
    here, there = before[ID].combine_chunks(), after[ID].combine_chunks()
    partners = pc.index_in(there, value_set=here)
    both = pc.is_valid(partners)
    stayed = pc.is_in(here, value_set=there)
    old = before.take(partners.filter(both))
    new = after.filter(both)
    changed = {name: differs(_one(old[name]), _one(new[name])) for name in before.column_names if name != ID}
    any_changed = np.zeros(new.num_rows, dtype=bool)
    for mask in changed.values():
        any_changed |= mask
    kept = pa.array(any_changed)
    return Delta(
        inserted=after.filter(pc.invert(both)),
        deleted=before.filter(pc.invert(stayed)),
        before=old.filter(kept),
        after=new.filter(kept),
        changed={name: mask[any_changed] for name, mask in changed.items()},
    )


def differs(first: pa.Array, other: pa.Array) -> Mask:
    """Say, for each row, whether two columns of one type have different values there."""
    if len(first) == 0:
        return np.zeros(0, dtype=bool)
    absent, gone = _mask(pc.is_null(first)), _mask(pc.is_null(other))
    if pa.types.is_fixed_size_list(first.type):
        values = _vectors_differ(first, other)
    elif pa.types.is_nested(first.type):
        pairs = zip(_python(first), _python(other), strict=True)
        values = np.array([not same_value(left, right) for left, right in pairs], dtype=bool)
    else:
        values = _mask(pc.fill_null(pc.not_equal(first, other), False))
        if pa.types.is_floating(first.type):
            nans = _mask(pc.fill_null(pc.and_(pc.is_nan(first), pc.is_nan(other)), False))
            values &= ~nans
    return np.where(absent | gone, absent != gone, values)


def narrowed(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Return a column in a narrower type, and which of its values that type cannot hold exactly."""
    if values.type == kind:
        return values, np.zeros(len(values), dtype=bool)
    narrow = values.cast(kind, safe=False)
    return narrow, differs(values, narrow.cast(values.type, safe=False))


def _vectors_differ(first: pa.Array, other: pa.Array) -> Mask:
    """Compare vectors as numbers; a null vector is compared as anything, the caller knows better."""
    size = first.type.list_size
    left, right = (
        np.asarray(pc.fill_null(side, pa.scalar([0.0] * size, side.type)).flatten()).reshape(-1, size)
        for side in (first, other)
    )
    return np.asarray(((left != right) & ~(np.isnan(left) & np.isnan(right))).any(axis=1))


def same_value(left: object, right: object) -> bool:
    """Say whether two values are equal; NaN is NaN here, and lists are compared item by item."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return left == right or (left != left and right != right)


def _python(values: pa.Array) -> list[Any]:
    return [row["v"] for row in to_python(pa.table({"v": values}))]


def _mask(values: pa.Array) -> Mask:
    mask: Mask = values.to_numpy(zero_copy_only=False).astype(bool)
    return mask


def _one(values: pa.ChunkedArray) -> pa.Array:
    combined = values.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


# -- reading -----------------------------------------------------------------------------------------


def _rows(
    side: OneSided, schema: pa.Schema, fills: Fills, low: str | None = None, high: str | None = None
) -> pa.Table:
    """Read the rows with ids in a range as rows of a schema, by id."""
    there = set(side.schema.names)
    names = [name for name in schema.names if name in there]
    batches = [_between(batch, low, high) for batch in side.batches(names)] if names else []
    kept = [batch for batch in batches if batch.num_rows]
    if not kept:
        return schema.empty_table()
    return conformed(pa.Table.from_batches(kept), schema, fills).sort_by(ID)


def conformed(rows: pa.Table, schema: pa.Schema, fills: Fills = NO_FILLS) -> pa.Table:
    """Return rows under a schema; a column that they lack is null, or what `fills` says."""
    there = set(rows.column_names)
    columns = [
        rows[field.name].cast(field.type)
        if field.name in there
        else pa.repeat(fills.get(field.name, pa.scalar(None, field.type)), rows.num_rows)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _between(batch: pa.RecordBatch, low: str | None, high: str | None) -> pa.RecordBatch:
    if low is not None:
        batch = batch.filter(pc.greater_equal(batch[ID], low))
    return batch if high is None else batch.filter(pc.less(batch[ID], high))


def _ranges(sides: Sequence[OneSided]) -> list[tuple[str | None, str | None]]:
    """Cut the ids into ranges that fit in memory, by a sample of them."""
    total = sum(side.rows for side in sides)
    number = -(-total // RANGE_ROWS)
    if number <= 1:
        return [(None, None)]
    every = max(total // (number * SAMPLES), 1)
    sample = sorted(
        {i for side in sides for batch in side.batches([ID]) for i in batch[ID][::every].to_pylist()}
    )
    cuts = [sample[len(sample) * part // number] for part in range(1, number)]
    bounds = [None, *dict.fromkeys(cuts), None]
    return list(pairwise(bounds))


# -- a type under two schemas ----------------------------------------------------------------------
#
# Under diff, merge and entity history. A change of a property's type makes a new column, so one property may
# lie in different columns of two versions; its identity finds it. Rows are compared in types that hold the
# values of both, and shown in the types of their own state.


Row = dict[str, Any]


def rows_moved(old: Pin | None, new: Pin | None) -> bool:
    """Say whether the rows of two pins may differ; maintenance does not count."""
    if old is None or new is None:
        return old is not new
    return (old.table_id, old.content) != (new.table_id, new.content)


def pin_of(state: ManifestState, then: Catalog, declared: TableType) -> Pin | None:
    """Return the pin of the table that holds a type in a state, which may be one that was unified with it."""
    stored = then.same_table(declared)
    return None if stored is None else state.pins.get(stored.table_id)


def sides_of(reads: TableReads, old: Pin | None, new: Pin | None) -> tuple[OneSided, OneSided]:
    """Return the rows that only one of two pins has; of two tables, all of them."""
    if not rows_moved(old, new):
        return OneSided(None), OneSided(None)
    if old is not None and new is not None and old.table_id == new.table_id:
        return reads.differences(old.table_id, old.version, new.version)
    gone = OneSided(None) if old is None else reads.differences(old.table_id, old.version, None)[0]
    come = OneSided(None) if new is None else reads.differences(new.table_id, None, new.version)[1]
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


def under_names(side: OneSided, then: Catalog, declared: TableType) -> OneSided:
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
class _Renamed(OneSided):
    """A side whose columns go by the names that they have in the other version."""

    names: Mapping[str, str] = FrozenMap()  # name there -> name here

    @property
    def schema(self) -> pa.Schema:
        stored = super().schema
        here = set(stored.names)
        fields = [stored.field(old).with_name(new) for new, old in self.names.items() if old in here]
        return pa.schema(fields)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super().batches([self.names[name] for name in columns]):
            yield batch.rename_columns(list(columns))
