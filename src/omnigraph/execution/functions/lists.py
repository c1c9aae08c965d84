"""Lists: the functions of lists, membership, and what holds for any or all items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.functions.columns import (
    Column,
    Kernel,
    Numbers,
    as_arrays,
    bitmap_of,
    cast,
    mask_of,
    numbers_of,
    row_count,
    validity,
)
from omnigraph.execution.functions.logic import compare
from omnigraph.execution.functions.text import bounds_of, every_other, paired_bounds

_FARTHEST = 2**31  # beyond every place in a list
_MOST_ITEMS = 2**31 - 1


def _size(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    return cast(pc.list_value_length(arguments[0]), kind)


def _slice(arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    """Return the items from a place up to another, both clamped to the list: a negative one is 0."""
    lists, *places = as_arrays(*arguments)
    bounds = bounds_of(lists)
    starts, lengths = bounds[:-1], np.diff(bounds)
    first = np.clip(_places(places[0]), 0, lengths)
    last = np.clip(_places(places[1]), first, lengths) if len(places) == 2 else lengths
    return _stretches(lists, starts + first, starts + last, validity([lists, *places]))


def _stretches(lists: pa.Array, starts: Numbers, ends: Numbers, valid: pa.Array | None) -> pa.Array:
    buffers = [None, pa.py_buffer(paired_bounds(starts, ends))]
    doubled = pa.Array.from_buffers(lists.type, 2 * len(lists), buffers, children=[lists.values])
    return doubled.take(every_other(len(lists), valid))


def _places(numbers: pa.Array) -> Numbers:
    """Return integers of any type as I64, none of them farther than a list can be long."""
    if pa.types.is_uint64(numbers.type):
        numbers = pc.min_element_wise(numbers, pa.scalar(_FARTHEST, numbers.type), skip_nulls=False)
    places: Numbers = np.clip(numbers_of(cast(numbers, pa.int64()), np.int64), -_FARTHEST, _FARTHEST)
    return places


def element(lists: Column, place: Column) -> pa.Array:
    """Return the item at a place, counted from 0, from the end if it is negative; NULL outside the list."""
    lists, places = as_arrays(lists, place)
    bounds = bounds_of(lists)
    lengths, wanted = np.diff(bounds).astype(np.int64), _places(places)
    wanted = np.where(wanted < 0, wanted + lengths, wanted)
    outside = (wanted < 0) | (wanted >= lengths)
    valid = validity((lists, places))
    if valid is not None:
        outside |= ~valid.to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(bounds[:-1] + wanted, mask=outside))


def concatenate(left: Column, right: Column, kind: pa.DataType) -> pa.Array:
    """Return the items of two lists as one list."""
    left, right = as_arrays(cast(left, kind), cast(right, kind))
    count = len(left)
    valid = validity((left, right))
    sides = [_only(side, valid) for side in (left, right)]
    sizes = np.stack([np.diff(bounds_of(side)) for side in sides], axis=1).reshape(-1)
    items = pa.concat_arrays([side.flatten() for side in sides])
    # The items of a row: those of the left list, then those of the right one.
    begins = np.concatenate([bounds_of(side)[:-1] - bounds_of(side)[:1] for side in sides])
    begins = begins.reshape(2, count).T.astype(np.int64)
    begins[:, 1] += len(sides[0].flatten())
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if count else 0
    if total > _MOST_ITEMS:
        raise pa.ArrowCapacityError("a column of lists has at most 2**31 items")
    order = np.repeat(begins.reshape(-1) - (ends - sizes), sizes) + np.arange(total)
    bounds = np.concatenate([[0], ends[1::2]]).astype(np.int32)
    bitmap = bitmap_of(valid)
    return pa.Array.from_buffers(
        kind, count, [bitmap, pa.py_buffer(bounds)], children=[items.take(pa.array(order))]
    )


def _only(lists: pa.Array, valid: pa.Array | None) -> pa.Array:
    """Return lists with nothing where a row is null: neither in the list nor in what lies behind it."""
    if valid is None:
        return lists
    empty = pa.scalar([], lists.type)
    return pc.if_else(valid, lists, empty)


# -- items -------------------------------------------------------------------------------------------


def items_of(lists: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the items of all lists that are not null, one after another, and the row of each."""
    return lists.flatten(), cast(pc.list_parent_indices(lists), pa.int64())


def any_item(lists: pa.Array, truths: pa.Array) -> pa.Array:
    """Return whether an item is true, of the items of `items_of`: three-valued or; an empty list is false."""
    true, unknown = _counts(lists, mask_of(truths)), _unknown(lists, truths)
    return _decided(lists, true > 0, unknown > 0)


def all_items(lists: pa.Array, truths: pa.Array) -> pa.Array:
    """Return whether no item is false, of the items of `items_of`: three-valued and; an empty list is."""
    false, unknown = _counts(lists, mask_of(pc.invert(truths))), _unknown(lists, truths)
    return pc.invert(_decided(lists, false > 0, unknown > 0))


def _decided(lists: pa.Array, decided: Numbers, unknown: Numbers) -> pa.Array:
    """Return where something decides; NULL where only an unknown item might, and where the list is null."""
    missing = unknown & ~decided
    if lists.null_count:
        missing |= lists.is_null().to_numpy(zero_copy_only=False)
    return pa.array(decided, mask=missing)


def _unknown(lists: pa.Array, truths: pa.Array) -> Numbers:
    if not truths.null_count:
        return np.zeros(len(lists), np.int64)
    return _counts(lists, truths.is_null().to_numpy(zero_copy_only=False))


def _counts(lists: pa.Array, chosen: Numbers) -> Numbers:
    """Return how many items of each list are chosen."""
    sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    ends = np.cumsum(sizes, dtype=np.int64)
    running = np.concatenate([[0], np.cumsum(chosen)])
    counts: Numbers = running[ends] - running[ends - sizes]
    return counts


def contained(value: Column, lists: Column) -> Column:
    """Return whether a value is in a list: `x = e1 or x = e2 ...`; an empty one has none, not even NULL."""
    if pa.types.is_null(lists.type):
        return pa.nulls(row_count((value, lists)), pa.bool_())
    if pa.types.is_null(value.type):
        value = cast(value, lists.type.value_type)
    if isinstance(lists, pa.Scalar):
        return _in_one(value, lists)
    values, lists = as_arrays(value, lists)
    items, rows = items_of(lists)
    if isinstance(value, pa.Scalar):
        return any_item(lists, as_arrays(compare("=", items, value), items)[0])
    return any_item(lists, compare("=", values.take(rows), items))


def _in_one(value: Column, lists: pa.Scalar) -> pa.Array:
    """Look values up in one list."""
    (values,) = as_arrays(value)
    if not lists.is_valid:
        return pa.nulls(len(values), pa.bool_())
    known = lists.values.drop_null()
    if len(known) == len(lists.values) == 0:
        return pa.array(np.zeros(len(values), bool))
    hits = _hits(values, known)
    if len(known) < len(lists.values):
        return pc.if_else(hits, True, None)
    return pc.if_else(values.is_valid(), hits, None) if values.null_count else hits


def _hits(values: pa.Array, known: pa.Array) -> pa.Array:
    """Return which values equal one of a set, NULL none of them."""
    if values.type != known.type:
        held = cast(known, values.type, safe=False)
        if not pa.types.is_float32(values.type):  # which meets any number at its own precision
            held = held.filter(compare("=", known, held))  # what the column can hold
        known = held
    if pa.types.is_floating(known.type):
        known = known.filter(pc.invert(pc.is_nan(known)))
        zeros = known.filter(pc.equal(known, 0.0))
        known = pa.concat_arrays([known, pc.negate(zeros)])  # both of them
    return pc.is_in(values, value_set=known)


KERNELS: dict[str, Kernel] = {"size": _size, "slice": _slice}
