"""Check order: resolve the ordering and paging of a read.

    tree -> **checked read**

Room    catalog.query. Codes T17, T18 and T21, and what cannot be sorted on.
Rule    a ranking comes first, and orders what the whole match keeps. In a grouped or distinct query rows
        are gone, so a key must be a column of the result (or, if grouped, an aggregate). An alias of `rrf`
        or `bm25` in the first place ranks as the function itself would.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.catalog.query.check_calls import ranked
from omnigraph.catalog.query.check_values import ValueChecker, shown_type
from omnigraph.catalog.query.expressions import Nearest, OutputRef, Ranking, Rrf, Value, type_of
from omnigraph.catalog.query.findings import Findings, is_plain
from omnigraph.catalog.query.operands import ParamRef
from omnigraph.catalog.query.read import Output, Page, SortKey
from omnigraph.catalog.query.scope import Scope
from omnigraph.catalog.types import INTEGERS, Scalar
from omnigraph.language.diagnostics import Span
from omnigraph.language.query import rules
from omnigraph.language.query import tree as ast
from omnigraph.language.query.functions import RANKINGS
from omnigraph.language.suggest import did_you_mean


class OrderChecker:
    """Resolves sort items, limit and offset; the results are its attributes."""

    def __init__(
        self,
        findings: Findings,
        values: ValueChecker,
        outputs: Sequence[Output | None],
        grouped: bool,
        body: ast.Read,
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

    def _sort(self, position: int, sort: ast.Sort, scope: Scope) -> None:
        expression = sort.expression
        match expression:
            case ast.Call(function) if function.text in RANKINGS:
                self._rank(position, sort, ranked(self._values.value(expression, scope)))
            case ast.Name():
                self._alias(position, sort, expression)
            case ast.Access():
                self._key(sort, self._values.access(expression, scope))
            case ast.Aggregate():
                self._key(sort, self._values.value(expression, scope))
            case _:
                value = self._values.value(expression, scope)
                found = None if value is None else type_of(value)
                if found is not None and found.scalar is Scalar.BLOB:
                    self._findings.report(rules.BLOB, "rows cannot be ordered by a Blob", sort.span)
                    return
                what = "expression" if isinstance(expression, ast.Arithmetic | ast.Call) else "value"
                hint = "give it an alias in return and order by that" if what == "expression" else None
                message = (
                    f"rows are ordered by '$x.p', an alias, an aggregate or a ranking, not by this {what}"
                )
                self._refuse(message, sort.span, hint)

    def _alias(self, position: int, sort: ast.Sort, name: ast.Name) -> None:
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
        elif meant is not None and (found := ranked(meant)) is not None and position == 0:
            self._rank(position, sort, found)
        else:
            if meant is not None:
                self._has_limit(meant, sort.span)
            self._key(sort, reference)

    def _rank(self, position: int, sort: ast.Sort, found: Ranking | None) -> None:
        if position > 0:
            self._refuse("a ranking must be the first sort item", sort.span, None)
        elif self._grouped or self._body.distinct:
            kind = "grouped" if self._grouped else "distinct"
            self._refuse(f"a ranking orders rows of the match, not {kind} rows", sort.span, None)
        elif found is not None and self._has_limit(found, sort.span):
            aliases = [s for s in self._body.order if isinstance(s.expression, ast.Name)]
            if isinstance(found, Nearest) and aliases:
                message = "ordering by nearest cannot be combined with an alias"
                self._findings.report(rules.NEAREST_ALIAS, message, aliases[0].span)
            self.ranking = found

    def _has_limit(self, found: Value, span: Span) -> bool:
        if self._body.limit is not None or not isinstance(found, Nearest | Rrf):
            return True
        name = "nearest" if isinstance(found, Nearest) else "rrf"
        rule = rules.NEAREST_LIMIT if isinstance(found, Nearest) else rules.RRF
        message = f"ordering by {name} needs a limit"
        self._findings.report(rule, message, span, "add 'limit 10' after the order")
        return False

    def _key(self, sort: ast.Sort, value: Value | None) -> None:
        if value is None:
            return
        found = type_of(value)
        if found is None or not is_plain(found):
            self._refuse(f"rows cannot be ordered by {shown_type(value)}", sort.span, None)
            return
        if self._grouped or self._body.distinct:
            value = self._column(sort, value)
        elif isinstance(sort.expression, ast.Aggregate):
            message = "rows that are not grouped have no aggregate to be ordered by"
            self._refuse(message, sort.span, "return an aggregate too")
            return
        if value is not None:
            self.keys.append(SortKey(value, sort.descending))

    def _column(self, sort: ast.Sort, value: Value) -> Value | None:
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
                and isinstance(sort.expression, ast.Access)
            ):
                aliased = True
                continue
            return OutputRef(
                position, output.name, type_of(value), isinstance(sort.expression, ast.Aggregate)
            )
        if isinstance(sort.expression, ast.Aggregate) and not self._body.distinct:
            return value
        kind = "grouped" if self._grouped else "distinct"
        hint = "order by its alias" if aliased else "return it as well"
        self._refuse(f"{kind} rows are ordered by what they return", sort.span, hint)
        return None

    def _refuse(self, message: str, span: Span, suggestion: str | None) -> None:
        self._findings.report(rules.SORT_KEY, message, span, suggestion)

    # -- paging --------------------------------------------------------------------------------------

    def _page(self, written: ast.Literal | ast.Var | None, word: str) -> Page | None:
        if written is None:
            return None
        if isinstance(written, ast.Literal):
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
