"""Lint: everything that can be said about a schema text, as values.

    text (+ accepted catalog) -> **diagnostics by position**

Refuses nothing: errors, warnings and advice come back in one list, for an editor, a review or the command
line to show. `PG...` is about the text; with the accepted catalog there is also what the migration would do,
`OG-...`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from omnigraph.catalog import steps
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.model import TypeKind
from omnigraph.catalog.plan import plan
from omnigraph.catalog.resolve import resolve
from omnigraph.catalog.steps import (
    AddConstraint,
    AddKey,
    AddProperty,
    AddType,
    AlterProperty,
    ChangeEmbed,
    ChangeKey,
    DropConstraint,
    DropKey,
    DropProperty,
    DropType,
    Effect,
    ExtendEnum,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.language.diagnostics import Diagnostic, Rule, SchemaError, Severity, Span, in_order, nearest
from omnigraph.language.schema import CheckedSchema, examine, rules
from omnigraph.language.schema.tree import (
    BODY_CONSTRAINTS,
    AnnotationSyntax,
    CheckConstraintSyntax,
    DeclarationSyntax,
    InterfaceSyntax,
    NodeSyntax,
)

KNOWN = ("key", "unique", "index", "embed", "description", "instruction", "rename_from", "default", "card")
SIMILAR = 3  # shorter custom names are too easily like a known one


def lint(
    text: str | bytes, accepted: Catalog | None = None, *, file: str = "schema.pg"
) -> tuple[Diagnostic, ...]:
    """Return all findings about a schema text, errors included."""
    checked, diagnostics = examine(text, file=file)
    if any(d.severity is Severity.ERROR for d in diagnostics):
        return in_order((*diagnostics, *_advice(checked)))
    try:
        # The ids are thrown away with the catalog: no other one will ever be compared with them.
        resolution = resolve(checked, accepted, IdMinter("lint"))
    except SchemaError as error:
        return in_order((*error.diagnostics, *_advice(checked)))
    migration: tuple[Diagnostic, ...] = ()
    if accepted is not None:
        spans = _spans(checked)
        steps = plan(accepted, resolution.catalog).steps
        migration = tuple(d for step in steps for d in _judged(step, spans))
    return in_order((*resolution.notes, *_advice(checked), *migration))


# -- the text ----------------------------------------------------------------------------------------


def _advice(checked: CheckedSchema) -> Iterator[Diagnostic]:
    implemented = {name.text for node in checked.nodes for name in node.node.implements}
    for interface in checked.interfaces:
        if interface.name.text not in implemented:
            message = f"no node implements interface {interface.name.text}"
            yield Diagnostic(rules.UNUSED_INTERFACE, message, interface.name.span)
    for declaration in checked.schema.declarations:
        yield from _annotations(declaration)
    for expanded in checked.nodes:
        node = expanded.node
        inline = any(m.declared.annotated("key") for m in expanded.members)
        if expanded.complete and not inline and not any(c.kind == "key" for c in node.constraints):
            message = f"node {node.name.text} has no key: loading the same line twice adds it twice"
            yield Diagnostic(rules.KEYLESS, message, node.name.span, "add @key to the property that names it")
        yield from _patterns(node)


def _annotations(declaration: DeclarationSyntax) -> Iterator[Diagnostic]:
    header = () if isinstance(declaration, InterfaceSyntax) else declaration.annotations
    for annotation in (*header, *(a for p in declaration.properties for a in p.annotations)):
        yield from _annotation(annotation)
    for declared in declaration.properties:
        if declared.annotated("key") and (indexes := declared.annotated("index")):
            message = f"@key implies @index on {declaration.name.text}.{declared.name.text}"
            yield Diagnostic(rules.REDUNDANT_INDEX, message, indexes[0].span, "remove @index")


def _annotation(annotation: AnnotationSyntax) -> Iterator[Diagnostic]:
    name = annotation.name.text
    if name in BODY_CONSTRAINTS:
        message = f"@{name} without arguments does nothing"
        form = "@range(p, low..high)" if name == "range" else '@check(p, "pattern")'
        yield Diagnostic(rules.BARE_CONSTRAINT, message, annotation.span, f"write {form} inside the braces")
    elif name not in KNOWN and len(name) > SIMILAR and (close := nearest(name, (*KNOWN, *BODY_CONSTRAINTS))):
        message = f"@{name} is not a known annotation and has no effect"
        yield Diagnostic(rules.NEAR_MISS, message, annotation.name.span, f"did you mean '@{close}'?")


def _patterns(node: NodeSyntax) -> Iterator[Diagnostic]:
    for constraint in node.constraints:
        if not isinstance(constraint, CheckConstraintSyntax):
            continue
        pattern = constraint.pattern.text
        if not pattern.startswith(("^", "\\A")) and not pattern.endswith(("$", "\\z")):
            message = f"the pattern of @check({constraint.column.text}) may match anywhere in the value"
            hint = "write ^...$ to match the whole value"
            yield Diagnostic(rules.UNANCHORED, message, constraint.pattern.span, hint)


# -- the migration -----------------------------------------------------------------------------------

Spans = dict[tuple[str, str, str | None], Span]  # (kind, type, property) -> where it is declared


def _spans(checked: CheckedSchema) -> Spans:
    spans: Spans = {}
    for declaration in checked.schema.declarations:
        spans[declaration.kind, declaration.name.text, None] = declaration.name.span
        for declared in declaration.properties:
            spans[declaration.kind, declaration.name.text, declared.name.text] = declared.name.span
    for node in checked.nodes:
        for member in node.members:
            declared_as = "node", node.node.name.text, member.name
            spans.setdefault(declared_as, member.declared.name.span)
    return spans


def _judged(step: Step, spans: Spans) -> Iterator[Diagnostic]:
    match step:
        case UnsupportedChange():
            kind, _, entity = step.entity.partition(":")
            owner, _, member = entity.partition(".")
            span = spans.get((kind, owner, member or None))
            yield Diagnostic(steps.REGISTRY[step.code], f"{step.entity}: {step.reason}", span)
        case DropType():
            rule = steps.NODE_DROPPED if step.type_kind is TypeKind.NODE else steps.EDGE_DROPPED
            message = f"{step.type_kind.value} {step.type_name} and its rows leave the schema"
            yield Diagnostic(rule, message, None, "to keep the data under a new name, use @rename_from")
        case DropProperty() if step.type_kind is not TypeKind.INTERFACE:
            message = f"property {step.type_name}.{step.property_name} and its values leave the schema"
            hint = "to keep the values under a new name, use @rename_from"
            yield Diagnostic(steps.PROPERTY_DROPPED, message, _span(step, spans), hint)
        case RenameType():
            message = f"{step.type_kind.value} {step.old_name} becomes {step.type_name}"
            yield Diagnostic(steps.RENAMED, message, _span(step, spans))
        case RenameProperty() if step.type_kind is not TypeKind.INTERFACE:
            message = f"property {step.type_name}.{step.old_name} becomes {step.property_name}"
            yield _property_finding(steps.RENAMED, message, step, spans)
        case AlterProperty() if step.must_not_be_null and step.effect is Effect.SCAN:
            message = (
                f"property {step.type_name}.{step.property_name} becomes required; rows with null refuse it"
            )
            yield _property_finding(steps.TIGHTENED, message, step, spans)
        case ChangeEmbed():
            message = f"the vectors of {step.type_name}.{step.property_name} are cleared and need a fill"
            yield _property_finding(steps.EMBED_CHANGED, message, step, spans)
        case AddConstraint() if step.effect is Effect.SCAN:
            message = f"@{step.shown['kind']} on {step.type_name} is validated against existing rows"
            yield Diagnostic(steps.CONSTRAINT_ADDED, message, _span(step, spans))
        case DropConstraint() if step.shown["kind"] != "index":
            message = f"@{step.shown['kind']} on {step.type_name} is removed or loosened"
            yield Diagnostic(steps.CONSTRAINT_DROPPED, message, _span(step, spans))
        case AddKey() | ChangeKey():
            message = f"the edges of {step.type_name} get the ids that their key makes, as new edges"
            yield Diagnostic(steps.IDS_REWRITTEN, message, _span(step, spans))
        case DropKey():
            message = f"the key of {step.type_name} is removed: new edges get generated ids"
            yield Diagnostic(steps.CONSTRAINT_DROPPED, message, _span(step, spans))
        case (
            AddType()
            | AddProperty()
            | ExtendEnum()
            | UpdateTypeMetadata()
            | UpdatePropertyMetadata()
            | DropProperty()
            | RenameProperty()
            | AlterProperty()
            | AddConstraint()
            | DropConstraint()
        ):
            pass


OfType: TypeAlias = RenameType | DropProperty | AddConstraint | DropConstraint | AddKey | ChangeKey | DropKey


def _span(step: OfType, spans: Spans) -> Span | None:
    return spans.get((step.type_kind.value, step.type_name, None))


def _property_finding(
    rule: Rule, message: str, step: RenameProperty | AlterProperty | ChangeEmbed, spans: Spans
) -> Diagnostic:
    span = spans.get((step.type_kind.value, step.type_name, step.property_name))
    return Diagnostic(rule, message, span)
