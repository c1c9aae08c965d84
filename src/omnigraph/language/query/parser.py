"""Parser: query text to tree, with every fault that the text alone shows.

    **text -> tree** -> checked query

Cuts the text into queries, parses each (grammar.py), builds it (build.py). `parse` returns what could
be read and what was wrong, `parse_query` the tree or raises `QueryError`.

Any text whatever gives a result: bad bytes, deep nesting and open brackets are findings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, QueryNotFound
from omnigraph.language.diagnostics import (
    Diagnostic,
    QueryError,
    Reporter,
    SourceText,
    Span,
    did_you_mean,
    nearest,
)
from omnigraph.language.lalr import SyntaxMismatch
from omnigraph.language.query import rules
from omnigraph.language.query.build import build
from omnigraph.language.query.grammar import DISPLAY, parser
from omnigraph.language.query.tree import QueryFileSyntax, QuerySyntax
from omnigraph.language.syntax import DefinitionText, Splitting, Wording, decoded, definitions, report_syntax

MAX_DEPTH = 48  # of brackets; nobody nests deeper by hand, and a tree of that depth is safe to walk
KEYWORDS = (
    "query",
    "match",
    "return",
    "order",
    "limit",
    "offset",
    "insert",
    "update",
    "delete",
    "set",
    "where",
)
_PLAIN = {terminal: DISPLAY[terminal].strip("'") for terminal in DISPLAY}


@dataclass(frozen=True, slots=True)
class ParsedQueries:
    """What could be read, and what was wrong."""

    file: QueryFileSyntax
    diagnostics: tuple[Diagnostic, ...]

    @property
    def broken(self) -> bool:
        """Say whether some of the text could not be read at all (`Q000`)."""
        return any(d.rule is rules.SYNTAX for d in self.diagnostics)


def parse(text: str | bytes, *, file: str = "query.gq") -> ParsedQueries:
    """Parse a text as far as it can be; checks nothing that needs a schema."""
    reporter = decoded(text, file, rules.SYNTAX)
    queries: list[QuerySyntax] = []
    if not reporter.diagnostics:
        for definition in split(reporter.source.text):
            query = _read_query(definition, reporter)
            if query is not None:
                queries.append(query)
        _report_duplicates(queries, reporter)
    return ParsedQueries(QueryFileSyntax(tuple(queries), reporter.source), tuple(reporter.diagnostics))


def parse_query(text: str | bytes, file: str = "query.gq") -> QueryFileSyntax:
    """Parse a text, or raise `QueryError` with everything that is wrong with it."""
    parsed = parse(text, file=file)
    if parsed.diagnostics:
        raise QueryError(parsed.file.source, parsed.diagnostics)
    return parsed.file


def select(file: QueryFileSyntax, name: str | None = None) -> QuerySyntax:
    """Return the query of a name; a file with one query needs none."""
    names = [query.name.text for query in file.queries]
    if name is not None:
        if name not in names:
            raise QueryNotFound(f"query '{name}' not found", remedy=_choices(name, names), name=name)
        return file.queries[names.index(name)]
    if not file.queries:
        raise InvalidRequest("the text holds no query", remedy="Write: query name() { ... }")
    if len(file.queries) > 1:
        raise InvalidRequest("query file contains multiple queries", remedy=_choices("", names))
    return file.queries[0]


def _choices(name: str, names: list[str]) -> str:
    return did_you_mean(name, names) or f"Name one of: {', '.join(names) or 'none'}"


def _read_query(definition: DefinitionText, reporter: Reporter) -> QuerySyntax | None:
    source = reporter.source
    if definition.too_deep is not None:
        span = source.span(definition.too_deep, definition.too_deep + 1)
        reporter.report(rules.SYNTAX, f"the brackets are nested more than {MAX_DEPTH} deep", span)
        return None
    try:
        parsed = parser().parse(source.text[definition.start : definition.end])
    except SyntaxMismatch as error:
        report_syntax(error, definition, reporter, WORDING)
        return None
    return build(parsed, definition.start, reporter)


def _report_duplicates(queries: list[QuerySyntax], reporter: Reporter) -> None:
    seen: set[str] = set()
    for query in queries:
        if query.name.text in seen:
            message = f"duplicate query '{query.name.text}'"
            reporter.report(rules.DUPLICATE_QUERY, message, query.name.span, "give one of them another name")
        seen.add(query.name.text)


# -- cutting -----------------------------------------------------------------------------------------


def split(text: str) -> Iterator[DefinitionText]:
    """Yield the queries of a text. A mistake inside one stays there, and the others are still read.

    No valid query is cut in two: inside brackets, `query name ($x:` and `query name ()` occur in none
    (`query now()`, an alias and a call, is let be).

    >>> text = "query a() { } query b($x: I32) { }"
    >>> [text[q.start : q.end] for q in split(text)]
    ['query a() { }', 'query b($x: I32) { }']
    """
    return definitions(text, _SPLITTING)


def _starts_query(tokens: Sequence[re.Match[str]], position: int, depth: int) -> bool:
    """Inside brackets a query starts only where its whole head says so: then a bracket was left open."""
    if tokens[position].group() != "query":
        return False
    before = tokens[position - 1].group() if position else ""
    name, opened, inner, colon = ([t.group() for t in tokens[position + 1 : position + 5]] + [""] * 4)[:4]
    if depth <= 0:
        return before != "query" or opened == "("  # `query query()` is a query named query
    if opened != "(" or not name.isidentifier():
        return False
    return (inner.startswith("$") and colon == ":") or (inner == ")" and name != "now")


_SPLITTING = Splitting(
    word=r"\$?[A-Za-z_][A-Za-z0-9_]*",
    starts=_starts_query,
    max_depth=MAX_DEPTH,
)


# -- messages ----------------------------------------------------------------------------------------


def _advice(source: SourceText, span: Span, expected: set[str]) -> str | None:
    """Say what to write instead, for the mistakes that people make."""
    written = source.text[span.start : span.end]
    words = [_PLAIN[t] for t in expected if t in _PLAIN and _PLAIN[t] in KEYWORDS]
    close = nearest(written, words) if written.isidentifier() else None
    if close is not None:
        return f"did you mean {close!r}?"
    match written:
        case "mutation":
            return "a mutation is a query too: write 'query name() { insert ... }'"
        case "#":
            return "a comment starts with '//'"
        case ";":
            return "clauses and statements end without a semicolon"
        case "'":
            return 'strings are written in double quotes: "..."'
        case "==":
            return "equality is written '='"
        case "*" if "VAR" in expected:
            return "to count rows, count a variable: count($x)"
        case "[" if "AS" in expected:
            return "items of a list cannot be picked; between two outputs, write a comma"
        case "" if "RBRACE" in expected:
            return "a '}' is missing"
    if "COMPARE" not in expected and (
        written in ("contains", "starts_with", "in", "is") or written[:1] in "=!<>"
    ):
        return "comparisons do not chain: join them with 'and'"
    if written.isidentifier() and "VAR" in expected and "NAME" not in expected:
        return f"a variable is written with '$': ${written}"
    return None


WORDING = Wording(rules.SYNTAX, rules.SYNTAX, DISPLAY, "the end of the query", _advice)
