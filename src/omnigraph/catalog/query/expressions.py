"""Expressions: the values and conditions of checked reads and mutations.

    text -> tree -> **checked query** -> plan

Plain values, made by the checks in check/. Conditions have no other tree: execution/conditions.py judges
them on rows and lowers them to what a scan prunes by. Every value but a bare node has a `type`; its
`nullable` says whether it may be NULL in a row. Numbers compare by mathematical value, whatever their
types (`restate` in values.py); text by UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any, TypeAlias, assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import EdgeType, NodeType, Property, TableType
from omnigraph.catalog.types import PropertyType, Scalar

# -- described columns -----------------------------------------------------------------------------
#
# How results and parameters are described to machines (query spec 16.1). The kinds are those that callers
# know: widths and signs of numbers are folded.


KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}
OBJECT = "object"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A named value: a result column or a parameter."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None  # of a list
    vector_dim: int | None = None

    @classmethod
    def of(cls, name: str, declared: PropertyType) -> OutputColumn:
        """Describe a value of a type.

        >>> OutputColumn.of("p.age", PropertyType(Scalar.I32, nullable=True)).to_json()
        {'name': 'p.age', 'kind': 'int', 'nullable': True}
        """
        kind = KINDS[declared.scalar]
        if declared.is_list:
            return cls(name, "list", declared.nullable, item_kind=kind)
        return cls(name, kind, declared.nullable, vector_dim=declared.dimension)

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON values; what does not apply is left out."""
        described: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.item_kind is not None:
            described["item_kind"] = self.item_kind
        if self.vector_dim is not None:
            described["vector_dim"] = self.vector_dim
        return described | {"nullable": self.nullable}


# -- operands --------------------------------------------------------------------------------------
#
# The values of a checked query that do not depend on the row: constants, parameters and the time of the
# request. A `Stored` value is what a column would hold: days and milliseconds since 1970 for Date and
# DateTime, floats already rounded to their width, lists and vectors as tuples. A Blob is still the text
# that names it (`base64:...` or a URI).


Stored: TypeAlias = str | bool | int | float | tuple[str | bool | int | float, ...]
Values: TypeAlias = Mapping[str, Stored | None]  # of all parameters, by name, as `bind_params` gives them


@dataclass(frozen=True, slots=True)
class Parameter:
    """A declared parameter; `type` is never an enum."""

    name: str
    type: PropertyType

    @property
    def column(self) -> OutputColumn:
        """How catalogs of queries describe it."""
        return OutputColumn.of(self.name, self.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. NULL only where it is assigned."""

    value: Stored | None
    type: PropertyType


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The value that a parameter has in this request; NULL if it is nullable and left out."""

    parameter: Parameter

    @property
    def type(self) -> PropertyType:
        """The declared type."""
        return self.parameter.type


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the request, the same wherever it stands."""

    @property
    def type(self) -> PropertyType:
        """Always DateTime."""
        return PropertyType(Scalar.DATETIME)


Operand: TypeAlias = Constant | ParamRef | Now


def operand_value(operand: Operand, values: Values, now: int) -> Stored | None:
    """Return what an operand stands for; `now` is in milliseconds since 1970."""
    match operand:
        case Constant(value):
            return value
        case ParamRef(parameter):
            return values[parameter.name]
        case Now():
            return now
        case _:
            assert_never(operand)


# -- variables -------------------------------------------------------------------------------------


_STRING = PropertyType(Scalar.STRING)
_BOOL = PropertyType(Scalar.BOOL)
_FLOAT = PropertyType(Scalar.F64)
Fixed = (Constant, ParamRef, Now)  # what does not depend on the row


@dataclass(frozen=True, slots=True)
class Variable:
    """A node or edge of the match. `number` tells apart variables of one name in different blocks.

    An anonymous one has a name that no text can spell; ties are broken by the names, in byte order.
    `optional` says that it is introduced in an optional block, so that it may be NULL after it.
    """

    number: int
    name: str
    type: TableType = field(compare=False)
    optional: bool = field(default=False, compare=False)
    anonymous: bool = field(default=False, compare=False)

    @property
    def is_edge(self) -> bool:
        """Say whether it stands for an edge."""
        return isinstance(self.type, EdgeType)


# -- values ------------------------------------------------------------------------------------------


class EntityPart(Enum):
    """What an entity has besides its properties."""

    ID = "id"
    TYPE = "type"
    SRC = "src"
    DST = "dst"


@dataclass(frozen=True, slots=True)
class PropertyValue:
    """`$x.p`: the stored column `member.column` of a variable."""

    variable: Variable
    member: Property

    @property
    def type(self) -> PropertyType:
        """As declared; nullable too where the variable may be missing."""
        declared = self.member.type
        return replace(declared, nullable=True) if self.variable.optional else declared


@dataclass(frozen=True, slots=True)
class EntityField:
    """`$x.@id`, `$x.@type`, `$e.@src` or `$e.@dst`."""

    variable: Variable
    part: EntityPart

    @property
    def type(self) -> PropertyType:
        """Always a String."""
        return replace(_STRING, nullable=self.variable.optional)


@dataclass(frozen=True, slots=True)
class EntityValue:
    """`$x`: a whole node."""

    variable: Variable


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right`, operator one of `+ - * /`; null in, null out.

    Integers give I64, or U64 when neither side is signed; their division drops the fraction. Overflow and
    division by zero are errors. Floats give F64.
    """

    operator: str
    left: Value
    right: Value
    type: PropertyType


class AggregateFunction(Enum):
    """How the rows of a group become one value."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COUNT_DISTINCT = "count_distinct"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value for each group; rows where the argument is NULL do not count."""

    function: AggregateFunction
    argument: Value
    type: PropertyType


@dataclass(frozen=True, slots=True)
class OutputRef:
    """The value of the output at a position, counted from 0: what an alias refers to.

    It never stands inside an aggregate.
    """

    position: int
    name: str
    type: PropertyType | None  # None for a bare node
    aggregate: bool  # whether that output holds an aggregate


@dataclass(frozen=True, slots=True)
class TextMatch:
    """`search`, `fuzzy` or `match_text`: whether a text matches; NULL text never does."""

    function: str
    variable: Variable
    member: Property
    query: Operand
    edits: Operand | None = None  # of fuzzy; None means the default

    @property
    def type(self) -> PropertyType:
        """Bool, never NULL."""
        return _BOOL


@dataclass(frozen=True, slots=True)
class Nearest:
    """The distance of a vector from the query; a query of type String is to be embedded first."""

    variable: Variable
    member: Property
    query: Operand

    @property
    def type(self) -> PropertyType:
        """NULL where the vector or the query is."""
        nullable = self.member.type.nullable or self.variable.optional or self.query.type.nullable
        return replace(_FLOAT, nullable=nullable)

    @property
    def embeds(self) -> bool:
        """Say whether the query is text that must be embedded."""
        return self.query.type.scalar is Scalar.STRING and not self.query.type.is_list


@dataclass(frozen=True, slots=True)
class Bm25:
    """The score of a text for the query; 0 where nothing matches."""

    variable: Variable
    member: Property
    query: Operand

    @property
    def type(self) -> PropertyType:
        """A score, never NULL."""
        return _FLOAT


@dataclass(frozen=True, slots=True)
class Rrf:
    """The fused score of two rankings of one variable; 0 where neither has the row."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Operand | None = None  # None means the default

    @property
    def type(self) -> PropertyType:
        """A score, never NULL."""
        return _FLOAT


class Direction(Enum):
    """Which end of the edge the left variable is."""

    FORWARD = "forward"  # left is `src`
    BACKWARD = "backward"  # left is `dst`
    EITHER = "either"


@dataclass(frozen=True, slots=True)
class Hops:
    """An edge type and how it is followed, from `low` to `high` steps."""

    edge: EdgeType
    direction: Direction
    low: int = 1
    high: int = 1


@dataclass(frozen=True, slots=True)
class ShortestPath:
    """The ids from one node to another, both included; NULL when there is no path within the bounds."""

    source: Variable
    hops: Hops
    target: Variable

    @property
    def type(self) -> PropertyType:
        """A list of ids."""
        return PropertyType(Scalar.STRING, nullable=True, is_list=True)


Ranking: TypeAlias = Nearest | Bm25 | Rrf
Value: TypeAlias = (
    Constant
    | ParamRef
    | Now
    | PropertyValue
    | EntityField
    | EntityValue
    | Arithmetic
    | Aggregate
    | OutputRef
    | TextMatch
    | Nearest
    | Bm25
    | Rrf
    | ShortestPath
)


def type_of(value: Value) -> PropertyType | None:
    """Return the type of a value; a bare node has none."""
    return None if isinstance(value, EntityValue) else value.type


def operands_of(value: Value) -> tuple[Value, ...]:
    """Return the values from which one is computed in the same row or group; () for one that is read."""
    return (value.left, value.right) if isinstance(value, Arithmetic) else ()


def holds_aggregate(value: Value) -> bool:
    """Say whether a value is one of a group rather than of a row."""
    match value:
        case Aggregate():
            return True
        case OutputRef(aggregate=aggregate):
            return aggregate
        case _:
            return any(holds_aggregate(operand) for operand in operands_of(value))


# -- conditions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparison:
    """Operator one of `= != < <= > >=`; null on either side is unknown."""

    left: Value
    operator: str
    right: Value


@dataclass(frozen=True, slots=True)
class Contains:
    """Whether a list has an element that equals the right side."""

    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Substring:
    """Whether the right text occurs in the left one, exactly."""

    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Prefix:
    """Whether the left text starts with the right one, exactly."""

    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Among:
    """Whether the left side equals one of some values, or an element of a parameter's list.

    It means `left = first or left = second or ...`: with no values it is false, for null too. A list that is
    itself null makes it unknown.
    """

    left: Value
    items: tuple[Operand, ...] | ParamRef


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value, or a node of an optional block, is missing; never unknown."""

    operand: Value
    negated: bool


@dataclass(frozen=True, slots=True)
class And:
    """True when all operands are."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when any operand is."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True when the operand is false; unknown stays unknown."""

    operand: Condition


Condition: TypeAlias = (
    Comparison | Contains | Substring | Prefix | Among | IsNull | And | Or | Not | TextMatch
)


def leaves(value: Condition | Value) -> Iterator[Value]:
    """Yield the values that a condition or value is made of, down to those that are read or fixed."""
    match value:
        case Comparison(left, _, right) | Arithmetic(_, left, right):
            yield from leaves(left)
            yield from leaves(right)
        case Contains(left, right) | Substring(left, right) | Prefix(left, right) | Rrf(left, right):
            yield from leaves(left)
            yield from leaves(right)
        case IsNull(inner) | Not(inner) | Among(inner) | Aggregate(_, inner):
            yield from leaves(inner)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from leaves(operand)
        case _:
            yield value


def all_of(operands: Sequence[Condition]) -> Condition:
    """Return the conjunction of some conditions; `x != 1 and x != 2 ...` is one test of a set."""
    gathered = _gathered(operands, "!=")
    return gathered[0] if len(gathered) == 1 else And(gathered)


def any_of(operands: Sequence[Condition]) -> Condition:
    """Return the disjunction of some conditions; `x = 1 or x = 2 ...` is one test of a set."""
    gathered = _gathered(operands, "=")
    return gathered[0] if len(gathered) == 1 else Or(gathered)


def _gathered(operands: Sequence[Condition], operator: str) -> tuple[Condition, ...]:
    """Join comparisons of one value with fixed ones, where the first of them stands."""
    places: dict[Value, int] = {}
    compared: dict[int, list[Operand]] = {}
    parts: list[Condition] = []
    for part in operands:
        if isinstance(part, Comparison) and part.operator == operator and isinstance(part.right, Fixed):
            place = places.setdefault(part.left, len(parts))
            compared.setdefault(place, []).append(part.right)
            if place < len(parts):
                continue
        parts.append(part)
    for left, place in places.items():
        if len(compared[place]) > 1:
            among = Among(left, tuple(compared[place]))
            parts[place] = among if operator == "=" else Not(among)
    return tuple(parts)


def node_type(variable: Variable) -> NodeType:
    """Return the type of a variable that stands for a node."""
    if not isinstance(variable.type, NodeType):
        raise TypeError(f"${variable.name} stands for an edge")
    return variable.type
