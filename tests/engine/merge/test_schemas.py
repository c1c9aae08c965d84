"""Branches that carry schema changes: compatible ones merge with their data, others conflict by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.engine.merge.conflicts import MergeConflict, SchemaConflict
from tests.support.two_branches import SCHEMA, change, fork, person, put, world

NICK = SCHEMA.replace("city: String?", 'city: String?  nick: String @default("-")')
TOWN = SCHEMA + "node Town { name: String @key }\n"
HUMAN = """
node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  city: String? }
edge Knows: Human -> Human { since: I32?  note: String? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        fork(made)
        yield made


def rows(graph: Graph, name: str) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in graph.nodes(name).to_arrow().to_pylist()}


def test_a_new_property_comes_with_its_data_and_ours_gets_the_default(graph: Graph) -> None:
    graph.schema.apply(NICK, branch="side")
    put(graph, "side", person("Bob", age=30, nick="B"))
    put(graph, "main", person("Dan", age=77), person("Eve", age=5))

    done = graph.merge("side")

    found = rows(graph, "Person")
    assert done.outcome.value == "merged"
    assert {name: (row["age"], row["nick"]) for name, row in found.items()} == {
        "Alice": (30, "-"),
        "Bob": (30, "B"),
        "Carol": (30, "-"),
        "Dan": (77, "-"),
        "Eve": (5, "-"),
    }
    assert graph.query('query q() { match { $p: Person { nick: "B" } } return { $p.name } }').rows == [
        {"p.name": "Bob"}
    ]
    put(graph, "main", person("Fay", nick="F"))  # the merged schema is in force


def test_a_new_property_of_the_target_is_kept(graph: Graph) -> None:
    graph.schema.apply(NICK)
    put(graph, "main", person("Bob", age=30, nick="B"))
    put(graph, "side", person("Dan", age=77))

    graph.merge("side")

    found = rows(graph, "Person")
    assert (found["Bob"]["nick"], found["Dan"]["age"], found["Dan"]["nick"]) == ("B", 77, "-")


def test_new_types_of_both_sides_are_kept(graph: Graph) -> None:
    graph.schema.apply(TOWN, branch="side")
    graph.load([{"type": "Town", "data": {"name": "T"}}], mode="append", branch="side")
    graph.schema.apply(NICK)

    graph.merge("side")

    assert set(rows(graph, "Town")) == {"T"}
    assert rows(graph, "Person")["Alice"]["nick"] == "-"
    assert "node Town" in graph.schema.show()
    assert graph.schema.plan(graph.schema.show()).steps == ()


def test_a_rename_on_one_side_follows_identity(graph: Graph) -> None:
    graph.schema.apply(HUMAN, branch="side")
    put(graph, "main", person("Dan", age=77))

    graph.merge("side")

    assert rows(graph, "Human")["Dan"]["years"] == 77


@pytest.mark.parametrize("renames", ["main", "side"])
def test_an_edge_type_follows_the_name_that_the_other_side_gave_its_ends(graph: Graph, renames: str) -> None:
    other = "side" if renames == "main" else "main"
    graph.schema.apply(HUMAN, branch=renames)
    graph.schema.apply(SCHEMA + "edge Likes: Person -> Person\n", branch=other)
    likes = {"edge": "Likes", "from": "Alice", "to": "Bob", "data": {"id": "ab"}}
    put(graph, other, likes)

    graph.merge("side")

    assert "edge Likes: Human -> Human" in graph.schema.show()
    assert graph.schema.plan(graph.schema.show()).steps == ()
    text = "query q() { match { $a: Human  $a likes $b } return { $b.name as b } }"
    assert graph.query(text).rows == [{"b": "Bob"}]


WIDE = SCHEMA.replace("age: I32?", "age: I64?")


@pytest.mark.parametrize(("widened", "other"), [("side", "main"), ("main", "side")])
def test_a_property_widened_on_one_side_keeps_the_values_of_the_other(
    graph: Graph, widened: str, other: str
) -> None:
    """A change of type makes a new column: values written to the old one meanwhile must not be lost."""
    graph.schema.apply(WIDE, branch=widened)
    put(graph, widened, person("Alice", age=1 << 40))
    put(graph, other, person("Dan", age=77), person("Eve", age=5))

    done = graph.merge("side")

    found = {name: row["age"] for name, row in rows(graph, "Person").items()}
    assert found == {"Alice": 1 << 40, "Bob": 30, "Carol": 30, "Dan": 77, "Eve": 5}
    assert sum(one.updated + one.inserted for one in done.types) == (1 if widened == "side" else 2)


def test_a_type_dropped_on_one_side_goes(graph: Graph) -> None:
    graph.schema.apply("node Person { name: String @key  age: I32?  city: String? }", branch="side")
    put(graph, "main", person("Dan", age=77))

    graph.merge("side")

    assert rows(graph, "Person")["Dan"]["age"] == 77
    assert "Knows" not in graph.schema.show()


@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [
        (NICK, SCHEMA.replace("city: String?", "city: String?  mail: String?"), "Person"),
        (TOWN, SCHEMA + "node Town { title: String @key }\n", "Town"),
    ],
    ids=["one type changed twice", "one name for two types"],
)
def test_changes_that_do_not_go_together_conflict_by_name(
    graph: Graph, ours: str, theirs: str, name: str
) -> None:
    graph.schema.apply(ours)
    graph.schema.apply(theirs, branch="side")
    before = graph.store.snapshot("main").state

    with pytest.raises(SchemaConflict, match=name):
        graph.merge("side")

    assert graph.store.snapshot("main").state == before


def test_data_that_breaks_a_constraint_of_the_other_side_is_a_conflict(graph: Graph) -> None:
    graph.schema.apply(SCHEMA.replace("city: String?", "city: String? @unique"), branch="side")
    put(graph, "main", person("Dan", city="here"), person("Carol", city="here"))

    with pytest.raises(MergeConflict) as caught:
        graph.merge("side")

    assert [one.kind.value for one in caught.value.conflicts] == ["unique_violation"]


def test_both_sides_with_the_same_schema_change_merge(graph: Graph) -> None:
    graph.schema.apply(NICK)
    fork(graph, "other")
    put(graph, "other", person("Bob", nick="B"))
    change(graph, "main", 'update Person set { nick: "A" } where name = "Alice"')

    graph.merge("other")

    found = rows(graph, "Person")
    assert (found["Alice"]["nick"], found["Bob"]["nick"]) == ("A", "B")
