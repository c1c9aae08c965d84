"""Operands: the values of a checked query: constants, parameters and the time of the request.

Room    catalog.query. Shared by reads and mutations.
Rule    a `Stored` value is what a column would hold: days and milliseconds since 1970 for Date and DateTime,
        floats already rounded to their width, lists and vectors as tuples. A Blob is still the text that
        names it (`base64:...` or a URI).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from omnigraph.catalog.query.columns import Column
from omnigraph.catalog.types import PropertyType, Scalar

Stored: TypeAlias = str | bool | int | float | tuple[str | bool | int | float, ...]
Values: TypeAlias = Mapping[str, Stored | None]  # of all parameters, by name, as `bind_params` gives them


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter; `type` is never an enum."""

    name: str
    type: PropertyType

    @property
    def column(self) -> Column:
        """How catalogs of queries describe it."""
        return Column.of(self.name, self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. NULL only where it is assigned."""

    value: Stored | None
    type: PropertyType


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The value that a parameter has in this request; NULL if it is nullable and left out."""

    parameter: Parameter

    @property
    def type(self) -> PropertyType:
        """The declared type."""
        return self.parameter.type


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the request, the same wherever it stands."""

    @property
    def type(self) -> PropertyType:
        """Always DateTime."""
        return PropertyType(Scalar.DATETIME)


Operand: TypeAlias = Constant | ParamRef | Now


def operand_value(operand: Operand, values: Values, now: int) -> Stored | None:
    """Return what an operand stands for; `now` is in milliseconds since 1970."""
    match operand:
        case Constant(value):
            return value
        case ParamRef(parameter):
            return values[parameter.name]
        case Now():
            return now
        case _:
            assert_never(operand)
