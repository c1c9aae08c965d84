"""The past under the schema of today: current names are followed through stable identity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import TypeNotFound
from omnigraph.language.diagnostics import QueryError

BEFORE = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
AFTER = """
node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  nick: String? }
edge Knows: Human -> Human
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A graph whose type and property were renamed after the data came."""
    with og.init(tmp_path / "graph.og", BEFORE, durability="os") as opened:
        people = [
            {"type": "Person", "data": {"name": "Ada", "age": 36}},
            {"type": "Person", "data": {"name": "Bo"}},
        ]
        opened.load([*people, {"edge": "Knows", "from": "Ada", "to": "Bo"}], mode="append")
        yield opened


def test_renames_change_no_answer(graph: Graph) -> None:
    graph.schema.apply(AFTER)

    gq = "query q() { match { $p: Human  $p knows $q } return { $p.name, $p.years, $q.nick } }"
    assert graph.query(gq).rows == [{"p.name": "Ada", "p.years": 36, "q.nick": None}]
    with pytest.raises(QueryError, match="T1"):
        graph.query("query q() { match { $p: Person } return { $p.name } }")


def test_the_past_is_read_under_the_names_of_today(graph: Graph) -> None:
    past = graph.store.snapshot("main").commit_id
    graph.schema.apply(AFTER)

    gq = "query q() { match { $p: Human  $p.years > 1 } return { $p.name, $p.years } }"
    assert graph.query(gq, at=past).rows == [{"p.name": "Ada", "p.years": 36}]


def test_a_property_of_today_is_null_in_a_past_without_it(graph: Graph) -> None:
    past = graph.store.snapshot("main").commit_id
    graph.schema.apply(AFTER)
    graph.mutate('query q() { update Human set { nick: "A" } where name = "Ada" }')

    gq = "query q() { match { $p: Human  $p.nick is null } return { $p.name, $p.nick } }"
    assert graph.query(gq, at=past).rows == [
        {"p.name": "Ada", "p.nick": None},
        {"p.name": "Bo", "p.nick": None},
    ]
    named = 'query q() { match { $p: Human  $p.nick = "A" } return { $p.name } }'
    assert graph.query(named, at=past).rows == []
    assert graph.query(named).rows == [{"p.name": "Ada"}]


def test_a_type_of_today_is_said_not_to_exist_in_a_past_without_it(graph: Graph) -> None:
    past = graph.store.snapshot("main").commit_id
    graph.schema.apply(BEFORE + "\nnode City { name: String @key }")

    gq = "query q() { match { $c: City } return { $c.name } }"
    assert graph.query(gq).rows == []
    with pytest.raises(TypeNotFound, match="'City' did not exist at commit"):
        graph.query(gq, at=past)


def test_a_dropped_name_is_unknown_in_the_past_too(graph: Graph) -> None:
    past = graph.store.snapshot("main").commit_id
    graph.schema.apply(BEFORE.replace("age: I32?", ""))

    with pytest.raises(QueryError, match="age"):
        graph.query("query q() { match { $p: Person } return { $p.age } }", at=past)


# -- a property that was widened since ------------------------------------------------------------------

NARROW = "node Person { name: String @key  age: I32?  size: F32? }"
WIDE = "node Person { name: String @key  age: I64?  size: F64?  note: String? }"


@pytest.mark.parametrize(
    ("gq", "rows"),
    [
        ("match { $p: Person } return { $p.age } order { $p.age }", [{"p.age": 1}, {"p.age": 2}]),
        ("match { $p: Person  $p.age > $least } return { $p.name }", [{"p.name": "b"}]),
        ("match { $p: Person } return { sum($p.size) as s }", [{"s": 1.0}]),
        ('match { $p: Person { name: "a" } } return { $p.age, $p.note }', [{"p.age": 1, "p.note": None}]),
    ],
    ids=["column", "filter", "sum", "look-up"],
)
def test_a_query_of_the_past_finds_the_values_of_a_property_that_was_widened_since(
    tmp_path: Path, gq: str, rows: list[dict[str, Any]]
) -> None:
    with og.init(tmp_path / "graph.og", NARROW, durability="os") as graph:
        people = [{"name": "a", "age": 1, "size": 0.5}, {"name": "b", "age": 2, "size": 0.5}]
        graph.load([{"type": "Person", "data": one} for one in people], mode="append")
        graph.schema.apply(WIDE)
        graph.mutate('query q() { update Person set { age: 7000000000 } where name = "a" }')
        params = {"least": 1} if "$least" in gq else {}
        head = "query q($least: I64)" if params else "query q()"

        assert graph.query(f"{head} {{ {gq} }}", params, at="main~2").rows == rows
