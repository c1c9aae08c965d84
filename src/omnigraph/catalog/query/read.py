"""Read: a checked read, ready to be planned.

    text -> tree -> **checked read** -> plan

Room    catalog.query. What a planner works on: no text is left, every name is a catalog object or a
        `Variable`, every literal is a stored value.
Gives   `CheckedRead`: the clauses of the match in the order written, the outputs, and how rows are grouped,
        made distinct, ordered and cut.

        Bind       a node of a type that meets some conditions; `new` or tested again
        Expand     an edge between two nodes, each of them new or already bound
        Filter     a condition
        Exists     whether a block has a row for this one, or with `negated` has none (`not { }`)
        Counted    how many rows a block has for this one
        Optional   a block whose variables are NULL when it has no row

Rule    clauses form a conjunction and may run in any order that binds a variable before it is used.
        A block's `uses` are the outer variables that its own clauses and nested blocks mention, and
        `introduces` those that it binds itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.catalog.query.columns import Column
from omnigraph.catalog.query.expressions import Condition, Hops, Ranking, Value, Variable
from omnigraph.catalog.query.operands import Parameter, ParamRef, Values
from omnigraph.catalog.query.operation import Operation
from omnigraph.catalog.query.params import BadParameters

# -- clauses -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bind:
    """`$x: T { ... }`; the entries are conditions on `$x`."""

    variable: Variable
    conditions: tuple[Condition, ...]
    new: bool  # otherwise the variable is bound already, and only the conditions count


@dataclass(frozen=True, slots=True)
class Expand:
    """`$a edge $b`. Without an edge variable, each distinct pair of nodes counts once."""

    left: Variable
    hops: Hops
    right: Variable
    edge: Variable | None
    left_new: bool
    right_new: bool  # False too for `$a edge $a`, whose right end is bound by its left


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that a row must meet: it is kept only when the whole is true."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class Block:
    """Clauses that are evaluated for each outer row."""

    clauses: tuple[Clause, ...]
    introduces: tuple[Variable, ...]
    uses: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """`exists { }`, or with `negated` `not { }`."""

    block: Block
    negated: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """`count { } operator number`."""

    block: Block
    operator: str
    number: int


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { }`."""

    block: Block


Clause: TypeAlias = Bind | Expand | Filter | Exists | Counted | Optional


# -- what becomes of the rows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result; `OutputRef`s in it point to outputs before it."""

    column: Column
    value: Value

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.column.name


@dataclass(frozen=True, slots=True)
class SortKey:
    """Nulls are smallest: first ascending, last descending.

    `value` is a `PropertyValue` or `EntityField` of the row, an `OutputRef`, or in a grouped query an
    `Aggregate` that is no output.
    """

    value: Value
    descending: bool


Page: TypeAlias = int | ParamRef


@dataclass(frozen=True, slots=True)
class CheckedRead:
    """A whole read. `keys` are the positions of the grouping outputs; None when nothing is aggregated."""

    name: str
    parameters: tuple[Parameter, ...]
    clauses: tuple[Clause, ...]
    variables: tuple[Variable, ...]  # bound in the match itself or in its optional blocks
    outputs: tuple[Output, ...]
    keys: tuple[int, ...] | None
    distinct: bool
    ranking: Ranking | None  # comes before `order`, and keeps only the rows that it ranks
    order: tuple[SortKey, ...]
    limit: Page | None
    offset: Page | None
    operation: Operation
    description: str | None = None
    instruction: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the result."""
        return self.operation.result


def page(value: Page | None, values: Values, word: str) -> int | None:
    """Return the number that `limit` or `offset` has in this request; `word` says which, for the error."""
    if not isinstance(value, ParamRef):
        return value
    name = value.parameter.name
    number = values[name]
    if not isinstance(number, int) or number < 0:
        problem = f"param '{name}': {word} must not be negative, got {number}"
        raise BadParameters(problem, problems=(problem,))
    return number
