"""Findings: what the checkers share: reporting, parameters, and the types of values.

Room    catalog.query, under the checkers of mutations and reads.
Rule    a checker goes on after a fault. What a fault left without a value is None, and None is never
        reported a second time.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query.operands import Constant, Now, Operand, Parameter, ParamRef
from omnigraph.catalog.query.values import NUMBERS, constant, fit
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.diagnostics import Diagnostic, Rule, Span
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.schema.literals import Misfit
from omnigraph.language.schema.tree import BadType
from omnigraph.language.suggest import did_you_mean

DATETIME = PropertyType(Scalar.DATETIME)


class Findings:
    """The faults of one query, and the parameters that it declares."""

    def __init__(self, query: ast.Query, catalog: Catalog) -> None:
        self.catalog = catalog
        self.found: list[Diagnostic] = []
        # A parameter whose type was refused already has None for a value.
        self.parameters: dict[str, Parameter | None] = {}
        for param in query.params:
            name, bad = param.name.text, isinstance(param.type.shape, BadType)
            self.parameters.setdefault(name, None if bad else Parameter(name, PropertyType.of(param.type)))

    @property
    def declared(self) -> tuple[Parameter, ...]:
        """The parameters with a sound type, in declared order."""
        return tuple(p for p in self.parameters.values() if p is not None)

    def report(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        """Add a fault."""
        self.found.append(Diagnostic(rule, message, span, suggestion))

    def unknown(self, rule: Rule, message: str, span: Span, name: str, known: Iterable[str]) -> None:
        """Add a fault about a name that does not exist."""
        self.report(rule, message, span, did_you_mean(name, known))

    # -- operands ------------------------------------------------------------------------------------

    def parameter(self, variable: ast.Var) -> ParamRef | None:
        """Return a declared parameter; any other variable is T14."""
        if variable.name not in self.parameters:
            message = f"variable '${variable.name}' is not a declared parameter"
            hint = did_you_mean(variable.name, self.parameters)
            self.report(rules.UNDECLARED, message, variable.span, hint and hint.replace("'", "'$", 1))
            return None
        parameter = self.parameters[variable.name]
        return None if parameter is None else ParamRef(parameter)

    def assigned(self, value: ast.Value, declared: PropertyType, place: str) -> Operand | None:
        """Return what is assigned to, or must equal, a property; `place` names it in messages."""
        match value:
            case ast.Literal() | ast.ListLiteral():
                try:
                    return Constant(fit(value, declared), declared)
                except Misfit as misfit:
                    message = f"{place} is of type {declared}: expected {misfit}"
                    self.report(rules.MISFIT, message, value.span)
                    return None
            case ast.Var():
                reference = self.parameter(value)
                if reference is not None and not assignable(reference.type, declared):
                    message = f"{place} is of type {declared}; parameter '${value.name}' is {reference.type}"
                    self.report(rules.INCOMPATIBLE, message, value.span)
                    return None
                return reference
            case ast.Now():
                return self.now(value, declared, place)

    def now(self, value: ast.Now, declared: PropertyType, place: str) -> Now | None:
        """Return the time of the request where a DateTime is wanted."""
        if declared.is_list or declared.scalar is not Scalar.DATETIME:
            message = f"now() is a DateTime; {place} is of type {declared}"
            self.report(rules.INCOMPATIBLE, message, value.span)
            return None
        return Now()

    def compared(self, value: ast.Value, declared: PropertyType, place: str) -> Operand | None:
        """Return what a property is compared with."""
        match value:
            case ast.Literal() | ast.ListLiteral():
                operand: Operand | None = constant(value)
            case ast.Var():
                operand = self.parameter(value)
            case ast.Now():
                return self.now(value, declared, place)
        if operand is not None and not comparable(operand.type, declared):
            message = f"cannot compare {place}, which is {declared}, with {operand.type}"
            self.report(rules.INCOMPATIBLE, message, value.span)
            return None
        return operand


# -- types -------------------------------------------------------------------------------------------


def comparable(left: PropertyType, right: PropertyType) -> bool:
    """Say whether two values can be compared: scalars of one base, or two numbers."""
    return is_plain(left) and is_plain(right) and same_family(left.scalar, right.scalar)


def is_plain(declared: PropertyType) -> bool:
    """Say whether values are single ones that can be compared: no list, no Vector, no Blob."""
    return not declared.is_list and declared.scalar not in (Scalar.VECTOR, Scalar.BLOB)


def same_family(left: Scalar, right: Scalar) -> bool:
    """Say whether two bases are the same, or both numeric."""
    return left is right or (left in NUMBERS and right in NUMBERS)


def assignable(source: PropertyType, target: PropertyType) -> bool:
    """Say whether a parameter may be assigned to a property, as far as types tell."""
    if target.scalar is Scalar.BLOB:
        return not source.is_list and source.scalar in (Scalar.STRING, Scalar.BLOB)
    if Scalar.VECTOR in (source.scalar, target.scalar):
        return source.scalar is target.scalar and source.dimension == target.dimension
    if source.scalar is Scalar.BLOB or source.is_list != target.is_list:
        return False
    return same_family(source.scalar, target.scalar)
