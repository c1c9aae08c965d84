"""Rows: what a match has bound so far.

Room    execution. A row binds each variable to one entity, held as its ordinal. Inside a block every row
        also knows which outer row it belongs to.
Bound   every operator that makes rows asks the budget first, so that a query ends with a typed error instead
        of taking the machine's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from omnigraph.base.errors import ResourceLimit
from omnigraph.catalog.query.expressions import Variable
from omnigraph.execution.entities import Ordinals

MEMORY_BYTES = 2 << 30


@dataclass(frozen=True)
class Budget:
    """How much memory the rows of one query may take at a time."""

    bytes: int = MEMORY_BYTES

    def check(self, rows: int, columns: int, doing: str) -> None:
        """Refuse to make more rows than fit."""
        self.check_bytes(rows * 8 * (columns + 1), f"{doing} of {rows} rows")

    def check_bytes(self, needed: int, doing: str) -> None:
        """Refuse to take more memory than there is for the query."""
        if needed > self.bytes:
            raise ResourceLimit(
                f"{doing} needs {needed >> 20} MiB; the limit is {self.bytes >> 20} MiB",
                remedy="Filter earlier, count instead of listing, or raise the memory limit",
                resource="memory",
                limit=self.bytes,
                actual=needed,
            )


@dataclass(frozen=True, eq=False)
class Rows:
    """Bindings, column by column."""

    count: int
    bound: Mapping[Variable, Ordinals]
    origin: Ordinals | None = None  # the outer row of each, inside a block

    def take(self, index: Ordinals) -> Rows:
        """Return some rows, possibly repeated."""
        bound = {variable: ordinals[index] for variable, ordinals in self.bound.items()}
        return Rows(len(index), bound, None if self.origin is None else self.origin[index])

    def keep(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Rows:
        """Return the rows of a mask."""
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def bind(self, variable: Variable, ordinals: Ordinals) -> Rows:
        """Return the rows with one more variable."""
        return Rows(self.count, {**self.bound, variable: ordinals}, self.origin)


ONE_EMPTY_ROW = Rows(1, {})
