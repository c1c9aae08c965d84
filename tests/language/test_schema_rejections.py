"""Everything that the schema language refuses is refused at its place, under its code, in its words."""

from __future__ import annotations

import pytest

from omnigraph.language.diagnostics import SchemaError
from omnigraph.language.schema import load, rules
from tests.language.rejected import REJECTED, Rejected


@pytest.mark.parametrize("case", REJECTED, ids=[case.id for case in REJECTED])
def test_rejection(case: Rejected) -> None:
    before, _, after = case.text.partition("§")
    line = before.count("\n") + 1
    column = len(before) - (before.rfind("\n") + 1) + 1

    with pytest.raises(SchemaError) as refused:
        load(before + after)

    [finding] = refused.value.diagnostics
    assert finding.code == case.code
    assert case.fragment in finding.message
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (line, column)


def test_every_error_rule_has_a_rejected_example() -> None:
    """A rule without an example here is a rule that nothing proves. Identity (7) has its own table."""
    errors = {code for code, rule in rules.REGISTRY.items() if rule.prefix and rule.stage <= 6}

    # A str can only hold text that a decoder let through: bad bytes are tested with the parser.
    assert errors - {case.code for case in REJECTED} == {"PG103"}


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("node N { a: Strim }", "did you mean 'String'?"),
        ("node N { a: string }", "did you mean 'String'?"),
        ("node N { a: int }", "did you mean 'I64'?"),
        ("interface Titled {}\nnode N implements Titeld {}", "did you mean 'Titled'?"),
        ("node Person {}\nedge E: Persn -> Person", "did you mean 'Person'?"),
        ("interface I {}\nnode N {}\nedge E: N -> I", "I is an interface; an edge joins node types"),
        ("node N { email: String @unique(emial) }", "did you mean 'email'?"),
        ("node N { text: String v: Vector(2) @embed(txt) }", "did you mean 'text'?"),
        ("nod N {}", "did you mean 'node'?"),
        (
            "node N { a: String, b: String }",
            "properties are separated by space or line breaks, not by commas",
        ),
        ("node A {} edge E: A -> A @card(1..*)", "leave the upper bound out: @card(1..)"),
        ("# note\nnode A {}", "a comment starts with '//'"),
        ("node N { a: I32 @default(true) }", "it takes a whole number from -2147483648 to 2147483647"),
    ],
)
def test_suggestion(text: str, suggestion: str) -> None:
    with pytest.raises(SchemaError) as refused:
        load(text)

    assert refused.value.diagnostics[0].suggestion == suggestion


def test_all_errors_of_a_text_are_reported_in_the_order_of_the_text() -> None:
    text = """node A implements Nothing {
    id: String
    name: Strim
    v: Vector(0)
    @unique(nme)
}
node B { x String }
edge E: A -> Missing @card(3..1) { weight: F32 @key }
edge e2: B -> A
node A {}
"""
    with pytest.raises(SchemaError) as refused:
        load(text)

    places = [(d.code, d.span.line, d.span.column) for d in refused.value.diagnostics if d.span]
    assert places == [
        ("PG301", 1, 19),
        ("PG201", 2, 5),
        ("PG105", 3, 11),
        ("PG202", 4, 8),
        ("PG101", 7, 12),
        ("PG603", 8, 14),
        ("PG206", 8, 22),
        ("PG412", 8, 48),
        ("PG104", 9, 6),
        ("PG601", 10, 6),
    ]


def test_a_syntax_error_does_not_make_references_to_its_declaration_wrong() -> None:
    """Only the broken declaration is reported, not everything that names it."""
    with pytest.raises(SchemaError) as refused:
        load("interface I { a String }\nnode A implements I { x: [ }\nedge E: A -> A")

    assert [d.code for d in refused.value.diagnostics] == ["PG101", "PG101"]


def test_a_missing_brace_is_found_where_the_next_declaration_starts() -> None:
    with pytest.raises(SchemaError) as refused:
        load("node A { x: String\n\nnode B { y: Nope }\n")

    assert [(d.code, d.span.line) for d in refused.value.diagnostics if d.span] == [
        ("PG101", 1),
        ("PG105", 3),
    ]


def test_the_stage_breaks_ties_of_position() -> None:
    with pytest.raises(SchemaError) as refused:
        load("node A {}\nedge E: A -> A\nedge e: A -> A\n")

    assert [d.code for d in refused.value.diagnostics] == ["PG104", "PG604"]


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("node N { a String }", "parse error:"), ("node N {} node N {}", "catalog error:")],
)
def test_the_message_says_which_stage_refused(text: str, prefix: str) -> None:
    with pytest.raises(SchemaError, match=rf"^\S+ error\[PG\d+\]: {prefix}"):
        load(text)
