"""Parser: schema text to tree, with every grammar error of the text.

    **text -> tokens -> parse tree -> tree** -> checked schema -> catalog

Cuts the text into declarations, parses each, builds it (build.py). A `ParsedSchema` has the declarations
that could be read, the names of those that could not, the findings.

Any text whatever gives a result: bad bytes, deep nesting and open brackets are findings. The grammar is
wider than the language on purpose: it lets through forms that build.py then refuses with a message of their
own ("interfaces take no annotations") instead of "unexpected '@'". A keyword is one only where the grammar
expects it, so that a property may be called `node`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from omnigraph.base.dataclass import dataclass
from omnigraph.language.diagnostics import Diagnostic, Reporter, SourceText, Span, nearest
from omnigraph.language.lalr import Parser, SyntaxMismatch
from omnigraph.language.schema import rules
from omnigraph.language.schema.build import build
from omnigraph.language.schema.tree import DeclarationSyntax, SchemaSyntax
from omnigraph.language.syntax import (
    SHARED_TERMINALS,
    WORD_END,
    DefinitionText,
    Splitting,
    Wording,
    decoded,
    definitions,
    report_syntax,
)

DECLARED = ("interface", "node", "edge")
KEYWORDS = (*DECLARED, "implements", "enum")

GRAMMAR = rf"""
declaration: interface | node | edge

interface: INTERFACE word clause* body
node:      NODE word clause* body
edge:      EDGE word ":" word "->" word clause* body?

?clause:    annotation | implements
implements: IMPLEMENTS word ("," word)*

body:     "{{" _member* "}}"
_member:  property | annotation
property: word ":" type

type:    _base OPTIONAL?
_base:   scalar | list | enum
scalar:  word arguments?
list:    "[" type "]"
enum:    ENUM "(" variant ("," variant)* ")"
variant: VARIANT | STRING

annotation: "@" word arguments?
arguments:  "(" (_argument ("," _argument)*)? ")"
_argument:  value | bounds | keyword
keyword:    word "=" value
value:      STRING | NUMBER | word
bounds:     NUMBER RANGE | NUMBER RANGE NUMBER | RANGE NUMBER | RANGE
word:       NAME | TYPE_NAME

INTERFACE.2:  /interface{WORD_END}/
NODE.2:       /node{WORD_END}/
EDGE.2:       /edge{WORD_END}/
IMPLEMENTS.2: /implements{WORD_END}/
ENUM.2:       /enum{WORD_END}/
VARIANT:      /[A-Za-z0-9_-]+/
NUMBER:       /-?[0-9]+(?:\.[0-9]+)?{WORD_END}/
RANGE:        ".."

{SHARED_TERMINALS}
"""

TABLES = Path(__file__).with_name("tables.json")  # made from the grammar by scripts/parse_tables.py

# What a reader would call a terminal, in the order in which expectations are listed.
DISPLAY = {
    "INTERFACE": "'interface'",
    "NODE": "'node'",
    "EDGE": "'edge'",
    "NAME": "a name",
    "TYPE_NAME": "a type name",
    "VARIANT": "an enum value",
    "STRING": "a string",
    "NUMBER": "a number",
    "ENUM": "'enum'",
    "IMPLEMENTS": "'implements'",
    "COLON": "':'",
    "__ANON_0": "'->'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "COMMA": "','",
    "EQUAL": "'='",
    "AT": "'@'",
    "OPTIONAL": "'?'",
    "RANGE": "'..'",
    "$END": "the end of the declaration",
}


@cache
def parser() -> Parser:
    """Return the parser; it reads its tables when the first text comes."""
    return Parser.from_file(TABLES)


@dataclass(frozen=True, slots=True)
class ParsedSchema:
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
    declarations: list[DeclarationSyntax] = []
    broken: set[tuple[str, str]] = set()
    for definition in split(source.text):
        declaration = _read_declaration(definition, reporter)
        if declaration is not None:
            declarations.append(declaration)
        elif len(definition.words) == 2 and definition.words[0] in DECLARED:
            broken.add((definition.words[0], definition.words[1]))
    return ParsedSchema(
        SchemaSyntax(tuple(declarations), source), frozenset(broken), tuple(reporter.diagnostics)
    )


def _read_declaration(definition: DefinitionText, reporter: Reporter) -> DeclarationSyntax | None:
    text = reporter.source.text[definition.start : definition.end]
    try:
        return build(parser().parse(text), definition.start, reporter)
    except SyntaxMismatch as error:
        report_syntax(error, definition, reporter, WORDING)
    except RecursionError:
        span = reporter.source.span(definition.start, definition.end)
        reporter.report(rules.UNEXPECTED, "the declaration is nested too deeply", span)
    return None


# -- cutting -----------------------------------------------------------------------------------------


def split(text: str) -> Iterator[DefinitionText]:
    """Yield the declarations of a text. A mistake inside one stays there, and the others are still read.

    No valid declaration is cut in two: `node`, `edge` or `interface` before a type name occurs inside none.

    >>> [text[d.start : d.end] for text in ["node A {} edge E: A -> A"] for d in split(text)]
    ['node A {}', 'edge E: A -> A']
    """
    return definitions(text, _SPLITTING)


def _starts_declaration(tokens: Sequence[re.Match[str]], position: int, depth: int) -> bool:
    """Inside brackets a keyword is a name, unless a type name follows: then a bracket was left open."""
    if tokens[position].group() not in DECLARED or (position and tokens[position - 1].group() == "@"):
        return False
    after = tokens[position + 1].group() if position + 1 < len(tokens) else ""
    return depth <= 0 or ("A" <= after[:1] <= "Z")


_SPLITTING = Splitting(word="[A-Za-z_][A-Za-z0-9_]*", starts=_starts_declaration)


# -- messages ----------------------------------------------------------------------------------------


def _advice(source: SourceText, span: Span, expected: set[str]) -> str | None:
    """Say what to write instead, for the mistakes that people make."""
    written = source.text[span.start : span.end]
    keywords = [DISPLAY[t].strip("'") for t in expected if t in DISPLAY and DISPLAY[t].strip("'") in KEYWORDS]
    close = nearest(written, keywords) if written.isidentifier() else None
    if close is not None:
        return f"did you mean {close!r}?"
    match written:
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
