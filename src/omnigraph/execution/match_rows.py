"""Match rows: what a match has bound so far, and rows joined to nodes that have an equal value.

A row binds each variable to one entity, held as its ordinal. Inside a block every row also knows which outer
row it belongs to. Every operator that makes rows asks the budget first (budget.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.query.expressions import Variable
from omnigraph.execution.arrays import Mask, repeated, starts_of, take
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import Ordinals


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

    def keep(self, mask: Mask) -> MatchRows:
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


# -- joins by value --------------------------------------------------------------------------------
#
# What is found here are candidates: values that are equal get the same number, and perhaps a few others. The
# condition itself is judged afterwards, like any other, so that these functions decide nothing.


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
