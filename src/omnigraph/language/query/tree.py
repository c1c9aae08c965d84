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
from omnigraph.language.diagnostics import SourceText, Span
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.syntax import Ident, TypeExpr

ANONYMOUS = "_"

# The functions that an expression may call, and with how many arguments; `now`, `date`, `datetime` and
# `shortest` have a form of their own.
TEXT_MATCHES = {"search": (2, 2), "fuzzy": (2, 3), "match_text": (2, 2)}  # fewest and most arguments
RANKINGS = {"nearest": (2, 2), "bm25": (2, 2), "rrf": (2, 3)}
FUNCTIONS = TEXT_MATCHES | RANKINGS
AGGREGATES = ("count", "sum", "avg", "min", "max", "count_distinct", "collect")


# -- values ------------------------------------------------------------------------------------------


class ListSyntax(FrozenRecord):
    """`[literal, ...]`."""

    items: tuple[LiteralSyntax, ...]
    span: Span = uncompared()


class VarSyntax(FrozenRecord):
    """`$name`: a parameter, or a variable of the match."""

    name: str
    span: Span = uncompared()

    @property
    def anonymous(self) -> bool:
        """Say whether this is `$_`."""
        return self.name == ANONYMOUS


class NowSyntax(FrozenRecord):
    """`now()`: the time of the request."""

    span: Span = uncompared()


ValueSyntax: TypeAlias = LiteralSyntax | ListSyntax | VarSyntax | NowSyntax


class FieldSyntax(FrozenRecord):
    """`name: value`, in a binding, an insert or an update."""

    name: Ident
    value: ValueSyntax
    span: Span = uncompared()


# -- expressions -------------------------------------------------------------------------------------


class AccessSyntax(FrozenRecord):
    """`$x.name`, or with `system` `$x.@name`."""

    variable: VarSyntax
    member: Ident
    system: bool
    span: Span = uncompared()


class NameSyntax(FrozenRecord):
    """A bare name: an alias in `return` and `order`, a property in `where`."""

    name: Ident

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.name.span


class CallSyntax(FrozenRecord):
    """A search or ranking function: one of `FUNCTIONS`."""

    function: Ident
    arguments: tuple[ExprSyntax, ...]
    span: Span = uncompared()


class AggregateSyntax(FrozenRecord):
    """One of `AGGREGATES` over the rows of a group."""

    function: Ident
    argument: ExprSyntax
    span: Span = uncompared()


class ArithmeticSyntax(FrozenRecord):
    """`left operator right`, operator one of `+ - * /`."""

    left: ExprSyntax
    operator: str
    right: ExprSyntax
    span: Span = uncompared()


class ShortestSyntax(FrozenRecord):
    """`shortest($a edge{1,10} $b)`."""

    traversal: TraversalSyntax
    span: Span = uncompared()


ExprSyntax: TypeAlias = (
    ValueSyntax | AccessSyntax | NameSyntax | CallSyntax | AggregateSyntax | ArithmeticSyntax | ShortestSyntax
)


# -- conditions --------------------------------------------------------------------------------------


class CompareSyntax(FrozenRecord):
    """`left operator right`, operator one of `= != < <= > >= contains starts_with`."""

    left: ExprSyntax
    operator: str
    right: ExprSyntax
    span: Span = uncompared()


class MemberSyntax(FrozenRecord):
    """`left in right`."""

    left: ExprSyntax
    right: ExprSyntax
    span: Span = uncompared()


class NullTestSyntax(FrozenRecord):
    """`operand is null`, or with `negated` `is not null`."""

    operand: ExprSyntax
    negated: bool
    span: Span = uncompared()


class AndSyntax(FrozenRecord):
    """All of two or more conditions; none of them is itself an `AndSyntax`."""

    operands: tuple[ConditionSyntax, ...]
    span: Span = uncompared()


class OrSyntax(FrozenRecord):
    """Any of two or more conditions; none of them is itself an `OrSyntax`."""

    operands: tuple[ConditionSyntax, ...]
    span: Span = uncompared()


class NotSyntax(FrozenRecord):
    """`not(condition)`: unknown stays unknown."""

    operand: ConditionSyntax
    span: Span = uncompared()


# A call stands alone as a condition when it is one of `TEXT_MATCHES`.
ConditionSyntax: TypeAlias = (
    CompareSyntax | MemberSyntax | NullTestSyntax | AndSyntax | OrSyntax | NotSyntax | CallSyntax
)


# -- clauses -----------------------------------------------------------------------------------------


class BindingSyntax(FrozenRecord):
    """`$x: Type { name: value, ... }`."""

    variable: VarSyntax
    type: Ident
    fields: tuple[FieldSyntax, ...]
    span: Span = uncompared()


class HopBoundsSyntax(FrozenRecord):
    """`{low,high}`; a missing high is refused later, with a code of its own."""

    low: int
    high: int | None
    span: Span = uncompared()


class TraversalSyntax(FrozenRecord):
    """`$left edge{bounds} $right`, `$left $binding:edge $right`, `$left <edge> $right`."""

    left: VarSyntax
    binding: VarSyntax | None
    edge: Ident
    undirected: bool
    bounds: HopBoundsSyntax | None
    right: VarSyntax
    span: Span = uncompared()


class FilterSyntax(FrozenRecord):
    """A condition that a row must meet."""

    condition: ConditionSyntax
    span: Span = uncompared()


class BlockKind(Enum):
    """What a nested block does with a row."""

    NOT = "not"
    EXISTS = "exists"
    OPTIONAL = "optional"


class BlockSyntax(FrozenRecord):
    """`not { ... }`, `exists { ... }` or `optional { ... }`."""

    kind: BlockKind
    clauses: tuple[ClauseSyntax, ...]
    span: Span = uncompared()


class CountBlockSyntax(FrozenRecord):
    """`count { ... } operator number`."""

    clauses: tuple[ClauseSyntax, ...]
    operator: str
    number: int
    span: Span = uncompared()


ClauseSyntax: TypeAlias = BindingSyntax | TraversalSyntax | FilterSyntax | BlockSyntax | CountBlockSyntax


# -- bodies and queries ------------------------------------------------------------------------------


class OutputSyntax(FrozenRecord):
    """`expression as alias`."""

    expression: ExprSyntax
    alias: Ident | None
    span: Span = uncompared()


class SortSyntax(FrozenRecord):
    """One sort item."""

    expression: ExprSyntax
    descending: bool
    span: Span = uncompared()


class ReadSyntax(FrozenRecord):
    """`match { ... } return { ... } order { ... } limit n offset n`."""

    clauses: tuple[ClauseSyntax, ...]
    distinct: bool
    outputs: tuple[OutputSyntax, ...]
    order: tuple[SortSyntax, ...]
    limit: LiteralSyntax | VarSyntax | None
    offset: LiteralSyntax | VarSyntax | None
    span: Span = uncompared()


class InsertSyntax(FrozenRecord):
    """`insert Type { ... }`."""

    type: Ident
    fields: tuple[FieldSyntax, ...]
    span: Span = uncompared()


class UpdateSyntax(FrozenRecord):
    """`update Type set { ... } where condition`."""

    type: Ident
    fields: tuple[FieldSyntax, ...]
    where: ConditionSyntax
    span: Span = uncompared()


class DeleteSyntax(FrozenRecord):
    """`delete Type where condition`."""

    type: Ident
    where: ConditionSyntax
    span: Span = uncompared()


StatementSyntax: TypeAlias = InsertSyntax | UpdateSyntax | DeleteSyntax


class WriteSyntax(FrozenRecord):
    """Statements, in the order in which they run."""

    statements: tuple[StatementSyntax, ...]
    span: Span = uncompared()


class ParamSyntax(FrozenRecord):
    """`$name: Type`."""

    name: Ident
    type: TypeExpr
    span: Span = uncompared()


class NoteSyntax(FrozenRecord):
    """`@description("text")` or `@instruction("text")`."""

    name: Ident
    text: str
    span: Span = uncompared()


class QuerySyntax(FrozenRecord):
    """One named query."""

    name: Ident
    params: tuple[ParamSyntax, ...]
    notes: tuple[NoteSyntax, ...]
    body: ReadSyntax | WriteSyntax
    span: Span = uncompared()

    @property
    def mutation(self) -> bool:
        """Say whether it writes."""
        return isinstance(self.body, WriteSyntax)

    def note(self, name: str) -> str | None:
        """Return the text of an annotation, or None."""
        return next((n.text for n in self.notes if n.name.text == name), None)


class QueryFileSyntax(FrozenRecord):
    """A whole text, queries in the order written."""

    queries: tuple[QuerySyntax, ...]
    source: SourceText = uncompared()
