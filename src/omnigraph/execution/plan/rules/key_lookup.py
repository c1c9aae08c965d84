"""Key lookup: a key that equals values is a look-up by id, at the same cost in a table of any size."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.expressions import Among, Comparison, Condition, PropertyValue, Variable
from omnigraph.catalog.query.operands import Constant, ParamRef
from omnigraph.execution.plan.steps import Follow, Inner, Keep, Lookup, Plan, Scan, Step, variables_of


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Turn scans that name a key into look-ups, and conditions on nodes that edges lead to."""
    return replace(plan, steps=_all(plan.steps))


def _all(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    reached = {v for step in steps if isinstance(step, Follow) for v in (step.clause.left, step.clause.right)}
    return tuple(_looked_up(step, reached) for step in steps)


def _looked_up(step: Step, reached: Set[Variable]) -> Step:
    if isinstance(step, Inner):
        return replace(step, steps=_all(step.steps))
    if isinstance(step, Keep):
        mentioned = variables_of((step.condition,))
        variable = next(iter(mentioned)) if len(mentioned) == 1 else None
        if variable is None or variable not in reached or variable.optional:
            return step
        key = _key(step.condition, variable)
        return step if key is None else Lookup(variable, key)
    if not isinstance(step, Scan):
        return step
    for condition in step.conditions:
        key = _key(condition, step.variable)
        if key is not None:
            others = tuple(one for one in step.conditions if one is not condition)
            return Lookup(step.variable, key, others)
    return step


def _key(condition: Condition, variable: Variable) -> Comparison | Among | None:
    node = variable.type
    if not isinstance(node, NodeType) or len(node.key) != 1:
        return None
    match condition:
        case Comparison(PropertyValue(of, member), "=", Constant() | ParamRef() as operand):
            if operand.type.scalar is not member.type.scalar or operand.type.is_list:
                return None
        case Among(PropertyValue(of, member)):
            pass
        case _:
            return None
    return condition if of == variable and member.id == node.key[0] else None
