"""Rows: what a match has bound so far.

Room    execution. A row binds each variable to one entity, held as its ordinal. Inside a block every row
        also knows which outer row it belongs to.
Bound   every operator that makes rows asks the budget first (budget.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph.catalog.query.expressions import Variable
from omnigraph.execution.entities import Ordinals


@dataclass(frozen=True, eq=False)
class Rows:
    """Bindings, column by column."""

    count: int
    bound: Mapping[Variable, Ordinals]
    origin: Ordinals | None = None  # the outer row of each, inside a block

    def take(self, index: Ordinals) -> Rows:
        """Return some rows, possibly repeated."""
        if self.count <= 1 and len(index) == self.count:
            return self
        bound = {variable: ordinals[index] for variable, ordinals in self.bound.items()}
        return Rows(len(index), bound, None if self.origin is None else self.origin[index])

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from one number to another, without a copy."""
        bound = {variable: ordinals[start:stop] for variable, ordinals in self.bound.items()}
        origin = None if self.origin is None else self.origin[start:stop]
        return Rows(min(stop, self.count) - start, bound, origin)

    def keep(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
        """Return the rows of a mask."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def bind(self, variable: Variable, ordinals: Ordinals) -> Rows:
        """Return the rows with one more variable."""
        return Rows(self.count, {**self.bound, variable: ordinals}, self.origin)


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts, which bind the same variables, in their order."""
    if len(parts) == 1:
        return parts[0]
    bound = {v: np.concatenate([part.bound[v] for part in parts]) for v in parts[0].bound}
    return Rows(sum(part.count for part in parts), bound)


ONE_EMPTY_ROW = Rows(1, {})
