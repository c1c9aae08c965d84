"""Tree: a schema text as typed values, each with the span it was read from.

    text -> **tree** -> checked schema -> catalog

Plain values; who builds them is build.py, who judges them is check/.

Spans take no part in equality: two trees are equal when they declare the same things in the same order,
however they are laid out.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import SourceText, Span
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.syntax import Ident, TypeExpr


@dataclass(frozen=True, slots=True)
class KeywordSyntax:
    """One `name=literal` argument of an annotation."""

    name: Ident
    value: LiteralSyntax

    @property
    def span(self) -> Span:
        """Where its name stands."""
        return self.name.span


@dataclass(frozen=True, slots=True)
class AnnotationSyntax:
    """`@name`, `@name(argument)` or `@name(argument, key=literal, ...)`."""

    name: Ident
    argument: LiteralSyntax | Ident | None
    keywords: tuple[KeywordSyntax, ...]
    span: Span = field(compare=False, repr=False)

    @property
    def value(self) -> str | None:
        """The positional argument as text."""
        return None if self.argument is None else self.argument.text


# -- members -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PropertySyntax:
    """`name: Type @annotation ...`."""

    name: Ident
    type: TypeExpr
    annotations: tuple[AnnotationSyntax, ...]
    span: Span = field(compare=False, repr=False)

    def annotated(self, name: str) -> tuple[AnnotationSyntax, ...]:
        """Return the annotations of one name."""
        return tuple(a for a in self.annotations if a.name.text == name)


COLUMN_CONSTRAINTS = ("key", "unique", "index")  # also legal after a property
BODY_CONSTRAINTS = ("range", "check")  # legal between the braces of a type alone


@dataclass(frozen=True, slots=True)
class ColumnsConstraintSyntax:
    """`@key(a, b)`, `@unique(a, b)` or `@index(a, b)`."""

    kind: str
    columns: tuple[Ident, ...]
    span: Span = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RangeConstraintSyntax:
    """`@range(p, low..high)`; bounds keep their spelling."""

    column: Ident
    low: str | None
    high: str | None
    span: Span = field(compare=False, repr=False)
    kind: ClassVar[str] = "range"


@dataclass(frozen=True, slots=True)
class CheckConstraintSyntax:
    """`@check(p, "pattern")`."""

    column: Ident
    pattern: LiteralSyntax
    span: Span = field(compare=False, repr=False)
    kind: ClassVar[str] = "check"


ConstraintSyntax: TypeAlias = ColumnsConstraintSyntax | RangeConstraintSyntax | CheckConstraintSyntax


@dataclass(frozen=True, slots=True)
class CardinalitySyntax:
    """`@card(low..high)`: how many edges may leave one source."""

    low: int
    high: int | None
    span: Span = field(compare=False, repr=False)


# -- declarations ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InterfaceSyntax:
    """`interface Name { ... }`."""

    name: Ident
    properties: tuple[PropertySyntax, ...]
    span: Span = field(compare=False, repr=False)
    kind: ClassVar[str] = "interface"


@dataclass(frozen=True, slots=True)
class NodeSyntax:
    """`node Name @annotation implements I, J { ... }`."""

    name: Ident
    annotations: tuple[AnnotationSyntax, ...]
    implements: tuple[Ident, ...]
    properties: tuple[PropertySyntax, ...]
    constraints: tuple[ConstraintSyntax, ...]
    span: Span = field(compare=False, repr=False)
    kind: ClassVar[str] = "node"


@dataclass(frozen=True, slots=True)
class EdgeSyntax:
    """`edge Name: Source -> Target @card(0..1) @annotation { ... }`."""

    name: Ident
    source: Ident
    target: Ident
    card: CardinalitySyntax | None
    annotations: tuple[AnnotationSyntax, ...]
    properties: tuple[PropertySyntax, ...]
    constraints: tuple[ConstraintSyntax, ...]
    span: Span = field(compare=False, repr=False)
    kind: ClassVar[str] = "edge"


DeclarationSyntax: TypeAlias = InterfaceSyntax | NodeSyntax | EdgeSyntax


@dataclass(frozen=True, slots=True)
class SchemaSyntax:
    """A whole text, declarations in the order written."""

    declarations: tuple[DeclarationSyntax, ...]
    source: SourceText = field(compare=False, repr=False)

    @property
    def interfaces(self) -> tuple[InterfaceSyntax, ...]:
        """The interfaces, in the order written."""
        return tuple(d for d in self.declarations if isinstance(d, InterfaceSyntax))

    @property
    def nodes(self) -> tuple[NodeSyntax, ...]:
        """The node types, in the order written."""
        return tuple(d for d in self.declarations if isinstance(d, NodeSyntax))

    @property
    def edges(self) -> tuple[EdgeSyntax, ...]:
        """The edge types, in the order written."""
        return tuple(d for d in self.declarations if isinstance(d, EdgeSyntax))
