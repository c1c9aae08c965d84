"""Steps: a plan as values.

    checked read -> **plan** -> rows -> result

A plan is what the match does, one step after the other; each step binds variables or drops rows. Rules
rewrite steps (rules.py), match.py runs them and explain.py prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Lookup:
    """Bind the nodes whose key is one of some values; `key` is the condition that says so."""

    variable: Variable
    key: e.Comparison | e.Among
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Follow:
    """Bind or test the ends of an edge; which ends are bound already decides how."""

    clause: Expand


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the rows that meet a condition."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Inner:
    """A block, run for all rows at once."""

    clause: Exists | Counted | Optional
    steps: tuple[Step, ...]


Step: TypeAlias = Scan | Lookup | Follow | Keep | Inner


@dataclass(frozen=True, slots=True)
class CountRows:
    """The answer is the number of rows of a type, which the snapshot knows."""

    type_id: str


@dataclass(frozen=True, slots=True)
class CountEdges:
    """The answer is the number of rows of a chain of single hops, which follows from degrees."""

    clauses: tuple[Expand, ...]
    conditions: tuple[tuple[Variable, tuple[Condition, ...]], ...] = ()  # on single nodes of the chain


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of the match, and shortcuts for what comes after."""

    read: CheckedRead
    steps: tuple[Step, ...]
    shortcut: CountRows | CountEdges | None = None
    top: bool = False  # only the first rows of the order are wanted: select, do not sort


def binds(step: Step) -> tuple[Variable, ...]:
    """Return the variables that a step may bind."""
    match step:
        case Scan(variable) | Lookup(variable):
            return (variable,)
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
        case Follow():
            return frozenset()
        case Keep(condition):
            return variables_of((condition,))
        case Inner(clause):
            return frozenset(clause.block.uses)
        case _:
            assert_never(step)


def needed_columns(read: CheckedRead) -> dict[Variable, tuple[str, ...]]:
    """Return the stored columns of each variable that outputs and order name."""
    columns_of: dict[Variable, dict[str, None]] = {}
    for value in [*(output.value for output in read.outputs), *(key.value for key in read.order)]:
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
