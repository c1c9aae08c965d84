"""Lint: advice about a text, and what a migration would mean."""

from __future__ import annotations

import pytest

from omnigraph.catalog import steps
from omnigraph.catalog.lint import lint
from omnigraph.language.diagnostics import Severity
from tests.support.catalogs import catalog


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        pytest.param('node N @rename_from("M") { a: I32 @key }', "PG802", (1, 21), id="inert-hint"),
        pytest.param("node N { a: I32 @key b: Vector(2) @embd(a) }", "PG803", (1, 36), id="near-miss"),
        pytest.param("node N @descriptn(1) { a: I32 @key }", "PG803", (1, 9), id="near-miss-on-type"),
        pytest.param("node N { a: I32 @key @range }", "PG804", (1, 22), id="bare-range"),
        pytest.param("node N { a: I32 }", "PG805", (1, 6), id="keyless"),
        pytest.param("interface I { a: I32 }", "PG806", (1, 11), id="unused-interface"),
        pytest.param('node N { a: String @key @check(a, "x") }', "PG807", (1, 35), id="unanchored"),
        pytest.param("node N { a: I32 @key @index }", "PG808", (1, 22), id="redundant-index"),
    ],
)
def test_advice(text: str, code: str, place: tuple[int, int]) -> None:
    [finding] = lint(text)

    assert finding.code == code
    assert finding.severity is not Severity.ERROR
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node N { a: String @key @tier(2) @owner }",
        'interface I { k: String @key } node N implements I { @check(k, "^x$") }',
        "node N { a: I32 b: I32 @key(a, b) }",
    ],
)
def test_nothing_to_say(text: str) -> None:
    assert lint(text) == ()


def test_errors_come_with_the_advice() -> None:
    assert [d.code for d in lint("node N { a: Strim }")] == ["PG805", "PG105"]
    assert [d.code for d in lint("node N { x String }")] == ["PG101"]


def test_identity_errors_are_findings() -> None:
    accepted = catalog("node M { a: I32 @key }")

    assert [d.code for d in lint('node N @rename_from("X") { a: I32 @key }', accepted)] == ["PG701"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("node N { a: I32 @key }", "node N { a: I32 @key b: I32 }", [("OG-MF-103", "error", 22)]),
        ("node N { a: I32 @key b: I32 }", "node N { a: I32 @key b: Bool }", [("OG-MF-106", "error", 22)]),
        ("node N { a: I32 @key b: I32? }", "node N { a: I32 @key b: I32 }", [("OG-MF-104", "warn", 22)]),
        (
            "node N { a: I32 @key b: I32 }",
            "node N { a: I32 @key b: I32 @unique }",
            [("OG-MF-107", "warn", 6)],
        ),
        ("node N { a: I32 @key b: I32 }", "node N { a: I32 b: I32 @key }", [("OG-MF-108", "error", 6)]),
        ("node N { a: I32 @key } node M {}", "node N { a: I32 @key }", [("OG-DS-102", "warn", None)]),
        (
            "node N { a: I32 @key } edge E: N -> N",
            "node N { a: I32 @key }",
            [("OG-DS-103", "warn", None)],
        ),
        ("node N { a: I32 @key b: I32 }", "node N { a: I32 @key }", [("OG-DS-104", "warn", 6)]),
        (
            "node N { a: I32 @key } node M { a: I32 @key } edge E: N -> N",
            "node N { a: I32 @key } node M { a: I32 @key } edge E: N -> M",
            [("OG-ED-101", "error", 52)],
        ),
        (
            "node N { a: I32 @key } edge E: N -> N",
            "node N { a: I32 @key } edge E: N -> N { @key(src, dst) }",
            [("OG-ED-103", "warn", 29)],
        ),
        (
            "node N { a: String @key v: Vector(2)? @embed(a) }",
            'node N { a: String @key v: Vector(2)? @embed("a", model="m") }',
            [("OG-VE-101", "warn", 25)],
        ),
        (
            "node N { a: String @key v: Vector(2)? }",
            "node N { a: String @key v: Vector(2)? @embed(a) }",
            [("OG-VE-102", "error", 25)],
        ),
        ("interface I {} node N { a: I32 @key }", "node N { a: I32 @key }", [("OG-BC-101", "error", None)]),
        (
            "node N { a: I32 @key }",
            'node M @rename_from("N") { b: I32 @key @rename_from("a") }',
            [("OG-BC-102", "info", 6), ("OG-BC-102", "info", 28)],
        ),
        (
            "node N { a: I32 @key b: I32 @unique }",
            "node N { a: I32 @key b: I32 }",
            [("OG-CD-101", "info", 6)],
        ),
        ("node N { a: I32 @key }", 'node N @rename_from("M") { a: I32 @key }', [("PG801", "info", 21)]),
        ("node N { a: I32 @key }", "node N { a: I32 @key b: I32? @index }", []),
    ],
)
def test_migrations(before: str, after: str, expected: list[tuple[str, str, int | None]]) -> None:
    found = lint(after, catalog(before))

    assert [(d.code, d.severity.value, d.span and d.span.column) for d in found] == expected


def test_every_migration_code_is_documented_by_a_case() -> None:
    cases = {c for mark in test_migrations.pytestmark for row in mark.args[1] for c, _, _ in row[2]}  # type: ignore[attr-defined]
    of_rows = {steps.EDGES_SHARE_KEY.code}  # nothing but stored edges shows it
    assert set(steps.REGISTRY) - of_rows <= cases
