"""Every rule of the checker has a query that breaks it, and is reported at its place."""

from __future__ import annotations

import pytest

from omnigraph.catalog.query import compile_query
from omnigraph.language.diagnostics import QueryError
from omnigraph.language.query import rules
from tests.catalog.query.rejected import REJECTED
from tests.language.query.rejected import Rejected
from tests.support.checked_queries import CATALOG


@pytest.mark.parametrize("case", REJECTED, ids=lambda case: f"{case.code}: {case.text.split('{', 1)[1]}")
def test_rejected(case: Rejected) -> None:
    with pytest.raises(QueryError) as caught:
        compile_query(case.source, CATALOG)

    (only,) = caught.value.diagnostics
    assert only.code == case.code
    assert case.message in only.message
    assert only.span is not None
    assert (only.span.line, only.span.column) == (1, case.column)
    if case.hint is not None:
        assert case.hint in (only.suggestion or "")


def test_every_code_of_the_checker_is_covered() -> None:
    checked = {code for code in rules.REGISTRY if code.startswith(("T", "Q2"))}

    assert checked == {case.code for case in REJECTED}


def test_all_faults_are_reported_in_the_order_of_the_text() -> None:
    text = """query q($x: Strng) {
        match { $p: Persn $q: Person { nme: $y } $q.age = "x" $q knws $r $r.anything = 1 }
        return { $q.nope, $p.whatever }
        order { missing }
    }"""
    with pytest.raises(QueryError) as caught:
        compile_query(text, CATALOG)

    codes = [d.code for d in caught.value.diagnostics]
    assert codes == ["Q102", "T1", "T2", "T14", "T7", "T4", "T6", "Q205"]
    assert caught.value.summary.startswith(
        "parse error: unknown parameter type 'Strng' at query.gq:1:13 [Q102] (and 7"
    )


def test_a_type_error_names_its_code() -> None:
    with pytest.raises(QueryError) as caught:
        compile_query("query q() { match { $p: Nobody } return { 1 } }", CATALOG)

    assert caught.value.summary == "type error: T1: there is no node type 'Nobody' at query.gq:1:25 [T1]"
    assert caught.value.fields["kind"] == "type"
