"""Check read: resolve a whole read against a catalog.

    tree -> **checked read**

Outputs, grouping, order and paging; the match itself is checked in match.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import statements
from omnigraph.catalog.query.check.calls import ranked
from omnigraph.catalog.query.check.conditions import ConditionChecker
from omnigraph.catalog.query.check.match import MatchChecker
from omnigraph.catalog.query.check.scope import QueryFindings, Scope, is_plain
from omnigraph.catalog.query.check.values import ValueChecker, shown_type
from omnigraph.catalog.query.expressions import (
    OBJECT,
    Aggregate,
    Constant,
    EntityField,
    EntityValue,
    Nearest,
    Now,
    OutputColumn,
    OutputRef,
    ParamRef,
    PropertyValue,
    Ranking,
    Rrf,
    Value,
    holds_aggregate,
    operands_of,
    type_of,
)
from omnigraph.catalog.query.statements import CheckedRead, Operation, Output, Page, SortKey
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.language.diagnostics import Diagnostic, Span, did_you_mean
from omnigraph.language.literals import LiteralSyntax
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.query.tree import RANKINGS

# -- check order ---------------------------------------------------------------------------------
#
# Resolve the ordering and paging of a read.
# tree -> **checked read**
#
# Codes T17, T18 and T21, and what cannot be sorted on.
# Rule    a ranking comes first, and orders what the whole match keeps. In a grouped or distinct query
# rows
# are gone, so a key must be a column of the result (or, if grouped, an aggregate). An alias of `rrf`
# or `bm25` in the first place ranks as the function itself would.


class OrderChecker:
    """Resolves sort items, limit and offset; the results are its attributes."""

    def __init__(
        self,
        findings: QueryFindings,
        values: ValueChecker,
        outputs: Sequence[Output | None],
        grouped: bool,
        body: ast.ReadSyntax,
    ) -> None:
        self._findings = findings
        self._values = values
        self._outputs = outputs
        self._grouped = grouped
        self._body = body
        self.ranking: Ranking | None = None
        self.keys: list[SortKey] = []
        self.limit: Page | None = None
        self.offset: Page | None = None

    def check(self, scope: Scope) -> None:
        """Resolve everything."""
        for position, sort in enumerate(self._body.order):
            self._sort(position, sort, scope)
        self.limit = self._page(self._body.limit, "limit")
        self.offset = self._page(self._body.offset, "offset")

    # -- sort items ----------------------------------------------------------------------------------

    def _sort(self, position: int, sort: ast.SortSyntax, scope: Scope) -> None:
        expression = sort.expression
        match expression:
            case ast.CallSyntax(function) if function.text in RANKINGS:
                self._rank(position, sort, ranked(self._values.value(expression, scope)))
            case ast.NameSyntax():
                self._alias(position, sort, expression)
            case ast.AccessSyntax():
                self._key(sort, self._values.access(expression, scope))
            case ast.AggregateSyntax():
                self._key(sort, self._values.value(expression, scope))
            case _:
                value = self._values.value(expression, scope)
                value_type = None if value is None else type_of(value)
                if value_type is not None and value_type.scalar is Scalar.BLOB:
                    self._findings.report(rules.BLOB, "rows cannot be ordered by a Blob", sort.span)
                    return
                what = (
                    "expression" if isinstance(expression, ast.ArithmeticSyntax | ast.CallSyntax) else "value"
                )
                hint = "give it an alias in return and order by that" if what == "expression" else None
                message = (
                    f"rows are ordered by '$x.p', an alias, an aggregate or a ranking, not by this {what}"
                )
                self._refuse(message, sort.span, hint)

    def _alias(self, position: int, sort: ast.SortSyntax, name: ast.NameSyntax) -> None:
        text = name.name.text
        if text not in self._values.aliases:
            message = f"alias '{text}' not found for ordering"
            hint = did_you_mean(text, self._values.aliases)
            self._findings.report(rules.UNKNOWN_ALIAS, message, name.span, hint)
            return
        reference = self._values.aliases[text]
        meant = self._values.meant(reference)
        if isinstance(meant, Nearest):
            if self._has_limit(meant, sort.span):
                message = f"'{text}' is a nearest output: order by nearest(...) itself"
                self._findings.report(rules.NEAREST_ALIAS, message, sort.span)
        elif meant is not None and (ranking := ranked(meant)) is not None and position == 0:
            self._rank(position, sort, ranking)
        else:
            if meant is not None:
                self._has_limit(meant, sort.span)
            self._key(sort, reference)

    def _rank(self, position: int, sort: ast.SortSyntax, ranking: Ranking | None) -> None:
        if position > 0:
            self._refuse("a ranking must be the first sort item", sort.span, None)
        elif self._grouped or self._body.distinct:
            kind = "grouped" if self._grouped else "distinct"
            self._refuse(f"a ranking orders rows of the match, not {kind} rows", sort.span, None)
        elif ranking is not None and self._has_limit(ranking, sort.span):
            aliases = [s for s in self._body.order if isinstance(s.expression, ast.NameSyntax)]
            if isinstance(ranking, Nearest) and aliases:
                message = "ordering by nearest cannot be combined with an alias"
                self._findings.report(rules.NEAREST_ALIAS, message, aliases[0].span)
            self.ranking = ranking

    def _has_limit(self, ranking: Value, span: Span) -> bool:
        if self._body.limit is not None or not isinstance(ranking, Nearest | Rrf):
            return True
        name = "nearest" if isinstance(ranking, Nearest) else "rrf"
        rule = rules.NEAREST_LIMIT if isinstance(ranking, Nearest) else rules.RRF
        message = f"ordering by {name} needs a limit"
        self._findings.report(rule, message, span, "add 'limit 10' after the order")
        return False

    def _key(self, sort: ast.SortSyntax, value: Value | None) -> None:
        if value is None:
            return
        value_type = type_of(value)
        if value_type is None or not is_plain(value_type):
            self._refuse(f"rows cannot be ordered by {shown_type(value)}", sort.span, None)
            return
        if self._grouped or self._body.distinct:
            value = self._column(sort, value)
        elif isinstance(sort.expression, ast.AggregateSyntax):
            message = "rows that are not grouped have no aggregate to be ordered by"
            self._refuse(message, sort.span, "return an aggregate too")
            return
        if value is not None:
            self.keys.append(SortKey(value, sort.descending))

    def _column(self, sort: ast.SortSyntax, value: Value) -> Value | None:
        """Return the output that holds the value; an aggregate of a group needs none."""
        if isinstance(value, OutputRef):
            return value
        aliased = False
        for position, output in enumerate(self._outputs):
            if output is None or output.value != value:
                continue
            if (
                self._grouped
                and self._body.outputs[position].alias
                and isinstance(sort.expression, ast.AccessSyntax)
            ):
                aliased = True
                continue
            return OutputRef(
                position, output.name, type_of(value), isinstance(sort.expression, ast.AggregateSyntax)
            )
        if isinstance(sort.expression, ast.AggregateSyntax) and not self._body.distinct:
            return value
        kind = "grouped" if self._grouped else "distinct"
        hint = "order by its alias" if aliased else "return it as well"
        self._refuse(f"{kind} rows are ordered by what they return", sort.span, hint)
        return None

    def _refuse(self, message: str, span: Span, suggestion: str | None) -> None:
        self._findings.report(rules.SORT_KEY, message, span, suggestion)

    # -- paging --------------------------------------------------------------------------------------

    def _page(self, written: LiteralSyntax | ast.VarSyntax | None, word: str) -> Page | None:
        if written is None:
            return None
        if isinstance(written, LiteralSyntax):
            return int(written.text)
        reference = self._findings.parameter(written)
        if reference is None:
            return None
        declared = reference.type
        if declared.nullable or declared.is_list or declared.scalar not in INTEGERS:
            message = f"{word} takes a required integer parameter; '${written.name}' is {declared}"
            self._findings.report(rules.PAGE, message, written.span)
            return None
        return ParamRef(reference.parameter)


# -- check read ----------------------------------------------------------------------------------


LITERAL = "literal"
EXPRESSION = "expression"


def check_read(
    query: ast.QuerySyntax, body: ast.ReadSyntax, catalog: Catalog
) -> tuple[CheckedRead | None, list[Diagnostic]]:
    """Return the checked read, or None and everything that is wrong with it."""
    findings = QueryFindings(query, catalog)
    values = ValueChecker(findings)
    match = MatchChecker(findings, ConditionChecker(findings, values))
    scope = Scope()
    clauses = match.clauses(body.clauses, scope)
    outputs = _Outputs(findings, values, scope)
    outputs.check(body.outputs)
    order = OrderChecker(findings, values, outputs.outputs, outputs.grouped, body)
    order.check(scope)
    if findings.diagnostics:
        return None, findings.diagnostics
    sound = tuple(output for output in outputs.outputs if output is not None)
    reads = statements.in_order((*match.reads, *values.reads))
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

    def __init__(self, findings: QueryFindings, values: ValueChecker, scope: Scope) -> None:
        self._findings = findings
        self._values = values
        self._scope = scope
        self.outputs: list[Output | None] = []
        self.grouped = False

    def check(self, outputs: Sequence[ast.OutputSyntax]) -> None:
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

    def _value(self, written: ast.OutputSyntax) -> Value | None:
        value = self._values.value(written.expression, self._scope)
        if value is None:
            return None
        value_type = type_of(value)
        if value_type is not None and value_type.scalar is Scalar.BLOB:
            self._findings.report(rules.BLOB, "a Blob cannot be returned", written.expression.span)
            return None
        return value

    def _column(self, name: str, value: Value) -> OutputColumn:
        value_type = type_of(value)
        if value_type is not None:
            return OutputColumn.of(name, value_type)
        node = self._values.meant(value)
        return OutputColumn(name, OBJECT, isinstance(node, EntityValue) and node.variable.optional)

    # -- grouping ------------------------------------------------------------------------------------

    @property
    def keys(self) -> tuple[int, ...]:
        """The positions of the outputs that the rows are grouped by."""
        return tuple(
            position
            for position, output in enumerate(self.outputs)
            if output is not None and not holds_aggregate(output.value)
        )

    def _group(self, written: ast.OutputSyntax, value: Value) -> None:
        if holds_aggregate(value):
            sound = all(_of_group(part) for part in _leaves(value))
        else:
            sound = self._is_key(value)
        if not sound:
            message = "beside an aggregate, an output must be '$x.p' or '$x': the rows are grouped by it"
            self._findings.report(rules.GROUPING, message, written.expression.span)

    def _is_key(self, value: Value) -> bool:
        meant = self._values.meant(value)
        return meant is None or isinstance(meant, PropertyValue | EntityField | EntityValue)


def _has_aggregate(expression: ast.ExprSyntax) -> bool:
    if isinstance(expression, ast.ArithmeticSyntax):
        return _has_aggregate(expression.left) or _has_aggregate(expression.right)
    return isinstance(expression, ast.AggregateSyntax)


def _leaves(value: Value) -> list[Value]:
    operands = operands_of(value)
    return [leaf for operand in operands for leaf in _leaves(operand)] if operands else [value]


def _of_group(leaf: Value) -> bool:
    """Say whether a value beside an aggregate in one expression is the same for all rows of a group."""
    return isinstance(leaf, Aggregate | Constant | ParamRef | Now | OutputRef)


# -- names and types ---------------------------------------------------------------------------------


def _name(output: ast.OutputSyntax) -> str:
    return _default_name(output.expression) if output.alias is None else output.alias.text


def _default_name(expression: ast.ExprSyntax) -> str:
    match expression:
        case LiteralSyntax() | ast.ListSyntax():
            return LITERAL
        case ast.NowSyntax():
            return "now"
        case ast.VarSyntax(name):
            return name
        case ast.AccessSyntax(variable, member, system):
            return f"{variable.name}.{'@' if system else ''}{member.text}"
        case ast.NameSyntax(name):
            return name.text
        case ast.AggregateSyntax(_, argument):
            return _default_name(argument)
        case ast.CallSyntax(function):
            return function.text
        case ast.ShortestSyntax():
            return "shortest"
        case ast.ArithmeticSyntax():
            return EXPRESSION


def _reference(position: int, name: str, value: Value | None) -> OutputRef | None:
    if value is None:
        return None
    return OutputRef(position, name, type_of(value), holds_aggregate(value))
