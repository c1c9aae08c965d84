"""Check calls: resolve the search and ranking functions of a read.

    tree -> **checked read**

Reports T15 and T19 to T21, and T23 for edges.

What is searched is a property of a node; what it is searched for is a literal or a parameter, so that one
query has one answer for all rows.
"""

from __future__ import annotations

from typing import Protocol

from omnigraph.catalog.model import Property
from omnigraph.catalog.query.check.scope import QueryFindings, Scope
from omnigraph.catalog.query.expressions import (
    Bm25,
    Constant,
    EntityField,
    Nearest,
    Operand,
    ParamRef,
    PropertyValue,
    Ranking,
    Rrf,
    TextMatch,
    Value,
    Variable,
    type_of,
)
from omnigraph.catalog.query.values import NUMBERS
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.language.diagnostics import Rule, did_you_mean
from omnigraph.language.literals import stored_float
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast

_RULES = {"search": rules.SEARCH, "fuzzy": rules.SEARCH, "match_text": rules.MATCH_TEXT}
_RULES |= {"bm25": rules.MATCH_TEXT, "nearest": rules.BOUNDS, "rrf": rules.RRF}
ARMS = ("nearest", "bm25")


class Resolver(Protocol):
    """What resolves the arguments."""

    def value(self, expression: ast.ExprSyntax, scope: Scope) -> Value | None:
        """Return the value of an expression."""

    def access(self, access: ast.AccessSyntax, scope: Scope) -> PropertyValue | EntityField | None:
        """Return a property or an entity field."""


class CallChecker:
    """Resolves calls."""

    def __init__(self, findings: QueryFindings, resolver: Resolver) -> None:
        self._findings = findings
        self._resolver = resolver

    def call(self, call: ast.CallSyntax, scope: Scope) -> Value | None:
        """Return the value of a call."""
        name, arguments = call.function.text, call.arguments
        if name == "rrf":
            return self._rrf(call, scope)
        if name == "nearest":
            return self._nearest(call, scope)
        rule = _RULES[name]
        field = self._text_field(arguments[0], scope, name, rule)
        query = self._text_query(arguments[1], scope, name, rule)
        edits = None
        if len(arguments) == 3:
            edits = self._integer(arguments[2], scope, "the edits of fuzzy", rule, least=0)
            if edits is None:
                return None
        if field is None or query is None:
            return None
        if name == "bm25":
            return Bm25(*field, query)
        return TextMatch(name, *field, query, edits)

    # -- text ----------------------------------------------------------------------------------------

    def _text_field(
        self, expression: ast.ExprSyntax, scope: Scope, name: str, rule: Rule
    ) -> tuple[Variable, Property] | None:
        if not isinstance(expression, ast.AccessSyntax) or expression.system:
            message = f"the first argument of {name} must be a property, as in '$x.p'"
            self._findings.report(rule, message, expression.span)
            return None
        field = self._resolver.access(expression, scope)
        if not isinstance(field, PropertyValue):
            return None
        if self._on_edge(field.variable, expression, name):
            return None
        if not _is_text(field.type):
            message = f"{name} searches String properties; '{_shown(expression)}' is {field.type}"
            self._findings.report(rule, message, expression.span)
            return None
        return field.variable, field.member

    def _on_edge(self, variable: Variable, expression: ast.AccessSyntax, name: str) -> bool:
        if variable.is_edge:
            message = f"{name} works on properties of nodes; '${variable.name}' is an edge"
            self._findings.report(rules.EDGE_BINDING, message, expression.span)
        return variable.is_edge

    def _text_query(self, expression: ast.ExprSyntax, scope: Scope, name: str, rule: Rule) -> Operand | None:
        value = self._resolver.value(expression, scope)
        if value is None:
            return None
        value_type = type_of(value)
        if isinstance(value, Constant | ParamRef) and value_type is not None and _is_text(value_type):
            return value
        message = f"the query of {name} must be a String literal or parameter"
        self._findings.report(rule, message, expression.span)
        return None

    def _integer(
        self, expression: ast.ExprSyntax, scope: Scope, what: str, rule: Rule, *, least: int
    ) -> Operand | None:
        value = self._resolver.value(expression, scope)
        if value is None:
            return None
        if (
            isinstance(value, Constant | ParamRef)
            and value.type.scalar in INTEGERS
            and not value.type.is_list
        ):
            small = isinstance(value, Constant) and isinstance(value.value, int) and value.value < least
            if not small:
                return value
        message = f"{what} must be an integer of at least {least}"
        self._findings.report(rule, message, expression.span)
        return None

    # -- vectors -------------------------------------------------------------------------------------

    def _nearest(self, call: ast.CallSyntax, scope: Scope) -> Nearest | None:
        field = self._vector_field(call.arguments[0], scope)
        query = self._resolver.value(call.arguments[1], scope)
        if field is None or query is None:
            return None
        variable, declared = field
        size = declared.type.dimension or 0
        operand = _vector_query(query, size)
        if operand is None:
            message = f"the query of nearest must be Vector({size}), {size} numbers in a list, or a String"
            found = f", found {type_of(query)}" if isinstance(query, Constant | ParamRef) else ""
            self._findings.report(rules.BOUNDS, message + found, call.arguments[1].span)
            return None
        return Nearest(variable, declared, operand)

    def _vector_field(self, expression: ast.ExprSyntax, scope: Scope) -> tuple[Variable, Property] | None:
        if not isinstance(expression, ast.AccessSyntax) or expression.system:
            message = "the first argument of nearest must be a Vector property, as in '$x.p'"
            self._findings.report(rules.BOUNDS, message, expression.span)
            return None
        name, member = expression.variable.name, expression.member
        if name not in scope or expression.variable.anonymous:
            message = f"variable '${name}' of nearest is not bound"
            self._findings.report(rules.BOUNDS, message, expression.variable.span)
            return None
        variable = scope.find(name)
        if variable is None or self._on_edge(variable, expression, "nearest"):
            return None
        declared = variable.type.find(member.text)
        if declared is not None and declared.type.scalar is Scalar.VECTOR:
            return variable, declared
        if declared is None:
            message = f"node type {variable.type.name} has no property '{member.text}'"
        else:
            message = f"nearest works on Vector properties; '{_shown(expression)}' is {declared.type}"
        vectors = [p.name for p in variable.type.properties if p.type.scalar is Scalar.VECTOR]
        hint = did_you_mean(member.text, vectors) if declared is None else None
        self._findings.report(rules.BOUNDS, message, member.span, hint)
        return None

    # -- fusion --------------------------------------------------------------------------------------

    def _rrf(self, call: ast.CallSyntax, scope: Scope) -> Rrf | None:
        first, second = (self._arm(argument, scope) for argument in call.arguments[:2])
        k = None
        if len(call.arguments) == 3:
            k = self._integer(call.arguments[2], scope, "the k of rrf", rules.RRF, least=1)
            if k is None:
                return None
        if first is None or second is None:
            return None
        if first.variable != second.variable:
            message = "both rankings of rrf must rank the same variable"
            self._findings.report(rules.RRF, message, call.arguments[1].span)
            return None
        return Rrf(first, second, k)

    def _arm(self, expression: ast.ExprSyntax, scope: Scope) -> Nearest | Bm25 | None:
        if not isinstance(expression, ast.CallSyntax) or expression.function.text not in ARMS:
            message = "rrf fuses two rankings: each must be nearest or bm25"
            self._findings.report(rules.RRF, message, expression.span)
            return None
        value = self.call(expression, scope)
        return value if isinstance(value, Nearest | Bm25) else None


def _is_text(declared: PropertyType) -> bool:
    return declared.scalar is Scalar.STRING and not declared.is_list


def _shown(access: ast.AccessSyntax) -> str:
    return f"${access.variable.name}.{access.member.text}"


def _vector_query(query: Value, size: int) -> Operand | None:
    """Return the query of a vector search of this size, or None when it is none."""
    if not isinstance(query, Constant | ParamRef):
        return None
    if _is_text(query.type) or (query.type.scalar is Scalar.VECTOR and query.type.dimension == size):
        return query
    if not isinstance(query, Constant) or not isinstance(query.value, tuple) or len(query.value) != size:
        return None
    if query.type.scalar not in NUMBERS:
        return None
    items = [stored_float(float(item), "F32") for item in query.value]
    stored = tuple(item for item in items if item is not None)
    vector_type = PropertyType(Scalar.VECTOR, dimension=size)
    return Constant(stored, vector_type) if len(stored) == size else None


def ranked(value: Value | None) -> Ranking | None:
    """Return the value if it ranks rows."""
    return value if isinstance(value, Nearest | Bm25 | Rrf) else None
