"""Parser: schema text to tree, with every grammar error of the text.

    **text -> tree** -> checked schema -> catalog

Room    language.schema. Cuts the text (split.py), parses each piece (grammar.py), builds it (build.py).
Gives   `ParsedSchema`: the declarations that could be read, the names of those that could not, the findings.
Rule    any text whatever gives a result: bad bytes, deep nesting and open brackets are findings.
"""

from __future__ import annotations

from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Diagnostic, Reporter, SourceText, Span
from omnigraph.language.lalr import SyntaxMismatch
from omnigraph.language.schema import rules
from omnigraph.language.schema.build import Builder
from omnigraph.language.schema.grammar import DISPLAY, parser
from omnigraph.language.schema.split import DefinitionText, split
from omnigraph.language.schema.tree import DeclarationSyntax, SchemaSyntax
from omnigraph.language.suggest import nearest
from omnigraph.language.syntax import Wording, decoded, report_syntax

KEYWORDS = ("interface", "node", "edge", "implements", "enum")


class ParsedSchema(FrozenRecord):
    """What could be read, and what was wrong."""

    schema: SchemaSyntax
    broken: frozenset[tuple[str, str]]  # (kind, name) of declarations with a syntax error
    diagnostics: tuple[Diagnostic, ...]


def parse(text: str | bytes, *, file: str = "schema.pg") -> ParsedSchema:
    """Parse a text as far as it can be; checks nothing that needs more than one declaration."""
    reporter = decoded(text, file, rules.ENCODING)
    source = reporter.source
    if reporter.diagnostics:
        return ParsedSchema(SchemaSyntax((), source), frozenset(), tuple(reporter.diagnostics))
    builder = Builder(reporter)
    declarations: list[DeclarationSyntax] = []
    broken: set[tuple[str, str]] = set()
    for piece in split(source.text):
        declaration = _piece(piece, builder, reporter)
        if declaration is not None:
            declarations.append(declaration)
        elif piece.kind is not None and piece.name is not None:
            broken.add((piece.kind, piece.name))
    return ParsedSchema(
        SchemaSyntax(tuple(declarations), source), frozenset(broken), tuple(reporter.diagnostics)
    )


def _piece(piece: DefinitionText, builder: Builder, reporter: Reporter) -> DeclarationSyntax | None:
    text = reporter.source.text[piece.start : piece.end]
    try:
        return builder.declaration(parser().parse(text), piece.start)
    except SyntaxMismatch as error:
        report_syntax(error, (piece.start, piece.end), reporter, WORDING)
    except RecursionError:
        span = reporter.source.span(piece.start, piece.end)
        reporter.report(rules.UNEXPECTED, "the declaration is nested too deeply", span)
    return None


def _advice(source: SourceText, span: Span, expected: set[str]) -> str | None:
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


WORDING = Wording(rules.UNEXPECTED, rules.UNTERMINATED, DISPLAY, "the end of the declaration", _advice)
