"""What the clauses of a match mean once their names are resolved."""

from __future__ import annotations

import pytest

from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Contains,
    Direction,
    EntityField,
    IsNull,
    Not,
    Now,
    Or,
    ParamRef,
    Prefix,
    PropertyValue,
    Substring,
    TextMatch,
)
from omnigraph.catalog.query.statements import Bind, Counted, Exists, Expand, Filter, Optional
from omnigraph.catalog.types import PropertyType, Scalar
from tests.support.checked_queries import matched


def condition(text: str, params: str = "") -> Condition:
    """The last condition of a match over a person."""
    clause = matched(f"$p: Person {text}", params=params).clauses[-1]
    assert isinstance(clause, Filter)
    return clause.condition


# -- bindings ----------------------------------------------------------------------------------------


def test_entries_are_equalities_and_membership_for_lists() -> None:
    (bind,) = matched(
        '$p: Person { age: 7, tags: "x", joined: now(), name: $n }', params="$n: String"
    ).clauses
    assert isinstance(bind, Bind)
    assert bind.new

    kinds = [(type(c), type(c.right)) for c in bind.conditions if isinstance(c, Comparison | Contains)]
    assert kinds == [
        (Comparison, Constant),
        (Contains, Constant),
        (Comparison, Now),
        (Comparison, ParamRef),
    ]


def test_binding_again_adds_conditions() -> None:
    first, second = matched("$p: Person { age: 1 } $p: Person { active: true }").clauses
    assert isinstance(first, Bind)
    assert isinstance(second, Bind)

    assert (first.new, second.new) == (True, False)
    assert first.variable == second.variable


def test_a_variable_of_a_traversal_can_be_refined() -> None:
    expand, bind = matched('$p worksAt $c $c: Company { city: "Rome" }').clauses
    assert isinstance(expand, Expand)
    assert isinstance(bind, Bind)

    assert not bind.new
    assert bind.variable == expand.right


def test_anonymous_variables_are_all_different_and_have_names_no_text_can_spell() -> None:
    checked = matched("$p: Person $p knows $_ $p knows $_ $_: Company")

    assert [v.name for v in checked.variables] == ["p", "_@0001", "_@0002", "_@0003"]
    assert len(set(checked.variables)) == 4
    assert [v.anonymous for v in checked.variables] == [False, True, True, True]


# -- traversals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "direction", "ends"),
    [
        ("$a: Person $a worksAt $b", Direction.FORWARD, ("Person", "Company")),
        ("$a: Company $a worksAt $b", Direction.BACKWARD, ("Company", "Person")),
        ("$b: Company $a worksAt $b", Direction.FORWARD, ("Person", "Company")),
        ("$b: Person $a worksAt $b", Direction.BACKWARD, ("Company", "Person")),
        ("$a worksAt $b", Direction.FORWARD, ("Person", "Company")),
        ("$a: Company $b: Person $a worksAt $b", Direction.BACKWARD, ("Company", "Person")),
        ("$a: Person $a knows $b", Direction.FORWARD, ("Person", "Person")),
        ("$b: Person $a knows $b", Direction.FORWARD, ("Person", "Person")),
        ("$a <knows> $b", Direction.EITHER, ("Person", "Person")),
        ("$a WORKSAT $b".lower(), Direction.FORWARD, ("Person", "Company")),
    ],
)
def test_the_types_of_bound_variables_decide_the_direction(
    match: str, direction: Direction, ends: tuple[str, str]
) -> None:
    expand = matched(match).clauses[-1]
    assert isinstance(expand, Expand)

    assert expand.hops.direction is direction
    assert (expand.left.type.name, expand.right.type.name) == ends


@pytest.mark.parametrize(
    ("match", "new"),
    [
        ("$a knows $b", (True, True)),
        ("$a: Person $a knows $b", (False, True)),
        ("$b: Person $a knows $b", (True, False)),
        ("$a: Person $b: Person $a knows $b", (False, False)),
        ("$a knows $a", (True, False)),
        ("$a: Person $a knows $_", (False, True)),
    ],
)
def test_a_traversal_says_which_ends_it_introduces(match: str, new: tuple[bool, bool]) -> None:
    expand = matched(match).clauses[-1]
    assert isinstance(expand, Expand)

    assert (expand.left_new, expand.right_new) == new


def test_the_same_inference_applies_inside_a_block() -> None:
    clause = matched("$c: Company not { $c worksAt $p }").clauses[-1]
    assert isinstance(clause, Exists)
    (inner,) = clause.block.clauses
    assert isinstance(inner, Expand)

    assert inner.hops.direction is Direction.BACKWARD


def test_bounds_and_edge_variables() -> None:
    checked = matched("$a knows{2,3} $b $b $k:knows $c $c $_:knows $d")
    first, second, third = checked.clauses
    assert isinstance(first, Expand)
    assert isinstance(second, Expand)
    assert isinstance(third, Expand)

    assert (first.hops.low, first.hops.high) == (2, 3)
    assert (second.hops.low, second.hops.high) == (1, 1)
    assert second.edge is not None
    assert second.edge.is_edge
    assert third.edge is None
    assert [v.name for v in checked.variables] == ["a", "b", "c", "k", "d"]


# -- conditions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("$p.age = 2.7", Comparison),
        ("$p.age < $p.score", Comparison),
        ('$p.kind = "boss"', Comparison),
        ("$p.@id != $p.name", Comparison),
        ("$p.joined >= now()", Comparison),
        ("$p.tags contains $p.name", Contains),
        ('["a", "b"] contains $p.kind', Contains),
        ("[] contains $p.age", Contains),
        ("[1, 2.5] contains $p.age", Contains),
        ("$p.marks contains 2.5", Contains),
        ('$p.name contains ""', Substring),
        ("$p.name starts_with $p.nick", Prefix),
        ("$p.age in [1, 2]", Among),
        ("$p.age + 1 in [1, 2]", Among),
        ("$p.tags is null", IsNull),
        ("$p.vec is not null", IsNull),
        ("$p.age = 1 and $p.age = 2", And),
        ("$p.age = 1 or $p.age = 2", Among),
        ("$p.age != 1 and $p.age != 2", Not),
        ("$p.age = 1 or $p.name = $p.nick", Or),
        ("not($p.age = 1)", Not),
        ('search($p.bio, "x")', TextMatch),
        ('search($p.bio, "x") = true', TextMatch),
        ('search($p.bio, "x") != false', TextMatch),
        ('search($p.bio, "x") = false', Not),
        ('true != search($p.kind, "x")', Not),
        ('search($p.bio, "x") = $p.active', Comparison),
    ],
)
def test_conditions(text: str, kind: type[Condition]) -> None:
    assert isinstance(condition(text), kind)


def test_parameters_on_the_left_of_contains_and_in() -> None:
    assert isinstance(condition("$l contains $p.name", "$l: [String]"), Contains)
    assert isinstance(condition('$s contains "x"', "$s: String"), Substring)
    among = condition("$s in $l", "$s: String, $l: [String]")
    assert isinstance(among, Among)
    assert isinstance(among.items, ParamRef)


def test_a_fuzzy_match_keeps_its_edits() -> None:
    found = condition("fuzzy($p.bio, $q, 1)", "$q: String")
    assert isinstance(found, TextMatch)

    assert found.function == "fuzzy"
    assert isinstance(found.query, ParamRef)
    assert found.edits == Constant(1, PropertyType(Scalar.I64))


@pytest.mark.parametrize(
    ("text", "scalar"),
    [
        ("$p.age + 1", Scalar.I64),
        ("$p.age * $p.visits", Scalar.I64),
        ("$p.big - $p.small", Scalar.U64),
        ("$p.big + 1", Scalar.U64),
        ("1 + $p.small", Scalar.U64),
        ("$p.big + -1", Scalar.I64),
        ("$p.big + $p.age", Scalar.I64),
        ("$p.score / 2", Scalar.F64),
        ("$p.ratio * 2.5", Scalar.F64),
        ("2 * 3", Scalar.I64),
    ],
)
def test_arithmetic(text: str, scalar: Scalar) -> None:
    found = condition(f"{text} > 0")
    assert isinstance(found, Comparison)
    assert isinstance(found.left, Arithmetic)

    assert found.left.type.scalar is scalar


def test_an_integer_literal_beside_a_float_is_a_float() -> None:
    found = condition("$p.score / 2 > 0")
    assert isinstance(found, Comparison)
    assert isinstance(found.left, Arithmetic)

    assert found.left.right == Constant(2.0, PropertyType(Scalar.F64))


# -- blocks ------------------------------------------------------------------------------------------


def test_blocks_say_what_they_use_and_introduce() -> None:
    checked = matched(
        """$p: Person $c: Company
        not { $p worksAt $c }
        exists { $p knows $f not { $f worksAt $c } }
        count { $p knows $f } >= 2"""
    )
    _, _, negated, exists, counted = checked.clauses
    assert isinstance(negated, Exists)
    assert isinstance(exists, Exists)
    assert isinstance(counted, Counted)

    assert (negated.negated, exists.negated) == (True, False)
    assert [v.name for v in negated.block.uses] == ["p", "c"]
    assert [v.name for v in exists.block.uses] == ["p", "c"]
    assert [v.name for v in exists.block.introduces] == ["f"]
    inner = exists.block.clauses[1]
    assert isinstance(inner, Exists)
    assert [v.name for v in inner.block.uses] == ["f", "c"]
    assert (counted.operator, counted.number) == (">=", 2)
    assert [v.name for v in checked.variables] == ["p", "c"]


def test_variables_of_one_name_in_two_blocks_are_different() -> None:
    first, second = matched("$p: Person not { $p knows $f } not { $p likes $f }").clauses[1:]
    assert isinstance(first, Exists)
    assert isinstance(second, Exists)

    assert first.block.introduces[0] != second.block.introduces[0]


def test_binding_an_outer_variable_inside_a_block_tests_it() -> None:
    checked = matched("$p: Person not { $p: Person { active: true } }")
    clause = checked.clauses[-1]
    assert isinstance(clause, Exists)
    (bind,) = clause.block.clauses
    assert isinstance(bind, Bind)

    assert not bind.new
    assert bind.variable == checked.variables[0]


def test_variables_of_an_optional_block_stay_and_may_be_null() -> None:
    checked = matched(
        "$p: Person optional { $p $w:worksAt $c $c.size > 3 } $c is null", "$p, $c, $c.name, $w.role, $p.name"
    )
    block = checked.clauses[1]
    assert isinstance(block, Optional)

    assert [v.name for v in block.block.introduces] == ["c", "w"]
    assert [(v.name, v.optional) for v in checked.variables] == [("p", False), ("c", True), ("w", True)]
    assert [c.nullable for c in checked.columns] == [False, True, True, True, False]


def test_an_optional_block_needs_no_outer_variable() -> None:
    assert matched("$p: Person optional { $d: Doc }").variables[-1].optional


def test_entity_fields() -> None:
    checked = matched("$p $k:knows $q", "$p.@id, $p.@type as t, $k.@src, $k.@dst, $k.@id, $k.@type")

    assert all(isinstance(output.value, EntityField) for output in checked.outputs)
    assert {column.kind for column in checked.columns} == {"string"}


def test_a_property_knows_its_stored_column() -> None:
    (output,) = matched("$p: Person", "$p.age").outputs
    assert isinstance(output.value, PropertyValue)

    assert output.value.member.column == "age"
