"""Build: turn the parse tree of one query into typed values, refusing malformed ones on the way.

    text -> parse tree -> **tree** -> checked query

Knows how a query is written; what its names refer to is judged in catalog.query. The result is None
when a fault of form (`Q000`) leaves nothing to check. Faults with a code of their own (`Q1xx`) leave the
query whole, so that the rest can still be checked.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.language.diagnostics import Reporter, Span, did_you_mean
from omnigraph.language.lalr import (
    Child,
    ParseTree,
    Token,
    first_subtree,
    optional_subtree,
    subtree,
    subtrees,
    tokens,
    word_text,
)
from omnigraph.language.literals import LiteralKind, LiteralSyntax, unquote
from omnigraph.language.query import rules
from omnigraph.language.query.expressions import Expressions, QueryContext, Unbuildable
from omnigraph.language.query.tree import (
    BindingSyntax,
    BlockKind,
    BlockSyntax,
    CallSyntax,
    ClauseSyntax,
    CountBlockSyntax,
    DeleteSyntax,
    FieldSyntax,
    FilterSyntax,
    InsertSyntax,
    NoteSyntax,
    OutputSyntax,
    ParamSyntax,
    QuerySyntax,
    ReadSyntax,
    SortSyntax,
    StatementSyntax,
    TraversalSyntax,
    UpdateSyntax,
    VarSyntax,
    WriteSyntax,
)
from omnigraph.language.syntax import (
    MAX_DIMENSION,
    SCALARS,
    BadType,
    Ident,
    ListType,
    ScalarType,
    Shape,
    TypeExpr,
    VectorType,
)

BLOCKS = {"negation": BlockKind.NOT, "exists": BlockKind.EXISTS, "optional": BlockKind.OPTIONAL}
NOTES = ("description", "instruction")
SHAPED_LIKE_TRAVERSALS = [["VAR", word, "VAR"] for word in ("TEXT", "IN", "AND", "OR")]
RESERVED = "__nanograph_now"


def build(parsed: ParseTree, offset: int, reporter: Reporter) -> QuerySyntax | None:
    """Build one query; `offset` is where it starts in the text."""
    before = len(reporter.diagnostics)
    try:
        query = _Builder(QueryContext(reporter, offset)).query(parsed)
    except Unbuildable:
        return None
    return None if any(d.rule is rules.SYNTAX for d in reporter.diagnostics[before:]) else query


class _Builder:
    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._expressions = Expressions(context)
        self._params: frozenset[str] = frozenset()

    def query(self, parsed: ParseTree) -> QuerySyntax:
        name = self._context.name(first_subtree(parsed, "word"), "a query name")
        params = tuple(self._params_of(parsed))
        self._params = frozenset(p.name.text for p in params)
        notes = tuple(self._notes(parsed))
        body = first_subtree(parsed, "read", "write")
        built = self._read(body) if body.rule == "read" else self._write(body)
        return QuerySyntax(name, params, notes, built, self._context.span(parsed))

    # -- heads ---------------------------------------------------------------------------------------

    def _params_of(self, parsed: ParseTree) -> Iterator[ParamSyntax]:
        seen: set[str] = set()
        for param in subtrees(parsed, "param"):
            variable = self._expressions.variable(tokens(param, "VAR")[0])
            if variable.name in seen:
                message = f"parameter '{variable.name}' is declared twice"
                self._context.report(rules.DUPLICATE_PARAMETER, message, variable.span)
            if variable.name == RESERVED:
                message = f"parameter name '${RESERVED}' is reserved for runtime timestamp injection"
                self._context.report(rules.RESERVED_PARAMETER, message, variable.span, "use now() instead")
            if variable.anonymous:
                raise self._context.refused("a parameter needs a name: '$_' has none", variable.span)
            seen.add(variable.name)
            declared = first_subtree(param, "type")
            nullable = bool(tokens(param, "OPTIONAL"))
            expression = TypeExpr(self._type(declared), nullable, self._context.span(declared))
            yield ParamSyntax(Ident(variable.name, variable.span), expression, self._context.span(param))

    def _type(self, parsed: ParseTree) -> Shape:
        listed = optional_subtree(parsed, "list_type")
        word = first_subtree(listed or parsed, "word")
        name, span = word_text(word), self._context.span(word)
        number = next(iter(tokens(parsed, "NUMBER")), None)
        if name == "Vector" and listed is None and number is not None:
            return self._vector(number)
        if number is None and name in SCALARS and (listed is None or name != "Blob"):
            return ScalarType(name) if listed is None else ListType(name)
        shown = self._context.reporter.source.text[
            self._context.span(parsed).start : self._context.span(parsed).end
        ]
        if name == "Vector" and listed is None:
            hint: str | None = "write Vector(n) with the number of its elements"
        elif name == "enum":
            hint = "an enum is a String here"
        else:
            hint = did_you_mean(name, (*SCALARS, "Vector"))
        self._context.report(rules.PARAMETER_TYPE, f"unknown parameter type '{shown[:40]}'", span, hint)
        return BadType()

    def _vector(self, number: Token) -> Shape:
        span = self._context.span(number)
        size = self._expressions.integer(number)
        if not 1 <= size <= MAX_DIMENSION:
            message = f"unknown parameter type 'Vector({size})': its size is from 1 to {MAX_DIMENSION}"
            self._context.report(rules.PARAMETER_TYPE, message, span)
            return BadType()
        return VectorType(size)

    def _notes(self, parsed: ParseTree) -> Iterator[NoteSyntax]:
        seen: set[str] = set()
        for note in subtrees(parsed, "note"):
            span = self._context.span(note)
            word = first_subtree(note, "word")
            name = Ident(word_text(word), self._context.span(word))
            text = next(iter(tokens(note, "STRING")), None)
            if name.text not in NOTES:
                message = f"a query has no annotation '@{name.text}': there are @description and @instruction"
                self._context.report(rules.ANNOTATION, message, span, did_you_mean(name.text, NOTES))
            elif text is None:
                raise self._context.refused(f"@{name.text} needs a text", span, f'write @{name.text}("...")')
            elif name.text in seen:
                message = f"a query cannot include duplicate @{name.text} annotations"
                self._context.report(rules.DUPLICATE_ANNOTATION, message, span)
            seen.add(name.text)
            if text is not None:
                where = self._context.span(text)
                yield NoteSyntax(name, unquote(text.text, where, self._context.reporter, rules.SYNTAX), span)

    # -- reads ---------------------------------------------------------------------------------------

    def _read(self, parsed: ParseTree) -> ReadSyntax:
        clauses = self._clauses(first_subtree(parsed, "block"))
        outputs = tuple(self._output(output) for output in subtrees(parsed, "output"))
        order = optional_subtree(parsed, "order")
        return ReadSyntax(
            clauses,
            bool(tokens(parsed, "DISTINCT")),
            outputs,
            () if order is None else tuple(self._sort(sort) for sort in subtrees(order, "sort")),
            self._page(optional_subtree(parsed, "limit")),
            self._page(optional_subtree(parsed, "offset")),
            self._context.span(parsed),
        )

    def _clauses(self, block: ParseTree) -> tuple[ClauseSyntax, ...]:
        return tuple(self._clause(subtree(child)) for child in block.children)

    def _clause(self, parsed: ParseTree) -> ClauseSyntax:
        span = self._context.span(parsed)
        match parsed.rule:
            case "binding":
                variable = self._expressions.variable(tokens(parsed, "VAR")[0])
                name = self._context.type_name(first_subtree(parsed, "word"))
                return BindingSyntax(
                    variable, name, self._fields(optional_subtree(parsed, "entries"), nullable=False), span
                )
            case "traversal":
                return self._expressions.traversal(parsed)
            case "filter":
                return self._filter(parsed.children[0], span)
            case "counted":
                clauses = self._clauses(first_subtree(parsed, "block"))
                number = first_subtree(parsed, "number")
                sign = "-" if tokens(number, "MINUS") else ""
                count = self._expressions.integer(tokens(number, "NUMBER")[0], sign)
                return CountBlockSyntax(clauses, tokens(parsed, "COMPARE")[0].text, count, span)
            case kind:
                return BlockSyntax(BLOCKS[kind], self._clauses(first_subtree(parsed, "block")), span)

    def _filter(self, child: Child, span: Span) -> ClauseSyntax:
        """Build a condition; `$x contains $y` over a variable that is no parameter is a traversal."""
        while not isinstance(child, Token) and child.rule == "group":
            child = child.children[0]
        parts = [] if isinstance(child, Token) else [p for p in child.children if isinstance(p, Token)]
        if [p.type for p in parts] in SHAPED_LIKE_TRAVERSALS and parts == subtree(child).children:
            left, right = (self._expressions.variable(part) for part in parts[::2])
            if left.name not in self._params:
                edge = Ident(parts[1].text, self._context.span(parts[1]))
                return TraversalSyntax(left, None, edge, False, None, right, span)
        return FilterSyntax(self._expressions.condition(child), span)

    def _output(self, parsed: ParseTree) -> OutputSyntax:
        expression = self._expressions.root(parsed.children[0])
        alias = self._context.name(subtree(parsed.children[-1]), "an alias") if tokens(parsed, "AS") else None
        return OutputSyntax(expression, alias, self._context.span(parsed))

    def _sort(self, parsed: ParseTree) -> SortSyntax:
        expression = self._expressions.root(parsed.children[0])
        direction = tokens(parsed, "ASC", "DESC")
        if direction and isinstance(expression, CallSyntax) and expression.function.text == "nearest":
            message = "nearest takes no direction: the nearest come first"
            raise self._context.refused(
                message, self._context.span(direction[0]), f"remove '{direction[0].text}'"
            )
        descending = bool(direction) and direction[0].type == "DESC"
        return SortSyntax(expression, descending, self._context.span(parsed))

    def _page(self, parsed: ParseTree | None) -> LiteralSyntax | VarSyntax | None:
        if parsed is None:
            return None
        variables = tokens(parsed, "VAR")
        if variables:
            return self._expressions.variable(variables[0])
        number = tokens(parsed, "NUMBER")[0]
        self._expressions.integer(number)
        return LiteralSyntax(LiteralKind.INTEGER, number.text, self._context.span(number))

    # -- writes --------------------------------------------------------------------------------------

    def _write(self, parsed: ParseTree) -> WriteSyntax:
        statements = tuple(self._statement(subtree(child)) for child in parsed.children)
        return WriteSyntax(statements, self._context.span(parsed))

    def _statement(self, parsed: ParseTree) -> StatementSyntax:
        span = self._context.span(parsed)
        target = self._context.type_name(first_subtree(parsed, "word"))
        fields = self._fields(optional_subtree(parsed, "fields"), nullable=True)
        if parsed.rule == "insert":
            return InsertSyntax(target, fields, span)
        where = self._expressions.condition(parsed.children[-1])
        return (
            UpdateSyntax(target, fields, where, span)
            if parsed.rule == "update"
            else DeleteSyntax(target, where, span)
        )

    def _fields(self, parsed: ParseTree | None, *, nullable: bool) -> tuple[FieldSyntax, ...]:
        if parsed is None:
            return ()
        return tuple(self._field(field, nullable=nullable) for field in subtrees(parsed, "field"))

    def _field(self, parsed: ParseTree, *, nullable: bool) -> FieldSyntax:
        name = self._context.name(parsed.children[0], "a property name")
        value = self._expressions.value(parsed.children[-1], nullable=nullable)
        return FieldSyntax(name, value, self._context.span(parsed))
