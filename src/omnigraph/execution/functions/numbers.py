"""Numbers: arithmetic and the functions of numbers.

Integers are computed as I64 or U64, floats as F64. An overflow, a zero divisor and a result that is not
finite end the query; beside a null nothing is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.functions.columns import (
    Column,
    Kernel,
    as_arrays,
    cast,
    first_failing,
    first_true,
    mask_of,
    numbers_of,
    refuse,
    validity,
    with_nulls_of,
)

MOST_DIGITS = 15
_NAMES = {pa.int32(): "I32", pa.int64(): "I64", pa.uint32(): "U32", pa.uint64(): "U64"}
_CHECKED: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": pc.divide_checked,
}
_PLAIN: dict[str, Callable[..., Any]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}
_USE_FLOATS = "Use to_float where numbers get so large"
_NOT_FINITE = "the result is not a finite number"


# -- arithmetic --------------------------------------------------------------------------------------


def arithmetic(operator: str, sides: Sequence[Column], kind: pa.DataType) -> Column:
    """Return `left operator right` in the type of the result: I64, U64 or F64."""
    shown = f"{{}} {operator} {{}}"
    if pa.types.is_floating(kind):
        return _floats(operator, [as_floats(side) for side in sides], sides, shown)
    sides = _in_one_type(sides, kind)
    if operator == "%":
        return _remainder(sides, kind, sides, shown)
    try:
        return _CHECKED[operator](*sides)
    except pa.ArrowInvalid:
        row = first_failing(_CHECKED[operator], sides)
        if operator == "/" and as_arrays(*sides)[1][row].as_py() == 0:
            _by_zero(shown, sides, row)
        _overflow(shown, sides, row, kind)


def _in_one_type(sides: Sequence[Column], kind: pa.DataType) -> Sequence[Column]:
    """Return integers in the type they are computed in; one outside it is no matter beside a null."""
    try:
        return [cast(side, kind) for side in sides]
    except pa.ArrowInvalid:
        arrays = as_arrays(*sides)
        valid = validity(arrays)
        known = arrays if valid is None else [pc.if_else(valid, array, None) for array in arrays]
        return [as_integers(side, kind) for side in known]


def as_floats(column: Column) -> Column:
    """Return numbers as F64; an integer beyond 2**53 becomes the nearest, of two the even one."""
    return cast(column, pa.float64(), safe=False)


def as_integers(column: Column, kind: pa.DataType) -> Column:
    """Return integers in another type; one outside it is an overflow."""
    try:
        return cast(column, kind)
    except pa.ArrowInvalid:
        row = first_failing(partial(pc.cast, target_type=kind), [column])
        _overflow("{}", [column], row, kind)


def _floats(operator: str, floats: Sequence[Column], sides: Sequence[Column], shown: str) -> Column:
    if operator == "%":
        return _remainder(floats, pa.float64(), sides, shown)
    if operator == "/":
        return finite(_divided(floats), sides, shown, zero=floats[1])
    return finite(_PLAIN[operator](*floats), sides, shown)


def _divided(floats: Sequence[Column]) -> pa.Array:
    """Divide as IEEE does: what is not finite is looked into, and Arrow would refuse a zero beside a null."""
    arrays = as_arrays(*floats) if all(isinstance(f, pa.Scalar) for f in floats) else floats
    left, right = (numbers_of(f, np.float64) for f in arrays)
    with np.errstate(all="ignore"):
        return with_nulls_of(left / right, pa.float64(), arrays)


def finite(result: Column, sides: Sequence[Column], shown: str, *, zero: Column | None = None) -> Column:
    """Return a result if all of it is finite, or name the first row where it is not."""
    if pc.all(pc.is_finite(result)).as_py() is not False:
        return result
    (array,) = as_arrays(result)
    row = int(mask_of(pc.invert(pc.is_finite(array))).argmax())
    if zero is not None and as_arrays(zero, array)[0][row].as_py() == 0:
        _by_zero(shown, sides, row)
    remedy = "Filter out the rows where it is not"
    return refuse(shown, sides, row, reason="not_finite", why=_NOT_FINITE, remedy=remedy)


def _remainder(sides: Sequence[Column], kind: pa.DataType, given: Sequence[Column], shown: str) -> pa.Array:
    """Return the rest of a division that truncates: it has the sign of the dividend."""
    dtype = {pa.int64(): np.int64, pa.uint64(): np.uint64}.get(kind, np.float64)
    arrays = as_arrays(*sides)
    left, right = (numbers_of(array, dtype) for array in arrays)
    zero = right == 0
    row = first_true(zero, arrays)
    if row is not None:
        _by_zero(shown, given, row)
    with np.errstate(all="ignore"):
        rest = with_nulls_of(np.fmod(left, np.where(zero, 1, right).astype(dtype)), kind, arrays)
    return finite(rest, given, shown) if kind == pa.float64() else rest


def negate(column: Column, kind: pa.DataType) -> Column:
    """Return `-x`: I64 or F64."""
    if pa.types.is_floating(kind):
        return pc.negate(as_floats(column))
    column = as_integers(column, kind)
    try:
        return pc.negate_checked(column)
    except pa.ArrowInvalid:
        _overflow("-({})", [column], first_failing(pc.negate_checked, [column]), kind)


def _by_zero(shown: str, sides: Sequence[Column], row: int) -> NoReturn:
    refuse(
        shown,
        sides,
        row,
        reason="division_by_zero",
        why="division by zero",
        remedy="Filter out the rows that divide by zero first, or write case when",
    )


def _overflow(shown: str, sides: Sequence[Column], row: int, kind: pa.DataType) -> NoReturn:
    refuse(
        shown,
        sides,
        row,
        reason="overflow",
        why=f"overflow, the result is outside {_NAMES[kind]}",
        remedy=_USE_FLOATS,
    )


# -- functions ---------------------------------------------------------------------------------------


def _abs(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = arguments
    if pa.types.is_unsigned_integer(column.type):
        return column
    try:
        return pc.abs_checked(column)
    except pa.ArrowInvalid:
        _overflow("abs({})", arguments, first_failing(pc.abs_checked, arguments), column.type)


def _whole(function: Callable[..., Any]) -> Kernel:
    """Return a kernel that changes only floats: an integer is whole."""

    def kernel(arguments: Sequence[Column], kind: pa.DataType) -> Column:
        (column,) = arguments
        return function(column) if pa.types.is_floating(column.type) else column

    return kernel


def _round(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    """Round a half away from zero."""
    column = arguments[0]
    digits = _digits(arguments) if len(arguments) == 2 else pa.scalar(0, pa.int32())
    if not pa.types.is_floating(column.type):
        column, _ = as_arrays(column, digits)
        return column if isinstance(digits, pa.Scalar) else pc.if_else(digits.is_valid(), column, None)
    floats = as_floats(column)
    try:
        rounded = _rounded(floats, digits)
    except pa.ArrowInvalid:  # so large that shifting its point overflows: it is whole
        small = pc.less(pc.abs(floats), 1e16)
        rounded = pc.if_else(small, _rounded(pc.if_else(small, floats, 0.0), digits), floats)
    return cast(rounded, kind, safe=False)


def _rounded(floats: Column, digits: Column) -> Column:
    mode = "half_towards_infinity"
    if isinstance(digits, pa.Scalar):
        return pc.round(floats, digits.as_py(), mode)
    return pc.round_binary(floats, digits, mode)


def _digits(arguments: Sequence[Column]) -> Column:
    """Return how many digits are wanted, 0 to 15."""
    count = arguments[1]
    low, high = (pa.scalar(bound, count.type) for bound in (0, MOST_DIGITS))
    outside = pc.or_(pc.less(count, low), pc.greater(count, high))
    arrays = as_arrays(*arguments)
    row = first_true(mask_of(as_arrays(outside, arrays[0])[0]), arrays)
    if row is None:
        # Beside a null the digits may be anything.
        inside = pc.if_else(outside, low, count)
        return cast(inside, pa.int32())
    why = f"the digits are from 0 to {MOST_DIGITS}"
    return refuse("round({}, {})", arguments, row, reason="bad_value", why=why, remedy="Give fewer digits")


def _sqrt(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    return finite(pc.sqrt(as_floats(arguments[0])), arguments, "sqrt({})")


def _power(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    return finite(pc.power(*(as_floats(argument) for argument in arguments)), arguments, "power({}, {})")


KERNELS: dict[str, Kernel] = {
    "abs": _abs,
    "floor": _whole(pc.floor),
    "ceil": _whole(pc.ceil),
    "round": _round,
    "sqrt": _sqrt,
    "power": _power,
}
