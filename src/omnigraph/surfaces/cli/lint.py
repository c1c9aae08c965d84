"""Check query files against a schema file, or against the schema of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, counted
from omnigraph.language.diagnostics import SchemaError, Severity, render
from omnigraph.surfaces.cli.support.call import Address, Call, GraphUri, call_of, note_old_spelling

if TYPE_CHECKING:
    from rich.text import Text

    from omnigraph.catalog.query import LintReport
    from omnigraph.catalog.query.lint import Finding, QueryReport

COUNTS = {Severity.ERROR: "errors", Severity.WARN: "warnings", Severity.INFO: "infos"}
STYLES = {"OK": "green", "WARN": "yellow", "ERROR": "bold red", "INFO": "dim"}


@dataclass(frozen=True)
class Linted:
    """The reports on one file, or on all files of a folder."""

    path: Path
    schema_source: dict[str, str]
    reports: tuple[LintReport, ...] = ()
    schema_error: SchemaError | None = None

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the schema and whole files, then what the updates of all files leave out."""
        from omnigraph.catalog.query.lint import Finding, never_set

        error = self.schema_error
        schema = (
            () if error is None else (Finding(Severity.ERROR, d.code, d.message) for d in error.diagnostics)
        )
        texts = (
            finding
            for report in self.reports
            for finding in report.findings
            if finding.severity is Severity.ERROR
        )
        return (*schema, *texts, *never_set(query for report in self.reports for query in report.checked))

    @property
    def counts(self) -> dict[str, int]:
        """How many errors, warnings and infos there are."""
        counts = {name: sum(f.severity is level for f in self.findings) for level, name in COUNTS.items()}
        results = [result for report in self.reports for result in report.results]
        counts["errors"] += sum(result.error is not None for result in results)
        counts["warnings"] += sum(len(result.warnings) for result in results)
        return counts

    @property
    def queries(self) -> int:
        """How many queries the files hold."""
        return sum(len(report.results) for report in self.reports)

    def to_json(self) -> dict[str, Any]:
        """Return the report; in a folder, each query says in which file it is."""
        several = self.path.is_dir()
        return {
            "status": "error" if self.counts["errors"] else "ok",
            "schema_source": self.schema_source,
            "query_path": str(self.path),
            "queries_processed": self.queries,
            **self.counts,
            "results": [
                result.to_json() | ({"query_path": report.source.file} if several else {})
                for report in self.reports
                for result in report.results
            ],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint(
    ctx: typer.Context,
    query: Annotated[
        Path, typer.Option("--query", metavar="FILE|DIR", help="A query file, or a folder of them (.gq).")
    ],
    address: Address = None,
    graph_uri: GraphUri = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="The schema file (.pg), instead of a graph.")
    ] = None,
) -> int:
    """Check query files; exit 1 if a query would be refused."""
    call = call_of(ctx)
    note_old_spelling(ctx, "lint")
    if schema is not None and (address or graph_uri):
        raise InvalidRequest("--schema and a graph exclude each other", remedy="Give one")
    path = next((candidate for candidate in call.settings.query_files(query) if candidate.exists()), query)
    texts = [*_texts(path)]
    linted = _linted(call, path, texts, schema, address, graph_uri)
    call.output.result(linted.to_json(), *_lines(linted))
    return 1 if linted.counts["errors"] else 0


def _texts(path: Path) -> Iterator[tuple[str, bytes]]:
    files = sorted(path.rglob("*.gq")) if path.is_dir() else [path]
    if not files:
        raise InvalidRequest(f"no .gq file is in {path}", remedy="Check the path")
    for file in files:
        try:
            yield str(file), file.read_bytes()
        except OSError as error:
            raise InvalidRequest(
                f"cannot read {str(file)!r}: {error.strerror}", remedy="Check the path"
            ) from error


def _linted(
    call: Call,
    path: Path,
    texts: Sequence[tuple[str, bytes]],
    schema: Path | None,
    address: str | None,
    graph_uri: str | None,
) -> Linted:
    from omnigraph.catalog.query import lint_queries
    from omnigraph.engine.lint import catalog_to_check_by
    from omnigraph.engine.schema.schema import load_schema

    if schema is None:
        with call.connect(address, graph_uri) as graph:
            catalog = graph.schema.catalog(call.settings.branch)
            origin = {"kind": "graph", "uri": graph.uri}
    else:
        origin = {"kind": "file", "path": str(schema)}
        try:
            catalog = catalog_to_check_by(load_schema(schema))
        except SchemaError as error:
            return Linted(path, origin, schema_error=error)
    reports = (lint_queries(text, catalog, schema_source=origin, file=file) for file, text in texts)
    return Linted(path, origin, tuple(reports))


# -- for people ------------------------------------------------------------------------------------


def _lines(linted: Linted) -> Iterator[str | Text]:
    if linted.schema_error is not None:
        yield str(linted.schema_error)
        yield ""
    for report in linted.reports:
        if report.diagnostics:
            yield render(report.source, report.diagnostics)
            yield ""
        for result in report.results:
            yield _result_line(result)
    for finding in linted.findings:
        if finding.query_names:
            yield _marked("WARN", f"{finding.message} [{finding.code}] ({', '.join(finding.query_names)})")
    totals = ", ".join(counted(number, name.removesuffix("s")) for name, number in linted.counts.items())
    word = "ERROR" if linted.counts["errors"] else "OK"
    yield _marked(word, f"{linted.path}: {counted(linted.queries, 'query', 'queries')}, {totals}")


def _result_line(result: QueryReport) -> Text:
    kind = "mutation" if result.mutation else "read"
    word = "ERROR" if result.error is not None else "WARN" if result.warnings else "OK"
    notes = f": {'; '.join(result.warnings)}" if result.warnings else ""
    return _marked(word, f"{result.name} ({kind}){notes}")


def _marked(word: str, text: str) -> Text:
    from rich.text import Text

    return Text.assemble((f"{word:<5}", STYLES[word]), f" {text}")
