"""Syntax: what the parsers of both languages do alike: decode a text, and say what does not match a grammar.

Room    language. Knows no grammar: each language brings its rules, its names for terminals and its advice.
Given   the text of a file; the error that the parser raised for a part of it.
Gives   a `Reporter` over the decoded text; findings that say what was found and what was expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Reporter, Rule, SourceText, Span
from omnigraph.language.lalr import END, SyntaxMismatch

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # some editors put one in front of a UTF-8 text

Advice: TypeAlias = Callable[[SourceText, Span, set[str]], str | None]


class Wording(FrozenRecord):
    """How one language speaks of its grammar errors."""

    unexpected: Rule
    unterminated: Rule
    display: Mapping[str, str]  # terminal -> what a reader calls it, in the order of listing
    end: str  # what stands at the end of a piece
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
    error: SyntaxMismatch, chunk: tuple[int, int], reporter: Reporter, wording: Wording
) -> None:
    """Report a grammar error of a part of the text, given as its `[start, end)`."""
    source, token = reporter.source, error.token
    start = chunk[0] + error.position
    if token is None:
        span, unexpected = source.span(start, start + 1), repr(source.text[start : start + 1])
        unclosed = _unterminated(source.text, start)
        if unclosed is not None:
            reporter.report(wording.unterminated, unclosed[0], span, unclosed[1])
            return
    elif token.type == END:
        span, unexpected = source.span(chunk[1], chunk[1]), wording.end
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
