"""Statements: a checked query as values: a read, ready to be planned, or the statements of a mutation.

    text -> tree -> **checked query** -> plan

What a planner works on: no text is left, every name is a catalog object or a `Variable`, every literal is a
stored value. A `CheckedRead` has the clauses of the match in the order written, the outputs, and how rows
are grouped, made distinct, ordered and cut. Its clauses:

    Bind       a node of a type that meets some conditions; `new` or tested again
    Expand     an edge between two nodes, each of them new or already bound
    Filter     a condition
    Exists     whether a block has a row for this one, or with `negated` has none (`not { }`)
    Counted    how many rows a block has for this one
    Optional   a block whose variables are NULL when it has no row

Clauses form a conjunction and may run in any order that binds a variable before it is used. A block's
`uses` are the outer variables that its own clauses and nested blocks mention, and `introduces` those that
it binds itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, Property, TableType
from omnigraph.catalog.query.expressions import (
    Condition,
    Hops,
    Operand,
    OutputColumn,
    Parameter,
    ParamRef,
    Ranking,
    Stored,
    Value,
    Values,
    Variable,
    operand_value,
)
from omnigraph.catalog.query.params import BadParameters
from omnigraph.catalog.query.values import assigned
from omnigraph.catalog.types import PropertyType, Scalar

# -- operation -----------------------------------------------------------------------------------
#
# What a checked query returns, reads and writes, for machines (query spec 16.1).
# Authorisation, lint and catalogs of stored queries look here.


@dataclass(frozen=True, slots=True)
class Operation:
    """Result columns, and the types read and written: nodes before edges, each kind by name."""

    result: tuple[OutputColumn, ...]
    reads: tuple[TableType, ...]
    writes: tuple[TableType, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values."""
        return {
            "result": [column.to_json() for column in self.result],
            "reads": [_type_json(declared) for declared in self.reads],
            "writes": [_type_json(declared) for declared in self.writes],
        }


def _type_json(declared: TableType) -> dict[str, str]:
    return {"kind": declared.kind.value, "type_name": declared.name}


def in_order(types: Iterable[TableType]) -> tuple[TableType, ...]:
    """Return types once each, nodes before edges, by name."""
    distinct = {declared.id: declared for declared in types}
    return tuple(sorted(distinct.values(), key=lambda t: (isinstance(t, EdgeType), t.name)))


def endpoints(edge: EdgeType, catalog: Catalog) -> tuple[NodeType, NodeType]:
    """Return the source and target types of an edge."""
    ends = tuple(catalog.table(identity) for identity in (edge.source, edge.target))
    source, target = (declared for declared in ends if isinstance(declared, NodeType))
    return source, target


def touching(node: NodeType, catalog: Catalog) -> tuple[EdgeType, ...]:
    """Return the edge types that a node of this type may be an end of."""
    return tuple(edge for edge in catalog.edges if node.id in (edge.source, edge.target))


# -- read ----------------------------------------------------------------------------------------


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
class ClauseBlock:
    """Clauses that are evaluated for each outer row."""

    clauses: tuple[Clause, ...]
    introduces: tuple[Variable, ...]
    uses: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    """`exists { }`, or with `negated` `not { }`."""

    block: ClauseBlock
    negated: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """`count { } operator number`."""

    block: ClauseBlock
    operator: str
    number: int


@dataclass(frozen=True, slots=True)
class Optional:
    """`optional { }`."""

    block: ClauseBlock


Clause: TypeAlias = Bind | Expand | Filter | Exists | Counted | Optional


# -- what becomes of the rows ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the result; `OutputRef`s in it point to outputs before it."""

    column: OutputColumn
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
    def columns(self) -> tuple[OutputColumn, ...]:
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


# -- mutation ------------------------------------------------------------------------------------
#
# A checked mutation, ready to run on stored columns.
# text -> tree -> **checked mutation** -> change set
#
# What the engine executes: no text is left, every name is a catalog object, every
# literal is a stored value of the property it is assigned to.
# Gives   `CheckedMutation` with its statements in order:
#
# Insert   a node (an upsert when the type has a key) or an edge
# Update   properties of the nodes or edges that meet `where`; never key members or endpoints
# Delete   nodes or edges that meet `where`
#
# Rule    a statement names its type by the catalog object, an assignment its property or endpoint:
# `column` is
# the stored column in all cases. `assigned_value` gives what to store. A `where` is a condition like
# those of reads (expressions.py), on one variable: the row. An insert lists only what was written:
# defaults and NULL for the rest are the engine's part, and so are required-ness of NULL parameters,
# enum membership of parameters and all constraints.


# -- what is assigned and tested ---------------------------------------------------------------------


class Endpoint(Enum):
    """An end of an edge, by the name that mutations use for it."""

    FROM = "from"
    TO = "to"

    @property
    def column(self) -> str:
        """The stored column."""
        return "src" if self is Endpoint.FROM else "dst"

    @property
    def type(self) -> PropertyType:
        """Endpoints hold node ids."""
        return PropertyType(Scalar.STRING)


Place: TypeAlias = Property | Endpoint


def place_name(place: Place) -> str:
    """Return the name of a property or endpoint as queries write it."""
    return place.value if isinstance(place, Endpoint) else place.name


@dataclass(frozen=True, slots=True)
class Assignment:
    """A property or endpoint, and what it gets."""

    place: Place
    operand: Operand

    @property
    def column(self) -> str:
        """The stored column."""
        return self.place.column


def assigned_value(assignment: Assignment, target: TableType, values: Values, now: int) -> Stored | None:
    """Return the value to store, of the property's own type; raises `Unfit` when it has no such value."""
    place = assignment.place
    name = f"{target.name}.{place_name(place)}"
    return assigned(operand_value(assignment.operand, values, now), place.type, name)


# -- statements --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Insert:
    """One new entity; for an edge, both endpoints are among the assignments."""

    target: TableType
    assignments: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """New values for every entity that meets the condition."""

    target: TableType
    assignments: tuple[Assignment, ...]
    where: Condition


@dataclass(frozen=True, slots=True)
class Delete:
    """The end of every entity that meets the condition; of a node, with its edges of all types."""

    target: TableType
    where: Condition


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True)
class CheckedMutation:
    """A whole mutation."""

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    operation: Operation
    description: str | None = None
    instruction: str | None = None

    @cached_property
    def destructive(self) -> bool:
        """Say whether it deletes; then it does nothing else."""
        return isinstance(self.statements[0], Delete)

    @cached_property
    def targets(self) -> tuple[NodeType | EdgeType, ...]:
        """The types written by name, each once, in the order of the statements."""
        return tuple(dict.fromkeys(statement.target for statement in self.statements))
