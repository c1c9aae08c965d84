"""Expressions: values, expressions and conditions of one query.

    text -> parse tree -> **tree** -> checked query

The grammar takes any expression anywhere; here a comparison is told from a value, and a call is held to a
function that exists and to its number of arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from omnigraph.base.times import read_day, read_instant
from omnigraph.language.diagnostics import Span, did_you_mean
from omnigraph.language.lalr import (
    Child,
    ParseTree,
    Token,
    first_subtree,
    optional_subtree,
    subtree,
    tokens,
    word_text,
)
from omnigraph.language.literals import RANGES, LiteralKind, LiteralSyntax, read_integer, unquote
from omnigraph.language.query import rules
from omnigraph.language.query.tree import (
    AGGREGATES,
    FUNCTIONS,
    TEXT_MATCHES,
    AccessSyntax,
    AggregateSyntax,
    AndSyntax,
    ArithmeticSyntax,
    CallSyntax,
    CompareSyntax,
    ConditionSyntax,
    ExprSyntax,
    HopBoundsSyntax,
    ListSyntax,
    MemberSyntax,
    NameSyntax,
    NotSyntax,
    NowSyntax,
    NullTestSyntax,
    OrSyntax,
    ShortestSyntax,
    TraversalSyntax,
    ValueSyntax,
    VarSyntax,
)
from omnigraph.language.syntax import COMMENT, BuildContext, Ident

CONDITIONS = (CompareSyntax, MemberSyntax, NullTestSyntax, AndSyntax, OrSyntax, NotSyntax)
DATES = {"date": LiteralKind.DATE, "datetime": LiteralKind.DATETIME}
MAX_OPERATORS = 200  # in one expression: its tree is walked to its full depth
NULL_PLACE = "null is only legal as an assigned value"


class Unbuildable(Exception):
    """The query cannot be built; the reason was reported."""


class QueryContext(BuildContext):
    """Positions and findings of one query; raising `refused(...)` gives the query up."""

    def refused(self, message: str, span: Span, suggestion: str | None = None) -> Unbuildable:
        """Note a fault of form, and return what the caller raises to give the query up."""
        self.report(rules.SYNTAX, message, span, suggestion)
        return Unbuildable()

    def name(self, word: Child, what: str) -> Ident:
        """Return a name that must start in lower case."""
        name = Ident(word_text(word), self.span(word))
        if "A" <= name.text[0] <= "Z":
            message = f"{what} starts with a lower-case letter or '_': {name.text!r}"
            self.report(rules.SYNTAX, message, name.span, f"write {name.text[0].lower() + name.text[1:]!r}")
        return name

    def type_name(self, word: ParseTree) -> Ident:
        """Return a name that must start in upper case."""
        name = Ident(word_text(word), self.span(word))
        if not "A" <= name.text[0] <= "Z":
            proper = name.text[0].upper() + name.text[1:]
            message = f"a type name starts with an upper-case letter: {name.text!r}"
            self.report(
                rules.SYNTAX, message, name.span, f"write {proper!r}" if proper != name.text else None
            )
        return name


class Expressions:
    """Builds the expressions of one query."""

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._operators = 0

    # -- what the grammar's places take --------------------------------------------------------------

    def root(self, child: Child) -> ExprSyntax:
        """Build a whole expression that is a value."""
        self._operators = 0
        return self._expr(child)

    def condition(self, child: Child) -> ConditionSyntax:
        """Build a whole expression that is true or false."""
        self._operators = 0
        return self._condition(child)

    def value(self, child: Child, *, nullable: bool) -> ValueSyntax:
        """Build what an entry, an assignment or a test compares with or assigns."""
        built = self._any(child, nullable=nullable)
        if isinstance(built, LiteralSyntax | ListSyntax | VarSyntax | NowSyntax):
            return built
        span = self._context.span(child)
        raise self._context.refused("only a literal, a parameter or now() may stand here", span)

    def variable(self, token: Token) -> VarSyntax:
        """Build `$name`."""
        text = token.text[1:]
        span = self._context.span(token)
        if "A" <= text[0] <= "Z":
            lower = text[0].lower() + text[1:]
            message = f"a variable starts with a lower-case letter or '_': '${text}'"
            self._context.report(rules.SYNTAX, message, span, f"write '${lower}'")
        return VarSyntax(text, span)

    # -- conditions ----------------------------------------------------------------------------------

    def _condition(self, child: Child) -> ConditionSyntax:
        built = self._any(child)
        if isinstance(built, CONDITIONS) or (isinstance(built, CallSyntax) and _matches_text(built)):
            return built
        raise self._context.refused(
            "expected a comparison, found a value alone",
            self._context.span(child),
            "compare it with something, as in '$x.p = true'",
        )

    def _expr(self, child: Child, *, nullable: bool = False) -> ExprSyntax:
        built = self._any(child, nullable=nullable)
        if isinstance(built, CONDITIONS):
            span = self._context.span(child)
            raise self._context.refused("expected a value, found a condition", span)
        return built

    def _any(self, child: Child, *, nullable: bool = False) -> ExprSyntax | ConditionSyntax:
        if isinstance(child, Token):
            return self.variable(child)
        match child.rule:
            case "disjunction" | "conjunction":
                return self._joined(child)
            case "inverse":
                return NotSyntax(self._condition(child.children[1]), self._context.span(child))
            case "comparison":
                return self._judged(child, self._expr(child.children[0]))
            case "test":
                word = self._context.name(subtree(child.children[0]), "a property name")
                return self._judged(child, NameSyntax(word))
            case "sum" | "product":
                return self._arithmetic(child)
            case "group":
                return self._any(child.children[0])
            case "literal":
                return self._literal(child, nullable=nullable)
            case "access":
                return self._access(child)
            case "alias":
                return NameSyntax(Ident(word_text(child), self._context.span(child)))
            case "shortest":
                return ShortestSyntax(
                    self.traversal(first_subtree(child, "traversal")), self._context.span(child)
                )
            case _:
                return self._call(child)

    def _joined(self, parsed: ParseTree) -> ConditionSyntax:
        """Build `and` and `or`; brackets around the same word change nothing and leave no trace."""
        kind: type[AndSyntax | OrSyntax] = OrSyntax if parsed.rule == "disjunction" else AndSyntax
        operands: list[ConditionSyntax] = []
        for child in parsed.children:
            if isinstance(child, Token) and child.type in ("OR", "AND"):
                continue
            operand = self._condition(child)
            operands.extend(operand.operands if isinstance(operand, kind) else (operand,))
        return kind(tuple(operands), self._context.span(parsed))

    def _judged(self, parsed: ParseTree, left: ExprSyntax) -> ConditionSyntax:
        span = self._context.span(parsed)
        operator = _token(parsed.children[1])
        if operator.type == "IS":
            return NullTestSyntax(left, bool(tokens(parsed, "NOT")), span)
        last = parsed.children[-1]
        if isinstance(left, NameSyntax):
            right: ExprSyntax = self.value(last, nullable=False)
        else:
            right = self._expr(last)
        if operator.type == "IN":
            return MemberSyntax(left, right, span)
        if operator.type == "TEXT" and isinstance(left, NameSyntax):
            message = (
                f"'where' has no '{operator.text}': it compares, tests membership with 'in', or for null"
            )
            raise self._context.refused(message, self._context.span(operator))
        return CompareSyntax(left, operator.text, right, span)

    # -- expressions ---------------------------------------------------------------------------------

    def _arithmetic(self, parsed: ParseTree) -> ExprSyntax:
        """Build a chain of operators from the left."""
        first, *rest = parsed.children
        built = self._expr(first)
        for operator, operand in zip(rest[::2], rest[1::2], strict=True):
            self._operators += 1
            span = self._context.span(first, operand)
            if self._operators > MAX_OPERATORS:
                raise self._context.refused(f"the expression has more than {MAX_OPERATORS} operators", span)
            built = ArithmeticSyntax(built, word_text(operator), self._expr(operand), span)
        return built

    def _access(self, parsed: ParseTree) -> AccessSyntax:
        variable = self.variable(tokens(parsed, "VAR")[0])
        member = self._context.name(first_subtree(parsed, "word"), "a property name")
        return AccessSyntax(variable, member, bool(tokens(parsed, "AT")), self._context.span(parsed))

    def traversal(self, parsed: ParseTree) -> TraversalSyntax:
        """Build a traversal."""
        left, *between, right = (self.variable(token) for token in tokens(parsed, "VAR"))
        edge = first_subtree(parsed, "edge")
        name, undirected = self._edge_word(edge.children[0])
        bounds = optional_subtree(edge, "bounds")
        return TraversalSyntax(
            left,
            between[0] if between else None,
            name,
            undirected,
            None if bounds is None else self._bounds(bounds),
            right,
            self._context.span(parsed),
        )

    def _edge_word(self, child: Child) -> tuple[Ident, bool]:
        undirected = isinstance(child, Token)
        span = self._context.span(child)
        if isinstance(child, Token):
            name = Ident(_inside(child.text), span)
        else:
            name = self._context.name(child, "an edge in a traversal")
        if name.text == "not":
            raise self._context.refused("an edge cannot be called 'not' in a traversal", span)
        return name, undirected

    def _bounds(self, parsed: ParseTree) -> HopBoundsSyntax:
        span = self._context.span(parsed)
        low, *high = (self.integer(token) for token in tokens(parsed, "NUMBER"))
        return HopBoundsSyntax(low, high[0] if high else None, span)

    def integer(self, token: Token, sign: str = "") -> int:
        """Read a whole number of 64 bits."""
        span = self._context.span(token)
        if "." in token.text:
            raise self._context.refused(f"expected a whole number, found {token.text[:40]}", span)
        value = read_integer(f"{sign}{token.text}", *RANGES["I64"])
        if value is None:
            raise self._context.refused(
                "the integer does not fit 64 bits", span, "pass it as a parameter of type U64"
            )
        return value

    def _call(self, parsed: ParseTree) -> ExprSyntax:
        function = Ident(word_text(parsed.children[0]), self._context.span(parsed.children[0]))
        span = self._context.span(parsed)
        arguments = parsed.children[1:]
        name = function.text
        if name in DATES:
            return self._date(DATES[name], function, arguments)
        fewest, most = {"now": (0, 0), **FUNCTIONS}.get(name, (1, 1))
        known = name in FUNCTIONS or name in AGGREGATES or name == "now"
        if not known:
            hint = did_you_mean(name, ("now", "date", "datetime", "shortest", *FUNCTIONS, *AGGREGATES))
            raise self._context.refused(f"there is no function {name!r}", function.span, hint)
        if not fewest <= len(arguments) <= most:
            arity = f"{fewest}" if fewest == most else f"{fewest} or {most}"
            message = f"{name} takes {arity} argument{'s' if arity != '1' else ''}, found {len(arguments)}"
            raise self._context.refused(message, span)
        if name == "now":
            return NowSyntax(span)
        built = tuple(self._expr(argument) for argument in arguments)
        return (
            CallSyntax(function, built, span)
            if name in FUNCTIONS
            else AggregateSyntax(function, built[0], span)
        )

    # -- literals ------------------------------------------------------------------------------------

    def _date(self, kind: LiteralKind, function: Ident, arguments: Sequence[Child]) -> LiteralSyntax:
        built = [self._any(argument) for argument in arguments]
        match built:
            case [LiteralSyntax(kind=LiteralKind.STRING) as text]:
                span = self._context.reporter.source.span(function.span.start, text.span.end + 1)
                date = kind is LiteralKind.DATE
                try:
                    (read_day if date else read_instant)(text.text)
                except ValueError:
                    message = f"invalid {'Date' if date else 'DateTime'} literal '{text.text[:40]}'"
                    shape = "2026-01-31" if date else "2026-01-31T09:00:00Z"
                    self._context.report(rules.BAD_DATE, message, text.span, f'write "{shape}"')
                return LiteralSyntax(kind, text.text, span)
            case _:
                message = f"{function.text} takes one text in double quotes"
                raise self._context.refused(message, function.span, f'write {function.text}("2026-01-31")')

    def _literal(self, parsed: ParseTree, *, nullable: bool) -> LiteralSyntax | ListSyntax:
        child = parsed.children[0]
        span = self._context.span(parsed)
        if isinstance(child, ParseTree):
            return self._list(child) if child.rule == "list" else self._number(child)
        match child.type:
            case "STRING":
                text = unquote(child.text, span, self._context.reporter, rules.SYNTAX)
                return LiteralSyntax(LiteralKind.STRING, text, span)
            case "NULL":
                if not nullable:
                    raise self._context.refused(NULL_PLACE, span, "test for it with 'is null'")
                return LiteralSyntax(LiteralKind.NULL, "null", span)
            case _:
                return LiteralSyntax(LiteralKind.BOOLEAN, child.text, span)

    def _number(self, parsed: ParseTree) -> LiteralSyntax:
        token = tokens(parsed, "NUMBER")[0]
        sign = "-" if tokens(parsed, "MINUS") else ""
        span = self._context.span(parsed)
        if "." not in token.text:
            self.integer(token, sign)
            return LiteralSyntax(LiteralKind.INTEGER, f"{sign}{token.text}", span)
        if not math.isfinite(float(token.text)):
            raise self._context.refused("the number does not fit a double", span)
        return LiteralSyntax(LiteralKind.FLOAT, f"{sign}{token.text}", span)

    def _list(self, parsed: ParseTree) -> ListSyntax:
        items: list[LiteralSyntax] = []
        for child in parsed.children:
            item = self._any(child)
            if isinstance(item, ListSyntax):
                self._context.report(rules.NESTED_LIST, "nested list literals are not supported", item.span)
            elif isinstance(item, LiteralSyntax):
                items.append(item)
            else:
                raise self._context.refused("a list holds literals only", self._context.span(child))
        for item in items[1:]:
            if _family(item) != _family(items[0]):
                message = "list literal elements must share a compatible scalar type"
                self._context.report(rules.MIXED_LIST, message, item.span)
                break
        return ListSyntax(tuple(items), self._context.span(parsed))


def _matches_text(call: CallSyntax) -> bool:
    return call.function.text in TEXT_MATCHES


def _family(literal: LiteralSyntax) -> str:
    numeric = literal.kind in (LiteralKind.INTEGER, LiteralKind.FLOAT)
    return "number" if numeric else literal.kind.value


def _inside(text: str) -> str:
    """Return the word between `<` and `>`, which may have comments around it."""
    return re.sub(COMMENT, " ", text).strip("<> \t\r\n")


def _token(child: Child) -> Token:
    if not isinstance(child, Token):
        raise TypeError(f"the grammar gave a rule where a token was expected: {child.rule}")
    return child
