"""Annotations: which may stand where, and what they need (stage 4).

    text -> tree -> **checked schema** -> catalog

Room    language.schema.check. Properties are checked on the node where they land, so what an interface
        says is judged once for each node that inherits it.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.schema import rules
from omnigraph.language.schema.expand import ExpandedNode
from omnigraph.language.schema.literals import LiteralMisfit, default_value
from omnigraph.language.schema.tree import (
    AnnotationSyntax,
    BadType,
    EdgeSyntax,
    EnumType,
    ListType,
    NodeSyntax,
    PropertySyntax,
    ScalarType,
    VectorType,
)
from omnigraph.language.suggest import did_you_mean

INLINE = ("key", "unique", "index", "embed")
TEXTS = ("description", "instruction")


def check_annotations(nodes: Sequence[ExpandedNode], edges: Sequence[EdgeSyntax], reporter: Reporter) -> None:
    """Check the annotations of all types and properties."""
    for expanded in nodes:
        _check_type(expanded.node, reporter)
        for member in expanded.members:
            _PropertyCheck(expanded.node.name.text, member.declared, reporter, expanded).run()
    for edge in edges:
        _check_type(edge, reporter)
        for declared in edge.properties:
            _PropertyCheck(edge.name.text, declared, reporter, None).run()


def _check_type(declared: NodeSyntax | EdgeSyntax, reporter: Reporter) -> None:
    label = f"{declared.kind} {declared.name.text}"
    _check_rename(label, declared.annotations, reporter)
    for name in TEXTS:
        _check_text(label, name, declared.annotations, reporter)
    for annotation in declared.annotations:
        name = annotation.name.text
        if name == "default":
            message = f"@default is only supported on properties ({label})"
            reporter.report(rules.DEFAULT_FORM, message, annotation.span, None)
        if name not in INLINE and name not in ("range", "check"):
            continue
        if declared.kind == "node":
            reporter.report(
                rules.ON_NODE_TYPE,
                f"@{name} is only supported on node properties or as body constraint ({label})",
                annotation.span,
                "write it after a property, or inside the braces with the names of its properties",
            )
        else:
            reporter.report(
                rules.ON_EDGE_TYPE,
                f"@{name} is not supported on edges ({label})",
                annotation.span,
                "write @unique or @index inside the braces" if name in ("unique", "index") else None,
            )


def _check_rename(label: str, annotations: Sequence[AnnotationSyntax], reporter: Reporter) -> None:
    hints = [a for a in annotations if a.name.text == "rename_from"]
    for hint in hints:
        if not (hint.value or "").strip():
            message = f"{label}: @rename_from requires exactly one non-empty positional value"
            reporter.report(rules.RENAME_VALUE, message, hint.span, 'write @rename_from("OldName")')
        if hint.keywords:
            message = f"{label}: @rename_from does not accept keyword arguments"
            reporter.report(rules.RENAME_KEYWORDS, message, hint.keywords[0].name.span, None)
    for repeated in hints[1:]:
        message = f"{label} declares @rename_from multiple times"
        reporter.report(rules.RENAME_REPEATED, message, repeated.span, "keep the latest old name only")


def _check_text(label: str, name: str, annotations: Sequence[AnnotationSyntax], reporter: Reporter) -> None:
    texts = [a for a in annotations if a.name.text == name]
    for annotation in texts:
        if not (annotation.value or "").strip():
            message = f"@{name} on {label} requires a non-empty value"
            reporter.report(rules.TEXT_MISSING, message, annotation.span, f'write @{name}("...")')
    for repeated in texts[1:]:
        reporter.report(rules.TEXT_REPEATED, f"{label} declares @{name} multiple times", repeated.span)


class _PropertyCheck(FrozenRecord):
    """Checks one property; `node` is None when it belongs to an edge."""

    owner: str
    declared: PropertySyntax
    reporter: Reporter
    node: ExpandedNode | None

    @property
    def name(self) -> str:
        return f"{self.owner}.{self.declared.name.text}"

    def run(self) -> None:
        label = f"property {self.name}"
        _check_rename(label, self.declared.annotations, self.reporter)
        _check_text(label, "description", self.declared.annotations, self.reporter)
        self._instruction()
        self._inline()
        if self.node is not None:
            self._embed(self.node)
        self._default()

    def _report(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        self.reporter.report(rule, message, span, suggestion)

    def _instruction(self) -> None:
        for annotation in self.declared.annotated("instruction"):
            message = f"@instruction is only supported on node and edge types (property {self.name})"
            self._report(rules.INSTRUCTION, message, annotation.span, "use @description")

    def _inline(self) -> None:
        for kind in INLINE:
            found = self.declared.annotated(kind)
            for annotation in found[:1]:
                self._inline_type(kind, annotation.span)
            for repeated in found[1:]:
                message = f"property {self.name} declares @{kind} multiple times"
                self._report(rules.REPEATED, message, repeated.span, "remove the repetition")

    def _inline_type(self, kind: str, span: Span) -> None:
        if self.node is None and kind in ("key", "embed"):
            message = f"@{kind} is not supported on edge properties (edge {self.name})"
            self._report(rules.ON_EDGE_PROPERTY, message, span)
            return
        match self.declared.type.shape:
            case ListType():
                message = f"@{kind} is not supported on list property {self.name}"
                self._report(rules.ON_LIST, message, span)
            case VectorType() if kind in ("key", "unique"):
                message = f"@{kind} is not supported on vector property {self.name}"
                self._report(rules.ON_VECTOR, message, span)
            case ScalarType("Blob"):
                message = f"@{kind} is not supported on blob property {self.name}"
                self._report(rules.ON_BLOB, message, span)
            case _:
                pass

    # -- @embed --------------------------------------------------------------------------------------

    def _embed(self, node: ExpandedNode) -> None:
        for annotation in self.declared.annotated("embed")[:1]:
            match self.declared.type.shape:
                case VectorType():
                    self._embed_source(node, annotation)
                case ListType() | ScalarType("Blob") | BadType():
                    continue  # reported already
                case _:
                    message = f"@embed is only supported on vector properties ({self.name})"
                    self._report(rules.EMBED_TYPE, message, annotation.span)
            for keyword in annotation.keywords:
                if keyword.name.text != "model":
                    wrong = f"unknown argument '{keyword.name.text}=' (only 'model' is supported)"
                    message = f"@embed on {self.name} has {wrong}"
                    self._report(rules.EMBED_ARGUMENT, message, keyword.name.span)

    def _embed_source(self, node: ExpandedNode, annotation: AnnotationSyntax) -> None:
        if annotation.argument is None:
            message = f"@embed on {self.name} requires a source property name"
            self._report(rules.EMBED_SOURCE, message, annotation.span, 'write @embed("text")')
            return
        source, span = annotation.argument.text, annotation.argument.span
        if not source.strip():
            message = f"@embed on {self.name} requires a non-empty source property name"
            self._report(rules.EMBED_SOURCE, message, span)
            return
        member = node.find(source)
        if member is None:
            if node.complete:
                message = f"@embed on {self.name} references unknown source property {source}"
                self._report(
                    rules.EMBED_SOURCE, message, span, did_you_mean(source, (m.name for m in node.members))
                )
            return
        found = member.declared.type
        if not isinstance(found.shape, EnumType | BadType) and found.shape != ScalarType("String"):
            message = f"@embed source property {self.owner}.{source} must be String, got {found}"
            self._report(rules.EMBED_SOURCE, message, span)

    # -- @default ------------------------------------------------------------------------------------

    def _default(self) -> None:
        found = self.declared.annotated("default")
        for repeated in found[1:]:
            self._report(
                rules.DEFAULT_FORM, f"property {self.name} declares @default multiple times", repeated.span
            )
        for annotation in found[:1]:
            if annotation.argument is None or annotation.keywords:
                message = f"@default on {self.name} requires exactly one value"
                self._report(
                    rules.DEFAULT_FORM, message, annotation.span, "write @default(0) or @default(now)"
                )
            elif not isinstance(self.declared.type.shape, BadType):
                try:
                    default_value(annotation.argument, self.declared.type)
                except LiteralMisfit as misfit:
                    message = f"@default on {self.name} does not fit its type {self.declared.type}"
                    self._report(rules.DEFAULT_VALUE, message, annotation.argument.span, f"it takes {misfit}")
