"""Check values: resolve the expressions of a read.

    tree -> **checked read**

Properties, entity fields, arithmetic, aggregates and aliases; calls are in calls.py, conditions in
conditions.py.

An expression that was refused is None; whoever asked for it goes on without it.
"""

from __future__ import annotations

from dataclasses import replace

from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.catalog.query.check.calls import CallChecker
from omnigraph.catalog.query.check.scope import QueryFindings, Scope, Traverser, is_plain
from omnigraph.catalog.query.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Constant,
    EntityField,
    EntityPart,
    EntityValue,
    Now,
    OutputRef,
    ParamRef,
    PropertyValue,
    ShortestPath,
    Value,
    Variable,
    holds_aggregate,
    type_of,
)
from omnigraph.catalog.query.values import NUMBERS, constant
from omnigraph.catalog.types import INTEGERS, PropertyType, Scalar
from omnigraph.language.diagnostics import Span, did_you_mean
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast

_UNSIGNED = frozenset({Scalar.U32, Scalar.U64})
_ORDERED = NUMBERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BOOL}


class ValueChecker:
    """Resolves expressions; `outputs` are those so far, and `aliases` refer to them by name."""

    def __init__(self, findings: QueryFindings) -> None:
        self.findings = findings
        self.outputs: list[Value | None] = []
        self.aliases: dict[str, OutputRef | None] = {}
        self.reads: list[TableType] = []  # by paths, which need no clause of the match
        self._calls = CallChecker(findings, self)
        self._inside_aggregate = False

    def value(self, expression: ast.ExprSyntax, scope: Scope) -> Value | None:
        """Return the value of an expression, or None when something in it is wrong."""
        match expression:
            case LiteralSyntax() | ast.ListSyntax():
                return constant(expression)
            case ast.NowSyntax():
                return Now()
            case ast.VarSyntax():
                return self._bare(expression, scope)
            case ast.AccessSyntax():
                return self.access(expression, scope)
            case ast.NameSyntax():
                return self._alias(expression)
            case ast.ArithmeticSyntax():
                return self._arithmetic(expression, scope)
            case ast.AggregateSyntax():
                return self._aggregate(expression, scope)
            case ast.CallSyntax():
                return self._calls.call(expression, scope)
            case ast.ShortestSyntax():
                return self._shortest(expression, scope)

    # -- variables -----------------------------------------------------------------------------------

    def _bare(self, variable: ast.VarSyntax, scope: Scope) -> Value | None:
        name = variable.name
        if name in scope and not variable.anonymous:
            bound = scope.find(name)
            if bound is None:
                return None
            if bound.is_edge:
                message = f"'${name}' is an edge and cannot be used by itself"
                self.findings.report(rules.EDGE_BINDING, message, variable.span, f"use '${name}.@id'")
                return None
            return EntityValue(bound)
        if name in self.findings.parameters:
            parameter = self.findings.parameters[name]
            return None if parameter is None else ParamRef(parameter)
        message = f"variable '${name}' is not bound"
        self.findings.report(rules.UNBOUND, message, variable.span, self._known(name, scope))
        return None

    def _known(self, name: str, scope: Scope) -> str | None:
        hint = did_you_mean(name, (*scope.bound, *self.findings.parameters))
        return None if hint is None else hint.replace("'", "'$", 1)

    def access(self, access: ast.AccessSyntax, scope: Scope) -> PropertyValue | EntityField | None:
        """Return a property or an entity field."""
        variable = self.bound(access.variable, scope)
        if variable is None:
            return None
        name, span = access.member.text, access.member.span
        if access.system:
            return self._entity_field(variable, name, span)
        declared = variable.type.find(name)
        if declared is None:
            self._unknown_property(variable, name, span)
            return None
        if declared.type.scalar is Scalar.BLOB:
            message = f"'${variable.name}.{name}' is a Blob: a query cannot read it"
            self.findings.report(rules.BLOB, message, access.span)
            return None
        return PropertyValue(variable, declared)

    def bound(self, variable: ast.VarSyntax, scope: Scope) -> Variable | None:
        """Return the variable whose property is wanted; one that is not bound is T6."""
        name = variable.name
        if name in scope and not variable.anonymous:
            return scope.find(name)
        if name in self.findings.parameters:
            message = f"'${name}' is a parameter and has no properties"
            self.findings.report(rules.UNKNOWN_PROPERTY, message, variable.span)
        else:
            message = f"variable '${name}' is not bound here"
            self.findings.report(rules.UNKNOWN_PROPERTY, message, variable.span, self._known(name, scope))
        return None

    def _entity_field(self, variable: Variable, name: str, span: Span) -> EntityField | None:
        parts = [part for part in EntityPart if variable.is_edge or part.value not in ENDPOINTS]
        field_part = next((part for part in parts if part.value == name), None)
        if field_part is None:
            shown = ", ".join(f"@{part.value}" for part in parts)
            message = f"there is no field '@{name}' of '${variable.name}': it has {shown}"
            self.findings.report(rules.UNKNOWN_PROPERTY, message, span)
            return None
        return EntityField(variable, field_part)

    def _unknown_property(self, variable: Variable, name: str, span: Span) -> None:
        declared = variable.type
        message = f"{declared.kind.value} type {declared.name} has no property '{name}'"
        hint = did_you_mean(name, (p.name for p in declared.properties))
        if name == ID or (isinstance(declared, EdgeType) and name in ENDPOINTS):
            hint = f"write '${variable.name}.@{name}'"
        self.findings.report(rules.UNKNOWN_PROPERTY, message, span, hint)

    def _alias(self, name: ast.NameSyntax) -> Value | None:
        text = name.name.text
        if text in self.aliases:
            reference = self.aliases[text]
            # An aggregate runs over rows, before there are outputs.
            return self.meant(reference) if self._inside_aggregate else reference
        message = f"there is no alias '{text}' above this"
        self.findings.unknown(rules.UNKNOWN_ALIAS, message, name.span, text, self.aliases)
        return None

    def meant(self, value: Value | None) -> Value | None:
        """Return what an alias stands for."""
        while isinstance(value, OutputRef):
            value = self.outputs[value.position]
        return value

    # -- arithmetic ----------------------------------------------------------------------------------

    def _arithmetic(self, expression: ast.ArithmeticSyntax, scope: Scope) -> Value | None:
        left, right = (self.value(side, scope) for side in (expression.left, expression.right))
        if left is None or right is None:
            return None
        types = [self._number(v, s.span) for v, s in ((left, expression.left), (right, expression.right))]
        first, second = types
        if first is None or second is None:
            return None
        left, first = _fitting(left, first, second)
        right, second = _fitting(right, second, first)
        if (first.scalar in INTEGERS) != (second.scalar in INTEGERS):
            message = f"'{expression.operator}' needs two integers or two floats, found {first} and {second}"
            self.findings.report(rules.INCOMPATIBLE, message, expression.span)
            return None
        result = PropertyType(_result(first.scalar, second.scalar), first.nullable or second.nullable)
        return Arithmetic(expression.operator, left, right, result)

    def _number(self, value: Value, span: Span) -> PropertyType | None:
        value_type = type_of(value)
        if value_type is not None and not value_type.is_list and value_type.scalar in NUMBERS:
            return value_type
        message = f"arithmetic needs numbers, found {shown_type(value)}"
        self.findings.report(rules.INCOMPATIBLE, message, span)
        return None

    # -- aggregates ----------------------------------------------------------------------------------

    def _aggregate(self, aggregate: ast.AggregateSyntax, scope: Scope) -> Value | None:
        function = AggregateFunction(aggregate.function.text)
        if self._inside_aggregate:
            self.findings.report(rules.AGGREGATE, "aggregates cannot be nested", aggregate.span)
            return None
        self._inside_aggregate = True
        argument = self.value(aggregate.argument, scope)
        self._inside_aggregate = False
        if argument is None:
            return None
        argument_type = type_of(argument)
        if argument_type is not None and argument_type.scalar is Scalar.BLOB:
            message = f"{function.value} does not work on a Blob"
            self.findings.report(rules.BLOB, message, aggregate.argument.span)
            return None
        if holds_aggregate(argument):
            self.findings.report(rules.AGGREGATE, "aggregates cannot be nested", aggregate.argument.span)
            return None
        result = _aggregated(function, argument)
        if result is None:
            message = f"{function.value} does not work on {shown_type(argument)}"
            self.findings.report(rules.AGGREGATE, message, aggregate.argument.span)
            return None
        return Aggregate(function, argument, result)

    # -- paths ---------------------------------------------------------------------------------------

    def _shortest(self, expression: ast.ShortestSyntax, scope: Scope) -> Value | None:
        traversal = expression.traversal
        if traversal.binding is not None:
            message = "shortest follows many edges and cannot bind one"
            self.findings.report(rules.EDGE_BINDING, message, traversal.binding.span)
        ends = [self._end(end, scope) for end in (traversal.left, traversal.right)]
        traverser = Traverser(self.findings)
        left, right = ends
        hops = traverser.hops(traversal, left, right)
        if hops is None or left is None or right is None:
            return None
        self.reads += [hops.edge, *traverser.ends(hops)]
        return ShortestPath(left, hops, right)

    def _end(self, variable: ast.VarSyntax, scope: Scope) -> Variable | None:
        value = self._bare(variable, scope)
        if isinstance(value, EntityValue):
            return value.variable
        if value is not None:
            message = f"'${variable.name}' is a parameter, not a node of the match"
            self.findings.report(rules.PARAMETER_BOUND, message, variable.span)
        return None


# -- types -------------------------------------------------------------------------------------------


def shown_type(value: Value) -> str:
    """Return what to call the type of a value."""
    value_type = type_of(value)
    return "a node" if value_type is None else str(replace(value_type, nullable=False))


def _fitting(value: Value, own: PropertyType, other: PropertyType) -> tuple[Value, PropertyType]:
    """Let an integer literal be of the other side's family and sign, if it can."""
    if not isinstance(value, Constant) or not isinstance(value.value, int) or own.scalar is not Scalar.I64:
        return value, own
    if other.scalar not in INTEGERS:
        wide = PropertyType(Scalar.F64)
        return Constant(float(value.value), wide), wide
    if other.scalar in _UNSIGNED and value.value >= 0:
        unsigned = PropertyType(Scalar.U64)
        return Constant(value.value, unsigned), unsigned
    return value, own


def _result(left: Scalar, right: Scalar) -> Scalar:
    if left not in INTEGERS:
        return Scalar.F64
    return Scalar.U64 if left in _UNSIGNED and right in _UNSIGNED else Scalar.I64


def _aggregated(function: AggregateFunction, argument: Value) -> PropertyType | None:
    """Return the type of an aggregate, or None when it does not work on its argument."""
    argument_type = type_of(argument)
    plain = argument_type is not None and is_plain(argument_type)
    number = plain and argument_type is not None and argument_type.scalar in NUMBERS
    match function:
        case AggregateFunction.COUNT:
            return PropertyType(Scalar.I64, nullable=True)
        case AggregateFunction.COUNT_DISTINCT if plain or argument_type is None:
            return PropertyType(Scalar.I64, nullable=True)
        case AggregateFunction.SUM | AggregateFunction.AVG if number:
            return PropertyType(Scalar.F64, nullable=True)
        case AggregateFunction.MIN | AggregateFunction.MAX if plain and argument_type is not None:
            return replace(argument_type, nullable=True) if argument_type.scalar in _ORDERED else None
        case AggregateFunction.COLLECT if plain and argument_type is not None:
            return PropertyType(argument_type.scalar, nullable=True, is_list=True)
        case _:
            return None
