"""Restate: a comparison of a column with any number, as one with a number that the column can hold.

Room    catalog.query. Numbers compare by their mathematical value, whatever their types: `I32 < 2.7` asks
        for `<= 2`, and `I32 = 2.7` is simply false. A scan compares only values of the column's own type.
Rule    null stays unknown, so what is always true or always false is still a comparison with the column.
        F32 columns compare at F32 precision.
"""

from __future__ import annotations

import math

import numpy as np

from omnigraph.catalog.query.values import NUMBERS
from omnigraph.catalog.types import FLOATS, Scalar
from omnigraph.language.schema.literals import RANGES


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
