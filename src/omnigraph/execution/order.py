"""Order: the total order of result rows.

Room    execution. Nulls are smallest: first ascending, last descending. What the sort keys leave equal is
        ordered by the ids of the bound entities, so that the same snapshot always answers in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ID
from omnigraph.catalog.types import numbers_in
from omnigraph.execution.context import Context
from omnigraph.execution.entities import Ordinals
from omnigraph.execution.rows import Rows

TOP_SHARE = 8  # selecting beats sorting while the wanted rows are fewer than one in so many


@dataclass(frozen=True, eq=False)
class Key:
    """One sort key: a value for each row."""

    values: pa.Array
    descending: bool = False


def ties(rows: Rows, context: Context) -> list[Key]:
    """Return the keys that break ties: ids of all bound entities, by the names of the variables."""
    if rows.count <= 1:
        return []
    found = []
    for variable in sorted(rows.bound, key=lambda v: (v.name.encode(), v.number)):
        found.append(Key(context.table(variable.type.id).take(ID, rows.bound[variable])))
    return found


def sort(keys: Sequence[Key], count: int, first: int | None = None) -> Ordinals:
    """Return the row numbers in order; only the first ones, if that is all that is wanted."""
    if count <= 1 or not keys:
        whole = np.arange(count, dtype=np.int64)
        return whole if first is None else whole[:first]
    columns: dict[str, pa.Array] = {}
    orders: list[tuple[str, str]] = []
    for number, key in enumerate(keys):
        way = "descending" if key.descending else "ascending"
        values = _sortable(key.values)
        if values.null_count:
            columns[f"v{number}"] = pc.is_valid(values).cast(pa.uint8())
            orders.append((f"v{number}", way))
        columns[f"k{number}"] = values
        orders.append((f"k{number}", way))
    table = pa.table(columns)
    if first is not None and first * TOP_SHARE < count:
        return _selected(table, orders, first)
    found: Ordinals = pc.sort_indices(table, sort_keys=orders).to_numpy(zero_copy_only=False).astype(np.int64)
    return found if first is None else found[:first]


def _sortable(values: pa.Array) -> pa.Array:
    """Return values that Arrow can sort: booleans as numbers, lists by their place among each other."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if not pa.types.is_nested(values.type):
        return values
    lists = values.cast(numbers_in(values.type)).to_pylist()
    distinct = sorted({tuple(one) for one in lists if one is not None})
    place = {one: number for number, one in enumerate(distinct)}
    return pa.array([None if one is None else place[tuple(one)] for one in lists], pa.int64())


def _selected(table: pa.Table, orders: list[tuple[str, str]], first: int) -> Ordinals:
    """Cut by the first key alone, then sort what may be among the first."""
    if first == 0:
        return np.zeros(0, np.int64)
    name, way = orders[0]
    rough = pc.select_k_unstable(table.select([name]), k=first, sort_keys=[(name, way)])
    edge = table[name].take(rough.slice(len(rough) - 1, 1))[0]
    compare = pc.less_equal if way == "ascending" else pc.greater_equal
    inside = np.flatnonzero(pc.fill_null(compare(table[name], edge), False).to_numpy(zero_copy_only=False))
    if table[name].null_count:  # not the flag column: leave nothing to guessing
        inside = np.arange(table.num_rows)
    part = table.take(pa.array(inside))
    order = pc.sort_indices(part, sort_keys=orders).to_numpy(zero_copy_only=False).astype(np.int64)
    chosen: Ordinals = inside[order[:first]]
    return chosen
