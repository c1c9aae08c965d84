"""Diagnostics show the place, the line, the offending text and the way out."""

from __future__ import annotations

import pickle

import pytest

from omnigraph.base.errors import InvalidRequest, Kind
from omnigraph.language.diagnostics import (
    Diagnostic,
    Rule,
    SchemaError,
    Severity,
    SourceError,
    SourceText,
    Span,
    in_order,
    render,
)
from omnigraph.language.schema import load

RULE = Rule("PG000", "example", "An example", 1, prefix="parse error")


def refused(text: str, file: str = "people.pg") -> SchemaError:
    with pytest.raises(SchemaError) as error:
        load(text, file=file)
    return error.value


def test_rendering_underlines_the_offending_text() -> None:
    error = refused("node Person {\n    name: Strim @key\n}\nedge Knows: Person -> Persn\n")

    assert (
        str(error)
        == """\
people.pg:2:11: error[PG105]: parse error: unknown type 'Strim'
  |
2 |     name: Strim @key
  |           ^^^^^
  = help: did you mean 'String'?

people.pg:4:23: error[PG603]: catalog error: edge Knows references unknown target type: Persn
  |
4 | edge Knows: Person -> Persn
  |                       ^^^^^
  = help: did you mean 'Person'?"""
    )


def test_a_tab_before_the_text_does_not_shift_the_underline() -> None:
    assert "|     a: Strim }\n  |        ^^^^^" in str(refused("node N {\n\ta: Strim }"))


def test_a_long_line_is_cut_around_the_place() -> None:
    source = SourceText("x" * 1000 + "BAD" + "y" * 1000)

    shown = render(source, [Diagnostic(RULE, "bad", source.span(1000, 1003))]).splitlines()

    assert len(shown[2]) < 200
    mark = shown[3].index("^")
    assert shown[2][mark : mark + 3] == "BAD"


def test_a_span_that_runs_over_lines_is_underlined_to_the_end_of_the_first() -> None:
    source = SourceText("ab\ncd")

    assert render(source, [Diagnostic(RULE, "bad", source.span(1, 4))]).endswith("1 | ab\n  |  ^")


def test_a_finding_without_a_place_shows_the_file_only() -> None:
    assert (
        render(SourceText("", "a.pg"), [Diagnostic(RULE, "gone", None)])
        == "a.pg: error[PG000]: parse error: gone"
    )


def test_the_end_of_the_text_can_be_pointed_at() -> None:
    assert SourceText("ab\n").span(99, 120) == Span(3, 3, 2, 1)


def test_error_is_one_of_ours_with_the_code_of_compile_errors() -> None:
    error = refused("node N { a: Strim }")

    assert isinstance(error, InvalidRequest | SourceError)
    assert (error.code, error.kind) == ("compile_error", Kind.INVALID)
    assert error.fields["spans"] == (Span(12, 17, 1, 13),)


def test_error_survives_the_way_to_another_process() -> None:
    error = refused("node N { a: Strim }")

    copy = pickle.loads(pickle.dumps(error))

    assert isinstance(copy, SchemaError)
    assert copy.diagnostics == error.diagnostics
    assert str(copy) == str(error)


def test_summary_counts_the_other_findings() -> None:
    assert refused("node N { a: Strim b: Strim }").summary.endswith("at people.pg:1:13 [PG105] (and 1 more)")


def test_diagnostics_are_ordered_by_place_and_repeats_go() -> None:
    late, early, nowhere = (
        Diagnostic(RULE, text, span)
        for text, span in (("b", Span(9, 9, 1, 10)), ("a", Span(1, 2, 1, 2)), ("c", None))
    )

    assert in_order([nowhere, late, early, late]) == (early, late, nowhere)


def test_json_form() -> None:
    assert Diagnostic(RULE, "bad", Span(1, 2, 1, 2), "fix it").to_json() == {
        "code": "PG000",
        "name": "example",
        "severity": Severity.ERROR.value,
        "message": "bad",
        "span": {"start": 1, "end": 2, "line": 1, "column": 2},
        "suggestion": "fix it",
    }
