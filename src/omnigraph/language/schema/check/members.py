"""Members: which annotations may stand where, and whether constraints fit their properties (stages 4 and 5).

    text -> tree -> **checked schema** -> catalog

Properties are checked on the node where they land, so what an interface says is judged once for each node
that inherits it. Constraints are those of the body, and inline `@key` where the rule is about the node.

What would be admitted and then fail on every write is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Reporter, Rule, Span, did_you_mean
from omnigraph.language.literals import LiteralMisfit, default_value
from omnigraph.language.schema import rules
from omnigraph.language.schema.check.declarations import ExpandedNode
from omnigraph.language.schema.tree import (
    BODY_CONSTRAINTS,
    AnnotationSyntax,
    CheckConstraintSyntax,
    ColumnsConstraintSyntax,
    ConstraintSyntax,
    EdgeSyntax,
    NodeSyntax,
    PropertySyntax,
    RangeConstraintSyntax,
)
from omnigraph.language.syntax import (
    NUMERIC,
    BadType,
    EnumType,
    Ident,
    ListType,
    ScalarType,
    TypeExpr,
    VectorType,
)

INLINE = ("key", "unique", "index", "embed")
TEXTS = ("description", "instruction")
ENDPOINTS = ("src", "dst")
ON_EDGES = ("key", "unique", "index")  # the constraints that an edge may have


# -- annotations -------------------------------------------------------------------------------------


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
        if name not in INLINE and name not in BODY_CONSTRAINTS:
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


@dataclass(frozen=True, slots=True)
class _PropertyCheck:
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
            annotations = self.declared.annotated(kind)
            for annotation in annotations[:1]:
                self._inline_type(kind, annotation.span)
            for repeated in annotations[1:]:
                message = f"property {self.name} declares @{kind} multiple times"
                self._report(rules.REPEATED, message, repeated.span, "remove the repetition")

    def _inline_type(self, kind: str, span: Span) -> None:
        if self.node is None and kind in ("key", "embed"):
            message = f"@{kind} is not supported on edge properties (edge {self.name})"
            hint = f"write @key(src, dst, {self.declared.name.text}) in its body" if kind == "key" else None
            self._report(rules.ON_EDGE_PROPERTY, message, span, hint)
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
        source_type = member.declared.type
        if not isinstance(source_type.shape, EnumType | BadType) and source_type.shape != ScalarType(
            "String"
        ):
            message = f"@embed source property {self.owner}.{source} must be String, got {source_type}"
            self._report(rules.EMBED_SOURCE, message, span)

    # -- @default ------------------------------------------------------------------------------------

    def _default(self) -> None:
        defaults = self.declared.annotated("default")
        for repeated in defaults[1:]:
            self._report(
                rules.DEFAULT_FORM, f"property {self.name} declares @default multiple times", repeated.span
            )
        for annotation in defaults[:1]:
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


# -- constraints -------------------------------------------------------------------------------------


def check_constraints(nodes: Sequence[ExpandedNode], edges: Sequence[EdgeSyntax], reporter: Reporter) -> None:
    """Check the constraints of all nodes and edges."""
    for expanded in nodes:
        _check_keys(expanded, reporter)
        _Body.of_node(expanded, reporter).run(expanded.node.constraints)
    for edge in edges:
        _check_edge_key(edge, reporter)
        for constraint in edge.constraints:
            if constraint.kind not in ON_EDGES:
                message = f"@{constraint.kind} constraint is not supported on edges (edge {edge.name.text})"
                reporter.report(rules.ON_EDGE_BODY, message, constraint.span)
        allowed = [c for c in edge.constraints if c.kind in ON_EDGES]
        _Body.of_edge(edge, reporter).run(allowed)


def _check_keys(expanded: ExpandedNode, reporter: Reporter) -> None:
    """One key at most; a member given inline must be required. Other types are refused as annotations."""
    name = expanded.node.name.text
    keys: list[Span] = []
    for member in expanded.members:
        for annotation in member.declared.annotated("key")[:1]:
            keys.append(annotation.span)
            if member.declared.type.nullable:
                _report_nullable(f"{name}.{member.name}", annotation.span, reporter)
    keys += [c.span for c in expanded.node.constraints if c.kind == "key"]
    _report_further(f"node type {name}", keys, "@key(a, b)", reporter)


def _check_edge_key(edge: EdgeSyntax, reporter: Reporter) -> None:
    """One key at most, with both ends: the edges of two pairs must never share an id."""
    name = edge.name.text
    keys = [c for c in edge.constraints if isinstance(c, ColumnsConstraintSyntax) and c.kind == "key"]
    _report_further(f"edge type {name}", [key.span for key in keys], "@key(src, dst, a, b)", reporter)
    for key in keys[:1]:
        members = [column.text for column in key.columns]
        lacking = [end for end in ENDPOINTS if end not in members]
        if lacking:
            message = f"@key of edge {name} lacks {' and '.join(lacking)}: an edge is named by both its ends"
            whole = ", ".join([*ENDPOINTS, *(member for member in members if member not in ENDPOINTS)])
            reporter.report(rules.EDGE_KEY, message, key.span, f"write @key({whole})")


def _report_further(label: str, keys: Sequence[Span], form: str, reporter: Reporter) -> None:
    for span in keys[1:]:
        message = f"{label} has multiple @key constraints; only one is supported"
        hint = f"for a key of several properties write {form}"
        reporter.report(rules.MULTIPLE_KEYS, message, span, hint)


def _report_nullable(name: str, span: Span, reporter: Reporter) -> None:
    message = f"@key property {name} cannot be nullable"
    reporter.report(rules.KEY_NULLABLE, message, span, "remove the '?' from its type")


class _Body:
    """The body constraints of one type."""

    def __init__(
        self,
        owner: str,
        properties: dict[str, PropertySyntax],
        columns: Sequence[str],
        complete: bool,
        reporter: Reporter,
    ) -> None:
        self._owner = owner
        self._properties = properties
        self._columns = columns  # names that are no properties but may be named
        self._complete = complete
        self._reporter = reporter

    @classmethod
    def of_node(cls, node: ExpandedNode, reporter: Reporter) -> _Body:
        properties = {m.name: m.declared for m in node.members}
        return cls(node.node.name.text, properties, (), node.complete, reporter)

    @classmethod
    def of_edge(cls, edge: EdgeSyntax, reporter: Reporter) -> _Body:
        properties = {p.name.text: p for p in reversed(edge.properties)}
        return cls(edge.name.text, properties, ENDPOINTS, True, reporter)

    def run(self, constraints: Sequence[ConstraintSyntax]) -> None:
        for constraint in constraints:
            match constraint:
                case ColumnsConstraintSyntax(kind, columns):
                    for column in columns:
                        self._column(kind, column)
                case RangeConstraintSyntax():
                    self._range(constraint)
                case CheckConstraintSyntax():
                    self._check(constraint)
                case _:
                    assert_never(constraint)

    def _type(self, kind: str, column: Ident) -> TypeExpr | None:
        """Return the type of a named property; None when there is nothing more to check."""
        declared = self._properties.get(column.text)
        if declared is not None:
            return None if isinstance(declared.type.shape, BadType) else declared.type
        if column.text not in self._columns and self._complete:
            known = (*self._properties, *self._columns)
            message = f"@{kind} on {self._owner} references unknown property '{column.text}'"
            hint = did_you_mean(column.text, known)
            self._reporter.report(rules.UNKNOWN_PROPERTY, message, column.span, hint)
        return None

    def _column(self, kind: str, column: Ident) -> None:
        column_type = self._type(kind, column)
        if column_type is None:
            return
        name = f"{self._owner}.{column.text}"
        sort = _sort(column_type)
        if kind == "key" and column_type.nullable:
            _report_nullable(name, column.span, self._reporter)
        if sort is None or (kind == "index" and sort != "blob"):
            return
        rule = rules.KEY_TYPE if kind == "key" else rules.COLUMNS_TYPE
        message = f"@{kind} is not supported on {sort} property {name}"
        self._reporter.report(rule, message, column.span)

    def _range(self, constraint: RangeConstraintSyntax) -> None:
        column_type = self._type("range", constraint.column)
        name = f"{self._owner}.{constraint.column.text}"
        if column_type is not None and not (
            isinstance(column_type.shape, ScalarType) and column_type.shape.name in NUMERIC
        ):
            message = f"@range on {name} requires a numeric type, got {column_type}"
            self._reporter.report(rules.RANGE_TYPE, message, constraint.column.span)
        low, high = (None if text is None else float(text) for text in (constraint.low, constraint.high))
        if any(bound is not None and not math.isfinite(bound) for bound in (low, high)):
            message = f"@range on {name} has a bound that is too large for a double"
            self._reporter.report(rules.RANGE_BOUNDS, message, constraint.span, "leave that side open")
        elif low is not None and high is not None and low > high:
            message = f"@range on {name}: min ({constraint.low}) exceeds max ({constraint.high})"
            hint = f"write @range({constraint.column.text}, {constraint.high}..{constraint.low})"
            self._reporter.report(rules.RANGE_BOUNDS, message, constraint.span, hint)

    def _check(self, constraint: CheckConstraintSyntax) -> None:
        column_type = self._type("check", constraint.column)
        name = f"{self._owner}.{constraint.column.text}"
        if (
            column_type is not None
            and not isinstance(column_type.shape, EnumType)
            and column_type.shape != ScalarType("String")
        ):
            message = f"@check on {name} requires String type, got {column_type}"
            self._reporter.report(rules.CHECK_TYPE, message, constraint.column.span)
        problem = pattern_problem(constraint.pattern.text)
        if problem is not None:
            message = f"@check on {name} has an invalid pattern: {problem}"
            hint = "patterns take linear time: look-around and back-references do not exist"
            self._reporter.report(rules.PATTERN, message, constraint.pattern.span, hint)


def _sort(expression: TypeExpr) -> str | None:
    """Name the sort of type that a key or unique constraint cannot use; None when it can."""
    match expression.shape:
        case ListType():
            return "list"
        case VectorType():
            return "vector"
        case ScalarType("Blob"):
            return "blob"
        case _:
            return None


def pattern_problem(pattern: str) -> str | None:
    """Return why a pattern is not a regular expression of RE2, or None when it is one."""
    import re2  # a compiled library, and most schemas have no pattern

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "not a regular expression"
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return None
