"""What a checked mutation holds: everything that the engine needs, and no text."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.catalog.model import NodeType, Property
from omnigraph.catalog.query import assigned_value, bind_params, compile_query
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    Constant,
    EntityField,
    IsNull,
    Not,
    Now,
    Or,
    ParamRef,
    PropertyValue,
    Value,
)
from omnigraph.catalog.query.statements import Assignment, Delete, Endpoint, Insert, Update, place_name
from omnigraph.catalog.query.values import Unfit
from tests.support.catalogs import catalog
from tests.support.checked_queries import CATALOG, mutation

PERSON = CATALOG.node("Person")


def shown(condition: Condition) -> object:
    """A condition as plain values."""
    match condition:
        case Comparison(left, operator, Constant(value)):
            return column(left), operator, value
        case Comparison(left, operator, right):
            return column(left), operator, right
        case Among(left, ParamRef(parameter)):
            return column(left), "in", f"${parameter.name}"
        case Among(left, items):
            assert isinstance(items, tuple)
            return column(left), "in", tuple(item.value for item in items if isinstance(item, Constant))
        case IsNull(operand, negated):
            return column(operand), "not null" if negated else "null"
        case Not(operand):
            return "not", shown(operand)
        case And(operands):
            return "and", *map(shown, operands)
        case Or(operands):
            return "or", *map(shown, operands)
        case _:
            raise AssertionError(condition)


def column(value: Value) -> str:
    """What is tested: a property, or an end of the edge."""
    match value:
        case PropertyValue(_, member):
            return member.column
        case EntityField(_, part):
            return part.value
        case _:
            raise AssertionError(value)


def where(text: str, params: str = "") -> object:
    """The condition of a delete."""
    (statement,) = mutation(f"delete Person where {text}", params).statements
    assert isinstance(statement, Delete)
    return shown(statement.where)


# -- inserts -----------------------------------------------------------------------------------------


def test_an_insert_lists_what_was_written_as_stored_values() -> None:
    checked = mutation(
        """insert Person { name: "Ada", kind: "staff", age: 7, score: 1, ratio: 2, big: 9, active: true,
           born: date("1970-01-03"), joined: datetime("1970-01-01T00:00:02Z"), tags: [], marks: [1, 2],
           vec: [1, 0.1, -2], nick: null }"""
    )
    (insert,) = checked.statements
    assert isinstance(insert, Insert)
    assert insert.target is PERSON
    values = {place_name(a.place): a.operand for a in insert.assignments}
    assert {name: operand.value for name, operand in values.items() if isinstance(operand, Constant)} == {
        "name": "Ada",
        "kind": "staff",
        "age": 7,
        "score": 1.0,
        "ratio": 2.0,
        "big": 9,
        "active": True,
        "born": 2,
        "joined": 2_000,
        "tags": (),
        "marks": (1, 2),
        "vec": (1.0, 0.10000000149011612, -2.0),
        "nick": None,
    }
    assert all(isinstance(a.place, Property) for a in insert.assignments)
    assert not checked.destructive


def test_an_edge_insert_has_its_endpoints_among_the_assignments() -> None:
    (insert,) = mutation('insert Knows { from: $a to: "b" }', "$a: String").statements
    assert isinstance(insert, Insert)

    assert [(a.place, a.column) for a in insert.assignments] == [(Endpoint.FROM, "src"), (Endpoint.TO, "dst")]
    assert isinstance(insert.assignments[0].operand, ParamRef)


@pytest.mark.parametrize(
    "text",
    [
        'insert Person { name: "a", kind: "staff" }',  # joined has a default
        'insert Doc { title: "t", text: "x" }',  # the vector comes from its source
        'insert Tenant { club: "c", number: 1 }',
    ],
)
def test_what_may_be_left_out(text: str) -> None:
    assert mutation(text).statements


def test_a_nullable_parameter_may_be_assigned_to_a_required_property() -> None:
    assert mutation('insert Person { name: $n, kind: "staff" }', "$n: String?").statements


@pytest.mark.parametrize("params", ["$x: String", "$x: Blob"])
def test_a_blob_is_assigned_from_text_or_blob_parameters(params: str) -> None:
    assert mutation("update Person set { photo: $x } where age = 1", params).statements


@pytest.mark.parametrize(
    ("member", "params", "given", "stored"),
    [
        ("age", "$x: I64", 5, 5),
        ("age", "$x: F64", 5.0, 5),
        ("ratio", "$x: I32", 5, 5.0),
        ("score", "$x: F64", 0.1, 0.10000000149011612),
        ("marks", "$x: [I64]", [1, 2], (1, 2)),
        ("vec", "$x: Vector(3)", [1, 2, 3], (1.0, 2.0, 3.0)),
        ("joined", "$x: DateTime", "1970-01-01T00:00:01Z", 1_000),
        ("nick", "$x: String?", None, None),
        ("big", "$x: U64", 2**64 - 1, 2**64 - 1),
        ("photo", "$x: String", "base64:", "base64:"),
    ],
)
def test_parameters_become_values_of_the_property(member: str, params: str, given: Any, stored: Any) -> None:
    checked = mutation(f"update Person set {{ {member}: $x }} where age = 1", params)
    (update,) = checked.statements
    assert isinstance(update, Update)
    values = bind_params(checked.parameters, {"x": given})

    found = assigned_value(update.assignments[0], update.target, values, 0)

    assert found == stored
    assert type(found) is type(stored)


@pytest.mark.parametrize(
    ("member", "params", "given", "message"),
    [
        ("age", "$x: I64", 2**31, "Person.age: 2147483648 exceeds Int32 range"),
        ("age", "$x: F64", 2.5, r"Person.age: expected an integer \(I32\), found 2.5"),
        ("small", "$x: I32", -1, "Person.small: -1 exceeds UInt32 range"),
        ("score", "$x: F64", 1e39, "Person.score: 1e\\+39 exceeds Float32 range"),
        ("marks", "$x: [I64]", [1, 2**31], "exceeds Int32 range"),
    ],
)
def test_values_that_do_not_fit_the_property(member: str, params: str, given: Any, message: str) -> None:
    checked = mutation(f"update Person set {{ {member}: $x }} where age = 1", params)
    (update,) = checked.statements
    assert isinstance(update, Update)

    with pytest.raises(Unfit, match=message):
        assigned_value(update.assignments[0], update.target, bind_params(checked.parameters, {"x": given}), 0)


def test_now_is_the_time_of_the_request() -> None:
    joined = PERSON.find("joined")
    assert joined is not None

    assert assigned_value(Assignment(joined, Now()), PERSON, {}, 1234) == 1234


# -- conditions --------------------------------------------------------------------------------------


def test_conditions_are_those_of_reads_on_the_row() -> None:
    assert where('name = "Ada"') == ("name", "=", "Ada")
    assert where("joined > now()") == ("joined", ">", Now())
    assert where('born <= date("1970-01-02")') == ("born", "<=", 1)
    assert where("active != false") == ("active", "!=", False)
    assert where("nick is null") == ("nick", "null")
    assert where("tags is not null") == ("tags", "not null")
    assert where("age < 2.7") == ("age", "<", 2.7)
    assert where("age in [1, 2.5]") == ("age", "in", (1, 2.5))
    assert where("age in []") == ("age", "in", ())
    assert where('kind = "boss"') == ("kind", "=", "boss")  # never matches, and that is no error


def test_conditions_are_joined() -> None:
    found = where("age = 7 and (nick is null or not(name in $l))", "$l: [String]")

    assert found == ("and", ("age", "=", 7), ("or", ("nick", "null"), ("not", ("name", "in", "$l"))))


def test_edges_are_tested_by_property_and_endpoint() -> None:
    (statement,) = mutation('delete Knows where from = "a" and since is null').statements
    assert isinstance(statement, Delete)

    assert shown(statement.where) == ("and", ("src", "=", "a"), ("since", "null"))


def test_an_edge_may_be_updated() -> None:
    (statement,) = mutation('update Knows set { weight: 1, since: null } where to = "x"').statements

    assert isinstance(statement, Update)
    assert [a.column for a in statement.assignments] == ["weight", "since"]


# -- the whole ---------------------------------------------------------------------------------------


def test_a_node_type_comes_before_an_edge_type_of_the_same_name() -> None:
    shared = catalog("node Shared { a: String? } edge Shared: Shared -> Shared { b: String? }")
    checked = compile_query('query q() { delete Shared where a = "x" }', shared)

    assert isinstance(checked.operation.writes[0], NodeType)


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ('insert Person { name: "a", kind: "staff" }', ["node Person"], ["node Person"]),
        (
            'insert WorksAt { from: "a", to: "b", role: "c" }',
            ["node Company", "node Person", "edge WorksAt"],
            ["edge WorksAt"],
        ),
        ("update Person set { age: 1 } where age = 2", ["node Person"], ["node Person"]),
        ('delete Knows where from = "x"', ["edge Knows"], ["edge Knows"]),
        (
            'delete Company where name = "x"',
            ["node Company", "edge Owns", "edge WorksAt"],
            ["node Company", "edge Owns", "edge WorksAt"],
        ),
    ],
)
def test_what_a_mutation_reads_and_writes(text: str, reads: list[str], writes: list[str]) -> None:
    described = mutation(text).operation.to_json()

    assert described["result"] == []
    assert [f"{t['kind']} {t['type_name']}" for t in described["reads"]] == reads
    assert [f"{t['kind']} {t['type_name']}" for t in described["writes"]] == writes


def test_targets_come_in_the_order_of_the_statements() -> None:
    checked = mutation(
        'delete Knows where from = "x" delete Person where age = 1 delete Knows where to = "y"'
    )

    assert [target.name for target in checked.targets] == ["Knows", "Person"]
    assert checked.destructive
