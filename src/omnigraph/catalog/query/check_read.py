"""Check read: resolve a whole read against a catalog.

    tree -> **checked read**

Room    catalog.query. The match is check_match.py's; here are outputs and grouping. Ordering and paging are
        in check_order.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import operation
from omnigraph.catalog.query.check_conditions import ConditionChecker
from omnigraph.catalog.query.check_match import MatchChecker
from omnigraph.catalog.query.check_order import OrderChecker
from omnigraph.catalog.query.check_values import ValueChecker
from omnigraph.catalog.query.columns import OBJECT, Column
from omnigraph.catalog.query.expressions import (
    Aggregate,
    Arithmetic,
    Entity,
    EntityField,
    OutputRef,
    PropertyValue,
    Value,
    holds_aggregate,
    type_of,
)
from omnigraph.catalog.query.findings import Findings
from omnigraph.catalog.query.operands import Constant, Now, ParamRef
from omnigraph.catalog.query.operation import Operation
from omnigraph.catalog.query.read import CheckedRead, Output
from omnigraph.catalog.query.scope import Scope
from omnigraph.catalog.types import Scalar
from omnigraph.language.diagnostics import Diagnostic
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast

LITERAL = "literal"
EXPRESSION = "expression"


def check_read(
    query: ast.Query, body: ast.Read, catalog: Catalog
) -> tuple[CheckedRead | None, list[Diagnostic]]:
    """Return the checked read, or None and everything that is wrong with it."""
    findings = Findings(query, catalog)
    values = ValueChecker(findings)
    match = MatchChecker(findings, ConditionChecker(findings, values))
    scope = Scope()
    clauses = match.clauses(body.clauses, scope)
    outputs = _Outputs(findings, values, scope)
    outputs.check(body.outputs)
    order = OrderChecker(findings, values, outputs.outputs, outputs.grouped, body)
    order.check(scope)
    if findings.found:
        return None, findings.found
    sound = tuple(output for output in outputs.outputs if output is not None)
    reads = operation.in_order((*match.reads, *values.reads))
    checked = CheckedRead(
        name=query.name.text,
        parameters=findings.declared,
        clauses=clauses,
        variables=tuple(scope.introduced),
        outputs=sound,
        keys=outputs.keys if outputs.grouped else None,
        distinct=body.distinct,
        ranking=order.ranking,
        order=tuple(order.keys),
        limit=order.limit,
        offset=order.offset,
        operation=Operation(tuple(output.column for output in sound), reads),
        description=query.note("description"),
        instruction=query.note("instruction"),
    )
    return checked, []


class _Outputs:
    """Resolves outputs; one with a fault is None, so that positions stay."""

    def __init__(self, findings: Findings, values: ValueChecker, scope: Scope) -> None:
        self._findings = findings
        self._values = values
        self._scope = scope
        self.outputs: list[Output | None] = []
        self.grouped = False

    def check(self, outputs: Sequence[ast.Output]) -> None:
        self.grouped = any(_has_aggregate(output.expression) for output in outputs)
        names: set[str] = set()
        for position, written in enumerate(outputs):
            value = self._value(written)
            name = _name(written)
            if name in names:
                message = f"duplicate output column '{name}'; add an alias"
                self._findings.report(rules.DUPLICATE_COLUMN, message, written.span)
            names.add(name)
            if value is not None and self.grouped:
                self._group(written, value)
            self._values.outputs.append(value)
            self.outputs.append(None if value is None else Output(self._column(name, value), value))
            if written.alias is not None:
                self._values.aliases[written.alias.text] = _reference(position, name, value)

    def _value(self, written: ast.Output) -> Value | None:
        value = self._values.value(written.expression, self._scope)
        if value is None:
            return None
        found = type_of(value)
        if found is not None and found.scalar is Scalar.BLOB:
            self._findings.report(rules.BLOB, "a Blob cannot be returned", written.expression.span)
            return None
        return value

    def _column(self, name: str, value: Value) -> Column:
        found = type_of(value)
        if found is not None:
            return Column.of(name, found)
        node = self._values.meant(value)
        return Column(name, OBJECT, isinstance(node, Entity) and node.variable.optional)

    # -- grouping ------------------------------------------------------------------------------------

    @property
    def keys(self) -> tuple[int, ...]:
        """The positions of the outputs that the rows are grouped by."""
        return tuple(
            position
            for position, output in enumerate(self.outputs)
            if output is not None and not holds_aggregate(output.value)
        )

    def _group(self, written: ast.Output, value: Value) -> None:
        if holds_aggregate(value):
            sound = all(_of_group(part) for part in _leaves(value))
        else:
            sound = self._is_key(value)
        if not sound:
            message = "beside an aggregate, an output must be '$x.p' or '$x': the rows are grouped by it"
            self._findings.report(rules.GROUPING, message, written.expression.span)

    def _is_key(self, value: Value) -> bool:
        meant = self._values.meant(value)
        return meant is None or isinstance(meant, PropertyValue | EntityField | Entity)


def _has_aggregate(expression: ast.Expr) -> bool:
    if isinstance(expression, ast.Arithmetic):
        return _has_aggregate(expression.left) or _has_aggregate(expression.right)
    return isinstance(expression, ast.Aggregate)


def _leaves(value: Value) -> list[Value]:
    if isinstance(value, Arithmetic):
        return [*_leaves(value.left), *_leaves(value.right)]
    return [value]


def _of_group(leaf: Value) -> bool:
    """Say whether a value beside an aggregate in one expression is the same for all rows of a group."""
    return isinstance(leaf, Aggregate | Constant | ParamRef | Now | OutputRef)


# -- names and types ---------------------------------------------------------------------------------


def _name(output: ast.Output) -> str:
    return _default_name(output.expression) if output.alias is None else output.alias.text


def _default_name(expression: ast.Expr) -> str:
    match expression:
        case ast.Literal() | ast.ListLiteral():
            return LITERAL
        case ast.Now():
            return "now"
        case ast.Var(name):
            return name
        case ast.Access(variable, member, system):
            return f"{variable.name}.{'@' if system else ''}{member.text}"
        case ast.Name(name):
            return name.text
        case ast.Aggregate(_, argument):
            return _default_name(argument)
        case ast.Call(function):
            return function.text
        case ast.Shortest():
            return "shortest"
        case ast.Arithmetic():
            return EXPRESSION


def _reference(position: int, name: str, value: Value | None) -> OutputRef | None:
    if value is None:
        return None
    return OutputRef(position, name, type_of(value), holds_aggregate(value))
