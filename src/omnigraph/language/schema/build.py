"""Build: turn the parse tree of one declaration into typed values, refusing malformed ones on the way.

    text -> parse tree -> **tree** -> checked schema -> catalog

Knows how a declaration is written (stages 1 and 2 of the rules); what the names in it refer to is judged
later, in check/. The faulty parts of a declaration are reported and left out or marked `BadType`, so
that the rest can still be checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.language.diagnostics import Reporter, Span
from omnigraph.language.lalr import (
    ParseTree,
    first_subtree,
    optional_subtree,
    subtree,
    subtrees,
    word_text,
)
from omnigraph.language.literals import LiteralKind, LiteralSyntax
from omnigraph.language.schema import rules
from omnigraph.language.schema.members import Arguments, ArgumentSyntax, RangeBoundsSyntax, TypeBuilder
from omnigraph.language.schema.tree import (
    BODY_CONSTRAINTS,
    COLUMN_CONSTRAINTS,
    AnnotationSyntax,
    CardinalitySyntax,
    CheckConstraintSyntax,
    ColumnsConstraintSyntax,
    ConstraintSyntax,
    DeclarationSyntax,
    EdgeSyntax,
    InterfaceSyntax,
    NodeSyntax,
    PropertySyntax,
    RangeConstraintSyntax,
)
from omnigraph.language.syntax import BuildContext, Ident

RESERVED_EVERYWHERE = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version", "id"}
)
RESERVED_ON_EDGES = frozenset({"src", "dst", "from", "to"})
CONSTRAINTS = (*COLUMN_CONSTRAINTS, *BODY_CONSTRAINTS)
MAX_CARDINALITY = 2**32 - 1


def build(parsed: ParseTree, offset: int, reporter: Reporter) -> DeclarationSyntax:
    """Build one declaration; `offset` is where it starts in the text."""
    tree = subtree(parsed.children[0])
    builder = _Builder(BuildContext(reporter, offset))
    match tree.rule:
        case "interface":
            return builder.interface(tree)
        case "node":
            return builder.node(tree)
        case _:
            return builder.edge(tree)


class _Builder:
    def __init__(self, context: BuildContext) -> None:
        self._context = context
        self._arguments = Arguments(context)

    # -- declarations --------------------------------------------------------------------------------

    def interface(self, tree: ParseTree) -> InterfaceSyntax:
        name = self._type_name(first_subtree(tree, "word"))
        for clause in subtrees(tree, "annotation", "implements"):
            self._context.report(
                rules.MISPLACED,
                "an interface takes no annotations and extends no other interface",
                self._context.span(clause),
                "put the annotation on its properties, or on the nodes that implement it",
            )
        properties, constraints = self._body(tree, "interface")
        for constraint in constraints:
            self._context.report(
                rules.MISPLACED,
                f"an interface has no body constraints: @{constraint.kind} must be on a property, inline",
                constraint.span,
                f"write '@{constraint.kind}' after the property, or put the constraint on the node",
            )
        return InterfaceSyntax(name, properties, self._context.span(tree))

    def node(self, tree: ParseTree) -> NodeSyntax:
        name = self._type_name(first_subtree(tree, "word"))
        implements: tuple[Ident, ...] = ()
        annotations: list[AnnotationSyntax] = []
        for clause in subtrees(tree, "annotation", "implements"):
            if clause.rule == "annotation":
                if implements:
                    self._context.report(
                        rules.MISPLACED,
                        "the annotations of a node come before 'implements'",
                        self._context.span(clause),
                        "move the annotation between the node's name and 'implements'",
                    )
                annotations.extend(self._header_annotation(clause))
            elif implements:
                self._context.report(
                    rules.MISPLACED,
                    "'implements' is given twice",
                    self._context.span(clause),
                    "write one list: implements A, B",
                )
            else:
                implements = tuple(self._type_name(word) for word in subtrees(clause, "word"))
        properties, constraints = self._body(tree, "node")
        return NodeSyntax(
            name, tuple(annotations), implements, properties, constraints, self._context.span(tree)
        )

    def edge(self, tree: ParseTree) -> EdgeSyntax:
        name, source, target = (self._type_name(word) for word in subtrees(tree, "word"))
        card: CardinalitySyntax | None = None
        annotations: list[AnnotationSyntax] = []
        for position, clause in enumerate(subtrees(tree, "annotation", "implements")):
            if clause.rule == "implements":
                self._context.report(
                    rules.MISPLACED,
                    "only a node can implement an interface",
                    self._context.span(clause),
                    None,
                )
            elif position == 0 and self._annotation_name(clause) == "card":
                card = self._cardinality(clause)
            else:
                annotations.extend(self._header_annotation(clause))
        properties, constraints = self._body(tree, "edge")
        return EdgeSyntax(
            name, source, target, card, tuple(annotations), properties, constraints, self._context.span(tree)
        )

    # -- bodies --------------------------------------------------------------------------------------

    def _body(
        self, tree: ParseTree, kind: str
    ) -> tuple[tuple[PropertySyntax, ...], tuple[ConstraintSyntax, ...]]:
        properties: list[PropertySyntax] = []
        constraints: list[ConstraintSyntax] = []
        for group in self._groups(tree):
            head, annotations = group[0], group[1:]
            if head.rule == "property":
                properties.append(self._property(head, annotations, kind))
            elif self._is_constraint(head):
                constraints.extend(self._constraint(head))
            else:
                self._context.report(
                    rules.MISPLACED,
                    f"@{self._annotation_name(head)} follows no property",
                    self._context.span(head),
                    f"annotations of the {kind} itself come before '{{'",
                )
        return tuple(properties), tuple(constraints)

    def _groups(self, tree: ParseTree) -> Iterator[list[ParseTree]]:
        """Group each property with the annotations that belong to it; a constraint stands alone."""
        group: list[ParseTree] = []
        for member in (m for body in subtrees(tree, "body") for m in body.children):
            member = subtree(member)
            belongs = group and group[0].rule == "property" and member.rule == "annotation"
            if belongs and not self._is_constraint(member):
                group.append(member)
                continue
            if group:
                yield group
            group = [member]
        if group:
            yield group

    def _is_constraint(self, tree: ParseTree) -> bool:
        """With parentheses these names always start a body constraint, wherever they stand."""
        if tree.rule != "annotation" or not subtrees(tree, "arguments"):
            return False
        return self._annotation_name(tree) in CONSTRAINTS

    def _property(self, tree: ParseTree, annotations: list[ParseTree], kind: str) -> PropertySyntax:
        name = self._property_name(first_subtree(tree, "word"), kind)
        expression = TypeBuilder(self._context).build(first_subtree(tree, "type"))
        built = tuple(a for annotation in annotations for a in self._annotation(annotation))
        end = annotations[-1] if annotations else tree
        return PropertySyntax(name, expression, built, self._context.span(tree, end))

    # -- names ---------------------------------------------------------------------------------------

    def _ident(self, word: ParseTree) -> Ident:
        return Ident(word_text(word), self._context.span(word))

    def _type_name(self, word: ParseTree) -> Ident:
        name = self._ident(word)
        if not "A" <= name.text[0] <= "Z":
            proper = name.text.lstrip("_")
            self._context.report(
                rules.BAD_NAME,
                f"a type name starts with an upper-case letter: {name.text!r}",
                name.span,
                f"write {proper[:1].upper() + proper[1:]!r}" if proper[:1].isalpha() else None,
            )
        return name

    def _property_name(self, word: ParseTree, kind: str) -> Ident:
        name = self._ident(word)
        if "A" <= name.text[0] <= "Z":
            self._context.report(
                rules.BAD_NAME,
                f"a property name starts with a lower-case letter or '_': {name.text!r}",
                name.span,
                f"write {name.text[0].lower() + name.text[1:]!r}",
            )
        if name.text in RESERVED_EVERYWHERE or (kind == "edge" and name.text in RESERVED_ON_EDGES):
            self._context.report(
                rules.RESERVED,
                f"property name '{name.text}' is reserved",
                name.span,
                "the identity of an entity is not a property; use @key to choose it"
                if name.text == "id"
                else "choose another name",
            )
        return name

    # -- annotations ---------------------------------------------------------------------------------

    def _annotation_name(self, tree: ParseTree) -> str:
        return word_text(first_subtree(tree, "word"))

    def _header_annotation(self, tree: ParseTree) -> Iterator[AnnotationSyntax]:
        """Build an annotation of a type; a constraint there is kept by name, for check/ to refuse."""
        if self._is_constraint(tree):
            yield AnnotationSyntax(
                self._ident(first_subtree(tree, "word")), None, (), self._context.span(tree)
            )
            return
        yield from self._annotation(tree)

    def _annotation(self, tree: ParseTree) -> Iterator[AnnotationSyntax]:
        name = self._ident(first_subtree(tree, "word"))
        span = self._context.span(tree)
        if "A" <= name.text[0] <= "Z":
            lower = name.text[0].lower() + name.text[1:]
            self._context.report(
                rules.BAD_NAME,
                f"an annotation name starts with a lower-case letter or '_': {name.text!r}",
                name.span,
                f"write {lower!r}",
            )
        if name.text == "card":
            self._context.report(
                rules.MISPLACED,
                "@card must directly follow the target type of an edge",
                span,
                "write it as in: edge E: A -> B @card(0..1)",
            )
            return
        positional, keywords = self._arguments.of_annotation(name.text, optional_subtree(tree, "arguments"))
        yield AnnotationSyntax(name, positional, keywords, span)

    # -- constraints ---------------------------------------------------------------------------------

    def _constraint(self, tree: ParseTree) -> Iterator[ConstraintSyntax]:
        kind = self._annotation_name(tree)
        span = self._context.span(tree)
        values = self._arguments.of_constraint(first_subtree(tree, "arguments"))
        if kind in COLUMN_CONSTRAINTS:
            columns = tuple(value for value in values if isinstance(value, Ident))
            if len(columns) == len(values) and columns:
                yield ColumnsConstraintSyntax(kind, columns, span)
            else:
                wrong = next((v.span for v in values if not isinstance(v, Ident)), span)
                self._context.report(
                    rules.CONSTRAINT_NAME,
                    f"expected property name in constraint @{kind}",
                    wrong,
                    f"write @{kind}(name), without quotes",
                )
        elif kind == "range":
            yield from self._range(values, span)
        else:
            yield from self._check(values, span)

    def _range(self, values: list[ArgumentSyntax], span: Span) -> Iterator[ConstraintSyntax]:
        match values:
            case [Ident() as column, RangeBoundsSyntax(low, high)] if low is not None or high is not None:
                yield RangeConstraintSyntax(column, low, high, span)
            case [Ident(), wrong, *_]:
                self._context.report(
                    rules.RANGE_FORM,
                    "expected range bounds (min..max)",
                    wrong.span,
                    "write @range(p, 1..10), @range(p, 1..) or @range(p, ..10)",
                )
            case [wrong, _, *_]:
                self._context.report(
                    rules.CONSTRAINT_NAME, "expected property name in constraint @range", wrong.span, None
                )
            case _:
                self._context.report(
                    rules.RANGE_FORM,
                    "@range requires property name and bounds",
                    span,
                    "write @range(p, 1..10)",
                )

    def _check(self, values: list[ArgumentSyntax], span: Span) -> Iterator[ConstraintSyntax]:
        match values:
            case [Ident() as column, LiteralSyntax(kind=LiteralKind.STRING) as pattern]:
                yield CheckConstraintSyntax(column, pattern, span)
            case [Ident(), wrong, *_]:
                self._context.report(
                    rules.CHECK_FORM,
                    "expected string argument in constraint @check",
                    wrong.span,
                    'write @check(p, "^[a-z]+$")',
                )
            case [wrong, _, *_]:
                self._context.report(
                    rules.CONSTRAINT_NAME, "expected property name in constraint @check", wrong.span, None
                )
            case _:
                self._context.report(
                    rules.CHECK_FORM,
                    "@check requires property name and pattern",
                    span,
                    'write @check(p, "^[a-z]+$")',
                )

    def _cardinality(self, tree: ParseTree) -> CardinalitySyntax | None:
        span = self._context.span(tree)
        arguments = optional_subtree(tree, "arguments")
        values = [] if arguments is None else self._arguments.of_constraint(arguments)
        match values:
            case [RangeBoundsSyntax(str(low), high)]:
                return self._limits(low, high, span)
            case _:
                self._context.report(
                    rules.CARDINALITY,
                    "invalid cardinality: @card needs bounds min..max",
                    span,
                    "write @card(0..1), or @card(1..) for no upper bound",
                )
                return None

    def _limits(self, low: str, high: str | None, span: Span) -> CardinalitySyntax | None:
        limits: list[int | None] = []
        for side, text in (("min", low), ("max", high)):
            value = None if text is None else _unsigned(text, MAX_CARDINALITY)
            if text is not None and value is None:
                self._context.report(
                    rules.CARDINALITY,
                    f"invalid cardinality {side}: {text[:40]}",
                    span,
                    f"use a whole number up to {MAX_CARDINALITY}",
                )
                return None
            limits.append(value)
        least, most = limits
        if most is not None and (least or 0) > most:
            message = f"cardinality min ({least}) exceeds max ({most})"
            self._context.report(rules.CARDINALITY, message, span, f"write @card({most}..{least})")
            return None
        return CardinalitySyntax(least or 0, most, span)


def _unsigned(text: str, most: int) -> int | None:
    """Read a whole number up to `most`; its length is looked at first, since it may have any."""
    digits = text.lstrip("0") or "0"
    if not text.isdigit() or len(digits) > len(str(most)):
        return None
    return int(digits) if int(digits) <= most else None
