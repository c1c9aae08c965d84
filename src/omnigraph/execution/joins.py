"""Joins: rows and nodes that have an equal value, found by hash instead of trying every combination.

What is found here are candidates: values that are equal get the same number, and perhaps a few others. The
condition itself is judged afterwards, like any other, so that this file decides nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.arrays import repeated, starts_of, take
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import Ordinals


def matching(near: pa.Array, far: pa.Array, columns: int, budget: Budget) -> tuple[Ordinals, Ordinals]:
    """Return (place in `near`, place in `far`) for all equal values, and perhaps some more; null has none.

    >>> [part.tolist() for part in matching(pa.array([1, 2, None]), pa.array([2, 2, None, 3]), 2, Budget())]
    [[1, 1], [0, 1]]
    """
    budget.check(len(near) + len(far), 4, "a join by value")
    near, far = _comparable(near, far)
    encoded = far.dictionary_encode()  # null stays null: it has no number
    known = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    places = np.flatnonzero(known)
    codes = encoded.indices.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    order = places[np.argsort(codes, kind="stable")]
    wanted = pc.index_in(near, value_set=encoded.dictionary)
    rows = np.flatnonzero(wanted.is_valid().to_numpy(zero_copy_only=False))
    asked = wanted.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    fanned = counts[asked]
    budget.check(int(fanned.sum()), columns, "a join by value")
    owners, at = repeated(fanned, starts_of(counts)[asked])
    return take(rows, owners), take(order, at)


def _comparable(near: pa.Array, far: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return both sides in one type in which equal values are the same value.

    Numbers of different types become floats: equal ones become equal, and so may a few that are not.
    """
    if near.type != far.type:
        near, far = near.cast(pa.float64(), safe=False), far.cast(pa.float64(), safe=False)
    if pa.types.is_floating(near.type):
        zero = pa.scalar(0.0, near.type)
        near, far = pc.add(near, zero), pc.add(far, zero)  # -0.0 becomes 0.0
    return near, far
