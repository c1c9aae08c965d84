"""Query language: `.gq` text to a tree, and back to text. Resolving it against a schema is catalog.query."""

from omnigraph.language.query.parser import Parse, QueryNotFound, parse, parse_query, select
from omnigraph.language.query.printer import print_queries
from omnigraph.language.query.tree import Query, QueryFile

__all__ = [
    "Parse",
    "Query",
    "QueryFile",
    "QueryNotFound",
    "parse",
    "parse_query",
    "print_queries",
    "select",
]
