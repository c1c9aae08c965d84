"""Push filters: a condition on one variable is judged where it is bound, in the scan if it can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    IsNull,
    PropertyValue,
    all_of,
)
from omnigraph.catalog.query.operands import Constant, Now, ParamRef
from omnigraph.catalog.types import Scalar
from omnigraph.execution.plan.steps import Inner, Keep, Plan, Scan, Step, variables_of


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Move conditions down to the scans that introduce their variable."""
    return replace(plan, steps=_pushed(plan.steps))


def _pushed(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    scans = {step.variable: list(step.conditions) for step in steps if isinstance(step, Scan)}
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Keep):
            mentioned = variables_of((step.condition,))
            conditions = scans.get(next(iter(mentioned))) if len(mentioned) == 1 else None
            if conditions is not None:
                conditions.extend(_parts(step.condition))
                continue
        if isinstance(step, Inner):
            step = replace(step, steps=_pushed(step.steps))
        kept.append(step)
    return tuple(_split(step, scans[step.variable]) if isinstance(step, Scan) else step for step in kept)


def _parts(condition: Condition) -> tuple[Condition, ...]:
    if isinstance(condition, And):
        return tuple(part for one in condition.operands for part in _parts(one))
    return (condition,)


def _split(scan: Scan, conditions: Sequence[Condition]) -> Scan:
    every = _parts(all_of(conditions)) if conditions else ()
    return replace(scan, conditions=every, pushed=tuple(one for one in every if _scannable(one)))


def _scannable(condition: Condition) -> bool:
    """Say whether the scan itself can judge a condition, as a typed predicate."""
    match condition:
        case Comparison(PropertyValue() as left, _, Constant() | ParamRef() | Now()):
            return not left.member.type.is_list and left.member.type.scalar is not Scalar.VECTOR
        case Among(PropertyValue() as left):
            return not left.member.type.is_list
        case IsNull(PropertyValue()):
            return True
        case _:
            return False
