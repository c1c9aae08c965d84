"""Arguments: what stands between the parentheses of an annotation or a constraint.

    text -> parse tree -> **tree** -> checked schema -> catalog

Room    language.schema. The grammar takes any list of names, literals, bounds and `name=literal`; here
        the list is held to the form that its annotation or constraint has.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from omnigraph.base.frozen import FrozenRecord, uncompared
from omnigraph.language.diagnostics import Reporter, Rule, Span
from omnigraph.language.lalr import ParseTree, Token, subtree, word_text
from omnigraph.language.schema import rules
from omnigraph.language.schema.tree import Ident, KeywordSyntax, LiteralKind, LiteralSyntax

_ESCAPE = re.compile(r"\\([\s\S])")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
BOOLEANS = ("true", "false")


class RangeBoundsSyntax(FrozenRecord):
    """`low..high`, either side possibly absent, as spelt."""

    low: str | None
    high: str | None
    span: Span = uncompared()


ArgumentSyntax: TypeAlias = Ident | LiteralSyntax | RangeBoundsSyntax | KeywordSyntax


class Arguments:
    """Reads argument lists of one piece of the text."""

    def __init__(self, reporter: Reporter, offset: int) -> None:
        self._reporter = reporter
        self._offset = offset

    def of_annotation(
        self, annotation: str, tree: ParseTree | None
    ) -> tuple[LiteralSyntax | Ident | None, tuple[KeywordSyntax, ...]]:
        """Return at most one positional argument, then keywords; anything else is reported."""
        positional: LiteralSyntax | Ident | None = None
        keywords: list[KeywordSyntax] = []
        if tree is None:
            return None, ()
        values = [self._value(subtree(child), booleans=True) for child in tree.children]
        if not values:
            self._refuse(f"@{annotation}() has empty parentheses", self._span(tree), f"write @{annotation}")
        for position, value in enumerate(values):
            if isinstance(value, KeywordSyntax):
                if position == 0:
                    self._refuse(
                        f"@{annotation} has a keyword argument before its positional one",
                        value.name.span,
                        f"write @{annotation}(value, {value.name.text}=...)",
                    )
                if any(k.name.text == value.name.text for k in keywords):
                    self._refuse(f"argument '{value.name.text}=' is given twice", value.name.span, None)
                self._signed(value.value, annotation)
                keywords.append(value)
            elif position > 0:
                self._refuse(
                    f"@{annotation} takes one positional argument", value.span, "further ones are name=value"
                )
            elif isinstance(value, RangeBoundsSyntax):
                self._refuse(f"bounds are no argument of @{annotation}", value.span, None)
            else:
                self._signed(value, annotation)
                positional = self._bare(value)
        return positional, tuple(keywords)

    def of_constraint(self, tree: ParseTree) -> list[ArgumentSyntax]:
        """Return all arguments as they are; in a constraint `true` is a name like any other."""
        return [self._value(subtree(child), booleans=False) for child in tree.children]

    # -- one argument --------------------------------------------------------------------------------

    def _value(self, tree: ParseTree, *, booleans: bool) -> ArgumentSyntax:
        span = self._span(tree)
        if tree.rule == "bounds":
            numbers = [(token.text, token.type) for token in tree.children if isinstance(token, Token)]
            cut = next(at for at, (_, terminal) in enumerate(numbers) if terminal == "RANGE")
            low = numbers[0][0] if cut > 0 else None
            high = numbers[-1][0] if cut < len(numbers) - 1 else None
            return RangeBoundsSyntax(low, high, span)
        if tree.rule == "keyword":
            word, value = (subtree(child) for child in tree.children)
            name = Ident(word_text(word), self._span(word))
            return KeywordSyntax(name, self._literal(value))
        token = tree.children[0]
        if isinstance(token, ParseTree):
            text = word_text(token)
            if booleans and text in BOOLEANS:
                return LiteralSyntax(LiteralKind.BOOLEAN, text, span)
            return Ident(text, span)
        return self._token(token, span)

    def _token(self, token: Token, span: Span) -> LiteralSyntax:
        if token.type == "STRING":
            return LiteralSyntax(LiteralKind.STRING, unquote(token.text, span, self._reporter), span)
        kind = LiteralKind.FLOAT if "." in token.text else LiteralKind.INTEGER
        return LiteralSyntax(kind, token.text, span)

    def _literal(self, tree: ParseTree) -> LiteralSyntax:
        """The value of a keyword must be a literal; a bare word is reported and read as a string."""
        value = self._value(tree, booleans=True)
        if isinstance(value, LiteralSyntax):
            return value
        text = value.text if isinstance(value, Ident) else ""
        self._refuse(f"expected a literal, found {text!r}", value.span, f'write "{text}"')
        return LiteralSyntax(LiteralKind.STRING, text, value.span)

    def _bare(self, value: LiteralSyntax | Ident) -> LiteralSyntax | Ident:
        if isinstance(value, Ident) and "A" <= value.text[0] <= "Z":
            self._refuse(
                f"expected a literal or a property name, found {value.text!r}",
                value.span,
                f'write "{value.text}"',
            )
        return value

    def _signed(self, value: LiteralSyntax | Ident, annotation: str) -> None:
        # A default is a value of the property, so it may be negative like any other value.
        number = isinstance(value, LiteralSyntax) and value.kind in (LiteralKind.INTEGER, LiteralKind.FLOAT)
        if number and value.text.startswith("-") and annotation != "default":
            message = f"a negative number is only legal in @range and @default: {value.text[:40]}"
            self._refuse(message, value.span, None)

    def _refuse(self, message: str, span: Span, suggestion: str | None) -> None:
        self._reporter.report(rules.ARGUMENT, message, span, suggestion)

    def _span(self, tree: ParseTree) -> Span:
        return self._reporter.source.span(self._offset + tree.start, self._offset + tree.end)


def unquote(text: str, span: Span, reporter: Reporter, rule: Rule = rules.BAD_ESCAPE) -> str:
    """Decode a string literal; an unknown escape is reported at its own place and read as its letter."""

    def decode(match: re.Match[str]) -> str:
        letter = match.group(1)
        if letter not in _ESCAPES:
            start = span.start + 1 + match.start()
            reporter.report(
                rule,
                f"unsupported escape sequence: \\{letter}",
                reporter.source.span(start, start + 2),
                'the escapes are \\" \\\\ \\n \\r \\t',
            )
        return _ESCAPES.get(letter, letter)

    return _ESCAPE.sub(decode, text[1:-1])


def quote(text: str) -> str:
    """Return the literal that `unquote` reads back.

    >>> print(quote('say "hi"'))
    "say \\"hi\\""
    """
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(char, escape)
    return f'"{text}"'
