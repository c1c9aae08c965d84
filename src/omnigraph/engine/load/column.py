"""Column: the values of one property, converted to how they are stored, and the rows that could not be.

Room    engine.load. What every converter returns, whether it read JSON values (cells.py), Arrow columns
        (arrow.py) or text fields (texts.py).
Rule    a value that does not fit is null here, and its row stands in a breach with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.types import PropertyType
from omnigraph.engine.validate.values import Breach, shown


class Misfit(ValueError):
    """The value is not of the type; the text says why not. `value` is as shown to people."""

    def __init__(self, reason: str, value: object = None) -> None:
        super().__init__(reason)
        self.value = None if value is None else shown(value)


class ColumnMisfit(ValueError):
    """No value of the Arrow type fits the property; the text says what does."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where values go: the name that the input has for it, its type, and how messages call it."""

    name: str
    type: PropertyType
    place: str  # "Person.age"


@dataclass(frozen=True, eq=False)
class Column:
    """Values of the stored type, one for each row of the input."""

    values: pa.Array
    breaches: tuple[Breach, ...] = ()

    @classmethod
    def with_misfits(cls, values: pa.Array, target: Target, misfits: Mapping[int, Misfit]) -> Column:
        """Return values with what is wrong with some of the rows."""
        if not misfits:
            return cls(values)
        mask = np.zeros(len(values), bool)
        mask[list(misfits)] = True

        def describe(row: int) -> tuple[str, str | None]:
            return f"{target.place}: {misfits[row]}", misfits[row].value

        return cls(values, (Breach("type", target.name, pa.array(mask), describe),))

    def taken(self, indices: pa.Array) -> Column:
        """Return the column whose rows are rows of this one, by number."""
        return Column(self.values.take(indices), tuple(_spread(b, indices) for b in self.breaches))


def _spread(breach: Breach, indices: pa.Array) -> Breach:
    mask = pc.fill_null(breach.mask.take(indices), False)
    return Breach(breach.code, breach.property, mask, lambda row: breach.describe(indices[row].as_py()))
