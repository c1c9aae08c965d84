"""Parser: schema text to tree, with every grammar error of the text.

    **text -> tree** -> checked schema -> catalog

Room    language.schema. Cuts the text (split.py), parses each piece (grammar.py), builds it (build.py).
Gives   `Parse`: the declarations that could be read, the names of those that could not, the findings.
Rule    any text whatever gives a result: bad bytes, deep nesting and open brackets are findings.
"""

from __future__ import annotations

from dataclasses import dataclass

from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from omnigraph.language.diagnostics import Diagnostic, Reporter, Source, Span
from omnigraph.language.schema import rules
from omnigraph.language.schema.build import Builder
from omnigraph.language.schema.grammar import DISPLAY, PARSER
from omnigraph.language.schema.split import Piece, split
from omnigraph.language.schema.tree import Declaration, Schema
from omnigraph.language.suggest import nearest

MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"  # some editors put one in front of a UTF-8 text
KEYWORDS = ("interface", "node", "edge", "implements", "enum")


@dataclass(frozen=True, slots=True)
class Parse:
    """What could be read, and what was wrong."""

    schema: Schema
    broken: frozenset[tuple[str, str]]  # (kind, name) of declarations with a syntax error
    diagnostics: tuple[Diagnostic, ...]


def parse(text: str | bytes, *, file: str = "schema.pg") -> Parse:
    """Parse a text as far as it can be; checks nothing that needs more than one declaration."""
    source, reporter = _decoded(text, file)
    if reporter.found:
        return Parse(Schema((), source), frozenset(), tuple(reporter.found))
    builder = Builder(reporter)
    declarations: list[Declaration] = []
    broken: set[tuple[str, str]] = set()
    for piece in split(source.text):
        declaration = _piece(piece, builder, reporter)
        if declaration is not None:
            declarations.append(declaration)
        elif piece.kind is not None and piece.name is not None:
            broken.add((piece.kind, piece.name))
    return Parse(Schema(tuple(declarations), source), frozenset(broken), tuple(reporter.found))


def _decoded(text: str | bytes, file: str) -> tuple[Source, Reporter]:
    problem: tuple[int, int] | None = None
    if isinstance(text, bytes):
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            decoded = text.decode("utf-8", errors="replace")
            start = len(text[: error.start].decode("utf-8"))
            problem = start, start + 1
    else:
        decoded = text
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            decoded = text.encode("utf-8", errors="replace").decode("utf-8")
            problem = error.start, error.end
    # The mark becomes a space, so that offsets still count from the start of the text.
    source = Source(" " + decoded[1:] if decoded.startswith(MARK) else decoded, file)
    reporter = Reporter(source)
    if problem is not None:
        span = source.span(*problem)
        reporter.report(rules.ENCODING, "the text is not valid UTF-8", span, "save the file as UTF-8")
    return source, reporter


def _piece(piece: Piece, builder: Builder, reporter: Reporter) -> Declaration | None:
    text = reporter.source.text[piece.start : piece.end]
    try:
        return builder.declaration(PARSER.parse(text), piece.start)
    except UnexpectedInput as error:
        _report_syntax(error, piece, reporter)
    except RecursionError:
        span = reporter.source.span(piece.start, piece.end)
        reporter.report(rules.UNEXPECTED, "the declaration is nested too deeply", span)
    return None


# -- grammar errors --------------------------------------------------------------------------------


def _report_syntax(error: UnexpectedInput, piece: Piece, reporter: Reporter) -> None:
    source = reporter.source
    position: int | None = error.pos_in_stream
    at = piece.start + (position or 0)
    match error:
        case UnexpectedToken() if error.token.type == "$END":
            span = source.span(piece.end, piece.end)
            found, expected = "the end of the declaration", error.accepts or error.expected
        case UnexpectedToken():
            span = source.span(at, at + len(error.token))
            found, expected = repr(str(error.token)), error.accepts or error.expected
        case UnexpectedCharacters():
            opened = _unterminated(source.text, at)
            if opened is not None:
                reporter.report(rules.UNTERMINATED, *opened[:1], source.span(at, at + 1), opened[1])
                return
            span = source.span(at, at + 1)
            found, expected = repr(source.text[at : at + 1]), error.allowed or set()
        case _:
            span, found, expected = source.span(at, at + 1), "this", set()
    message = f"unexpected {_short(found)}, expected {_listed(expected)}"
    reporter.report(rules.UNEXPECTED, message, span, _advice(source, span, expected))


def _unterminated(text: str, at: int) -> tuple[str, str] | None:
    if text.startswith('"', at):
        return "the string is never closed", "write '\"' at its end; a '\"' inside a string is written \\\""
    if text.startswith("/*", at):
        return "the comment is never closed", "write '*/' at its end"
    return None


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}...'"


def _listed(expected: set[str]) -> str:
    known = [text for terminal, text in DISPLAY.items() if terminal in expected]
    if len(known) <= 1:
        return known[0] if known else "something else"
    return f"{', '.join(known[:-1])} or {known[-1]}"


def _advice(source: Source, span: Span, expected: set[str]) -> str | None:
    """Say what to write instead, for the mistakes that people make."""
    found = source.text[span.start : span.end]
    keywords = [DISPLAY[t].strip("'") for t in expected if t in DISPLAY and DISPLAY[t].strip("'") in KEYWORDS]
    close = nearest(found, keywords) if found.isidentifier() else None
    if close is not None:
        return f"did you mean {close!r}?"
    match found:
        case "," if "NAME" in expected and "RBRACE" in expected:
            return "properties are separated by space or line breaks, not by commas"
        case "#":
            return "a comment starts with '//'"
        case "*" if "NUMBER" in expected:
            return "leave the upper bound out: @card(1..)"
        case ";":
            return "declarations and properties end without a semicolon"
        case "'":
            return 'strings are written in double quotes: "..."'
        case "" if "RBRACE" in expected:
            return "a '}' is missing"
    return None
