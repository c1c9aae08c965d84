"""Values: from a literal or a parameter to the value that a column of some type holds.

Literals are fitted when a query is checked, parameters when it runs.

Values are kept or refused, never bent: an integer must fit its width, a fraction is no integer, a float
that would not be finite is none. Integers are accepted where a float is wanted.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import read_day, read_instant
from omnigraph.catalog.query.expressions import Constant, Stored
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.language.literals import RANGES, LiteralKind, LiteralMisfit, LiteralSyntax, stored_float
from omnigraph.language.query.tree import ListSyntax

NUMBERS = INTEGERS | FLOATS
_SCALARS = {
    LiteralKind.STRING: Scalar.STRING,
    LiteralKind.INTEGER: Scalar.I64,
    LiteralKind.FLOAT: Scalar.F64,
    LiteralKind.BOOLEAN: Scalar.BOOL,
    LiteralKind.DATE: Scalar.DATE,
    LiteralKind.DATETIME: Scalar.DATETIME,
}
_ARROW_NAMES = {Scalar.I32: "Int32", Scalar.I64: "Int64", Scalar.U32: "UInt32", Scalar.U64: "UInt64"}
_ARROW_NAMES |= {Scalar.F32: "Float32", Scalar.F64: "Float64"}


class Unfit(InvalidRequest):
    """A value does not fit the property that it is assigned to; nothing was written."""


# -- literals ----------------------------------------------------------------------------------------


def constant(literal: LiteralSyntax | ListSyntax) -> Constant:
    """Return a literal as a constant of its own type; a list of mixed numbers is one of F64."""
    if isinstance(literal, LiteralSyntax):
        return Constant(_plain(literal), PropertyType(_SCALARS[literal.kind]))
    items = [constant(item) for item in literal.items]
    first = items[0].type.scalar if items else Scalar.STRING
    # Elements of another sort were reported when the text was parsed.
    alike = [i for i in items if i.type.scalar is first or {i.type.scalar, first} <= NUMBERS]
    scalar = Scalar.F64 if any(i.type.scalar is Scalar.F64 for i in alike) else first
    values = (i.value for i in alike if i.value is not None and not isinstance(i.value, tuple))
    stored = (float(v) if scalar is Scalar.F64 else v for v in values)
    return Constant(tuple(stored), PropertyType(scalar, is_list=True))


def fit(literal: LiteralSyntax | ListSyntax, declared: PropertyType) -> Stored | None:
    """Return the stored value of a literal for a type, or raise `Misfit` saying what would fit."""
    if isinstance(literal, LiteralSyntax) and literal.kind is LiteralKind.NULL:
        if not declared.nullable:
            raise LiteralMisfit("a value: it is required")
        return None
    if declared.scalar is Scalar.BLOB:
        raise LiteralMisfit("a String or Blob parameter")
    if not declared.is_list and declared.scalar is not Scalar.VECTOR:
        if isinstance(literal, ListSyntax):
            raise _another_type(literal, declared)
        return _fit_scalar(literal, declared)
    if not isinstance(literal, ListSyntax):
        raise _another_type(literal, declared)
    size, dimension = len(literal.items), declared.dimension
    if dimension is not None and size != dimension:
        raise LiteralMisfit(f"{dimension} values for Vector({dimension}), got {size}")
    item = PropertyType(Scalar.F32 if dimension is not None else declared.scalar)
    return tuple(_fit_scalar(i, item) for i in literal.items)


def _fit_scalar(literal: LiteralSyntax, declared: PropertyType) -> str | bool | int | float:
    scalar = declared.scalar
    literal_type = _SCALARS[literal.kind]
    if scalar in INTEGERS and literal_type is Scalar.I64:
        low, high = RANGES[scalar.value]
        value = int(literal.text)
        if not low <= value <= high:
            raise LiteralMisfit(f"a whole number from {low} to {high} ({scalar.value})")
        return value
    if scalar in FLOATS and literal_type in NUMBERS:
        number = stored_float(float(literal.text), scalar.value)
        if number is None:
            raise LiteralMisfit(f"a number within the range of {scalar.value}")
        return number
    if scalar is not literal_type:
        raise _another_type(literal, declared)
    if declared.enum_values is not None and literal.text not in declared.enum_values:
        raise LiteralMisfit(f"one of {', '.join(declared.enum_values)}")
    return _plain(literal)


def _another_type(literal: LiteralSyntax | ListSyntax, declared: PropertyType) -> LiteralMisfit:
    return LiteralMisfit(f"{replace(declared, nullable=False)}, found {constant(literal).type}")


def _plain(literal: LiteralSyntax) -> str | bool | int | float:
    match literal.kind:
        case LiteralKind.INTEGER:
            return int(literal.text)
        case LiteralKind.FLOAT:
            return float(literal.text)
        case LiteralKind.BOOLEAN:
            return literal.text == "true"
        case LiteralKind.DATE | LiteralKind.DATETIME:
            try:
                return (read_day if literal.kind is LiteralKind.DATE else read_instant)(literal.text)
            except ValueError:
                return 0  # a text that is no date was reported when it was parsed
        case _:
            return literal.text


# -- values of parameters ----------------------------------------------------------------------------


def assigned(value: Stored | None, declared: PropertyType, place: str) -> Stored | None:
    """Return a parameter's value as a property stores it, or raise `Unfit`; the types are compatible.

    >>> assigned(3, PropertyType(Scalar.F64), "T.p"), assigned(2.0, PropertyType(Scalar.I32), "T.p")
    (3.0, 2)
    """
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_assigned(item, declared.scalar, place) for item in value)
    return _assigned(value, declared.scalar, place)


def _assigned(value: str | bool | int | float, scalar: Scalar, place: str) -> str | bool | int | float:
    if isinstance(value, str | bool) or scalar not in NUMBERS | {Scalar.VECTOR}:
        return value
    if scalar in INTEGERS:
        if isinstance(value, float) and not value.is_integer():
            raise Unfit(f"{place}: expected an integer ({scalar.value}), found {value!r}", place=place)
        low, high = RANGES[scalar.value]
        if not low <= value <= high:
            raise Unfit(f"{place}: {value} exceeds {_ARROW_NAMES[scalar]} range", place=place)
        return int(value)
    number = stored_float(float(value), "F64" if scalar is Scalar.F64 else "F32")
    if number is None:
        raise Unfit(f"{place}: {value} exceeds {_ARROW_NAMES.get(scalar, 'Float32')} range", place=place)
    return number


# -- restate -------------------------------------------------------------------------------------
#
# A comparison of a column with any number, as one with a number that the column can hold.
# Numbers compare by their mathematical value, whatever their types: `I32 < 2.7` asks
# for `<= 2`, and `I32 = 2.7` is simply false. A scan compares only values of the column's own type.
# Rule    null stays unknown, so what is always true or always false is still a comparison with the
# column.
# F32 columns compare at F32 precision.


def restate(operator: str, number: int | float, scalar: Scalar) -> tuple[str, int | float]:
    """Return the operator and the number of the column's type that ask the same.

    >>> restate("<", 2.7, Scalar.I32), restate("=", 2.7, Scalar.I32), restate("!=", 2**40, Scalar.I32)
    (('<=', 2), ('<', -2147483648), ('>=', -2147483648))
    """
    if scalar not in NUMBERS:
        raise TypeError(f"{scalar.value} is no number")
    return _float(operator, number, scalar) if scalar in FLOATS else _integer(operator, number, scalar)


def _integer(operator: str, number: int | float, scalar: Scalar) -> tuple[str, int | float]:
    low, high = RANGES[scalar.value]
    if isinstance(number, float) and math.isinf(number):
        number = high + 1 if number > 0 else low - 1
    whole = math.floor(number)
    if whole != number:
        if operator in ("=", "!="):
            return _decided(operator == "!=", low)
        operator, whole = ("<=", whole) if operator in ("<", "<=") else (">=", whole + 1)
    if low <= whole <= high:
        return operator, whole
    below = operator in ("<", "<=")
    return _decided(operator == "!=" or (operator != "=" and below == (whole > high)), low)


def _float(operator: str, number: int | float, scalar: Scalar) -> tuple[str, int | float]:
    if scalar is Scalar.F32:
        with np.errstate(over="ignore"):
            return operator, float(np.float32(number))
    near = float(number)
    if near == number:
        return operator, near
    if operator in ("=", "!="):
        return _decided(operator == "!=", -math.inf)
    # No double lies between the number and the one next to it.
    if operator in ("<", "<="):
        return ("<" if near > number else "<="), near
    return (">=" if near > number else ">"), near


def _decided(answer: bool, lowest: int | float) -> tuple[str, int | float]:
    return (">=" if answer else "<"), lowest
