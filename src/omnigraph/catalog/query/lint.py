"""Lint: everything that can be said about a text of queries, as one value.

    text + catalog -> **report**

Refuses nothing: errors, warnings and advice come back together, for an editor, a review or the command line
to show. `LintReport.to_json` has the shape of query spec 16.1; `diagnostics` adds codes and places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import NodeType
from omnigraph.catalog.query.check import CheckedQuery, examine
from omnigraph.catalog.query.statements import CheckedMutation, Operation, Update, place_name
from omnigraph.language.diagnostics import Diagnostic, QueryError, Severity, SourceText
from omnigraph.language.query import QuerySyntax, parse, rules

NO_PARAMS = "mutation declares no params; hardcoded mutations are easy to miss"
_NAMES = {Severity.ERROR: "error", Severity.WARN: "warning", Severity.INFO: "info"}
_RANK = {severity: rank for rank, severity in enumerate(_NAMES)}


@dataclass(frozen=True, slots=True)
class QueryReport:
    """What can be said about one query."""

    name: str
    mutation: bool
    warnings: tuple[str, ...] = ()
    error: str | None = None
    operation: Operation | None = None  # of a query without faults

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values; what is empty is left out."""
        document: dict[str, Any] = {
            "name": self.name,
            "kind": "mutation" if self.mutation else "read",
            "status": "ok" if self.error is None else "error",
        }
        if self.warnings:
            document["warnings"] = list(self.warnings)
        if self.error is not None:
            document["error"] = self.error
        if self.operation is not None:
            document["operation"] = self.operation.to_json()
        return document


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON values; what is empty is left out."""
        document: dict[str, Any] = {
            "severity": _NAMES[self.severity],
            "code": self.code,
            "message": self.message,
        }
        if self.type_name is not None:
            document["type_name"] = self.type_name
        if self.property is not None:
            document["property"] = self.property
        if self.query_names:
            document["query_names"] = list(self.query_names)
        return document


@dataclass(frozen=True, slots=True)
class LintReport:
    """All that can be said about a text."""

    source: SourceText
    schema_source: Mapping[str, str]
    results: tuple[QueryReport, ...]
    findings: tuple[Finding, ...]
    diagnostics: tuple[Diagnostic, ...]
    checked: tuple[CheckedQuery, ...] = ()  # the queries without faults

    @property
    def ok(self) -> bool:
        """Say whether there is no error."""
        return self._count(Severity.ERROR) == 0

    def _count(self, severity: Severity) -> int:
        count = sum(finding.severity is severity for finding in self.findings)
        if severity is Severity.ERROR:
            count += sum(result.error is not None for result in self.results)
        if severity is Severity.WARN:
            count += sum(len(result.warnings) for result in self.results)
        return count

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "status": "ok" if self.ok else "error",
            "schema_source": dict(self.schema_source),
            "query_path": self.source.file,
            "queries_processed": len(self.results),
            "errors": self._count(Severity.ERROR),
            "warnings": self._count(Severity.WARN),
            "infos": self._count(Severity.INFO),
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint_queries(
    text: str | bytes, catalog: Catalog, *, schema_source: Mapping[str, str], file: str = "query.gq"
) -> LintReport:
    """Report on a text; `schema_source` says where the schema is from, as `{"kind": "file", "path": ...}`."""
    parsed = parse(text, file=file)
    source = parsed.file.source
    if parsed.broken:
        faults = [d for d in parsed.diagnostics if d.rule is rules.SYNTAX]
        message = QueryError(source, faults).summary
        finding = Finding(Severity.ERROR, rules.SYNTAX.code, message)
        return LintReport(source, schema_source, (), (finding,), parsed.diagnostics)
    examined = [_examined(query, parsed.diagnostics, catalog) for query in parsed.file.queries]
    results = tuple(_report(query, checked, diagnostics, source) for query, checked, diagnostics in examined)
    valid = [checked for _, checked, _ in examined if checked is not None]
    everything = tuple(d for _, _, diagnostics in examined for d in diagnostics)
    return LintReport(source, schema_source, results, never_set(valid), everything, tuple(valid))


def _examined(
    query: QuerySyntax, texts: Sequence[Diagnostic], catalog: Catalog
) -> tuple[QuerySyntax, CheckedQuery | None, tuple[Diagnostic, ...]]:
    """Check one query; what the text alone shows belongs to the query that it stands in."""
    own = [d for d in texts if d.span is not None and query.span.start <= d.span.start < query.span.end]
    checked, diagnostics = examine(query, catalog)
    return query, None if own else checked, (*own, *diagnostics)


def _report(
    query: QuerySyntax, checked: CheckedQuery | None, diagnostics: Sequence[Diagnostic], source: SourceText
) -> QueryReport:
    warnings = (NO_PARAMS,) if query.mutation and not query.params else ()
    error = QueryError(source, diagnostics).summary if diagnostics else None
    operation = None if checked is None else checked.operation
    return QueryReport(query.name.text, query.mutation, warnings, error, operation)


# -- properties that nobody sets ---------------------------------------------------------------------


def never_set(queries: Iterable[CheckedQuery]) -> tuple[Finding, ...]:
    """Return the properties that no update among the queries sets, of the types that some update."""
    updating: dict[str, list[str]] = {}  # type name -> the queries that update it
    assigned: dict[str, set[str]] = {}  # type name -> the properties that they set
    types: dict[str, NodeType] = {}
    for query, update in _updates(queries):
        name = update.target.name
        if not isinstance(update.target, NodeType):
            continue
        types[name] = update.target
        updating.setdefault(name, []).append(query.name)
        assigned.setdefault(name, set()).update(place_name(a.place) for a in update.assignments)
    findings = [
        finding
        for name, declared in types.items()
        for finding in _unset(declared, assigned[name], tuple(sorted(set(updating[name]))))
    ]
    return tuple(sorted(findings, key=_place))


def _updates(queries: Iterable[CheckedQuery]) -> Iterator[tuple[CheckedMutation, Update]]:
    for query in queries:
        if isinstance(query, CheckedMutation):
            for statement in query.statements:
                if isinstance(statement, Update):
                    yield query, statement


def _unset(declared: NodeType, assigned: set[str], queries: tuple[str, ...]) -> Iterator[Finding]:
    for member in declared.properties:
        settable = member.type.nullable and member.id not in declared.key and member.embed is None
        if settable and member.name not in assigned:
            message = f"{declared.name}.{member.name} exists in schema but no update query sets it"
            rule = rules.NEVER_SET
            yield Finding(rule.severity, rule.code, message, declared.name, member.name, queries)


def _place(finding: Finding) -> tuple[int, str, str, str]:
    return _RANK[finding.severity], finding.type_name or "", finding.property or "", finding.message


# -- describe ------------------------------------------------------------------------------------
#
# A checked query as catalogs of stored queries list it (query spec 16.2).
# What a caller must know to invoke a query without seeing its text.


def query_entry(query: CheckedQuery) -> dict[str, Any]:
    """Return `{name, description?, instruction?, mutation, params, returns}`."""
    document: dict[str, Any] = {"name": query.name}
    if query.description is not None:
        document["description"] = query.description
    if query.instruction is not None:
        document["instruction"] = query.instruction
    return document | {
        "mutation": isinstance(query, CheckedMutation),
        "params": [parameter.column.to_json() for parameter in query.parameters],
        "returns": [column.to_json() for column in query.operation.result],
    }
