"""Scope: which variables of a match are bound, and where a block mentions those of the rows around it.

Names resolve from top to bottom. What a block introduces stays inside it, unless the block is optional. A
variable whose type was refused is bound to None, and never reported again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from itertools import count

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.catalog.query import statements
from omnigraph.catalog.query.expressions import (
    Constant,
    Direction,
    Hops,
    Now,
    Operand,
    Parameter,
    ParamRef,
    Variable,
    node_type,
)
from omnigraph.catalog.query.values import NUMBERS, constant, fit
from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.diagnostics import Diagnostic, Rule, Span, did_you_mean, nearest
from omnigraph.language.literals import LiteralMisfit, LiteralSyntax
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.syntax import BadType


@dataclass
class Numbers:
    """Numbers the variables of one query, and its anonymous ones apart."""

    all: count[int] = field(default_factory=lambda: count(1))
    anonymous: count[int] = field(default_factory=lambda: count(1))


@dataclass
class Scope:
    """The variables that a clause can see."""

    numbers: Numbers = field(default_factory=Numbers)
    bound: dict[str, Variable | None] = field(default_factory=dict)
    outer: frozenset[str] = frozenset()  # names that were bound before the block began
    optional: bool = False
    introduced: list[Variable] = field(default_factory=list)
    mentioned: dict[str, None] = field(default_factory=dict)  # outer names, by clauses of the block itself
    nested: dict[str, None] = field(default_factory=dict)  # outer names, by blocks inside it

    def inside(self, *, optional: bool) -> Scope:
        """Return the scope of a block."""
        return Scope(self.numbers, dict(self.bound), frozenset(self.bound), optional)

    def leave(self, inner: Scope) -> None:
        """Take over what a block mentioned, and what it introduced if it is optional."""
        for name in (*inner.mentioned, *inner.nested):
            if name in self.outer:
                self.nested[name] = None
        if inner.optional:
            self.introduced += inner.introduced
            self.bound = inner.bound

    def __contains__(self, name: str) -> bool:
        return name in self.bound

    def find(self, name: str) -> Variable | None:
        """Return a bound variable; a refused one is None."""
        if name in self.outer:
            self.mentioned[name] = None
        return self.bound[name]

    def bind(self, name: str, declared: TableType, *, anonymous: bool = False) -> Variable:
        """Introduce a variable."""
        shown = f"_@{next(self.numbers.anonymous):04d}" if anonymous else name
        variable = Variable(next(self.numbers.all), shown, declared, self.optional, anonymous)
        self.introduced.append(variable)
        if not anonymous:
            self.bound[name] = variable
        return variable

    def poison(self, name: str) -> None:
        """Introduce a variable whose type is not known."""
        self.bound.setdefault(name, None)

    @property
    def uses(self) -> tuple[Variable, ...]:
        """The outer variables that the block and the blocks inside it mention."""
        names = dict.fromkeys((*self.mentioned, *self.nested))
        return tuple(v for name in names if (v := self.bound[name]) is not None)


# -- findings ------------------------------------------------------------------------------------
#
# What the checkers share: reporting, parameters, and the types of values.
# Rule    a checker goes on after a fault. What a fault left without a value is None, and None is never
# reported a second time.


DATETIME = PropertyType(Scalar.DATETIME)


class QueryFindings:
    """The faults of one query, and the parameters that it declares."""

    def __init__(self, query: ast.QuerySyntax, catalog: Catalog) -> None:
        self.catalog = catalog
        self.diagnostics: list[Diagnostic] = []
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
        self.diagnostics.append(Diagnostic(rule, message, span, suggestion))

    def unknown(self, rule: Rule, message: str, span: Span, name: str, known: Iterable[str]) -> None:
        """Add a fault about a name that does not exist."""
        self.report(rule, message, span, did_you_mean(name, known))

    # -- operands ------------------------------------------------------------------------------------

    def parameter(self, variable: ast.VarSyntax) -> ParamRef | None:
        """Return a declared parameter; any other variable is T14."""
        if variable.name not in self.parameters:
            message = f"variable '${variable.name}' is not a declared parameter"
            hint = did_you_mean(variable.name, self.parameters)
            self.report(rules.UNDECLARED, message, variable.span, hint and hint.replace("'", "'$", 1))
            return None
        parameter = self.parameters[variable.name]
        return None if parameter is None else ParamRef(parameter)

    def assigned(self, value: ast.ValueSyntax, declared: PropertyType, place: str) -> Operand | None:
        """Return what is assigned to, or must equal, a property; `place` names it in messages."""
        match value:
            case LiteralSyntax() | ast.ListSyntax():
                try:
                    return Constant(fit(value, declared), declared)
                except LiteralMisfit as misfit:
                    message = f"{place} is of type {declared}: expected {misfit}"
                    self.report(rules.MISFIT, message, value.span)
                    return None
            case ast.VarSyntax():
                reference = self.parameter(value)
                if reference is not None and not assignable(reference.type, declared):
                    message = f"{place} is of type {declared}; parameter '${value.name}' is {reference.type}"
                    self.report(rules.INCOMPATIBLE, message, value.span)
                    return None
                return reference
            case ast.NowSyntax():
                return self.now(value, declared, place)

    def now(self, value: ast.NowSyntax, declared: PropertyType, place: str) -> Now | None:
        """Return the time of the request where a DateTime is wanted."""
        if declared.is_list or declared.scalar is not Scalar.DATETIME:
            message = f"now() is a DateTime; {place} is of type {declared}"
            self.report(rules.INCOMPATIBLE, message, value.span)
            return None
        return Now()

    def compared(self, value: ast.ValueSyntax, declared: PropertyType, place: str) -> Operand | None:
        """Return what a property is compared with."""
        match value:
            case LiteralSyntax() | ast.ListSyntax():
                operand: Operand | None = constant(value)
            case ast.VarSyntax():
                operand = self.parameter(value)
            case ast.NowSyntax():
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


# -- traverse ------------------------------------------------------------------------------------
#
# Which way an edge is followed, and whether its ends fit.
# Rule    the types of the variables already bound decide the direction, not the order of writing:
# `$company worksAt $person` means the same as `$person worksAt $company`.


class Traverser:
    """Resolves the edge of a traversal."""

    def __init__(self, findings: QueryFindings) -> None:
        self._findings = findings
        self._catalog = findings.catalog

    def hops(
        self, traversal: ast.TraversalSyntax, left: Variable | None, right: Variable | None
    ) -> Hops | None:
        """Return how the edge is followed; an end that is not bound yet is None and fits."""
        bounds = self._bounds(traversal.bounds)
        edge = self._edge(traversal)
        if edge is None:
            return None
        if traversal.undirected and edge.source != edge.target:
            source, target = statements.endpoints(edge, self._catalog)
            message = f"edge {edge.name} joins {source.name} and {target.name}: it has a direction"
            hint = f"write '{traversal.edge.text}' without '<' and '>'"
            self._findings.report(rules.UNDIRECTED, message, traversal.edge.span, hint)
            return None
        direction = Direction.EITHER if traversal.undirected else _direction(edge, left, right)
        ends = self.ends(Hops(edge, direction))
        fits = [
            self._fits(edge, end, declared, written)
            for end, declared, written in zip(
                (left, right), ends, (traversal.left, traversal.right), strict=True
            )
        ]
        return Hops(edge, direction, *bounds) if all(fits) and bounds is not None else None

    def ends(self, hops: Hops) -> tuple[NodeType, NodeType]:
        """Return the types of the left and the right end."""
        source, target = statements.endpoints(hops.edge, self._catalog)
        return (target, source) if hops.direction is Direction.BACKWARD else (source, target)

    def _edge(self, traversal: ast.TraversalSyntax) -> EdgeType | None:
        name = traversal.edge
        edge = self._catalog.find_edge(name.text)
        if edge is None:
            close = nearest(name.text, (e.name for e in self._catalog.edges))
            hint = None if close is None else f"did you mean '{close[0].lower() + close[1:]}'?"
            self._findings.report(rules.UNKNOWN_EDGE, f"there is no edge type '{name.text}'", name.span, hint)
        return edge

    def _fits(self, edge: EdgeType, end: Variable | None, declared: NodeType, written: ast.VarSyntax) -> bool:
        if end is None or node_type(end).id == declared.id:
            return True
        source, target = statements.endpoints(edge, self._catalog)
        message = (
            f"'${written.name}' is {end.type.name}; edge {edge.name} connects {source.name} -> {target.name}"
        )
        self._findings.report(rules.ENDPOINT, message, written.span)
        return False

    def _bounds(self, bounds: ast.HopBoundsSyntax | None) -> tuple[int, int] | None:
        if bounds is None:
            return 1, 1
        if bounds.high is None:
            message = "hop bounds need a maximum"
            hint = f"write {{{bounds.low},n}}"
        elif bounds.low < 1:
            message, hint = "hop bounds start at 1", f"write {{1,{bounds.high}}}"
        elif bounds.high < bounds.low:
            message = f"the maximum {bounds.high} of the hop bounds is below the minimum {bounds.low}"
            hint = f"write {{{bounds.high},{bounds.low}}}"
        else:
            return bounds.low, bounds.high
        self._findings.report(rules.BOUNDS, message, bounds.span, hint)
        return None


def _direction(edge: EdgeType, left: Variable | None, right: Variable | None) -> Direction:
    if edge.source == edge.target:
        return Direction.FORWARD
    if left is not None:
        return Direction.BACKWARD if left.type.id == edge.target else Direction.FORWARD
    if right is not None:
        return Direction.BACKWARD if right.type.id == edge.source else Direction.FORWARD
    return Direction.FORWARD
