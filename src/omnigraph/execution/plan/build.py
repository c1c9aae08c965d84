"""Build: the plain plan of a read, step by step as it is written, then the rules over it.

Room    execution.plan. Without any rule the plan is right and slow: the rules are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import TypeAlias, assert_never

from omnigraph.catalog.query.read import (
    Bind,
    CheckedRead,
    Clause,
    Counted,
    Exists,
    Expand,
    Filter,
    Optional,
)
from omnigraph.execution.plan.rules import (
    count_from_metadata,
    count_from_topology,
    join_order,
    key_lookup,
    push_filters,
    top_rows,
)
from omnigraph.execution.plan.steps import Follow, Inner, Keep, Plan, Scan, Step

RowCounts: TypeAlias = Mapping[str, int]  # rows of each type, by id
Rule: TypeAlias = Callable[[Plan, RowCounts], Plan]
RULES: Mapping[str, Rule] = {
    "count_from_metadata": count_from_metadata.apply,
    "count_from_topology": count_from_topology.apply,
    "push_filters": push_filters.apply,
    "key_lookup": key_lookup.apply,
    "join_order": join_order.apply,
    "top_rows": top_rows.apply,
}


def plan(read: CheckedRead, rows: RowCounts, rules: Set[str] | None = None) -> Plan:
    """Return the plan of a read; `rules` names those to apply, all of them if it is None."""
    made = Plan(read, _steps(read.clauses))
    for name, rule in RULES.items():
        if rules is None or name in rules:
            made = rule(made, rows)
    return made


def _steps(clauses: tuple[Clause, ...]) -> tuple[Step, ...]:
    return tuple(step for clause in clauses for step in _step(clause))


def _step(clause: Clause) -> tuple[Step, ...]:
    match clause:
        case Bind(variable, conditions, new):
            if new:
                return (Scan(variable, conditions),)
            return tuple(Keep(condition) for condition in conditions)
        case Expand():
            return (Follow(clause),)
        case Filter(condition):
            return (Keep(condition),)
        case Exists(block) | Counted(block) | Optional(block):
            return (Inner(clause, _steps(block.clauses)),)
        case _:
            assert_never(clause)
