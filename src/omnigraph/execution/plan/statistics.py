"""Statistics: what is known of the data before a query runs, and how many rows each step should leave.

Known are the rows of each type, which the snapshot carries, and so the average number of edges at a node.
Everything else is a guess: how many rows meet a condition, and how often a value stands in a column that is
no key. Rules choose by these figures, `explain` shows them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    Direction,
    EntityField,
    EntityPart,
    Hops,
    IsNull,
    Not,
    Or,
    PropertyValue,
    Value,
    Variable,
)
from omnigraph.catalog.query.statements import Expand, Optional
from omnigraph.execution.plan.steps import (
    Follow,
    Inner,
    Intersect,
    JoinByValue,
    Keep,
    Lookup,
    Scan,
    Step,
    binds,
)

RowCounts: TypeAlias = Mapping[str, int]  # rows of each type, by id
EQUAL_SHARE = 0.05  # of rows that have one value, at most
OTHER_SHARE = 0.4  # of rows that meet any other condition
LISTED = 10  # values of a list that a parameter brings


@dataclass(frozen=True)
class Statistics:
    """The rows of each type, by id."""

    rows: RowCounts

    def of(self, type_id: str) -> float:
        """Return how many rows a type has; at least one, so that it can be divided by."""
        return max(self.rows.get(type_id, 0), 1)

    def fan_out(self, clause: Expand, near: Variable) -> float:
        """Return how many nodes a clause leads to from one of its ends, on average."""
        hops, far = clause.hops, clause.right if near == clause.left else clause.left
        each = self.rows.get(hops.edge.id, 0) / self.of(near.type.id) * _ways(hops)
        reached = sum(each**hop for hop in range(hops.low, min(hops.high, hops.low + 8) + 1))
        return reached if clause.edge is not None else min(reached, self.of(far.type.id))

    def joined(self, clause: Expand) -> float:
        """Return the share of pairs of nodes that a clause joins."""
        return min(self.fan_out(clause, clause.left) / self.of(clause.right.type.id), 1.0)

    def share(self, condition: Condition) -> float:
        """Guess which share of rows meets a condition."""
        match condition:
            case Comparison(left, "=", right):
                return min(self.one_value(left), self.one_value(right))
            case Among(left, items):
                count = len(items) if isinstance(items, tuple) else LISTED
                return min(count * self.one_value(left), 1.0)
            case IsNull(_, negated):
                return 1 - EQUAL_SHARE if negated else EQUAL_SHARE
            case And(operands):
                share = 1.0
                for operand in operands:
                    share *= self.share(operand)
                return share
            case Or(operands):
                return min(sum(self.share(operand) for operand in operands), 1.0)
            case Not(operand):
                return max(1 - self.share(operand), EQUAL_SHARE)
            case _:
                return OTHER_SHARE

    def shares(self, conditions: Sequence[Condition]) -> float:
        """Guess which share of rows meets all conditions."""
        return self.share(And(tuple(conditions))) if conditions else 1.0

    def one_value(self, value: Value) -> float:
        """Guess which share of the rows has the same value: one row, for a key or an id."""
        match value:
            case PropertyValue(variable, member):
                size, node = self.of(variable.type.id), variable.type
                if isinstance(node, NodeType) and node.key == (member.id,):
                    return 1 / size
                return min(EQUAL_SHARE, 1 / math.sqrt(size))
            case EntityField(variable, EntityPart.ID):
                return 1 / self.of(variable.type.id)
            case _:
                return EQUAL_SHARE


def _ways(hops: Hops) -> int:
    return 2 if hops.direction is Direction.EITHER else 1


# -- rows after each step --------------------------------------------------------------------------


def estimates(
    steps: Sequence[Step],
    statistics: Statistics,
    rows: float = 1.0,
    bound: frozenset[Variable] = frozenset(),
) -> Iterator[tuple[Step, float]]:
    """Yield each step with the rows that it should leave; those of blocks before the block."""
    for step in steps:
        if isinstance(step, Inner):
            inside = rows
            for inner, inside in estimates(step.steps, statistics, rows, bound):
                yield inner, inside
            rows = max(inside, rows) if isinstance(step.clause, Optional) else rows * OTHER_SHARE
        else:
            rows *= factor(step, statistics, bound)
        bound |= frozenset(binds(step))
        yield step, rows


def factor(step: Step, statistics: Statistics, bound: frozenset[Variable] | set[Variable]) -> float:
    """Return how many rows a step makes of one."""
    match step:
        case Scan(variable, conditions):
            size = 1.0 if variable in bound else statistics.rows.get(variable.type.id, 0)
            return size * statistics.shares(conditions)
        case Lookup(variable, key, conditions):
            share = statistics.share(key) * statistics.shares(conditions)
            return share if variable in bound else share * statistics.rows.get(variable.type.id, 0)
        case JoinByValue(scan, _, _, conditions):
            return factor(scan, statistics, bound) * statistics.shares(conditions)
        case Follow(clause):
            ends = [end for end in (clause.left, clause.right) if end in bound]
            if len(ends) == 2:
                return statistics.joined(clause)
            if len(ends) == 1:
                return statistics.fan_out(clause, ends[0])
            return statistics.rows.get(clause.left.type.id, 0) * statistics.fan_out(clause, clause.left)
        case Intersect(variable, clauses):
            first = clauses[0]
            near = first.right if variable == first.left else first.left
            row_factor = statistics.fan_out(first, near)
            for clause in clauses[1:]:
                row_factor *= statistics.joined(clause)
            return row_factor
        case Keep(condition):
            return statistics.share(condition)
        case Inner(clause):
            return 1.0 if isinstance(clause, Optional) else OTHER_SHARE
        case _:
            assert_never(step)
