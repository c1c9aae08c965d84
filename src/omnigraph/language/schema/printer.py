"""Printer: a tree back to text, in one layout.

    text -> tree -> **text**

Room    language.schema. Declarations, properties, constraints and annotations keep their order; layout,
        comments and the place of constraints among the properties do not.
Rule    `parse(print_schema(parse(x))) == parse(x)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from omnigraph.language.schema.arguments import quote
from omnigraph.language.schema.tree import (
    Annotation,
    BadType,
    Cardinality,
    CheckConstraint,
    ColumnsConstraint,
    Constraint,
    Declaration,
    Edge,
    EnumType,
    Ident,
    Interface,
    Literal,
    LiteralKind,
    Node,
    Property,
    RangeConstraint,
    Schema,
    TypeExpr,
)

INDENT = "    "


def print_schema(schema: Schema) -> str:
    """Return the text of a schema."""
    return "\n".join(f"{_declaration(d)}\n" for d in schema.declarations)


def _declaration(declaration: Declaration) -> str:
    match declaration:
        case Interface(name, properties):
            return f"interface {name.text}{_body(properties, ())}"
        case Node(name, annotations, implements, properties, constraints):
            names = ", ".join(i.text for i in implements)
            clause = f" implements {names}" if implements else ""
            return f"node {name.text}{_annotations(annotations)}{clause}{_body(properties, constraints)}"
        case Edge(name, source, target, card, annotations, properties, constraints):
            head = f"edge {name.text}: {source.text} -> {target.text}{_card(card)}{_annotations(annotations)}"
            return f"{head}{_body(properties, constraints)}" if properties or constraints else head
        case _:
            assert_never(declaration)


def _body(properties: Iterable[Property], constraints: Iterable[Constraint]) -> str:
    members = [_property(p) for p in properties] + [_constraint(c) for c in constraints]
    if not members:
        return " {}"
    lines = "\n".join(f"{INDENT}{member}" for member in members)
    return f" {{\n{lines}\n}}"


def _property(declared: Property) -> str:
    return f"{declared.name.text}: {_type(declared.type)}{_annotations(declared.annotations)}"


def _type(expression: TypeExpr) -> str:
    match expression.shape:
        case EnumType(values):
            return f"enum({', '.join(values)}){'?' if expression.nullable else ''}"
        case BadType():
            raise ValueError("a tree with errors has no text")
        case _:
            return str(expression)


def _constraint(constraint: Constraint) -> str:
    match constraint:
        case ColumnsConstraint(kind, columns):
            return f"@{kind}({', '.join(c.text for c in columns)})"
        case RangeConstraint(column, low, high):
            return f"@range({column.text}, {low or ''}..{high or ''})"
        case CheckConstraint(column, pattern):
            return f"@check({column.text}, {quote(pattern.text)})"
        case _:
            assert_never(constraint)


def _card(card: Cardinality | None) -> str:
    if card is None:
        return ""
    return f" @card({card.low}..{'' if card.high is None else card.high})"


def _annotations(annotations: Iterable[Annotation]) -> str:
    return "".join(f" {_annotation(a)}" for a in annotations)


def _annotation(annotation: Annotation) -> str:
    if annotation.argument is None:
        return f"@{annotation.name.text}"
    values = [_value(annotation.argument)]
    values += [f"{k.name.text}={_value(k.value)}" for k in annotation.keywords]
    return f"@{annotation.name.text}({', '.join(values)})"


def _value(value: Literal | Ident) -> str:
    if isinstance(value, Literal) and value.kind is LiteralKind.STRING:
        return quote(value.text)
    return value.text
