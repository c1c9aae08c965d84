"""Rules: the plan of a read as it is written, and the rules that make it cheaper.

A rule is a function from a plan and the rows of each type to a plan with the same answer. Without any
rule the plan is right and slow: the rules are tested against it, each alone and with each alone off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeAlias, assert_never

from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.expressions import (
    Aggregate,
    AggregateFunction,
    Among,
    And,
    Comparison,
    Condition,
    Constant,
    EntityValue,
    ParamRef,
    PropertyValue,
    Variable,
    all_of,
)
from omnigraph.catalog.query.statements import (
    Bind,
    CheckedRead,
    Clause,
    Counted,
    Exists,
    Expand,
    Filter,
    Optional,
)
from omnigraph.execution.conditions import can_prune
from omnigraph.execution.plan.steps import (
    CountEdges,
    CountRows,
    Follow,
    Inner,
    Keep,
    Lookup,
    Plan,
    Scan,
    Step,
    binds,
    needs,
    variables_of,
)

RowCounts: TypeAlias = Mapping[str, int]  # rows of each type, by id
Rule: TypeAlias = Callable[[Plan, RowCounts], Plan]


# -- the plan as it is written ---------------------------------------------------------------------


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


# -- push filters --------------------------------------------------------------------------------
#
# A condition on one variable is judged where it is bound, in the scan if it can be.


def push_filters(plan: Plan, rows: RowCounts) -> Plan:
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
        return tuple(part for operand in condition.operands for part in _parts(operand))
    return (condition,)


def _split(scan: Scan, conditions: Sequence[Condition]) -> Scan:
    every = _parts(all_of(conditions)) if conditions else ()
    pushed = tuple(condition for condition in every if can_prune(condition))
    return replace(scan, conditions=every, pushed=pushed)


# -- key lookup ----------------------------------------------------------------------------------
#
# A key that equals values is a look-up by id, at the same cost in a table of any size.


def key_lookup(plan: Plan, rows: RowCounts) -> Plan:
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
            others = tuple(other for other in step.conditions if other is not condition)
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


# -- join order ----------------------------------------------------------------------------------
#
# Begin with what binds the fewest rows, and filter as soon as a condition can be judged.


def join_order(plan: Plan, rows: RowCounts) -> Plan:
    """Order the steps by how few rows they are expected to leave."""
    return replace(plan, steps=_ordered(plan.steps, rows, frozenset()))


def _ordered(steps: tuple[Step, ...], rows: RowCounts, outer: frozenset[Variable]) -> tuple[Step, ...]:
    waiting = [
        replace(step, steps=_ordered(step.steps, rows, frozenset(step.clause.block.uses)))
        if isinstance(step, Inner)
        else step
        for step in _gathered(steps)
    ]
    bound = set(outer)
    done: list[Step] = []
    while waiting:
        missing = _made_optionally(waiting)
        ready = [step for step in waiting if needs(step) <= bound and not _ends(step) & missing]
        chosen = min(ready, key=lambda step: _price(step, rows, bound)) if ready else waiting[0]
        waiting.remove(chosen)
        done.append(chosen)
        bound |= set(binds(chosen))
    return tuple(done)


def _gathered(steps: tuple[Step, ...]) -> list[Step]:
    """Join the conditions on the same variables, since the order looks at every step for every step."""
    conditions: dict[frozenset[Variable], list[Condition]] = {}
    gathered: list[Step] = []
    for step in steps:
        if not isinstance(step, Keep):
            gathered.append(step)
            continue
        if needs(step) not in conditions:
            gathered.append(step)
        conditions.setdefault(needs(step), []).append(step.condition)
    return [Keep(all_of(conditions[needs(step)])) if isinstance(step, Keep) else step for step in gathered]


def _made_optionally(steps: list[Step]) -> frozenset[Variable]:
    """Return what optional blocks have yet to introduce: an edge that led there first would bind it."""
    inner = (step for step in steps if isinstance(step, Inner) and isinstance(step.clause, Optional))
    return frozenset(variable for step in inner for variable in step.clause.block.introduces)


def _ends(step: Step) -> frozenset[Variable]:
    return frozenset({step.clause.left, step.clause.right}) if isinstance(step, Follow) else frozenset()


def _price(step: Step, rows: RowCounts, bound: set[Variable]) -> tuple[int, float]:
    """Rank a step: conditions at once, then what follows from bound rows, then the smallest beginnings."""
    match step:
        case Keep():
            return 0, 0
        case Lookup(variable, key):
            return (0, 1) if variable in bound else (1, 0 if isinstance(key, Comparison) else 1)
        case Follow(clause):
            ends = (clause.left in bound) + (clause.right in bound)
            size = rows.get(clause.hops.edge.id, 0)
            return (2, 0) if ends == 2 else (3, clause.hops.high) if ends == 1 else (5, size)
        case Scan(variable, conditions):
            if variable in bound:
                return 0, 0
            size = rows.get(variable.type.id, 0)
            alone = not bound
            return (4 if alone else 6), size * _share(conditions)
        case Inner():
            return 4, 0


def _share(conditions: tuple[Condition, ...]) -> float:
    """Guess which share of rows meets conditions."""
    share = 1.0
    for condition in conditions:
        share *= 0.05 if isinstance(condition, Comparison) and condition.operator == "=" else 0.4
    return share


# -- count from metadata -------------------------------------------------------------------------
#
# `match { $x: T } return { count($x) }` is known without reading a row.


def count_from_metadata(plan: Plan, rows: RowCounts) -> Plan:
    """Answer a bare count of one type from the snapshot."""
    if len(plan.steps) != 1 or not isinstance(plan.steps[0], Scan) or plan.steps[0].conditions:
        return plan
    scan = plan.steps[0]
    if not only_counts(plan) or len(plan.read.outputs) != 1:
        return plan
    return replace(plan, shortcut=CountRows(scan.variable.type.id))


def only_counts(plan: Plan) -> bool:
    """Say whether a plan returns one count of rows and nothing else."""
    read = plan.read
    if read.keys != () or read.ranking is not None or len(read.outputs) != 1:
        return False
    value = read.outputs[0].value
    return (
        isinstance(value, Aggregate)
        and value.function is AggregateFunction.COUNT
        and isinstance(value.argument, EntityValue)
    )


# -- count from topology ---------------------------------------------------------------------------
#
# The rows of one hop or two follow from degrees, without listing them. Conditions on single nodes stay
# possible: a node that does not meet them counts for nothing.


def count_from_topology(plan: Plan, rows: RowCounts) -> Plan:
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
            case Scan(variable, listed):
                pass
            case Keep(condition):
                mentioned = variables_of((condition,))
                if len(mentioned) != 1:
                    return plan
                variable, listed = next(iter(mentioned)), (condition,)
            case _:
                return plan
        if variable not in nodes:
            return plan
        conditions[variable] = (*conditions.get(variable, ()), *listed)
    node_conditions = tuple((variable, listed) for variable, listed in conditions.items() if listed)
    return replace(plan, shortcut=CountEdges(tuple(step.clause for step in follows), node_conditions))


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


# -- top rows ------------------------------------------------------------------------------------
#
# An order that is cut after a few rows selects them instead of sorting all.


def top_rows(plan: Plan, rows: RowCounts) -> Plan:
    """Mark the plan where a limit cuts the order."""
    read = plan.read
    return replace(plan, top=read.limit is not None and not read.distinct)


# -- all rules -------------------------------------------------------------------------------------


RULES: Mapping[str, Rule] = {
    "count_from_metadata": count_from_metadata,
    "count_from_topology": count_from_topology,
    "push_filters": push_filters,
    "key_lookup": key_lookup,
    "join_order": join_order,
    "top_rows": top_rows,
}


def plan(read: CheckedRead, rows: RowCounts, rules: Set[str] | None = None) -> Plan:
    """Return the plan of a read; `rules` names those to apply, all of them if it is None."""
    rewritten = Plan(read, _steps(read.clauses))
    for name, rule in RULES.items():
        if rules is None or name in rules:
            rewritten = rule(rewritten, rows)
    return rewritten
