"""Mutation: a checked mutation, ready to run on stored columns.

    text -> tree -> **checked mutation** -> change set

Room    catalog.query. What the engine executes: no text is left, every name is a catalog object, every
        literal is a stored value of the property it is assigned to.
Gives   `CheckedMutation` with its statements in order:

        Insert   a node (an upsert when the type has a key) or an edge
        Update   properties of the nodes or edges that meet `where`; never key members or endpoints
        Delete   nodes or edges that meet `where`

Rule    a statement names its type by the catalog object, an assignment its property or endpoint: `column` is
        the stored column in all cases. `assigned_value` gives what to store. A `where` is a condition like
        those of reads (expressions.py), on one variable: the row. An insert lists only what was written:
        defaults and NULL for the rest are the engine's part, and so are required-ness of NULL parameters,
        enum membership of parameters and all constraints.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from omnigraph.catalog.model import EdgeType, NodeType, Property, TableType
from omnigraph.catalog.query.expressions import Condition
from omnigraph.catalog.query.operands import Operand, Parameter, Stored, Values, operand_value
from omnigraph.catalog.query.operation import Operation
from omnigraph.catalog.query.values import assigned
from omnigraph.catalog.types import PropertyType, Scalar

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


@dataclass(frozen=True, slots=True)
class CheckedMutation:
    """A whole mutation."""

    name: str
    parameters: tuple[Parameter, ...]
    statements: tuple[Statement, ...]
    operation: Operation
    description: str | None = None
    instruction: str | None = None

    @property
    def destructive(self) -> bool:
        """Say whether it deletes; then it does nothing else."""
        return isinstance(self.statements[0], Delete)

    @property
    def targets(self) -> tuple[NodeType | EdgeType, ...]:
        """The types written by name, each once, in the order of the statements."""
        return tuple(dict.fromkeys(statement.target for statement in self.statements))
