"""Predicates: what a scan can prune by, from a condition.

Room    execution. Values stay typed from the request to the scan.
Rule    a predicate is true wherever its condition is, and perhaps elsewhere: the rows that a scan leaves are
        judged (conditions.py). So a part that a scan cannot tell, or that is too long for it, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    EntityField,
    Fixed,
    IsNull,
    Not,
    Or,
    PropertyValue,
)
from omnigraph.catalog.query.operands import Stored
from omnigraph.catalog.query.restate import restate
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.catalog.types import FLOATS, PropertyType
from omnigraph.execution.conditions import Source, members, stored_column
from omnigraph.storage.tables import predicate as stored
from omnigraph.storage.tables.keys import PROBE_LIMIT
from omnigraph.storage.tables.predicate import Operator, Predicate

MOST_TESTS = 64  # of a scan: more of them prune little, and engines walk their tree again and again
_OPERATORS: dict[str, Operator] = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def pruning(conditions: Sequence[Condition], source: Source) -> Predicate | None:
    """Return a predicate that is true wherever all conditions are; None if every row may meet them."""
    return _pruning(And(tuple(conditions)), source, negated=False)


def _pruning(condition: Condition, source: Source, *, negated: bool) -> Predicate | None:
    """Return what is true wherever a condition is true, or with `negated` wherever it is false."""
    match condition:
        case Not(operand):
            return _pruning(operand, source, negated=not negated)
        case And(operands) | Or(operands):
            return _joined(operands, source, negated=negated, all_of=isinstance(condition, And) != negated)
        case Comparison(PropertyValue() | EntityField() as left, operator, right) if isinstance(right, Fixed):
            value = source.operand(right)
            if value is None:
                return _never(left)
            return _compare(left, operator, value, negated=negated)
        case Among(PropertyValue() | EntityField() as left):
            return _among(condition, left, source, negated=negated)
        case IsNull(PropertyValue() | EntityField() as operand, wanted):
            return stored.IsNull(stored_column(operand), wanted != negated)
        case _:
            return None


def _joined(
    operands: Sequence[Condition], source: Source, *, negated: bool, all_of: bool
) -> Predicate | None:
    if all_of:
        kept = [p for p in (_pruning(part, source, negated=negated) for part in operands[:MOST_TESTS]) if p]
        return _within(stored.And(tuple(kept))) if kept else None
    if len(operands) > MOST_TESTS:
        return None
    parts = [_pruning(part, source, negated=negated) for part in operands]
    known = tuple(part for part in parts if part is not None)
    return _within(stored.Or(known)) if len(known) == len(parts) else None


def _within(predicate: Predicate) -> Predicate | None:
    return predicate if _tests(predicate) <= MOST_TESTS else None


def _tests(predicate: Predicate) -> int:
    if isinstance(predicate, stored.And | stored.Or):
        return sum(map(_tests, predicate.operands))
    return 1


def _among(
    condition: Among, left: PropertyValue | EntityField, source: Source, *, negated: bool
) -> Predicate | None:
    items = source.operand(condition.items) if not isinstance(condition.items, tuple) else condition.items
    if items is None:
        return _never(left)
    if negated or not isinstance(items, tuple) or len(items) > PROBE_LIMIT:
        return None
    among = members(condition.items, left.type, source)
    return None if among is None else stored.IsIn(stored_column(left), among.values)


def _never(left: PropertyValue | EntityField) -> Predicate:
    return stored.IsIn(stored_column(left), pa.array([], left.type.arrow))


def _compare(
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
        return _with_zero(column, kind, operator)
    return stored.Compare(column, _OPERATORS[operator], pa.scalar(value, kind.arrow))


def _with_zero(column: str, kind: PropertyType, operator: str) -> Predicate | None:
    """Compare with zero so that both zeros are one value: to a scan -0.0 is less than 0.0."""
    if operator == "!=":
        return None
    if operator == "=":
        return stored.IsIn(column, pa.array([0.0, -0.0], kind.arrow))
    zero = -0.0 if operator in ("<", ">=") else 0.0
    return stored.Compare(column, _OPERATORS[operator], pa.scalar(zero, kind.arrow))
