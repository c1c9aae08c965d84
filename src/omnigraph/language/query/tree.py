"""Tree: a query text as typed values, each with the span it was read from.

    text -> **tree** -> checked query

Plain values; who builds them is build.py, who resolves them against a schema is catalog.query.

Spans take no part in equality: two trees are equal when they ask the same thing in the same order, however
they are laid out. A variable is kept without its `$`; `_` is a new one at every occurrence.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TypeAlias

from omnigraph.base.dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class ListSyntax:
    """`[literal, ...]`."""

    items: tuple[LiteralSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VarSyntax:
    """`$name`: a parameter, or a variable of the match."""

    name: str
    span: Span = field(compare=False, repr=False)

    @property
    def anonymous(self) -> bool:
        """Say whether this is `$_`."""
        return self.name == ANONYMOUS


@dataclass(frozen=True, slots=True)
class NowSyntax:
    """`now()`: the time of the request."""

    span: Span = field(compare=False, repr=False)


ValueSyntax: TypeAlias = LiteralSyntax | ListSyntax | VarSyntax | NowSyntax


@dataclass(frozen=True, slots=True)
class FieldSyntax:
    """`name: value`, in a binding, an insert or an update."""

    name: Ident
    value: ValueSyntax
    span: Span = field(compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AccessSyntax:
    """`$x.name`, or with `system` `$x.@name`."""

    variable: VarSyntax
    member: Ident
    system: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NameSyntax:
    """A bare name: an alias in `return` and `order`, a property in `where`."""

    name: Ident

    @property
    def span(self) -> Span:
        """Where it stands."""
        return self.name.span


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """A search or ranking function: one of `FUNCTIONS`."""

    function: Ident
    arguments: tuple[ExprSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AggregateSyntax:
    """One of `AGGREGATES` over the rows of a group."""

    function: Ident
    argument: ExprSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ArithmeticSyntax:
    """`left operator right`, operator one of `+ - * /`."""

    left: ExprSyntax
    operator: str
    right: ExprSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ShortestSyntax:
    """`shortest($a edge{1,10} $b)`."""

    traversal: TraversalSyntax
    span: Span = field(compare=False, repr=False)


ExprSyntax: TypeAlias = (
    ValueSyntax | AccessSyntax | NameSyntax | CallSyntax | AggregateSyntax | ArithmeticSyntax | ShortestSyntax
)


# -- conditions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompareSyntax:
    """`left operator right`, operator one of `= != < <= > >= contains starts_with`."""

    left: ExprSyntax
    operator: str
    right: ExprSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MemberSyntax:
    """`left in right`."""

    left: ExprSyntax
    right: ExprSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NullTestSyntax:
    """`operand is null`, or with `negated` `is not null`."""

    operand: ExprSyntax
    negated: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class AndSyntax:
    """All of two or more conditions; none of them is itself an `AndSyntax`."""

    operands: tuple[ConditionSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OrSyntax:
    """Any of two or more conditions; none of them is itself an `OrSyntax`."""

    operands: tuple[ConditionSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NotSyntax:
    """`not(condition)`: unknown stays unknown."""

    operand: ConditionSyntax
    span: Span = field(compare=False, repr=False)


# A call stands alone as a condition when it is one of `TEXT_MATCHES`.
ConditionSyntax: TypeAlias = (
    CompareSyntax | MemberSyntax | NullTestSyntax | AndSyntax | OrSyntax | NotSyntax | CallSyntax
)


# -- clauses -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BindingSyntax:
    """`$x: Type { name: value, ... }`."""

    variable: VarSyntax
    type: Ident
    fields: tuple[FieldSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class HopBoundsSyntax:
    """`{low,high}`; a missing high is refused later, with a code of its own."""

    low: int
    high: int | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TraversalSyntax:
    """`$left edge{bounds} $right`, `$left $binding:edge $right`, `$left <edge> $right`."""

    left: VarSyntax
    binding: VarSyntax | None
    edge: Ident
    undirected: bool
    bounds: HopBoundsSyntax | None
    right: VarSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FilterSyntax:
    """A condition that a row must meet."""

    condition: ConditionSyntax
    span: Span = field(compare=False, repr=False)


class BlockKind(Enum):
    """What a nested block does with a row."""

    NOT = "not"
    EXISTS = "exists"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class BlockSyntax:
    """`not { ... }`, `exists { ... }` or `optional { ... }`."""

    kind: BlockKind
    clauses: tuple[ClauseSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CountBlockSyntax:
    """`count { ... } operator number`."""

    clauses: tuple[ClauseSyntax, ...]
    operator: str
    number: int
    span: Span = field(compare=False, repr=False)


ClauseSyntax: TypeAlias = BindingSyntax | TraversalSyntax | FilterSyntax | BlockSyntax | CountBlockSyntax


# -- bodies and queries ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutputSyntax:
    """`expression as alias`."""

    expression: ExprSyntax
    alias: Ident | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SortSyntax:
    """One sort item."""

    expression: ExprSyntax
    descending: bool
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ReadSyntax:
    """`match { ... } return { ... } order { ... } limit n offset n`."""

    clauses: tuple[ClauseSyntax, ...]
    distinct: bool
    outputs: tuple[OutputSyntax, ...]
    order: tuple[SortSyntax, ...]
    limit: LiteralSyntax | VarSyntax | None
    offset: LiteralSyntax | VarSyntax | None
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InsertSyntax:
    """`insert Type { ... }`."""

    type: Ident
    fields: tuple[FieldSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UpdateSyntax:
    """`update Type set { ... } where condition`."""

    type: Ident
    fields: tuple[FieldSyntax, ...]
    where: ConditionSyntax
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class DeleteSyntax:
    """`delete Type where condition`."""

    type: Ident
    where: ConditionSyntax
    span: Span = field(compare=False, repr=False)


StatementSyntax: TypeAlias = InsertSyntax | UpdateSyntax | DeleteSyntax


@dataclass(frozen=True, slots=True)
class WriteSyntax:
    """Statements, in the order in which they run."""

    statements: tuple[StatementSyntax, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ParamSyntax:
    """`$name: Type`."""

    name: Ident
    type: TypeExpr
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NoteSyntax:
    """`@description("text")` or `@instruction("text")`."""

    name: Ident
    text: str
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class QuerySyntax:
    """One named query."""

    name: Ident
    params: tuple[ParamSyntax, ...]
    notes: tuple[NoteSyntax, ...]
    body: ReadSyntax | WriteSyntax
    span: Span = field(compare=False, repr=False)

    @property
    def mutation(self) -> bool:
        """Say whether it writes."""
        return isinstance(self.body, WriteSyntax)

    def note(self, name: str) -> str | None:
        """Return the text of an annotation, or None."""
        return next((n.text for n in self.notes if n.name.text == name), None)


@dataclass(frozen=True, slots=True)
class QueryFileSyntax:
    """A whole text, queries in the order written."""

    queries: tuple[QuerySyntax, ...]
    source: SourceText = field(compare=False, repr=False)
