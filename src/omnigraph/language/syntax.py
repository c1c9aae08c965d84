"""Syntax: what both languages share: names, types and terminals; decoding, cutting and refusing a text.

Knows no grammar: each language brings its rules, its names for terminals and its advice.

A text is decoded and cut into definitions (a query, or a declaration of a schema), so that a mistake in one
leaves the others. An error of the parser becomes a finding that says what stood there and what was expected.

A class whose values are read from a text ends in `Syntax`: `AndSyntax` is a condition as written, `And` in
catalog.query what it means. Names (`Ident`) and types (`TypeExpr`) are the same in both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import TypeAlias

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Reporter, Rule, SourceText, Span
from omnigraph.language.lalr import END, Child, SyntaxMismatch

SCALARS = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob")
INTEGERS = ("I32", "I64", "U32", "U64")
FLOATS = ("F32", "F64")
NUMERIC = INTEGERS + FLOATS
MAX_DIMENSION = 2**31 - 1  # of a vector
MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # some editors put one in front of a UTF-8 text

# Terminals that both grammars have, for Lark. The comment is atomic, so that no text makes it slow.
WORD_END = r"(?![A-Za-z0-9_])"
SHARED_TERMINALS = r"""
NAME:      /[a-z_][A-Za-z0-9_]*/
TYPE_NAME: /[A-Z][A-Za-z0-9_]*/
STRING:    /"(?:[^"\\]|\\[\s\S])*"/
OPTIONAL:  "?"

%ignore /[ \t\r\n]+/
LINE.9:  /\/\/[^\n]*/
BLOCK.9: /\/\*(?>[^*]|\*(?!\/))*\*\//
%ignore LINE
%ignore BLOCK
"""
COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/"


@dataclass(frozen=True, slots=True)
class Ident:
    """A name as written."""

    text: str
    span: Span = field(compare=False, repr=False)


# -- types -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One of `SCALARS`."""

    name: str


@dataclass(frozen=True, slots=True)
class ListType:
    """A list of one of `SCALARS`."""

    item: str


@dataclass(frozen=True, slots=True)
class VectorType:
    """A vector of so many F32."""

    dimension: int


@dataclass(frozen=True, slots=True)
class EnumType:
    """A closed set of strings, in the order written."""

    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BadType:
    """A type that was already reported: later checks leave it alone."""


Shape: TypeAlias = ScalarType | ListType | VectorType | EnumType | BadType


@dataclass(frozen=True, slots=True)
class TypeExpr:
    """A property's type."""

    shape: Shape
    nullable: bool
    span: Span = field(compare=False, repr=False)

    def same_as(self, other: TypeExpr) -> bool:
        """Say whether both admit the same values; the order of enum values has no meaning."""
        return str(self) == str(other)

    def __str__(self) -> str:
        match self.shape:
            case ScalarType(name):
                text = name
            case ListType(item):
                text = f"[{item}]"
            case VectorType(dimension):
                text = f"Vector({dimension})"
            case EnumType(values):
                text = f"enum({', '.join(sorted(values))})"
            case BadType():
                text = "?"
        return f"{text}?" if self.nullable else text


# -- definitions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DefinitionText:
    """The text of one definition, `[start, end)`; `too_deep` is where its brackets nest too deeply."""

    start: int
    end: int
    words: tuple[str, ...]  # the first two
    too_deep: int | None = None


@dataclass(frozen=True, slots=True)
class Splitting:
    """How one language cuts a text into definitions, before any of them is parsed."""

    word: str  # the pattern of a word
    starts: Callable[[Sequence[re.Match[str]], int, int], bool]  # tokens, position, depth of brackets
    max_depth: int | None = None


@cache
def _token_pattern(word: str) -> re.Pattern[str]:
    string = r'"(?:[^"\\]|\\[\s\S])*"'
    # What is never closed goes on to the end, so that no text is scanned more than twice.
    other = r'/\*[\s\S]*|"[\s\S]*|[\s\S]'
    return re.compile(
        rf"(?P<skip>[ \t\r\n]+|{COMMENT})|(?P<string>{string})|(?P<word>{word})|(?P<other>{other})"
    )


def definitions(text: str, splitting: Splitting) -> Iterator[DefinitionText]:
    """Yield the definitions in order; comments and space between them belong to none.

    One ends where its brackets are closed, and where the next one starts.
    """
    pattern = _token_pattern(splitting.word)
    tokens = [token for token in pattern.finditer(text) if token.lastgroup != "skip"]
    first, depth = 0, 0
    for position, token in enumerate(tokens):
        character = token.group()
        if position > first and splitting.starts(tokens, position, depth):
            yield _definition(tokens[first:position], splitting)
            first, depth = position, 0
        if character in ("{", "(", "["):
            depth += 1
        elif character in ("}", ")", "]"):
            depth -= 1
            if character == "}" and depth <= 0:
                yield _definition(tokens[first : position + 1], splitting)
                first, depth = position + 1, 0
    if first < len(tokens):
        yield _definition(tokens[first:], splitting)


def _definition(tokens: Sequence[re.Match[str]], splitting: Splitting) -> DefinitionText:
    words = tuple(token.group() for token in tokens if token.lastgroup == "word")[:2]
    return DefinitionText(tokens[0].start(), tokens[-1].end(), words, _too_deep(tokens, splitting.max_depth))


def _too_deep(tokens: Sequence[re.Match[str]], max_depth: int | None) -> int | None:
    depth = 0
    for token in tokens:
        depth += (token.group() in ("{", "(", "[")) - (token.group() in ("}", ")", "]"))
        if max_depth is not None and depth > max_depth:
            return token.start()
    return None


class BuildContext:
    """Positions and findings while the parse tree of one definition becomes values."""

    def __init__(self, reporter: Reporter, offset: int) -> None:
        self.reporter = reporter
        self.offset = offset  # where the definition starts in the text

    def span(self, first: Child, last: Child | None = None) -> Span:
        """Return the span of a child, or from one child to another."""
        end = (last or first).end
        return self.reporter.source.span(self.offset + first.start, self.offset + end)

    def report(self, rule: Rule, message: str, span: Span, suggestion: str | None = None) -> None:
        """Note a fault; the building goes on."""
        self.reporter.report(rule, message, span, suggestion)


# -- decoding and refusing ---------------------------------------------------------------------------


Advice: TypeAlias = Callable[[SourceText, Span, set[str]], str | None]


@dataclass(frozen=True, slots=True)
class Wording:
    """How one language speaks of its grammar errors."""

    unexpected: Rule
    unterminated: Rule
    display: Mapping[str, str]  # terminal -> what a reader calls it, in the order of listing
    end: str  # what stands at the end of a definition
    advice: Advice  # source, what was found, expected terminals -> what to write instead


def decoded(text: str | bytes, file: str, encoding: Rule) -> Reporter:
    """Return a reporter over the text; one that is not UTF-8 has its finding already."""
    problem: tuple[int, int] | None = None
    if isinstance(text, bytes):
        try:
            plain = text.decode("utf-8")
        except UnicodeDecodeError as error:
            plain = text.decode("utf-8", errors="replace")
            start = len(text[: error.start].decode("utf-8"))
            problem = start, start + 1
    else:
        plain = text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            plain = text.encode("utf-8", errors="replace").decode("utf-8")
            problem = error.start, error.end
    # The mark becomes a space, so that offsets still count from the start of the text.
    reporter = Reporter(SourceText(" " + plain[1:] if plain.startswith(MARK) else plain, file))
    if problem is not None:
        span = reporter.source.span(*problem)
        reporter.report(encoding, "the text is not valid UTF-8", span, "save the file as UTF-8")
    return reporter


def report_syntax(
    error: SyntaxMismatch, definition: DefinitionText, reporter: Reporter, wording: Wording
) -> None:
    """Report a grammar error of one definition."""
    source, token = reporter.source, error.token
    start = definition.start + error.position
    if token is None:
        span, unexpected = source.span(start, start + 1), repr(source.text[start : start + 1])
        unclosed = _unterminated(source.text, start)
        if unclosed is not None:
            reporter.report(wording.unterminated, unclosed[0], span, unclosed[1])
            return
    elif token.type == END:
        span, unexpected = source.span(definition.end, definition.end), wording.end
    else:
        span, unexpected = source.span(start, start + len(token.text)), repr(token.text)
    message = f"unexpected {_short(unexpected)}, expected {_listed(error.expected, wording.display)}"
    reporter.report(wording.unexpected, message, span, wording.advice(source, span, error.expected))


def _unterminated(text: str, at: int) -> tuple[str, str] | None:
    if text.startswith('"', at):
        return "the string is never closed", "write '\"' at its end; a '\"' inside a string is written \\\""
    if text.startswith("/*", at):
        return "the comment is never closed", "write '*/' at its end"
    return None


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}...'"


def _listed(expected: set[str], display: Mapping[str, str]) -> str:
    known = list(dict.fromkeys(text for terminal, text in display.items() if terminal in expected))
    if len(known) <= 1:
        return known[0] if known else "something else"
    return f"{', '.join(known[:-1])} or {known[-1]}"
