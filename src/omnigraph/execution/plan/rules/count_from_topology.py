"""Count from topology: the rows of one hop or two follow from degrees, without listing them.

Conditions on single nodes stay possible: a node that does not meet them counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.catalog.query.expressions import Condition, Variable
from omnigraph.execution.plan.rules.count_from_metadata import only_counts
from omnigraph.execution.plan.steps import CountEdges, Follow, Keep, Plan, Scan, variables_of


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Answer a bare count over a chain of hops."""
    follows = [step for step in plan.steps if isinstance(step, Follow)]
    if plan.shortcut is not None or not only_counts(plan) or not _chain(follows):
        return plan
    nodes = {v for step in follows for v in (step.clause.left, step.clause.right)}
    conditions: dict[Variable, tuple[Condition, ...]] = {}
    for step in plan.steps:
        match step:
            case Follow():
                continue
            case Scan(variable, asked):
                found = asked
            case Keep(condition):
                mentioned = variables_of((condition,))
                if len(mentioned) != 1:
                    return plan
                variable, found = next(iter(mentioned)), (condition,)
            case _:
                return plan
        if variable not in nodes:
            return plan
        conditions[variable] = (*conditions.get(variable, ()), *found)
    asked_of = tuple((variable, found) for variable, found in conditions.items() if found)
    return replace(plan, shortcut=CountEdges(tuple(step.clause for step in follows), asked_of))


def _chain(follows: list[Follow]) -> bool:
    """Say whether the hops form a simple chain of single steps, each counted once for each pair."""
    clauses = [step.clause for step in follows]
    if any(c.hops.high != 1 or c.edge is not None or c.left == c.right for c in clauses):
        return False
    if len(clauses) == 1:
        return True
    if len(clauses) != 2:
        return False
    first, second = clauses
    return first.right == second.left and second.right not in (first.left, first.right)
