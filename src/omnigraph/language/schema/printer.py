"""Printer: a tree back to text, in one layout.

    text -> tree -> **text**

Declarations, properties, constraints and annotations keep their order; layout, comments and the place of
constraints among the properties do not.

Always `parse(print_schema(parse(x))) == parse(x)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from omnigraph.language.literals import LiteralKind, LiteralSyntax, quote
from omnigraph.language.schema.tree import (
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
    SchemaSyntax,
)
from omnigraph.language.syntax import BadType, EnumType, Ident, TypeExpr

INDENT = "    "


def print_schema(schema: SchemaSyntax) -> str:
    """Return the text of a schema."""
    return "\n".join(f"{_declaration(d)}\n" for d in schema.declarations)


def _declaration(declaration: DeclarationSyntax) -> str:
    match declaration:
        case InterfaceSyntax(name, properties):
            return f"interface {name.text}{_body(properties, ())}"
        case NodeSyntax(name, annotations, implements, properties, constraints):
            names = ", ".join(i.text for i in implements)
            clause = f" implements {names}" if implements else ""
            return f"node {name.text}{_annotations(annotations)}{clause}{_body(properties, constraints)}"
        case EdgeSyntax(name, source, target, card, annotations, properties, constraints):
            head = f"edge {name.text}: {source.text} -> {target.text}{_card(card)}{_annotations(annotations)}"
            return f"{head}{_body(properties, constraints)}" if properties or constraints else head
        case _:
            assert_never(declaration)


def _body(properties: Iterable[PropertySyntax], constraints: Iterable[ConstraintSyntax]) -> str:
    members = [_property(p) for p in properties] + [_constraint(c) for c in constraints]
    if not members:
        return " {}"
    lines = "\n".join(f"{INDENT}{member}" for member in members)
    return f" {{\n{lines}\n}}"


def _property(declared: PropertySyntax) -> str:
    return f"{declared.name.text}: {_type(declared.type)}{_annotations(declared.annotations)}"


def _type(expression: TypeExpr) -> str:
    match expression.shape:
        case EnumType(values):
            return f"enum({', '.join(values)}){'?' if expression.nullable else ''}"
        case BadType():
            raise ValueError("a tree with errors has no text")
        case _:
            return str(expression)


def _constraint(constraint: ConstraintSyntax) -> str:
    match constraint:
        case ColumnsConstraintSyntax(kind, columns):
            return f"@{kind}({', '.join(c.text for c in columns)})"
        case RangeConstraintSyntax(column, low, high):
            return f"@range({column.text}, {low or ''}..{high or ''})"
        case CheckConstraintSyntax(column, pattern):
            return f"@check({column.text}, {quote(pattern.text)})"
        case _:
            assert_never(constraint)


def _card(card: CardinalitySyntax | None) -> str:
    if card is None:
        return ""
    return f" @card({card.low}..{'' if card.high is None else card.high})"


def _annotations(annotations: Iterable[AnnotationSyntax]) -> str:
    return "".join(f" {_annotation(a)}" for a in annotations)


def _annotation(annotation: AnnotationSyntax) -> str:
    if annotation.argument is None:
        return f"@{annotation.name.text}"
    values = [_value(annotation.argument)]
    values += [f"{k.name.text}={_value(k.value)}" for k in annotation.keywords]
    return f"@{annotation.name.text}({', '.join(values)})"


def _value(value: LiteralSyntax | Ident) -> str:
    if isinstance(value, LiteralSyntax) and value.kind is LiteralKind.STRING:
        return quote(value.text)
    return value.text
