"""Key lookup: equality on the key of a node is a look-up by id, at the same cost in a table of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.expressions import Comparison, Condition, PropertyValue, Variable
from omnigraph.catalog.query.operands import Constant, Operand, ParamRef
from omnigraph.execution.plan.steps import Inner, Lookup, Plan, Scan, Step


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Turn scans that name a key into look-ups."""
    return replace(plan, steps=tuple(map(_looked_up, plan.steps)))


def _looked_up(step: Step) -> Step:
    if isinstance(step, Inner):
        return replace(step, steps=tuple(map(_looked_up, step.steps)))
    if not isinstance(step, Scan):
        return step
    for condition in step.conditions:
        key = _key(condition, step.variable)
        if key is not None:
            others = tuple(one for one in step.conditions if one is not condition)
            return Lookup(step.variable, key, others)
    return step


def _key(condition: Condition, variable: Variable) -> Operand | None:
    node = variable.type
    if not isinstance(node, NodeType) or len(node.key) != 1:
        return None
    match condition:
        case Comparison(PropertyValue(of, member), "=", Constant() | ParamRef() as operand):
            same_type = operand.type.scalar is member.type.scalar and not operand.type.is_list
            return operand if of == variable and member.id == node.key[0] and same_type else None
        case _:
            return None
