"""Predicates: conditions of a match that a scan can judge, as storage's typed predicates.

Room    execution. Values stay typed from the request to the scan.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.catalog.query.expressions import Among, Comparison, Condition, IsNull, PropertyValue
from omnigraph.catalog.query.operands import ParamRef
from omnigraph.catalog.query.restate import restate
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.execution.values import Evaluator
from omnigraph.storage.tables import predicate as stored
from omnigraph.storage.tables.predicate import Operator, Predicate

_OPERATORS: dict[str, Operator] = {"=": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def typed(conditions: Sequence[Condition], evaluator: Evaluator) -> Predicate:
    """Return conditions that the rule push_filters chose as one predicate."""
    return stored.And(tuple(_typed(condition, evaluator) for condition in conditions))


def _typed(condition: Condition, evaluator: Evaluator) -> Predicate:
    match condition:
        case Comparison(PropertyValue() as left, operator, right):
            value = evaluator.operand(right)  # type: ignore[arg-type]
            return _compare(left, operator, value)
        case Among(PropertyValue() as left, items):
            if isinstance(items, ParamRef):
                given = evaluator.operand(items)
                if given is None:
                    return _compare(left, "=", None)
                values = list(given)
            else:
                values = [evaluator.operand(item) for item in items]
            return stored.Or(tuple(_compare(left, "=", value) for value in values))
        case IsNull(PropertyValue() as operand, negated):
            missing = stored.IsNull(operand.member.column)
            return stored.Not(missing) if negated else missing
        case _:
            raise AssertionError(f"a scan cannot judge {condition!r}")


def _compare(left: PropertyValue, operator: str, value: object) -> Predicate:
    declared = left.member.type
    if isinstance(value, int | float) and not isinstance(value, bool) and declared.scalar in NUMBERS:
        operator, value = restate(operator, value, declared.scalar)
    scalar = pa.scalar(value, declared.arrow)
    return stored.Compare(left.member.column, _OPERATORS[operator], scalar)
