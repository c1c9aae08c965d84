"""Where: the condition of an update or a delete, as comparisons of columns with stored values.

    checked mutation -> **ground condition** -> scan

Room    catalog.query. Runs once per request, when the parameters are known.
Given   a `Where`, the bound parameters and the time of the request.
Gives   a `Ground` tree: every value is of its column's own type, so that a scan need not convert.
Rule    `Compare` with None is unknown for every row: a NULL parameter matches nothing, negated or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from omnigraph.catalog.query import mutation
from omnigraph.catalog.query.mutation import Place, Where
from omnigraph.catalog.query.operands import Operand, ParamRef, Stored, Values, operand_value
from omnigraph.catalog.query.restate import restate
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.catalog.types import PropertyType


@dataclass(frozen=True, slots=True)
class Compare:
    """A column against a stored value; with None it is unknown for every row."""

    column: str
    type: PropertyType
    operator: str
    value: Stored | None


@dataclass(frozen=True, slots=True)
class Among:
    """A column against a set of stored values; the empty set matches nothing."""

    column: str
    type: PropertyType
    values: tuple[Stored, ...]


@dataclass(frozen=True, slots=True)
class Null:
    """True when the column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """True when the operand is false; unknown stays unknown."""

    operand: Ground


@dataclass(frozen=True, slots=True)
class And:
    """True when all operands are."""

    operands: tuple[Ground, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when any operand is."""

    operands: tuple[Ground, ...]


Ground: TypeAlias = Compare | Among | Null | Not | And | Or


def ground(where: Where, values: Values, now: int) -> Ground:
    """Return the condition with every parameter replaced by its value."""
    match where:
        case mutation.Comparison(place, operator, operand):
            return _compare(place, operator, operand_value(operand, values, now))
        case mutation.IsIn(place, operands):
            return _among(place, operands, values, now)
        case mutation.IsNull(place, negated):
            return Not(Null(place.column)) if negated else Null(place.column)
        case mutation.Not(operand):
            return Not(ground(operand, values, now))
        case mutation.And(parts):
            return And(tuple(ground(part, values, now) for part in parts))
        case mutation.Or(parts):
            return Or(tuple(ground(part, values, now) for part in parts))
        case _:
            assert_never(where)


def _compare(place: Place, operator: str, value: Stored | None) -> Compare:
    scalar = place.type.scalar
    if isinstance(value, int | float) and scalar in NUMBERS:
        operator, value = restate(operator, value, scalar)
    return Compare(place.column, place.type, operator, value)


def _among(place: Place, operands: tuple[Operand, ...] | ParamRef, values: Values, now: int) -> Ground:
    if isinstance(operands, ParamRef):
        given = operand_value(operands, values, now)
        if given is None:
            return Compare(place.column, place.type, "=", None)
        items: tuple[Stored | None, ...] = given if isinstance(given, tuple) else (given,)
    else:
        items = tuple(operand_value(operand, values, now) for operand in operands)
    single = [_compare(place, "=", item) for item in items]
    # A number that the column cannot hold equals none of its values, but null stays unknown.
    kept = tuple(dict.fromkeys(c.value for c in single if c.operator == "=" and c.value is not None))
    return single[0] if single and not kept else Among(place.column, place.type, kept)
