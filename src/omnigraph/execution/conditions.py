"""Conditions: whether a condition holds in each row: true, false or unknown.

The one implementation of three-valued logic, for matches, updates and deletes alike. Numbers compare by
mathematical value whatever their types, text by UTF-8 bytes; null on either side is unknown, and a row is
kept only where the whole is true. `judge` takes the condition of a checked query and the rows it is judged
on: those of a match (`MatchedRows` in values.py) or of a stored table (`StoredRows`).

The file ends with what a condition tells before any row is read: the values that it pins a column to, and
the predicate that a scan prunes by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    Constant,
    Contains,
    EntityField,
    EntityPart,
    EntityValue,
    Fixed,
    IsNull,
    Not,
    Operand,
    Or,
    ParamRef,
    Prefix,
    PropertyValue,
    Stored,
    Substring,
    TextMatch,
    Value,
    Values,
    Variable,
    leaves,
    operand_value,
    type_of,
)
from omnigraph.catalog.query.values import NUMBERS, restate
from omnigraph.catalog.types import FLOATS, PropertyType, repeated
from omnigraph.storage.tables.keys import PROBE_LIMIT
from omnigraph.storage.tables.predicate import (
    OPERATORS,
    Predicate,
    all_hold,
    any_holds,
    both_zeros,
    compares,
    is_in,
    is_null,
)

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
# The lists of conditions, by the identity of the condition; it is kept, so that its id stays its own.
Sets: TypeAlias = "dict[int, tuple[Condition, Members | None]]"


class ConditionRows(Protocol):
    """The rows that a condition is asked of, and what the request fixes."""

    @property
    def sets(self) -> Sets:
        """The lists of conditions, made once for all batches."""

    @property
    def count(self) -> int:
        """How many rows there are."""

    def column(self, value: Value) -> pa.Array:
        """Return a value in each row."""

    def operand(self, operand: Operand) -> Stored | None:
        """Return what a constant, parameter or now() stands for."""

    def absent(self, variable: Variable) -> pa.Array:
        """Return where an optional variable stands for nothing."""


NO_ROWS = pa.table({})


@dataclass(eq=False)
class StoredRows:
    """Rows of one table, by its stored columns: what a scan or a look-up gives."""

    values: Values
    now_ms: int
    rows: pa.Table | pa.RecordBatch = field(default_factory=lambda: NO_ROWS)
    sets: Sets = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows)

    def column(self, value: Value) -> pa.Array:
        """Return a value in each row."""
        if isinstance(value, Fixed):
            return constant_column(self.operand(value), value.type, self.count)
        column = self.rows[stored_column(value)]
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def operand(self, operand: Operand) -> Stored | None:
        """Return what a constant, parameter or now() stands for."""
        return operand_value(operand, self.values, self.now_ms)

    def absent(self, variable: Variable) -> pa.Array:
        """No row is absent."""
        return pa.repeat(pa.scalar(False), self.count)


def stored_column(value: Value) -> str:
    """Return the stored column that a value is."""
    match value:
        case PropertyValue(_, member):
            return member.column
        case EntityField(_, part) if part is not EntityPart.TYPE:
            return ID if part is EntityPart.ID else part.value
        case _:
            raise AssertionError(f"{value!r} is no stored column")


def stored_columns(condition: Condition) -> tuple[str, ...]:
    """Return the stored columns that a condition reads."""
    values = (value for value in leaves(condition) if not isinstance(value, Fixed))
    return tuple(dict.fromkeys(stored_column(value) for value in values))


def constant_column(value: Any, declared: PropertyType, count: int) -> pa.Array:
    """Return one stored value for every row."""
    if isinstance(value, tuple):
        value = list(value)
    return repeated(pa.scalar(value, declared.arrow), count)


def judge(condition: Condition, source: ConditionRows) -> pa.Array:
    """Return the truth of a condition in each row, null where it is unknown."""
    match condition:
        case Comparison(left, operator, right):
            return _compared(left, operator, right, source)
        case Contains(left, right) if isinstance(left, Constant | ParamRef):
            return _among(condition, right, left, source)
        case Contains(left, right):
            return contains(*_alike(left, right, source))
        case Substring(left, right):
            return _text(left, right, source, pc.match_substring, lambda a, b: b in a)
        case Prefix(left, right):
            return _text(left, right, source, pc.starts_with, str.startswith)
        case Among(left, items):
            return _among(condition, left, items, source)
        case IsNull(operand, negated):
            missing = _missing(operand, source)
            return pc.invert(missing) if negated else missing
        case And(operands):
            return reduce(pc.and_kleene, (judge(part, source) for part in operands))
        case Or(operands):
            return reduce(pc.or_kleene, (judge(part, source) for part in operands))
        case Not(operand):
            return pc.invert(judge(operand, source))
        case TextMatch():
            return source.column(condition)
        case _:
            assert_never(condition)


def holds(condition: Condition, source: ConditionRows) -> pa.Array:
    """Return where a condition is true: false where it is unknown."""
    truth = judge(condition, source)
    return pc.fill_null(truth, False) if truth.null_count else truth


def _missing(operand: Value, source: ConditionRows) -> pa.Array:
    if isinstance(operand, EntityValue):
        return source.absent(operand.variable)
    return pc.is_null(source.column(operand))


# -- comparisons -------------------------------------------------------------------------------------


def _compared(left: Value, operator: str, right: Value, source: ConditionRows) -> pa.Array:
    if isinstance(left, Fixed) and not isinstance(right, Fixed):
        return _compared(right, _FLIPPED[operator], left, source)
    column, kind = source.column(left), type_of(left)
    if not isinstance(right, Fixed):
        return compare(column, operator, source.column(right))
    value = source.operand(right)
    if value is None:
        return pa.nulls(source.count, pa.bool_())
    if kind is not None and kind.scalar in NUMBERS and isinstance(value, int | float):
        operator, value = restate(operator, value, kind.scalar)
    return compare(column, operator, pa.scalar(value, column.type))


def compare(left: pa.Array, operator: str, right: pa.Array | pa.Scalar) -> pa.Array:
    """Compare a column with another value by value, or with one value."""
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
            exact[int(row)] = OPERATORS[operator](Fraction(a), Fraction(b))
    return pa.array(exact, pa.bool_())


def _decimal(values: pa.Array, wide: pa.DataType) -> pa.Array:
    return values.cast(wide)


def _beyond(values: pa.Array) -> pa.Array:
    """Mask integers that a float may not hold exactly."""
    if not pa.types.is_integer(values.type) or values.type.bit_width < 64:
        return pa.repeat(pa.scalar(False), len(values))
    magnitude = values if pa.types.is_unsigned_integer(values.type) else pc.abs(values)
    return pc.fill_null(pc.greater(magnitude, pa.scalar(EXACT_INTEGERS, values.type)), False)


# -- membership and text -----------------------------------------------------------------------------


def _alike(left: Value, right: Value, source: ConditionRows) -> tuple[pa.Array, pa.Array]:
    """Return lists and items; what a request gives meets F32 columns at their own precision."""
    lists, items = source.column(left), source.column(right)
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
    has_item = np.zeros(len(lists), dtype=bool)
    has_item[hits] = True
    known = pc.or_(pc.is_valid(items), pc.equal(pc.list_value_length(lists), 0))
    return pc.if_else(pc.and_(pc.is_valid(lists), known), pa.array(has_item), None)


@dataclass(frozen=True, eq=False)
class Members:
    """A list as a set: the values that a column can hold, and whether null is among them, or nothing."""

    values: pa.Array
    null: bool
    empty: bool


def members(
    items: tuple[Operand, ...] | Constant | ParamRef, kind: PropertyType, source: ConditionRows
) -> Members | None:
    """Return a list as a set for values of a type; None if the list itself is null."""
    if isinstance(items, tuple):
        listed: Any = [source.operand(item) for item in items]
    else:
        listed = source.operand(items)
        if listed is None:
            return None
    numbers = kind.scalar in NUMBERS
    values: dict[Stored, None] = {}
    for value in listed:
        if value is None:
            continue
        operator, value = restate("=", value, kind.scalar) if numbers else ("=", value)
        if operator == "=":  # a number that the column cannot hold equals none of its values
            values[value] = None
    known = both_zeros(pa.array(list(values), kind.arrow))
    return Members(known, null=any(value is None for value in listed), empty=not listed)


def _among(
    condition: Condition, left: Value, items: tuple[Operand, ...] | Constant | ParamRef, source: ConditionRows
) -> pa.Array:
    column, kind = source.column(left), type_of(left)
    if kind is None:
        raise AssertionError("an entity is in no list")
    if id(condition) not in source.sets:
        source.sets[id(condition)] = condition, members(items, kind, source)
    _, among = source.sets[id(condition)]
    if among is None:
        return pa.nulls(source.count, pa.bool_())
    hits = pc.is_in(column, value_set=among.values)
    if among.null:
        return pc.if_else(hits, True, None)
    return hits if among.empty or not column.null_count else pc.if_else(column.is_valid(), hits, None)


def _text(left: Value, right: Value, source: ConditionRows, quick: Any, slow: Any) -> pa.Array:
    texts = source.column(left)
    if isinstance(right, Fixed):
        pattern = source.operand(right)
        if pattern is None:
            return pa.nulls(source.count, pa.bool_())
        return quick(texts, pattern)
    pairs = zip(texts.to_pylist(), source.column(right).to_pylist(), strict=True)
    return pa.array([None if a is None or b is None else slow(a, b) for a, b in pairs], pa.bool_())


# -- pinned columns ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PinnedColumn:
    """A stored value, and the values of it without which a condition is never true."""

    of: PropertyValue | EntityField
    values: pa.Array


def pinned_column(condition: Condition, source: ConditionRows) -> PinnedColumn | None:
    """Return what a condition pins one stored value to: rows can be looked up by it."""
    match condition:
        case And(operands):
            parts = (pinned_column(part, source) for part in operands)
            return next((part for part in parts if part is not None), None)
        case Comparison(PropertyValue() | EntityField() as left, "=", right) if isinstance(right, Fixed):
            among = members((right,), left.type, source)
        case Among(PropertyValue() | EntityField() as left, items):
            among = members(items, left.type, source)
        case _:
            return None
    return PinnedColumn(left, pa.array([], left.type.arrow) if among is None else among.values)


# -- pruning -----------------------------------------------------------------------------------------
#
# The one lowering of conditions to what a scan understands. A predicate is true wherever its condition is,
# and perhaps elsewhere: the rows that a scan leaves are judged. So a part that a scan cannot tell, or that
# is too long for it, is left out.


MOST_TESTS = 64  # of a scan: more of them prune little, and engines walk their tree again and again
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def can_prune(condition: Condition) -> bool:
    """Say whether a scan is worth telling of a condition, whatever the values of the request are."""
    match condition:
        case Comparison(PropertyValue(), _, right):
            return isinstance(right, Fixed)
        case Among(PropertyValue()) | IsNull(PropertyValue()):
            return True
        case _:
            return False


def pruning(conditions: Sequence[Condition], source: ConditionRows) -> Predicate | None:
    """Return a predicate that is true wherever all conditions are; None if every row may meet them."""
    return _pruning(And(tuple(conditions)), source, negated=False)


def _pruning(condition: Condition, source: ConditionRows, *, negated: bool) -> Predicate | None:
    """Return what is true wherever a condition is true, or with `negated` wherever it is false."""
    match condition:
        case Not(operand):
            return _pruning(operand, source, negated=not negated)
        case And(operands) | Or(operands):
            if isinstance(condition, And) != negated:
                return _all_prune(operands, source, negated=negated)
            return _any_prunes(operands, source, negated=negated)
        case Comparison(PropertyValue() | EntityField() as left, operator, right) if isinstance(right, Fixed):
            value = source.operand(right)
            if value is None:
                return _never(left)
            return _comparison_prunes(left, operator, value, negated=negated)
        case Among(PropertyValue() | EntityField() as left):
            return _list_prunes(condition, left, source, negated=negated)
        case IsNull(PropertyValue() | EntityField() as operand, is_not):
            return is_null(stored_column(operand), negated=is_not != negated)
        case _:
            return None


def _all_prune(operands: Sequence[Condition], source: ConditionRows, *, negated: bool) -> Predicate | None:
    """Prune by as many parts as a scan may have; each of them alone would be right."""
    parts = (_pruning(operand, source, negated=negated) for operand in operands[:MOST_TESTS])
    known = [part for part in parts if part is not None]
    return _if_short(all_hold(known)) if known else None


def _any_prunes(operands: Sequence[Condition], source: ConditionRows, *, negated: bool) -> Predicate | None:
    """Prune by all parts or by none: a row may meet the one that is left out."""
    if len(operands) > MOST_TESTS:
        return None
    parts = [_pruning(operand, source, negated=negated) for operand in operands]
    known = [part for part in parts if part is not None]
    return _if_short(any_holds(known)) if len(known) == len(parts) else None


def _if_short(predicate: Predicate) -> Predicate | None:
    return predicate if predicate.tests <= MOST_TESTS else None


def _list_prunes(
    condition: Among, left: PropertyValue | EntityField, source: ConditionRows, *, negated: bool
) -> Predicate | None:
    items = source.operand(condition.items) if not isinstance(condition.items, tuple) else condition.items
    if items is None:
        return _never(left)
    if negated or not isinstance(items, tuple) or len(items) > PROBE_LIMIT:
        return None
    among = members(condition.items, left.type, source)
    return None if among is None else is_in(stored_column(left), among.values)


def _never(left: PropertyValue | EntityField) -> Predicate:
    return is_in(stored_column(left), pa.array([], left.type.arrow))


def _comparison_prunes(
    left: PropertyValue | EntityField, operator: str, value: Stored, *, negated: bool
) -> Predicate | None:
    column, kind = stored_column(left), left.type
    if kind.scalar in NUMBERS and isinstance(value, int | float):
        operator, value = restate(operator, value, kind.scalar)
    if negated:
        if kind.scalar in FLOATS and operator not in ("=", "!="):
            return None  # the opposite of an order is not one where there is NaN
        operator = _OPPOSITE[operator]
    if isinstance(value, float) and value == 0:
        return _zero_prunes(column, kind, operator)
    return compares(column, operator, pa.scalar(value, kind.arrow))


def _zero_prunes(column: str, kind: PropertyType, operator: str) -> Predicate | None:
    """Compare with zero so that both zeros are one value: to a scan -0.0 is less than 0.0."""
    if operator == "!=":
        return None
    if operator == "=":
        return is_in(column, pa.array([0.0, -0.0], kind.arrow))
    zero = -0.0 if operator in ("<", ">=") else 0.0
    return compares(column, operator, pa.scalar(zero, kind.arrow))
