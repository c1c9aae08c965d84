"""Lint: `og.lint`: what is wrong with a schema, and with queries against it, without a graph.

Reads texts and files; opens no graph and raises nothing about what the texts say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.identity import IdMinter
from omnigraph.catalog.lint import lint as lint_schema
from omnigraph.catalog.query import LintReport, lint_queries
from omnigraph.catalog.query.lint import Finding, never_set
from omnigraph.catalog.resolve import resolve
from omnigraph.engine.query import QueryText, read_query
from omnigraph.engine.schema.schema import SchemaText, read_schema
from omnigraph.language.diagnostics import Diagnostic, Severity, SourceText, render
from omnigraph.language.schema import CheckedSchema, load


@dataclass(frozen=True, repr=False)
class LintResult:
    """Everything that was found; true if nothing of it is an error. Printed, it shows each place."""

    texts: tuple[tuple[SourceText, tuple[Diagnostic, ...]], ...]
    never_set: tuple[Finding, ...] = ()  # properties that no update among the queries sets

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The findings of the schema, then those of each text of queries."""
        return tuple(diagnostic for _, diagnostics in self.texts for diagnostic in diagnostics)

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """The findings that a graph would refuse the text for."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.severity is Severity.ERROR)

    def __bool__(self) -> bool:
        return not self.errors

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def __len__(self) -> int:
        return len(self.diagnostics)

    def __str__(self) -> str:
        shown = [render(source, diagnostics) for source, diagnostics in self.texts if diagnostics]
        shown += [
            f"{finding.severity.value}[{finding.code}]: {finding.message}" for finding in self.never_set
        ]
        return "\n\n".join(shown) or "nothing to say"

    def __repr__(self) -> str:
        others = counted(len(self) - len(self.errors), "other finding")
        return f"LintResult({counted(len(self.errors), 'error')}, {others})"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "status": "ok" if self else "error",
            "diagnostics": [
                {"file": source.file, **diagnostic.to_json()}
                for source, diagnostics in self.texts
                for diagnostic in diagnostics
            ],
            "findings": [finding.to_json() for finding in self.never_set],
        }


@checked
def lint(schema: SchemaText, queries: QueryText | None = None) -> LintResult:
    """Check a schema, and queries against it: text, the path of a file, or of a folder of `.gq` files."""
    text, file = read_schema(schema)
    diagnostics = lint_schema(text, file=file)
    source = SourceText(text if isinstance(text, str) else text.decode("utf-8", "replace"), file)
    result = LintResult(((source, diagnostics),))
    if queries is None or not result:
        return result
    catalog = catalog_to_check_by(load(text, file=file))
    origin = {"kind": "file", "path": file}
    reports: list[LintReport] = [
        lint_queries(gq, catalog, schema_source=origin, file=name) for gq, name in _query_texts(queries)
    ]
    checked_queries = [query for report in reports for query in report.checked]
    return LintResult(
        (*result.texts, *((report.source, report.diagnostics) for report in reports)),
        never_set(checked_queries),
    )


def catalog_to_check_by(schema: CheckedSchema) -> Catalog:
    """Return a schema as a catalog. Its ids are thrown away with it: nothing is ever stored under them."""
    return resolve(schema, None, IdMinter("lint")).catalog


def _query_texts(queries: QueryText) -> Iterator[tuple[str, str]]:
    if isinstance(queries, str) and "{" in queries:
        yield queries, "query.gq"
        return
    path = Path(queries)
    files = sorted(path.rglob("*.gq")) if path.is_dir() else [path]
    if not files:
        raise InvalidRequest(f"no .gq file is in {str(path)!r}", remedy="Check the path")
    for file in files:
        text, _ = read_query(file)
        yield text, str(file)
