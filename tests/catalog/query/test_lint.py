"""Lint: one report about a text of queries, in the shape that machines read."""

from __future__ import annotations

from typing import Any

from omnigraph.catalog.query import lint_queries
from omnigraph.catalog.query.lint import LintReport
from tests.language.query.texts import LIBRARY
from tests.support.catalogs import catalog
from tests.support.checked_queries import CATALOG

SOURCE = {"kind": "file", "path": "schema.pg"}


def lint(text: str) -> LintReport:
    """Lint a text against the schema of the tests."""
    return lint_queries(text, CATALOG, schema_source=SOURCE, file="a.gq")


def test_a_sound_file() -> None:
    report = lint("query find($n: String) { match { $p: Person { name: $n } } return { $p.age } }")

    assert report.ok
    assert report.to_json() == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "schema.pg"},
        "query_path": "a.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "find",
                "kind": "read",
                "status": "ok",
                "operation": {
                    "result": [{"name": "p.age", "kind": "int", "nullable": True}],
                    "reads": [{"kind": "node", "type_name": "Person"}],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_a_file_that_does_not_parse_has_one_finding_and_no_results() -> None:
    report = lint("query a() { match { } }\nquery b() { insert Nobody { a: 1 } }\nquery c() {")
    shown = report.to_json()

    assert shown["status"] == "error"
    assert (shown["queries_processed"], shown["results"], shown["errors"]) == (0, [], 1)
    (finding,) = shown["findings"]
    assert finding["severity"] == "error"
    assert finding["code"] == "Q000"
    assert finding["message"].startswith("parse error: unexpected '}'")
    assert [d.code for d in report.diagnostics] == ["Q000", "Q000"]


def test_a_query_with_faults_has_an_error_and_no_operation() -> None:
    report = lint(
        "query a() { match { $p: Persn } return { $p.x } }\nquery b() { match { $p: Person } return { 1 } }"
    )
    first, second = report.to_json()["results"]

    assert first == {
        "name": "a",
        "kind": "read",
        "status": "error",
        "error": "type error: T1: there is no node type 'Persn' at a.gq:1:25 [T1]",
    }
    assert second["status"] == "ok"
    assert report.to_json()["errors"] == 1
    assert not report.ok


def test_faults_of_the_text_alone_belong_to_their_query() -> None:
    body = "{ match { $p: Person } return { 1 } }"
    report = lint(f"query a($x: Strng) {body} query b() {body} query b() {body}")
    shown = report.to_json()

    assert [result["status"] for result in shown["results"]] == ["error", "ok", "error"]
    assert "[Q102]" in shown["results"][0]["error"]
    assert "duplicate query 'b'" in shown["results"][2]["error"]
    assert shown["errors"] == 2


def test_a_mutation_without_parameters_is_warned_about() -> None:
    shown = lint("query a() { delete Person where age = 1 }").to_json()

    assert shown["status"] == "ok"
    assert shown["warnings"] == 1
    assert shown["results"][0]["warnings"] == [
        "mutation declares no params; hardcoded mutations are easy to miss"
    ]


def test_a_property_that_no_update_sets_is_found() -> None:
    schema = """node T { slug: String @key a: String? b: I32? c: String  v: Vector(2)? @embed("a") }
    node U { slug: String @key x: String? }
    edge E: T -> T { w: F64? }"""
    text = """query one($s: String) { update T set { a: $s } where slug = $s }
    query two($s: String) { update T set { c: $s } where slug = $s }
    query bad($s: String) { update T set { b: "x" } where slug = $s }
    query edge($f: F64) { update E set { w: $f } where w = $f }
    query add($s: String) { insert U { slug: $s } }"""
    report = lint_queries(text, catalog(schema), schema_source={"kind": "graph", "uri": "g.og"})
    shown = report.to_json()

    assert shown["findings"] == [
        {
            "severity": "warning",
            "code": "L201",
            "message": "T.b exists in schema but no update query sets it",
            "type_name": "T",
            "property": "b",
            "query_names": ["one", "two"],
        }
    ]
    assert (shown["errors"], shown["warnings"], shown["query_path"]) == (1, 1, "query.gq")


def test_findings_come_by_type_and_property() -> None:
    schema = "node B { k: String @key z: I32? y: I32? } node A { k: String @key x: I32? w: I32? }"
    text = """query b($k: String) { update B set { z: null } where k = $k update A set { x: 1 } where k = $k }
    query c($k: String) { update A set { x: 2 } where k = $k }"""
    found: list[dict[str, Any]] = lint_queries(text, catalog(schema), schema_source=SOURCE).to_json()[
        "findings"
    ]

    assert [(f["type_name"], f["property"], f["query_names"]) for f in found] == [
        ("A", "w", ["b", "c"]),
        ("B", "y", ["b"]),
    ]


def test_every_form_of_query_passes() -> None:
    report = lint(LIBRARY)

    assert report.ok, report.to_json()
    assert len(report.results) == 8
