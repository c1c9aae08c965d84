"""Logic: comparisons by value and three-valued logic.

Numbers compare by mathematical value, whatever their types; text by UTF-8 bytes; false is less than true.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.functions.columns import Column, Numbers, as_arrays, cast, numbers_of, with_nulls_of

COMPARISONS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TWO_63 = 2.0**63
_TWO_64 = 2.0**64


def compare(operator: str, left: Column, right: Column) -> Column:
    """Compare columns value by value; null beside anything is null."""
    left, right = _at_its_precision(left, right), _at_its_precision(right, left)
    function = COMPARISONS[operator]
    if left.type == right.type:
        if pa.types.is_boolean(left.type):
            left, right = cast(left, pa.uint8()), cast(right, pa.uint8())
        return function(left, right)
    wide = _exact_type(left.type, right.type)
    if wide is not None:
        return function(cast(left, wide), cast(right, wide))
    arrays = as_arrays(left, right)
    order = _order(*arrays)
    return function(with_nulls_of(order, pa.int8(), arrays), pa.scalar(0, pa.int8()))


def _at_its_precision(column: Column, other: Column) -> Column:
    """Let a fixed number meet a column of F32 at the precision of the column: 0.1 equals what was stored."""
    if isinstance(column, pa.Scalar) and isinstance(other, pa.Array) and pa.types.is_float32(other.type):
        return cast(column, pa.float32(), safe=False)
    return column


def _exact_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds all numbers of two types exactly, if Arrow has one."""
    types = (left, right)
    if all(pa.types.is_floating(kind) for kind in types):
        return pa.float64()
    if any(pa.types.is_floating(kind) for kind in types):
        return pa.float64() if _whole_type(left, right).bit_width < 64 else None
    if all(pa.types.is_unsigned_integer(kind) for kind in types):
        return pa.uint64()
    return None if any(pa.types.is_uint64(kind) for kind in types) else pa.int64()


def _whole_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return right if pa.types.is_floating(left) else left


def _order(left: pa.Array, right: pa.Array) -> Numbers:
    """Return -1, 0 or 1 for numbers of two types that no third type holds exactly; 2 beside NaN."""
    if pa.types.is_floating(left.type):
        return _flipped(_order(right, left))
    if pa.types.is_floating(right.type):
        return _integer_and_float(left, right)
    if pa.types.is_signed_integer(left.type):
        return _flipped(_order(right, left))
    big, small = numbers_of(left, np.uint64), numbers_of(cast(right, pa.int64()), np.int64)
    order = _sign(big, small.astype(np.uint64))
    order[small < 0] = 1
    return order


def _integer_and_float(left: pa.Array, right: pa.Array) -> Numbers:
    """Compare 64-bit integers with floats: as floats, and where these are equal as integers.

    Rounding keeps the order, so what differs as floats differs in the same way as numbers.
    """
    unsigned = pa.types.is_unsigned_integer(left.type)
    integer: type[np.generic] = np.uint64 if unsigned else np.int64
    whole, real = numbers_of(left, integer), numbers_of(cast(right, pa.float64()), np.float64)
    rounded = whole.astype(np.float64)
    order = _sign(rounded, real)
    tied = np.flatnonzero(rounded == real)
    reals = real[tied]
    beyond = reals >= (_TWO_64 if unsigned else _TWO_63)  # more than the type holds: the integer is less
    order[tied] = np.where(beyond, -1, _sign(whole[tied], np.where(beyond, 0, reals).astype(integer)))
    order[np.isnan(real)] = 2
    return order


def _sign(left: Numbers, right: Numbers) -> Numbers:
    return (left > right).astype(np.int8) - (left < right).astype(np.int8)


def _flipped(order: Numbers) -> Numbers:
    return np.where(order == 2, 2, -order).astype(np.int8)


def fold(function: Callable[..., Any], *conditions: Column) -> Column:
    """Return the conjunction or disjunction of conditions, as three-valued logic has it."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = function(result, condition)
    return result
