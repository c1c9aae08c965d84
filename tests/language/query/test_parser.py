"""What the forms of the language mean, as far as the text alone tells."""

from __future__ import annotations

import pytest

from omnigraph.base.errors import InvalidRequest, QueryNotFound
from omnigraph.language.literals import LiteralKind, LiteralSyntax
from omnigraph.language.query import parse_query, select
from omnigraph.language.query.tree import (
    AccessSyntax,
    AggregateSyntax,
    AndSyntax,
    ArithmeticSyntax,
    BindingSyntax,
    BlockKind,
    BlockSyntax,
    CallSyntax,
    ClauseSyntax,
    CompareSyntax,
    CountBlockSyntax,
    ExprSyntax,
    FilterSyntax,
    HopBoundsSyntax,
    ListSyntax,
    MemberSyntax,
    NameSyntax,
    NotSyntax,
    NullTestSyntax,
    OrSyntax,
    ReadSyntax,
    TraversalSyntax,
    UpdateSyntax,
    VarSyntax,
    WriteSyntax,
)
from tests.language.query.texts import LIBRARY


def body(text: str) -> ReadSyntax:
    """The body of a read."""
    found = select(parse_query(text)).body
    assert isinstance(found, ReadSyntax)
    return found


def clauses(match: str, params: str = "") -> tuple[ClauseSyntax, ...]:
    """The clauses of a match."""
    return body(f"query q({params}) {{ match {{ {match} }} return {{ 1 }} }}").clauses


def outputs(text: str) -> list[ExprSyntax]:
    """The expressions of a return."""
    return [o.expression for o in body(f"query q() {{ match {{ $p: P }} return {{ {text} }} }}").outputs]


def test_a_file_may_be_empty() -> None:
    assert parse_query("// nothing\n").queries == ()


def test_keywords_are_names_where_a_name_is_expected() -> None:
    text = """query query($match: String) {
        match { $order: T { match: $match, true: 1, null: 2 } $order.limit = 1 $order count $date }
        return { $order.not as order, $order.date as count count as n count($order) as as }
        order { count desc, order }
    }"""
    read = body(text)

    assert [o.alias.text for o in read.outputs if o.alias] == ["order", "count", "n", "as"]
    assert isinstance(read.outputs[2].expression, NameSyntax)
    assert isinstance(read.outputs[3].expression, AggregateSyntax)
    assert [s.descending for s in read.order] == [True, False]


def test_words_end_at_word_boundaries() -> None:
    separated = outputs("trueish, nullable, nowhere")

    assert outputs("trueish nullable nowhere") == separated
    assert all(isinstance(output, NameSyntax) for output in separated)


def test_outputs_and_assignments_need_no_commas() -> None:
    assert outputs("$p.a $p.b,\n$p.c,") == outputs("$p.a, $p.b, $p.c")
    write = select(parse_query("query q() { insert T { a: 1 b: 2, c: 3, } }")).body
    assert isinstance(write, WriteSyntax)
    assert write == select(parse_query("query q() { insert T { a: 1, b: 2, c: 3 } }")).body


def test_empty_braces_in_a_binding_are_accepted() -> None:
    assert clauses("$d: Doc { }") == clauses("$d: Doc")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a knows $b", ("knows", None, False, None)),
        ("$a knows{1,3} $b", ("knows", None, False, (1, 3))),
        ("$a knows {2,} $b", ("knows", None, False, (2, None))),
        ("$a <knows> $b", ("knows", None, True, None)),
        ("$a < /* either way */ knows > $b", ("knows", None, True, None)),
        ("$a <knows>{1,2} $b", ("knows", None, True, (1, 2))),
        ("$a $e:knows $b", ("knows", "e", False, None)),
        ("$a $e : <knows> $b", ("knows", "e", True, None)),
        ("$a contains $b", ("contains", None, False, None)),
        ("($a contains $b)", ("contains", None, False, None)),
        ("$a contains{1,2} $b", ("contains", None, False, (1, 2))),
        ("$a starts_with $b", ("starts_with", None, False, None)),
        ("$a in $b", ("in", None, False, None)),
        ("$a is $b", ("is", None, False, None)),
        ("$a and $b", ("and", None, False, None)),
        ("$a or{1,2} $b", ("or", None, False, (1, 2))),
        ("$a count{1,2} $b", ("count", None, False, (1, 2))),
        ("$a exists /* ! */ { 1, } $b", ("exists", None, False, (1, None))),
    ],
)
def test_traversals(text: str, expected: tuple[str, str | None, bool, tuple[int, int | None] | None]) -> None:
    (clause,) = clauses(text)

    assert isinstance(clause, TraversalSyntax)
    assert (clause.left.name, clause.right.name) == ("a", "b")
    binding = None if clause.binding is None else clause.binding.name
    bounds = clause.bounds
    hops = None if bounds is None else (bounds.low, bounds.high)
    assert (clause.edge.text, binding, clause.undirected, hops) == expected


@pytest.mark.parametrize("word", ["contains", "starts_with", "in"])
def test_a_parameter_on_the_left_makes_it_a_predicate(word: str) -> None:
    (clause,) = clauses(f"$a {word} $b", "$a: String")

    assert isinstance(clause, FilterSyntax)
    assert isinstance(clause.condition, CompareSyntax | MemberSyntax)


def test_uppercase_after_the_colon_binds_a_node_and_lowercase_an_edge() -> None:
    first, second = clauses("$x: Knows $a $x:knows $b")

    assert isinstance(first, BindingSyntax)
    assert isinstance(second, TraversalSyntax)


def test_clauses_need_no_separators() -> None:
    found = clauses(
        '$p: P $p.a = 1 $p knows $q search($q.b, "x") not { $q.c = 2 } ($p.d = 3) [1] contains $p.e'
    )

    kinds = [
        BindingSyntax,
        FilterSyntax,
        TraversalSyntax,
        FilterSyntax,
        BlockSyntax,
        FilterSyntax,
        FilterSyntax,
    ]
    assert [type(clause) for clause in found] == kinds


def condition(text: str) -> object:
    """The condition of a match of one predicate."""
    (clause,) = clauses(text)
    assert isinstance(clause, FilterSyntax)
    return clause.condition


def test_and_binds_before_or_and_not_before_both() -> None:
    assert condition("$p.a = 1 or $p.b = 2 and not($p.c = 3)") == condition(
        "($p.a = 1) or (($p.b = 2) and (not(($p.c = 3))))"
    )
    found = condition("$p.a = 1 or $p.b = 2 and not($p.c = 3)")
    assert isinstance(found, OrSyntax)
    assert isinstance(found.operands[1], AndSyntax)
    assert isinstance(found.operands[1].operands[1], NotSyntax)


def test_brackets_around_the_same_word_change_nothing() -> None:
    assert condition("($p.a = 1 or $p.b = 2) or $p.c = 3") == condition("$p.a = 1 or ($p.b = 2 or $p.c = 3)")


def test_null_tests_and_membership() -> None:
    assert isinstance(condition("$p.a is null"), NullTestSyntax)
    negated = condition("$p.a is not null")
    assert isinstance(negated, NullTestSyntax)
    assert negated.negated
    member = condition("$p.a in [1, -2]")
    assert isinstance(member, MemberSyntax)
    assert isinstance(member.right, ListSyntax)
    assert [item.text for item in member.right.items] == ["1", "-2"]


def test_arithmetic_is_read_from_the_left_and_products_first() -> None:
    assert outputs("$p.a - $p.b - 1") == outputs("($p.a - $p.b) - 1")
    assert outputs("$p.a + $p.b * 2") == outputs("$p.a + ($p.b * 2)")
    assert outputs("$p.a - ($p.b - 1)") != outputs("$p.a - $p.b - 1")


def test_a_minus_after_an_expression_subtracts() -> None:
    (found,) = outputs("$p.a -3")

    assert isinstance(found, ArithmeticSyntax)
    assert outputs("$p.a, -3")[1] == outputs("- 3")[0]


def test_literals() -> None:
    found = outputs('1, 2.50, -7, "a\\"\\n", true, date("2026-01-31"), datetime("2026-01-31"), []')

    assert [(x.kind, x.text) for x in found if isinstance(x, LiteralSyntax)] == [
        (LiteralKind.INTEGER, "1"),
        (LiteralKind.FLOAT, "2.50"),
        (LiteralKind.INTEGER, "-7"),
        (LiteralKind.STRING, 'a"\n'),
        (LiteralKind.BOOLEAN, "true"),
        (LiteralKind.DATE, "2026-01-31"),
        (LiteralKind.DATETIME, "2026-01-31"),
    ]
    assert outputs("-9223372036854775808")


def test_blocks() -> None:
    found = clauses("not { $a k $b } exists { $a k $b } optional { $a k $b } count { $a k $b } != 0")

    assert [c.kind for c in found if isinstance(c, BlockSyntax)] == [
        BlockKind.NOT,
        BlockKind.EXISTS,
        BlockKind.OPTIONAL,
    ]
    counted = found[3]
    assert isinstance(counted, CountBlockSyntax)
    assert (counted.operator, counted.number) == ("!=", 0)


def test_entity_fields_and_calls() -> None:
    access, call = outputs("$p.@id, rrf(nearest($p.v, $q), bm25($p.t, $q), 60)")

    assert isinstance(access, AccessSyntax)
    assert access.system
    assert isinstance(call, CallSyntax)
    assert [type(argument) for argument in call.arguments] == [CallSyntax, CallSyntax, LiteralSyntax]


@pytest.mark.parametrize("tail", ["limit 3 offset 2", "offset 2 limit 3"])
def test_paging_in_either_order(tail: str) -> None:
    read = body(f"query q() {{ match {{ $p: P }} return {{ 1 }} {tail} }}")

    assert isinstance(read.limit, LiteralSyntax)
    assert isinstance(read.offset, LiteralSyntax)
    assert (read.limit.text, read.offset.text) == ("3", "2")


def test_paging_by_parameter_and_distinct() -> None:
    read = body("query q($n: I32) { match { $p: P } return distinct { 1 } limit $n }")

    assert read.distinct
    assert isinstance(read.limit, VarSyntax)
    assert read.offset is None


def test_where_is_a_condition_on_names() -> None:
    write = select(
        parse_query("query q() { update T set { a: null } where b in [1] and not(c is null or d = now()) }")
    )
    assert isinstance(write.body, WriteSyntax)
    (update,) = write.body.statements
    assert isinstance(update, UpdateSyntax)
    assert isinstance(update.where, AndSyntax)
    member = update.where.operands[0]
    assert isinstance(member, MemberSyntax)
    assert isinstance(member.left, NameSyntax)


def test_a_missing_maximum_of_bounds_is_read() -> None:
    (clause,) = clauses("$a knows{0,} $b")

    assert isinstance(clause, TraversalSyntax)
    assert isinstance(clause.bounds, HopBoundsSyntax)
    assert clause.bounds.high is None


def test_spans_point_into_the_text() -> None:
    file = parse_query("query q() {\n  match { $p: Person }\n  return { $p.name } }")
    read = file.queries[0].body
    assert isinstance(read, ReadSyntax)
    span = read.outputs[0].expression.span

    assert (span.line, span.column) == (3, 12)
    assert file.source.text[span.start : span.end] == "$p.name"


def test_annotations() -> None:
    query = select(parse_query('query q() @instruction("i") @description("d") { insert T { a: 1 } }'))

    assert (query.note("description"), query.note("instruction")) == ("d", "i")
    assert query.mutation


def test_a_mark_in_front_of_the_text_is_ignored() -> None:
    assert len(parse_query("\ufeff" + LIBRARY).queries) == 8
    assert len(parse_query(LIBRARY.encode()).queries) == 8


# -- selection ---------------------------------------------------------------------------------------


def test_one_query_needs_no_name() -> None:
    assert select(parse_query("query only() { insert T { a: 1 } }")).name.text == "only"


def test_several_queries_need_a_name() -> None:
    with pytest.raises(InvalidRequest, match="query file contains multiple queries"):
        select(parse_query(LIBRARY))
    assert select(parse_query(LIBRARY), "move").mutation


def test_an_unknown_name_is_not_found() -> None:
    with pytest.raises(QueryNotFound, match=r"query 'frends' not found\. did you mean 'friends'\?"):
        select(parse_query(LIBRARY), "frends")


def test_an_empty_file_has_nothing_to_run() -> None:
    with pytest.raises(InvalidRequest, match="holds no query"):
        select(parse_query(""))
