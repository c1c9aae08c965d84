"""Join order: begin with what binds the fewest rows, and filter as soon as a condition can be judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.catalog.query.expressions import Comparison, Condition, Variable, all_of
from omnigraph.catalog.query.read import Optional
from omnigraph.execution.plan.steps import Follow, Inner, Keep, Lookup, Plan, Scan, Step, binds, needs


def apply(plan: Plan, rows: Mapping[str, int]) -> Plan:
    """Order the steps by how few rows they are expected to leave."""
    return replace(plan, steps=_ordered(plan.steps, rows, frozenset()))


def _ordered(
    steps: tuple[Step, ...], rows: Mapping[str, int], outer: frozenset[Variable]
) -> tuple[Step, ...]:
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


def _price(step: Step, rows: Mapping[str, int], bound: set[Variable]) -> tuple[int, float]:
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
    for one in conditions:
        share *= 0.05 if isinstance(one, Comparison) and one.operator == "=" else 0.4
    return share
