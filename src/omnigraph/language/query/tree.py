"""Tree: a query text as typed values, each with the span it was read from.

    text -> **tree** -> checked query

Room    language.query. Plain values; who builds them is build.py, who resolves them against a schema is
        catalog.query.
Rule    spans take no part in equality: two trees are equal when they ask the same thing in the same order,
        however they are laid out. A variable is kept without its `$`; `_` is a new one at every occurrence.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from omnigraph.base.frozen import FrozenRecord, uncompared
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


class Literal(FrozenRecord):
    """A literal; `text` is the decoded string or date, or the number or word as spelt."""

    kind: LiteralKind
    text: str
    span: Span = uncompared()


class ListLiteral(FrozenRecord):
    """`[literal, ...]`."""

    items: tuple[Literal, ...]
    span: Span = uncompared()


class Var(FrozenRecord):
    """`$name`: a parameter, or a variable of the match."""

    name: str
    span: Span = uncompared()

    @property
    def anonymous(self) -> bool:
        """Say whether this is `$_`."""
        return self.name == ANONYMOUS


class Now(FrozenRecord):
    """`now()`: the time of the request."""

    span: Span = uncompared()


Value: TypeAlias = Literal | ListLiteral | Var | Now


class Field(FrozenRecord):
    """`name: value`, in a binding, an insert or an update."""

    name: Ident
    value: Value
    span: Span = uncompared()


# -- expressions -------------------------------------------------------------------------------------


class Access(FrozenRecord):
    """`$x.name`, or with `system` `$x.@name`."""

    variable: Var
    member: Ident
    system: bool
    span: Span = uncompared()


class Name(FrozenRecord):
    """A bare name: an alias in `return` and `order`, a property in `where`."""

    name: Ident

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.name.span


class Call(FrozenRecord):
    """A search or ranking function: one of `functions.FUNCTIONS`."""

    function: Ident
    arguments: tuple[Expr, ...]
    span: Span = uncompared()


class Aggregate(FrozenRecord):
    """One of `functions.AGGREGATES` over the rows of a group."""

    function: Ident
    argument: Expr
    span: Span = uncompared()


class Arithmetic(FrozenRecord):
    """`left operator right`, operator one of `+ - * /`."""

    left: Expr
    operator: str
    right: Expr
    span: Span = uncompared()


class Shortest(FrozenRecord):
    """`shortest($a edge{1,10} $b)`."""

    traversal: Traversal
    span: Span = uncompared()


Expr: TypeAlias = Value | Access | Name | Call | Aggregate | Arithmetic | Shortest


# -- conditions --------------------------------------------------------------------------------------


class Compare(FrozenRecord):
    """`left operator right`, operator one of `= != < <= > >= contains starts_with`."""

    left: Expr
    operator: str
    right: Expr
    span: Span = uncompared()


class Member(FrozenRecord):
    """`left in right`."""

    left: Expr
    right: Expr
    span: Span = uncompared()


class NullTest(FrozenRecord):
    """`operand is null`, or with `negated` `is not null`."""

    operand: Expr
    negated: bool
    span: Span = uncompared()


class And(FrozenRecord):
    """All of two or more conditions; none of them is itself an `And`."""

    operands: tuple[Condition, ...]
    span: Span = uncompared()


class Or(FrozenRecord):
    """Any of two or more conditions; none of them is itself an `Or`."""

    operands: tuple[Condition, ...]
    span: Span = uncompared()


class Not(FrozenRecord):
    """`not(condition)`: unknown stays unknown."""

    operand: Condition
    span: Span = uncompared()


# A call stands alone as a condition when it is one of `functions.TEXT_MATCHES`.
Condition: TypeAlias = Compare | Member | NullTest | And | Or | Not | Call


# -- clauses -----------------------------------------------------------------------------------------


class Binding(FrozenRecord):
    """`$x: Type { name: value, ... }`."""

    variable: Var
    type: Ident
    fields: tuple[Field, ...]
    span: Span = uncompared()


class Bounds(FrozenRecord):
    """`{low,high}`; a missing high is refused later, with a code of its own."""

    low: int
    high: int | None
    span: Span = uncompared()


class Traversal(FrozenRecord):
    """`$left edge{bounds} $right`, `$left $binding:edge $right`, `$left <edge> $right`."""

    left: Var
    binding: Var | None
    edge: Ident
    undirected: bool
    bounds: Bounds | None
    right: Var
    span: Span = uncompared()


class Filter(FrozenRecord):
    """A condition that a row must meet."""

    condition: Condition
    span: Span = uncompared()


class BlockKind(Enum):
    """What a nested block does with a row."""

    NOT = "not"
    EXISTS = "exists"
    OPTIONAL = "optional"


class Block(FrozenRecord):
    """`not { ... }`, `exists { ... }` or `optional { ... }`."""

    kind: BlockKind
    clauses: tuple[Clause, ...]
    span: Span = uncompared()


class CountBlock(FrozenRecord):
    """`count { ... } operator number`."""

    clauses: tuple[Clause, ...]
    operator: str
    number: int
    span: Span = uncompared()


Clause: TypeAlias = Binding | Traversal | Filter | Block | CountBlock


# -- bodies and queries ------------------------------------------------------------------------------


class Output(FrozenRecord):
    """`expression as alias`."""

    expression: Expr
    alias: Ident | None
    span: Span = uncompared()


class Sort(FrozenRecord):
    """One sort item."""

    expression: Expr
    descending: bool
    span: Span = uncompared()


class Read(FrozenRecord):
    """`match { ... } return { ... } order { ... } limit n offset n`."""

    clauses: tuple[Clause, ...]
    distinct: bool
    outputs: tuple[Output, ...]
    order: tuple[Sort, ...]
    limit: Literal | Var | None
    offset: Literal | Var | None
    span: Span = uncompared()


class Insert(FrozenRecord):
    """`insert Type { ... }`."""

    type: Ident
    fields: tuple[Field, ...]
    span: Span = uncompared()


class Update(FrozenRecord):
    """`update Type set { ... } where condition`."""

    type: Ident
    fields: tuple[Field, ...]
    where: Condition
    span: Span = uncompared()


class Delete(FrozenRecord):
    """`delete Type where condition`."""

    type: Ident
    where: Condition
    span: Span = uncompared()


Statement: TypeAlias = Insert | Update | Delete


class Write(FrozenRecord):
    """Statements, in the order in which they run."""

    statements: tuple[Statement, ...]
    span: Span = uncompared()


class Param(FrozenRecord):
    """`$name: Type`."""

    name: Ident
    type: TypeExpr
    span: Span = uncompared()


class Note(FrozenRecord):
    """`@description("text")` or `@instruction("text")`."""

    name: Ident
    text: str
    span: Span = uncompared()


class Query(FrozenRecord):
    """One named query."""

    name: Ident
    params: tuple[Param, ...]
    notes: tuple[Note, ...]
    body: Read | Write
    span: Span = uncompared()

    @property
    def mutation(self) -> bool:
        """Say whether it writes."""
        return isinstance(self.body, Write)

    def note(self, name: str) -> str | None:
        """Return the text of an annotation, or None."""
        return next((n.text for n in self.notes if n.name.text == name), None)


class QueryFile(FrozenRecord):
    """A whole text, queries in the order written."""

    queries: tuple[Query, ...]
    source: Source = uncompared()
