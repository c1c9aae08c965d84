"""Constraints: do they name properties that exist, of types that they work on (stage 5).

    text -> tree -> **checked schema** -> catalog

Room    language.schema.check. Body constraints, and the inline `@key` where the rule is about the node.
Rule    what would be admitted and then fail on every write is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from omnigraph.language.diagnostics import Reporter, Span
from omnigraph.language.schema import rules
from omnigraph.language.schema.expand import ExpandedNode
from omnigraph.language.schema.tree import (
    NUMERIC,
    BadType,
    CheckConstraintSyntax,
    ColumnsConstraintSyntax,
    ConstraintSyntax,
    EdgeSyntax,
    EnumType,
    Ident,
    ListType,
    PropertySyntax,
    RangeConstraintSyntax,
    ScalarType,
    TypeExpr,
    VectorType,
)
from omnigraph.language.suggest import did_you_mean

ENDPOINTS = ("src", "dst")


def check_constraints(nodes: Sequence[ExpandedNode], edges: Sequence[EdgeSyntax], reporter: Reporter) -> None:
    """Check the constraints of all nodes and edges."""
    for expanded in nodes:
        _check_keys(expanded, reporter)
        _Body.of_node(expanded, reporter).run(expanded.node.constraints)
    for edge in edges:
        for constraint in edge.constraints:
            if constraint.kind in ("key", "range", "check"):
                message = f"@{constraint.kind} constraint is not supported on edges (edge {edge.name.text})"
                reporter.report(rules.ON_EDGE_BODY, message, constraint.span)
        allowed = [c for c in edge.constraints if c.kind in ("unique", "index")]
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
    for span in keys[1:]:
        reporter.report(
            rules.MULTIPLE_KEYS,
            f"node type {name} has multiple @key constraints; only one is supported",
            span,
            "for a key of several properties write @key(a, b)",
        )


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

    def _type(self, kind: str, column: Ident) -> TypeExpr | None:
        """Return the type of a named property; None when there is nothing more to check."""
        found = self._properties.get(column.text)
        if found is not None:
            return None if isinstance(found.type.shape, BadType) else found.type
        if column.text not in self._columns and self._complete:
            known = (*self._properties, *self._columns)
            message = f"@{kind} on {self._owner} references unknown property '{column.text}'"
            hint = did_you_mean(column.text, known)
            self._reporter.report(rules.UNKNOWN_PROPERTY, message, column.span, hint)
        return None

    def _column(self, kind: str, column: Ident) -> None:
        found = self._type(kind, column)
        if found is None:
            return
        name = f"{self._owner}.{column.text}"
        sort = _sort(found)
        if kind == "key" and found.nullable:
            _report_nullable(name, column.span, self._reporter)
        if sort is None or (kind == "index" and sort != "blob"):
            return
        rule = rules.KEY_TYPE if kind == "key" else rules.COLUMNS_TYPE
        message = f"@{kind} is not supported on {sort} property {name}"
        self._reporter.report(rule, message, column.span)

    def _range(self, constraint: RangeConstraintSyntax) -> None:
        found = self._type("range", constraint.column)
        name = f"{self._owner}.{constraint.column.text}"
        if found is not None and not (isinstance(found.shape, ScalarType) and found.shape.name in NUMERIC):
            message = f"@range on {name} requires a numeric type, got {found}"
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
        found = self._type("check", constraint.column)
        name = f"{self._owner}.{constraint.column.text}"
        if (
            found is not None
            and not isinstance(found.shape, EnumType)
            and found.shape != ScalarType("String")
        ):
            message = f"@check on {name} requires String type, got {found}"
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
