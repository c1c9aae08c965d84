"""Every rule of the text alone has a text that breaks it, and is reported at its place."""

from __future__ import annotations

import pytest

from omnigraph.language.diagnostics import QueryError
from omnigraph.language.query import parse, parse_query, rules
from tests.language.query.rejected import REJECTED, Rejected


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: f"{case.code}: {case.message}")
def test_rejected(case: Rejected) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(case.source)

    first = caught.value.diagnostics[0]
    assert first.code == case.code
    assert case.message in first.message
    assert first.span is not None
    assert (first.span.line, first.span.column) == (1, case.column)
    if case.hint is not None:
        assert case.hint in (first.suggestion or "")


def test_every_code_of_the_text_is_covered() -> None:
    textual = {code for code in rules.REGISTRY if code.startswith(("Q0", "Q1"))}

    assert textual == {case.code for case in REJECTED}


def test_a_fault_in_one_query_leaves_the_others() -> None:
    first, last = "query a() { insert T { a: 1 } }", "query c($x: I32) { delete T where a = $x }"
    parsed = parse(f"{first}\nquery b() {{ match {{ }}\n{last}")

    assert [query.name.text for query in parsed.file.queries] == ["a", "c"]
    assert parsed.broken
    assert [(d.code, d.span.line if d.span else None) for d in parsed.diagnostics] == [("Q000", 2)]


def test_a_fault_with_a_code_of_its_own_leaves_the_query() -> None:
    parsed = parse('query a($x: Strng) { match { $p: P { a: $x } } return { [1, [2], "x"] } }')

    assert len(parsed.file.queries) == 1
    assert not parsed.broken
    assert [d.code for d in parsed.diagnostics] == ["Q102", "Q107", "Q108"]


def test_the_error_shows_the_first_fault_and_counts_the_others() -> None:
    with pytest.raises(QueryError) as caught:
        parse_query("query q(\n  $a: Strng, $a: I32) { insert T { a: 1 } }", file="a.gq")

    assert (
        caught.value.summary == "parse error: unknown parameter type 'Strng' at a.gq:2:7 [Q102] (and 1 more)"
    )
