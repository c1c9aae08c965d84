"""Rules: the plan of a read as it is written, and the rules that make it cheaper.

A rule is a function from a plan and what is known of the data to a plan with the same answer. Without any
rule the plan is right and slow: the rules are tested against it, each alone and with each alone off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeAlias, assert_never

from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    Constant,
    Direction,
    ParamRef,
    PropertyValue,
    Value,
    Variable,
    all_of,
    type_of,
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
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.execution.conditions import can_prune
from omnigraph.execution.plan.statistics import RowCounts, Statistics, factor
from omnigraph.execution.plan.steps import (
    CountEdges,
    CountRows,
    Follow,
    Inner,
    Intersect,
    JoinByValue,
    Keep,
    Lookup,
    Plan,
    Scan,
    Step,
    answer_variables,
    binds,
    counted_variables,
    first_variable,
    needs,
    uses,
    variables_of,
    variables_of_value,
)

Rule: TypeAlias = Callable[[Plan, Statistics], Plan]


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


def push_filters(plan: Plan, statistics: Statistics) -> Plan:
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


def one_scan(variable: Variable, conditions: Sequence[Condition]) -> Step:
    """Return the step that binds the nodes of a type that meet conditions, whatever else there is."""
    return _looked_up(_split(Scan(variable), conditions), frozenset())


def _split(scan: Scan, conditions: Sequence[Condition]) -> Scan:
    every = _parts(all_of(conditions)) if conditions else ()
    pushed = tuple(condition for condition in every if can_prune(condition))
    return replace(scan, conditions=every, pushed=pushed)


# -- key lookup ----------------------------------------------------------------------------------
#
# A key that equals values is a look-up by id, at the same cost in a table of any size.


def key_lookup(plan: Plan, statistics: Statistics) -> Plan:
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


def join_order(plan: Plan, statistics: Statistics) -> Plan:
    """Order the steps by how few rows they are expected to leave."""
    return replace(plan, steps=_ordered(plan.steps, statistics, frozenset()))


def _ordered(steps: tuple[Step, ...], statistics: Statistics, outer: frozenset[Variable]) -> tuple[Step, ...]:
    waiting = [
        replace(step, steps=_ordered(step.steps, statistics, frozenset(step.clause.block.uses)))
        if isinstance(step, Inner)
        else step
        for step in _gathered(steps)
    ]
    bound = set(outer)
    done: list[Step] = []
    while waiting:
        missing = _made_optionally(waiting)
        ready = [step for step in waiting if needs(step) <= bound and not _ends(step) & missing]
        prices = {id(step): _price(step, statistics, bound, waiting) for step in ready}
        chosen = min(ready, key=lambda step: prices[id(step)]) if ready else waiting[0]
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


def _price(
    step: Step, statistics: Statistics, bound: set[Variable], waiting: Sequence[Step]
) -> tuple[int, float]:
    """Rank a step: conditions at once, then what follows from bound rows, then the smallest beginnings.

    Among steps of a kind, the one that is expected to leave the fewest rows.
    """
    row_factor = factor(step, statistics, bound)
    match step:
        case Keep():
            return 0, 0
        case Lookup(variable):
            return (0, 1) if variable in bound else (1, row_factor)
        case Follow(clause):
            ends = (clause.left in bound) + (clause.right in bound)
            return (2 if ends == 2 else 3 if ends == 1 else 5), row_factor
        case Intersect():
            return 3, row_factor
        case Scan(variable):
            if variable in bound:
                return 0, 0
            joined = bound and any(_equal_to_bound(other, variable, bound) for other in waiting)
            return (6 if bound and not joined else 4), row_factor
        case JoinByValue():
            return 4, row_factor
        case Inner():
            return 4, 0
        case _:
            assert_never(step)


# -- one step for several --------------------------------------------------------------------------


Merged = tuple[Step, Sequence[Step]]  # a step, and those after it whose work it does as well


def _merged(
    steps: Sequence[Step],
    outer: frozenset[Variable],
    merge: Callable[[Step, Sequence[Step], set[Variable]], Merged | None],
) -> tuple[Step, ...]:
    """Let a rule put one step in the place of a step and some later ones, given what is bound before it."""
    bound = set(outer)
    waiting = list(steps)
    done: list[Step] = []
    while waiting:
        step = waiting.pop(0)
        if isinstance(step, Inner):
            step = replace(step, steps=_merged(step.steps, frozenset(bound), merge))
        elif (merged := merge(step, waiting, bound)) is not None:
            step, taken = merged
            waiting = [later for later in waiting if not any(later is gone for gone in taken)]
        done.append(step)
        bound |= set(binds(step))
    return tuple(done)


# -- value join ------------------------------------------------------------------------------------
#
# A scan whose rows must have a value that is equal to one that is bound is joined by hash, where it would
# be a cross product and a filter.


def value_join(plan: Plan, statistics: Statistics) -> Plan:
    """Turn scans with an equality to what is bound into joins."""
    return replace(plan, steps=_merged(plan.steps, frozenset(), _join_by_value))


def _join_by_value(step: Step, later_steps: Sequence[Step], bound: set[Variable]) -> Merged | None:
    if not isinstance(step, Scan) or not bound or step.variable in bound:
        return None
    for later in later_steps:
        sides = _equal_to_bound(later, step.variable, bound)
        if sides is not None and isinstance(later, Keep):
            return JoinByValue(step, *sides, _parts(later.condition)), [later]
    return None


def _equal_to_bound(step: Step, variable: Variable, bound: set[Variable]) -> tuple[Value, Value] | None:
    """Return the sides of an equality between bound variables and this one, if a filter has one."""
    if not isinstance(step, Keep) or not variables_of((step.condition,)) <= bound | {variable}:
        return None
    for part in _parts(step.condition):
        if not isinstance(part, Comparison) or part.operator != "=":
            continue
        for near, far in ((part.left, part.right), (part.right, part.left)):
            others = variables_of_value(near)
            apart = others and others <= bound and variables_of_value(far) == {variable}
            if apart and _hash_alike(near, far):
                return near, far
    return None


def _hash_alike(near: Value, far: Value) -> bool:
    """Say whether equal values of both can be told by hash: single values of one kind, or numbers."""
    near_type, far_type = type_of(near), type_of(far)
    if near_type is None or far_type is None or near_type.is_list or far_type.is_list:
        return False
    return near_type.arrow == far_type.arrow or (near_type.scalar in NUMBERS and far_type.scalar in NUMBERS)


# -- close cycles ----------------------------------------------------------------------------------
#
# A node that two edges lead to from bound nodes is found in the shorter of the two lists, tested in the
# other; so the rows that an edge would make only for the next to drop are never made.


def close_cycles(plan: Plan, statistics: Statistics) -> Plan:
    """Join an edge that binds a node with those that then close a cycle through it."""
    return replace(plan, steps=_merged(plan.steps, frozenset(), _close_cycle))


def _close_cycle(step: Step, later_steps: Sequence[Step], bound: set[Variable]) -> Merged | None:
    if not isinstance(step, Follow) or not _single(step.clause):
        return None
    new = {step.clause.left, step.clause.right} - bound
    if len(new) != 1:
        return None
    (variable,) = new
    closing = [later for later in later_steps if _closes(later, variable, bound)]
    clauses = (step.clause, *(later.clause for later in closing if isinstance(later, Follow)))
    return (Intersect(variable, clauses), closing) if closing else None


def _single(clause: Expand) -> bool:
    return clause.hops.high == 1 and clause.edge is None and clause.left != clause.right


def _closes(step: Step, variable: Variable, bound: set[Variable]) -> bool:
    if not isinstance(step, Follow) or not _single(step.clause):
        return False
    ends = {step.clause.left, step.clause.right}
    return variable in ends and ends - {variable} <= bound


# -- drop variables --------------------------------------------------------------------------------
#
# What nothing needs any more is not carried from step to step. Rows stay as many as they are.


def drop_variables(plan: Plan, statistics: Statistics) -> Plan:
    """Let go of each variable after the last step that looks at it, unless the answer does."""
    return replace(plan, steps=_dropping(plan.steps, answer_variables(plan.read), frozenset()))


def _dropping(
    steps: tuple[Step, ...], wanted: frozenset[Variable] | None, outer: frozenset[Variable]
) -> tuple[Step, ...]:
    """Mark what each step can drop; all variables are wanted in the end if `wanted` is None."""
    needed: list[frozenset[Variable]] = []
    later = frozenset(wanted or ())
    for step in reversed(steps):
        needed.append(later)
        later |= uses(step)
    held = set(outer)
    done: list[Step] = []
    for step, still in zip(steps, reversed(needed), strict=True):
        held |= set(binds(step))
        if isinstance(step, Inner):
            block = step.clause.block
            inside = frozenset(block.introduces) if isinstance(step.clause, Optional) else frozenset()
            step = replace(step, steps=_dropping(step.steps, inside, frozenset(block.uses)))
        if wanted is not None:
            drops = tuple(sorted(held - still, key=lambda v: v.number))
            held -= set(drops)
            step = replace(step, drops=drops) if drops else step
        done.append(step)
    return tuple(done)


# -- count from metadata -------------------------------------------------------------------------
#
# `match { $x: T } return { count($x) }` is known without reading a row.


def count_from_metadata(plan: Plan, statistics: Statistics) -> Plan:
    """Answer a bare count of one type from the snapshot."""
    if len(plan.steps) != 1 or not isinstance(plan.steps[0], Scan) or plan.steps[0].conditions:
        return plan
    scan = plan.steps[0]
    if not only_counts(plan):
        return plan
    return replace(plan, shortcut=CountRows(scan.variable.type.id))


def only_counts(plan: Plan) -> bool:
    """Say whether a plan returns counts of rows and nothing else."""
    read = plan.read
    return read.keys == () and read.ranking is None and counted_variables(read) is not None


# -- count from topology ---------------------------------------------------------------------------
#
# The rows of hops that form no cycle follow from degrees, without listing them. Conditions on single nodes
# stay possible: a node that does not meet them counts for nothing.


def count_from_topology(plan: Plan, statistics: Statistics) -> Plan:
    """Answer a bare count over hops that form no cycle."""
    clauses = tuple(step.clause for step in plan.steps if isinstance(step, Follow))
    if plan.shortcut is not None or not only_counts(plan) or not clauses or not _forest(clauses):
        return plan
    conditions: dict[Variable, tuple[Condition, ...]] = {
        end: () for clause in clauses for end in (clause.left, clause.right)
    }
    edges = {clause.edge for clause in clauses}
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
        if variable in edges:
            return plan
        conditions[variable] = (*conditions.get(variable, ()), *listed)
    node_conditions = tuple((variable, listed) for variable, listed in conditions.items() if listed)
    return replace(plan, shortcut=CountEdges(clauses, tuple(conditions), node_conditions))


def _forest(clauses: Sequence[Expand]) -> bool:
    """Say whether hops are single steps that join nodes without a cycle."""
    tree_of: dict[Variable, Variable] = {}

    def root(variable: Variable) -> Variable:
        while tree_of.setdefault(variable, variable) != variable:
            variable = tree_of[variable]
        return variable

    for clause in clauses:
        if clause.hops.high != 1 or (clause.edge is not None and clause.hops.direction is Direction.EITHER):
            return False
        left, right = root(clause.left), root(clause.right)
        if left == right:
            return False
        tree_of[left] = right
    return True


# -- top rows ------------------------------------------------------------------------------------
#
# An order that is cut after a few rows selects them instead of sorting all. Where it is the order of ids
# alone, the variable that it begins with is bound first if nothing leads to it: its smallest ids will do.


def top_rows(plan: Plan, statistics: Statistics) -> Plan:
    """Mark the plan where a limit cuts the order."""
    read = plan.read
    top = read.limit is not None and not read.distinct
    if not top or read.order or read.keys is not None or read.ranking is not None:
        return replace(plan, top=top)
    _, number = first_variable(plan.steps)
    first, others = plan.steps[number], (*plan.steps[:number], *plan.steps[number + 1 :])
    steps = (first, *others) if isinstance(first, Scan) and not needs(first) else plan.steps
    return replace(plan, steps=steps, top=True)


# -- all rules -------------------------------------------------------------------------------------


RULES: Mapping[str, Rule] = {
    "count_from_metadata": count_from_metadata,
    "count_from_topology": count_from_topology,
    "push_filters": push_filters,
    "key_lookup": key_lookup,
    "join_order": join_order,
    "value_join": value_join,
    "close_cycles": close_cycles,
    "top_rows": top_rows,
    "drop_variables": drop_variables,
}


def plan(read: CheckedRead, rows: RowCounts, rules: Set[str] | None = None) -> Plan:
    """Return the plan of a read; `rules` names those to apply, all of them if it is None."""
    statistics = Statistics(rows)
    rewritten = Plan(read, _steps(read.clauses))
    for name, rule in RULES.items():
        if rules is None or name in rules:
            rewritten = rule(rewritten, statistics)
    return rewritten
