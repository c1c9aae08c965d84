"""Tree: a query text as typed values, each with the span it was read from.

    text -> **tree** -> checked query

Room    language.query. Plain values; who builds them is build.py, who resolves them against a schema is
        catalog.query.
Rule    spans take no part in equality: two trees are equal when they ask the same thing in the same order,
        however they are laid out. A variable is kept without its `$`; `_` is a new one at every occurrence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from omnigraph.language.diagnostics import Source, Span
from omnigraph.language.schema.tree import Ident, TypeExpr

ANONYMOUS = "_"


# -- values ------------------------------------------------------------------------------------------


class LiteralKind(Enum):
    """What sort of literal was written."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATE = "date"
    DATETIME = "datetime"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal; `text` is the decoded string or date, or the number or word as spelt."""

    kind: LiteralKind
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[literal, ...]`."""

    items: tuple[Literal, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Var:
    """`$name`: a parameter, or a variable of the match."""

    name: str
    span: Span = field(compare=False, repr=False)

    @property
    def anonymous(self) -> bool:
        """Say whether this is `$_`."""
        return self.name == ANONYMOUS


@dataclass(frozen=True, slots=True)
class Now:
    """`now()`: the time of the request."""

    span: Span = field(compare=False, repr=False)


Value: TypeAlias = Literal | ListLiteral | Var | Now


@dataclass(frozen=True, slots=True)
class Field:
    """`name: value`, in a binding, an insert or an update."""

    name: Ident
    value: Value
    span: Span = field(compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """`$x.name`, or with `system` `$x.@name`."""

    variable: Var
    member: Ident
    system: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A bare name: an alias in `return` and `order`, a property in `where`."""

    name: Ident

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.name.span


@dataclass(frozen=True, slots=True)
class Call:
    """A search or ranking function: one of `functions.FUNCTIONS`."""

    function: Ident
    arguments: tuple[Expr, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One of `functions.AGGREGATES` over the rows of a group."""

    function: Ident
    argument: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """`left operator right`, operator one of `+ - * /`."""

    left: Expr
    operator: str
    right: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Shortest:
    """`shortest($a edge{1,10} $b)`."""

    traversal: Traversal
    span: Span = field(compare=False, repr=False)


Expr: TypeAlias = Value | Access | Name | Call | Aggregate | Arithmetic | Shortest


# -- conditions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compare:
    """`left operator right`, operator one of `= != < <= > >= contains starts_with`."""

    left: Expr
    operator: str
    right: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Member:
    """`left in right`."""

    left: Expr
    right: Expr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NullTest:
    """`operand is null`, or with `negated` `is not null`."""

    operand: Expr
    negated: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more conditions; none of them is itself an `And`."""

    operands: tuple[Condition, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more conditions; none of them is itself an `Or`."""

    operands: tuple[Condition, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`not(condition)`: unknown stays unknown."""

    operand: Condition
    span: Span = field(compare=False, repr=False)


# A call stands alone as a condition when it is one of `functions.TEXT_MATCHES`.
Condition: TypeAlias = Compare | Member | NullTest | And | Or | Not | Call


# -- clauses -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Binding:
    """`$x: Type { name: value, ... }`."""

    variable: Var
    type: Ident
    fields: tuple[Field, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Bounds:
    """`{low,high}`; a missing high is refused later, with a code of its own."""

    low: int
    high: int | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$left edge{bounds} $right`, `$left $binding:edge $right`, `$left <edge> $right`."""

    left: Var
    binding: Var | None
    edge: Ident
    undirected: bool
    bounds: Bounds | None
    right: Var
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that a row must meet."""

    condition: Condition
    span: Span = field(compare=False, repr=False)


class BlockKind(Enum):
    """What a nested block does with a row."""

    NOT = "not"
    EXISTS = "exists"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Block:
    """`not { ... }`, `exists { ... }` or `optional { ... }`."""

    kind: BlockKind
    clauses: tuple[Clause, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CountBlock:
    """`count { ... } operator number`."""

    clauses: tuple[Clause, ...]
    operator: str
    number: int
    span: Span = field(compare=False, repr=False)


Clause: TypeAlias = Binding | Traversal | Filter | Block | CountBlock


# -- bodies and queries ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Output:
    """`expression as alias`."""

    expression: Expr
    alias: Ident | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Sort:
    """One sort item."""

    expression: Expr
    descending: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Read:
    """`match { ... } return { ... } order { ... } limit n offset n`."""

    clauses: tuple[Clause, ...]
    distinct: bool
    outputs: tuple[Output, ...]
    order: tuple[Sort, ...]
    limit: Literal | Var | None
    offset: Literal | Var | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Insert:
    """`insert Type { ... }`."""

    type: Ident
    fields: tuple[Field, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Update:
    """`update Type set { ... } where condition`."""

    type: Ident
    fields: tuple[Field, ...]
    where: Condition
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """`delete Type where condition`."""

    type: Ident
    where: Condition
    span: Span = field(compare=False, repr=False)


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Write:
    """Statements, in the order in which they run."""

    statements: tuple[Statement, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Param:
    """`$name: Type`."""

    name: Ident
    type: TypeExpr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Note:
    """`@description("text")` or `@instruction("text")`."""

    name: Ident
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Query:
    """One named query."""

    name: Ident
    params: tuple[Param, ...]
    notes: tuple[Note, ...]
    body: Read | Write
    span: Span = field(compare=False, repr=False)

    @property
    def mutation(self) -> bool:
        """Say whether it writes."""
        return isinstance(self.body, Write)

    def note(self, name: str) -> str | None:
        """Return the text of an annotation, or None."""
        return next((n.text for n in self.notes if n.name.text == name), None)


@dataclass(frozen=True, slots=True)
class QueryFile:
    """A whole text, queries in the order written."""

    queries: tuple[Query, ...]
    source: Source = field(compare=False, repr=False)
