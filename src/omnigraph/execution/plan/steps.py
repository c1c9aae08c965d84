"""Steps: a plan as values.

    checked read -> **plan** -> rows -> result

A plan is what the match does, one step after the other; each step binds variables or drops rows. Rules
rewrite steps (rules.py), match.py runs them and explain.py prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.query import expressions as e
from omnigraph.catalog.query.expressions import Condition, Variable
from omnigraph.catalog.query.statements import CheckedRead, Counted, Exists, Expand, Optional


@dataclass(frozen=True, slots=True)
class Scan:
    """Bind every node of a type that meets the conditions, whatever else is bound (a cross product)."""

    variable: Variable
    conditions: tuple[Condition, ...] = ()
    pushed: tuple[Condition, ...] = ()  # handed to the scan itself; the others are judged on its rows
    drops: tuple[Variable, ...] = ()  # of every step: the variables that nothing needs after it


@dataclass(frozen=True, slots=True)
class Lookup:
    """Bind the nodes whose key is one of some values; `key` is the condition that says so."""

    variable: Variable
    key: e.Comparison | e.Among
    conditions: tuple[Condition, ...] = ()
    drops: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinByValue:
    """Bind the nodes of a scan that have a value which is equal to one that is bound: by hash.

    `near = far` is a part of `conditions`, all of which are judged on the rows that it leads to.
    """

    scan: Scan
    near: e.Value  # of variables that are bound
    far: e.Value  # of the variable of the scan
    conditions: tuple[Condition, ...]
    drops: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """Bind or test the ends of an edge; which ends are bound already decides how."""

    clause: Expand
    drops: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Intersect:
    """Bind a node that several edges lead to at once, each from a node that is bound: it closes a cycle."""

    variable: Variable
    clauses: tuple[Expand, ...]
    drops: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the rows that meet a condition."""

    condition: Condition
    drops: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class Inner:
    """A block, run for all rows at once."""

    clause: Exists | Counted | Optional
    steps: tuple[Step, ...]
    drops: tuple[Variable, ...] = ()


Step: TypeAlias = Scan | Lookup | JoinByValue | Follow | Intersect | Keep | Inner


@dataclass(frozen=True, slots=True)
class CountRows:
    """The answer is the number of rows of a type, which the snapshot knows."""

    type_id: str


@dataclass(frozen=True, slots=True)
class CountEdges:
    """The answer is the number of rows of single hops without a cycle, which follows from degrees."""

    clauses: tuple[Expand, ...]
    nodes: tuple[Variable, ...]  # those that the hops join, and those that none does
    conditions: tuple[tuple[Variable, tuple[Condition, ...]], ...] = ()  # on single nodes


@dataclass(frozen=True)
class Plan:
    """The steps of the match, and shortcuts for what comes after."""

    read: CheckedRead
    steps: tuple[Step, ...]
    shortcut: CountRows | CountEdges | None = None
    top: bool = False  # only the first rows of the order are wanted: select, do not sort

    @cached_property
    def needed(self) -> dict[Variable, tuple[str, ...]]:
        """The stored columns of each variable that outputs and order name; a plan is run many times."""
        return _needed_columns(self.read)


def binds(step: Step) -> tuple[Variable, ...]:
    """Return the variables that a step may bind."""
    match step:
        case Scan(variable) | Lookup(variable) | Intersect(variable):
            return (variable,)
        case JoinByValue(scan):
            return (scan.variable,)
        case Follow(clause):
            ends = (clause.left, clause.right)
            return ends if clause.edge is None else (*ends, clause.edge)
        case Keep():
            return ()
        case Inner(clause):
            return clause.block.introduces if isinstance(clause, Optional) else ()
        case _:
            assert_never(step)


def needs(step: Step) -> frozenset[Variable]:
    """Return the variables that must be bound before a step."""
    match step:
        case Scan(variable, conditions):
            return variables_of(conditions) - {variable}
        case Lookup(variable, _, conditions):
            return variables_of(conditions) - {variable}
        case JoinByValue(scan, _, _, conditions):
            return (variables_of(conditions) | variables_of(scan.conditions)) - {scan.variable}
        case Follow():
            return frozenset()
        case Intersect(variable, clauses):
            return frozenset(v for clause in clauses for v in (clause.left, clause.right)) - {variable}
        case Keep(condition):
            return variables_of((condition,))
        case Inner(clause):
            return frozenset(clause.block.uses)
        case _:
            assert_never(step)


def uses(step: Step) -> frozenset[Variable]:
    """Return the variables that a step looks at, whether it binds them or not."""
    if isinstance(step, Inner):
        inside = frozenset(variable for inner in step.steps for variable in uses(inner))
        return inside | needs(step) | frozenset(binds(step))
    return needs(step) | frozenset(binds(step))


def answer_variables(read: CheckedRead) -> frozenset[Variable] | None:
    """Return the variables that an answer is made of; None if it takes all there are.

    Rows are ordered by the ids of all bound entities in the end, and so are the values of `collect`. Other
    aggregates come out the same whatever the order, and need what they name.
    """
    if read.keys is None or read.ranking is not None or collects(read):
        return None
    return frozenset(
        v for value in _values(read) if not _counts_all(value) for v in variables_of_value(value)
    )


def _counts_all(value: e.Value) -> bool:
    """Say whether a value is how many rows there are: a count of what is in every row."""
    match value:
        case e.Aggregate(e.AggregateFunction.COUNT, e.EntityValue(variable)):
            return not variable.optional
        case _:
            return False


def tie_order(variable: Variable) -> tuple[bytes, int]:
    """Return what variables are sorted by, where rows are ordered by the ids of one after another."""
    return variable.name.encode(), variable.number


def first_variable(steps: tuple[Step, ...]) -> tuple[Variable, int]:
    """Return the variable by whose ids rows are ordered first, and the number of the step that binds it."""
    variable = min((variable for step in steps for variable in binds(step)), key=tie_order)
    return variable, next(number for number, step in enumerate(steps) if variable in binds(step))


def counted_variables(read: CheckedRead) -> tuple[Variable, ...] | None:
    """Return the variable of each output, if all of them are counts of entities."""
    variables: list[Variable] = []
    for output in read.outputs:
        match output.value:
            case e.Aggregate(e.AggregateFunction.COUNT, e.EntityValue(variable)):
                variables.append(variable)
            case _:
                return None
    return tuple(variables)


def collects(read: CheckedRead) -> bool:
    """Say whether an answer holds lists of what its rows have, in the order of the rows."""
    return any(map(_collects, _values(read)))


def _values(read: CheckedRead) -> list[e.Value]:
    return [*(output.value for output in read.outputs), *(key.value for key in read.order)]


def _collects(value: e.Value) -> bool:
    if isinstance(value, e.Aggregate) and value.function is e.AggregateFunction.COLLECT:
        return True
    return any(_collects(operand) for operand in e.operands_of(value))


def _needed_columns(read: CheckedRead) -> dict[Variable, tuple[str, ...]]:
    columns_of: dict[Variable, dict[str, None]] = {}
    for value in _values(read):
        for variable, column in _columns(value):
            columns_of.setdefault(variable, {})[column] = None
    return {variable: tuple(columns) for variable, columns in columns_of.items()}


def _columns(value: e.Value) -> Iterator[tuple[Variable, str]]:
    for leaf in e.leaves(value):
        match leaf:
            case e.PropertyValue(variable, member):
                yield variable, member.column
            case e.EntityField(variable, part) if part is not e.EntityPart.TYPE:
                yield variable, part.value
            case _:
                continue


def variables_of(conditions: tuple[Condition, ...]) -> frozenset[Variable]:
    """Return the variables that conditions mention."""
    return frozenset(
        variable for condition in conditions for value in e.leaves(condition) for variable in _of(value)
    )


def variables_of_value(value: e.Value) -> frozenset[Variable]:
    """Return the variables that a value is made of."""
    return frozenset(variable for leaf in e.leaves(value) for variable in _of(leaf))


def _of(value: e.Value) -> Iterator[Variable]:
    match value:
        case e.PropertyValue(variable) | e.EntityField(variable) | e.EntityValue(variable):
            yield variable
        case e.TextMatch(_, variable) | e.Nearest(variable) | e.Bm25(variable):
            yield variable
        case e.ShortestPath(source, _, target):
            yield from (source, target)
        case _:
            return
