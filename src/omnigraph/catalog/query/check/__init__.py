"""Check: a query against a schema.

    text -> tree -> **checked query**

The entry point: parse a text, choose one of its queries, resolve it against the catalog that it must fit.
Each file of the folder checks one part of a query.
The result is a `CheckedQuery`, or a `QueryError` with everything that is wrong, in the order of the text.
"""

from __future__ import annotations

from typing import TypeAlias

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query.check.mutation import check_mutation
from omnigraph.catalog.query.check.read import check_read
from omnigraph.catalog.query.statements import CheckedMutation, CheckedRead
from omnigraph.language.diagnostics import Diagnostic, QueryError, SourceText, in_order
from omnigraph.language.query import QuerySyntax, parse, select
from omnigraph.language.query.tree import ReadSyntax

CheckedQuery: TypeAlias = CheckedRead | CheckedMutation


def examine(query: QuerySyntax, catalog: Catalog) -> tuple[CheckedQuery | None, tuple[Diagnostic, ...]]:
    """Return the checked query, or None and what only the schema shows to be wrong."""
    body = query.body
    checked: CheckedQuery | None
    if isinstance(body, ReadSyntax):
        checked, diagnostics = check_read(query, body, catalog)
    else:
        checked, diagnostics = check_mutation(query, body, catalog)
    return checked, in_order(diagnostics)


def check(query: QuerySyntax, source: SourceText, catalog: Catalog) -> CheckedQuery:
    """Check one parsed query; `source` is the text that it came from."""
    checked, diagnostics = examine(query, catalog)
    if checked is None:
        raise QueryError(source, diagnostics)
    return checked


def compile_query(
    text: str | bytes, catalog: Catalog, name: str | None = None, *, file: str = "query.gq"
) -> CheckedQuery:
    """Parse a text and check its query of a name; a text with one query needs no name."""
    parsed = parse(text, file=file)
    if parsed.broken:
        raise QueryError(parsed.file.source, parsed.diagnostics)
    checked, diagnostics = examine(select(parsed.file, name), catalog)
    if checked is None or parsed.diagnostics:
        raise QueryError(parsed.file.source, (*parsed.diagnostics, *diagnostics))
    return checked
