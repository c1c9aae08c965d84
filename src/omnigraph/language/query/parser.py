"""Parser: query text to tree, with every fault that the text alone shows.

    **text -> tree** -> checked query

Room    language.query. Cuts the text (split.py), parses each piece (grammar.py), builds it (build.py).
Gives   `parse`: what could be read and what was wrong; `parse_query`: the tree, or `QueryError`.
Rule    any text whatever gives a result: bad bytes, deep nesting and open brackets are findings.
"""

from __future__ import annotations

from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.base.frozen import FrozenRecord
from omnigraph.language.diagnostics import Diagnostic, QueryError, Reporter, SourceText, Span
from omnigraph.language.lalr import SyntaxMismatch
from omnigraph.language.query import rules
from omnigraph.language.query.build import build
from omnigraph.language.query.grammar import DISPLAY, parser
from omnigraph.language.query.split import MAX_DEPTH, DefinitionText, split
from omnigraph.language.query.tree import QueryFileSyntax, QuerySyntax
from omnigraph.language.suggest import did_you_mean, nearest
from omnigraph.language.syntax import Wording, decoded, report_syntax

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


class ParsedQueries(FrozenRecord):
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
        for piece in split(reporter.source.text):
            query = _piece(piece, reporter)
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
        found = next((query for query in file.queries if query.name.text == name), None)
        if found is None:
            raise QueryNotFound(f"query '{name}' not found", remedy=_choices(name, names), name=name)
        return found
    if not file.queries:
        raise InvalidRequest("the text holds no query", remedy="Write: query name() { ... }")
    if len(file.queries) > 1:
        raise InvalidRequest("query file contains multiple queries", remedy=_choices("", names))
    return file.queries[0]


class QueryNotFound(NotFound):
    """The file has no query of this name."""

    code = "query_not_found"


def _choices(name: str, names: list[str]) -> str:
    return did_you_mean(name, names) or f"Name one of: {', '.join(names) or 'none'}"


def _piece(piece: DefinitionText, reporter: Reporter) -> QuerySyntax | None:
    source = reporter.source
    if piece.too_deep is not None:
        span = source.span(piece.too_deep, piece.too_deep + 1)
        reporter.report(rules.SYNTAX, f"the brackets are nested more than {MAX_DEPTH} deep", span)
        return None
    try:
        parsed = parser().parse(source.text[piece.start : piece.end])
    except SyntaxMismatch as error:
        report_syntax(error, (piece.start, piece.end), reporter, WORDING)
        return None
    return build(parsed, piece.start, reporter)


def _report_duplicates(queries: list[QuerySyntax], reporter: Reporter) -> None:
    seen: set[str] = set()
    for query in queries:
        if query.name.text in seen:
            message = f"duplicate query '{query.name.text}'"
            reporter.report(rules.DUPLICATE_QUERY, message, query.name.span, "give one of them another name")
        seen.add(query.name.text)


def _advice(source: SourceText, span: Span, expected: set[str]) -> str | None:
    """Say what to write instead, for the mistakes that people make."""
    found = source.text[span.start : span.end]
    words = [_PLAIN[t] for t in expected if t in _PLAIN and _PLAIN[t] in KEYWORDS]
    close = nearest(found, words) if found.isidentifier() else None
    if close is not None:
        return f"did you mean {close!r}?"
    match found:
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
        found in ("contains", "starts_with", "in", "is") or found[:1] in "=!<>"
    ):
        return "comparisons do not chain: join them with 'and'"
    if found.isidentifier() and "VAR" in expected and "NAME" not in expected:
        return f"a variable is written with '$': ${found}"
    return None


WORDING = Wording(rules.SYNTAX, rules.SYNTAX, DISPLAY, "the end of the query", _advice)
