"""Query language: `.gq` text to a tree, and back to text. Resolving it against a schema is catalog.query."""

from omnigraph.language.query.parser import ParsedQueries, parse, parse_query, select
from omnigraph.language.query.printer import print_queries
from omnigraph.language.query.tree import QueryFileSyntax, QuerySyntax

__all__ = [
    "ParsedQueries",
    "QueryFileSyntax",
    "QuerySyntax",
    "parse",
    "parse_query",
    "print_queries",
    "select",
]
