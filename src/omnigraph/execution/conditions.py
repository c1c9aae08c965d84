"""Conditions: whether a condition holds in each row: true, false or unknown.

Room    execution. Numbers compare by mathematical value whatever their types, text by UTF-8 bytes; null on
        either side is unknown, and a row is kept only where the whole is true.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    Contains,
    Entity,
    IsNull,
    Not,
    Or,
    Prefix,
    Substring,
    TextMatch,
    Value,
    type_of,
)
from omnigraph.catalog.query.operands import Constant, Now, ParamRef
from omnigraph.catalog.query.restate import restate
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.execution.rows import Rows
from omnigraph.execution.values import Evaluator

EXACT_INTEGERS = 2**53
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FUNCTIONS = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
Fixed = (Constant, ParamRef, Now)


def judge(condition: Condition, rows: Rows, evaluator: Evaluator) -> pa.Array:
    """Return the truth of a condition in each row, null where it is unknown."""
    match condition:
        case Comparison(left, operator, right):
            return _compared(left, operator, right, rows, evaluator)
        case Contains(left, right):
            return contains(*_alike(left, right, rows, evaluator))
        case Substring(left, right):
            return _text(left, right, rows, evaluator, pc.match_substring, lambda a, b: b in a)
        case Prefix(left, right):
            return _text(left, right, rows, evaluator, pc.starts_with, str.startswith)
        case Among(left, items):
            return _among(left, items, rows, evaluator)
        case IsNull(operand, negated):
            missing = _missing(operand, rows, evaluator)
            return pc.invert(missing) if negated else missing
        case And(operands):
            return reduce(pc.and_kleene, (judge(one, rows, evaluator) for one in operands))
        case Or(operands):
            return reduce(pc.or_kleene, (judge(one, rows, evaluator) for one in operands))
        case Not(operand):
            return pc.invert(judge(operand, rows, evaluator))
        case TextMatch():
            return evaluator.column(condition, rows)
        case _:
            assert_never(condition)


def _missing(operand: Value, rows: Rows, evaluator: Evaluator) -> pa.Array:
    if isinstance(operand, Entity):
        return pa.array(rows.bound[operand.variable] < 0)
    return pc.is_null(evaluator.column(operand, rows))


# -- comparisons -------------------------------------------------------------------------------------


def _compared(left: Value, operator: str, right: Value, rows: Rows, evaluator: Evaluator) -> pa.Array:
    if isinstance(left, Fixed) and not isinstance(right, Fixed):
        return _compared(right, _FLIPPED[operator], left, rows, evaluator)
    column, kind = evaluator.column(left, rows), type_of(left)
    if isinstance(right, Fixed) and kind is not None and kind.scalar in NUMBERS:
        value = evaluator.operand(right)
        if isinstance(value, int | float) and not isinstance(value, bool):
            operator, value = restate(operator, value, kind.scalar)
        if value is None:
            return pa.nulls(rows.count, pa.bool_())
        return _FUNCTIONS[operator](column, pa.scalar(value, column.type))
    return compare(column, operator, evaluator.column(right, rows))


def compare(left: pa.Array, operator: str, right: pa.Array) -> pa.Array:
    """Compare two columns value by value."""
    if left.type == right.type:
        if pa.types.is_boolean(left.type):
            left, right = left.cast(pa.uint8()), right.cast(pa.uint8())
        return _FUNCTIONS[operator](left, right)
    return _numbers(left, operator, right)


def _numbers(left: pa.Array, operator: str, right: pa.Array) -> pa.Array:
    """Compare numbers of different types exactly."""
    function = _FUNCTIONS[operator]
    floats = pa.types.is_floating(left.type) or pa.types.is_floating(right.type)
    if not floats:
        wide = pa.decimal128(20, 0)  # holds every 64-bit integer, signed or not
        return function(_decimal(left, wide), _decimal(right, wide))
    wide_left, wide_right = (side.cast(pa.float64(), safe=False) for side in (left, right))
    quick = function(wide_left, wide_right)
    risky = pc.or_(_beyond(left), _beyond(right))
    if not pc.any(risky).as_py():
        return quick
    exact = quick.to_pylist()
    for row in np.flatnonzero(risky.to_numpy(zero_copy_only=False)):
        a, b = left[int(row)].as_py(), right[int(row)].as_py()
        if a is not None and b is not None:
            exact[int(row)] = _PYTHON[operator](Fraction(a), Fraction(b))
    return pa.array(exact, pa.bool_())


def _decimal(values: pa.Array, wide: pa.DataType) -> pa.Array:
    return values.cast(wide)


def _beyond(values: pa.Array) -> pa.Array:
    """Mask integers that a float may not hold exactly."""
    if not pa.types.is_integer(values.type) or values.type.bit_width < 64:
        return pa.repeat(pa.scalar(False), len(values))
    magnitude = values if pa.types.is_unsigned_integer(values.type) else pc.abs(values)
    return pc.fill_null(pc.greater(magnitude, pa.scalar(EXACT_INTEGERS, values.type)), False)


_PYTHON = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


# -- membership and text -----------------------------------------------------------------------------


def _alike(left: Value, right: Value, rows: Rows, evaluator: Evaluator) -> tuple[pa.Array, pa.Array]:
    """Return lists and items; what a request gives meets F32 columns at their own precision."""
    lists, items = evaluator.column(left, rows), evaluator.column(right, rows)
    if isinstance(right, Fixed) and pa.types.is_float32(lists.type.value_type):
        items = items.cast(pa.float32(), safe=False)
    if isinstance(left, Fixed) and pa.types.is_float32(items.type):
        lists = lists.cast(pa.list_(pa.field("item", pa.float32())), safe=False)
    return lists, items


def contains(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Return whether each list has an element that equals the item beside it."""
    parents = pc.list_parent_indices(lists)
    equal = pc.fill_null(compare(pc.list_flatten(lists), "=", items.take(parents)), False)
    hits = parents.filter(equal).to_numpy(zero_copy_only=False)
    found = np.zeros(len(lists), dtype=bool)
    found[hits] = True
    known = pc.and_(pc.is_valid(lists), pc.is_valid(items))
    return pc.if_else(known, pa.array(found), None)


def _among(left: Value, items: tuple[Constant, ...] | ParamRef, rows: Rows, evaluator: Evaluator) -> pa.Array:
    if isinstance(items, ParamRef):
        given = evaluator.operand(items)
        if given is None:
            return pa.nulls(rows.count, pa.bool_())
        item = items.type
        kind = type(item)(item.scalar)
        wanted = tuple(Constant(value, kind) for value in given)
    else:
        wanted = items
    found = pa.repeat(pa.scalar(False), rows.count)
    for one in wanted:
        found = pc.or_kleene(found, _compared(left, "=", one, rows, evaluator))
    if wanted:
        return found
    known = pc.is_valid(evaluator.column(left, rows))
    return pc.if_else(known, found, None)


def _text(left: Value, right: Value, rows: Rows, evaluator: Evaluator, quick: Any, slow: Any) -> pa.Array:
    texts = evaluator.column(left, rows)
    if isinstance(right, Fixed):
        pattern = evaluator.operand(right)
        if pattern is None:
            return pa.nulls(rows.count, pa.bool_())
        return quick(texts, pattern)
    pairs = zip(texts.to_pylist(), evaluator.column(right, rows).to_pylist(), strict=True)
    return pa.array([None if a is None or b is None else slow(a, b) for a, b in pairs], pa.bool_())
