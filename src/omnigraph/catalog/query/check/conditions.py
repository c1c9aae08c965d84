"""Check conditions: resolve the predicates of a match.

    tree -> **checked read**

Reports T7, besides what the operands themselves can be refused for.

Both sides of a comparison are single values: properties, entity fields, parameters, literals, now() and
arithmetic on them. What belongs to groups or rankings is not legal in a match.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.catalog.query.check.scope import QueryFindings, Scope, comparable, is_plain, same_family
from omnigraph.catalog.query.check.values import ValueChecker, shown_type
from omnigraph.catalog.query.expressions import (
    Among,
    Comparison,
    Condition,
    Constant,
    Contains,
    EntityValue,
    IsNull,
    Not,
    ParamRef,
    Prefix,
    Substring,
    TextMatch,
    Value,
    all_of,
    any_of,
    type_of,
)
from omnigraph.catalog.query.values import constant
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.diagnostics import Span
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.query.tree import RANKINGS


class ConditionChecker:
    """Resolves conditions."""

    def __init__(self, findings: QueryFindings, values: ValueChecker) -> None:
        self._findings = findings
        self._values = values

    def condition(self, condition: ast.ConditionSyntax, scope: Scope) -> Condition | None:
        """Return the condition, or None when something in it is wrong."""
        match condition:
            case ast.AndSyntax(operands) | ast.OrSyntax(operands):
                parts = [self.condition(operand, scope) for operand in operands]
                sound = tuple(part for part in parts if part is not None)
                if len(sound) != len(parts):
                    return None
                return all_of(sound) if isinstance(condition, ast.AndSyntax) else any_of(sound)
            case ast.NotSyntax(operand):
                inner = self.condition(operand, scope)
                return None if inner is None else Not(inner)
            case ast.CallSyntax():
                value = self._values.value(condition, scope)
                return value if isinstance(value, TextMatch) else None
            case ast.NullTestSyntax(operand, negated):
                tested = self._operand(operand, scope)
                return None if tested is None else IsNull(tested, negated)
            case ast.MemberSyntax():
                return self._member(condition, scope)
            case ast.CompareSyntax():
                left = self._operand(condition.left, scope)
                right = self._operand(condition.right, scope)
                if left is None or right is None:
                    return None
                return self._compare(condition, left, right)

    # -- operands ------------------------------------------------------------------------------------

    def _operand(self, expression: ast.ExprSyntax, scope: Scope) -> Value | None:
        illegal = False
        for part in _parts(expression):
            illegal |= self._illegal(part)
        return None if illegal else self._values.value(expression, scope)

    def _illegal(self, expression: ast.ExprSyntax) -> bool:
        match expression:
            case ast.AggregateSyntax(function):
                what = f"the aggregate {function.text}"
            case ast.CallSyntax(function) if function.text in RANKINGS:
                what = f"the ranking {function.text}"
            case ast.ShortestSyntax():
                what = "shortest"
            case ast.NameSyntax(name):
                message = f"'{name.text}' is a bare name: a match has no aliases"
                self._findings.report(rules.UNKNOWN_ALIAS, message, name.span, f"write '${name.text}'")
                return True
            case _:
                return False
        self._findings.report(rules.INCOMPATIBLE, f"{what} is not legal in a match", expression.span)
        return True

    # -- comparisons ---------------------------------------------------------------------------------

    def _compare(self, written: ast.CompareSyntax, left: Value, right: Value) -> Condition | None:
        match written.operator:
            case "contains":
                return self._contains(written, left, right)
            case "starts_with":
                if _is_text(left) and _is_text(right):
                    return Prefix(left, right)
                self._mismatch("starts_with compares two Strings", left, right, written.span)
            case operator:
                types = type_of(left), type_of(right)
                if types[0] is None or types[1] is None or not comparable(types[0], types[1]):
                    self._mismatch("cannot compare these", left, right, written.span)
                    return None
                return _simplified(left, operator, right)
        return None

    def _contains(self, written: ast.CompareSyntax, left: Value, right: Value) -> Condition | None:
        inside, item = type_of(left), type_of(right)
        if inside is not None and inside.is_list and item is not None and is_plain(item):
            empty = isinstance(left, Constant) and left.value == ()
            if empty or same_family(inside.scalar, item.scalar):
                return Contains(left, right)
        elif _is_text(left) and _is_text(right):
            return Substring(left, right)
        message = "contains needs a list and a value of its type, or two Strings"
        self._mismatch(message, left, right, written.span)
        return None

    def _mismatch(self, message: str, left: Value, right: Value, span: Span) -> None:
        node = next((side.variable for side in (left, right) if isinstance(side, EntityValue)), None)
        hint = None if node is None else f"compare a property of it, or '${node.name}.@id'"
        detailed = f"{message}: {shown_type(left)} and {shown_type(right)}"
        self._findings.report(rules.INCOMPATIBLE, detailed, span, hint)

    def _member(self, written: ast.MemberSyntax, scope: Scope) -> Condition | None:
        left = self._operand(written.left, scope)
        match written.right:
            case ast.ListSyntax(items):
                constants = tuple(constant(item) for item in items)
                if left is None or not self._listed(written, left, constant(written.right).type, len(items)):
                    return None
                return Among(left, constants)
            case ast.VarSyntax():
                right = self._operand(written.right, scope)
                if left is None or right is None:
                    return None
                if isinstance(right, ParamRef) and right.type.is_list:
                    return Among(left, right) if self._listed(written, left, right.type, 1) else None
            case _:
                pass
        message = "'in' takes a list: [literal, ...] or a parameter that holds one"
        hint = "for a list property, write '$x.list contains value'"
        self._findings.report(rules.INCOMPATIBLE, message, written.right.span, hint)
        return None

    def _listed(self, written: ast.MemberSyntax, left: Value, right: PropertyType, size: int) -> bool:
        left_type = type_of(left)
        fits = left_type is not None and is_plain(left_type)
        fits = fits and (size == 0 or (left_type is not None and same_family(left_type.scalar, right.scalar)))
        if not fits:
            message = f"cannot compare {shown_type(left)} with the values of {right}"
            self._findings.report(rules.INCOMPATIBLE, message, written.span)
        return fits


def _parts(expression: ast.ExprSyntax) -> Iterator[ast.ExprSyntax]:
    """Yield the operands of arithmetic, or the expression itself."""
    if isinstance(expression, ast.ArithmeticSyntax):
        yield from _parts(expression.left)
        yield from _parts(expression.right)
    else:
        yield expression


def _is_text(value: Value) -> bool:
    value_type = type_of(value)
    return value_type is not None and value_type.scalar is Scalar.STRING and not value_type.is_list


def _simplified(left: Value, operator: str, right: Value) -> Condition:
    """Return a comparison; `search(...) = false` is the negation of the search."""
    match left, right:
        case (TextMatch() as text_match, Constant(bool() as truth)) | (
            Constant(bool() as truth),
            TextMatch() as text_match,
        ):
            if operator in ("=", "!="):
                return text_match if truth == (operator == "=") else Not(text_match)
        case _:
            pass
    return Comparison(left, operator, right)
