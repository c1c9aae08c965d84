"""One entity through time: its versions with who, when and what; its values at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.base.errors import NotFound
from omnigraph.engine.history.entity import last_touched
from tests.support.two_branches import SCHEMA, change, fork, knows, person, put, world


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        yield made


def test_versions_are_listed_newest_first_with_what_changed(graph: Graph) -> None:
    first = graph.store.snapshot().commit_id
    graph.load([person("Alice", age=31)], mode="merge", actor="ada", message="a birthday")
    put(graph, "main", person("Bob", age=99))
    put(graph, "main", person("Alice", age=31))
    change(graph, "main", 'delete Person where name = "Alice"')
    put(graph, "main", person("Alice", age=1))

    again, gone, birthday, made = graph.entity("Person", "Alice").history()

    assert [one.op.value for one in (again, gone, birthday, made)] == ["insert", "delete", "update", "insert"]
    assert birthday.fields == {"age": (30, 31)}
    assert (birthday.cause.actor, birthday.cause.message) == ("ada", "a birthday")
    assert made.cause.commit_id == first
    assert gone.change.before is not None
    assert gone.change.before["age"] == 31


def test_a_branch_has_the_versions_of_its_own_line(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=31))
    put(graph, "main", person("Alice", age=77))

    ages = [one.change.after for one in graph.entity("Person", "Alice").history(branch="side")]

    assert [age["age"] for age in ages if age is not None] == [31, 30]


def test_a_merge_is_a_version_of_what_it_brought(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=31))
    merged = graph.merge("side").commit_id

    newest, _ = graph.entity("Person", "Alice").history()

    assert (newest.cause.commit_id, newest.fields) == (merged, {"age": (30, 31)})


def test_a_revert_by_pointer_is_a_version_too(graph: Graph) -> None:
    put(graph, "main", person("Alice", age=31))
    graph.revert(graph.store.snapshot().commit_id)

    history = graph.entity("Person", "Alice").history()

    assert [one.fields.get("age") for one in history] == [(31, 30), (30, 31), None]


def test_names_are_those_of_now(graph: Graph) -> None:
    put(graph, "main", person("Alice", age=31))
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I64? @rename_from("age")  team: I32?'))

    update, _ = graph.entity("Person", "Alice").history()

    assert update.fields == {"years": (30, 31)}


def test_a_limit_says_that_there_is_more(graph: Graph) -> None:
    for age in range(3):
        put(graph, "main", person("Alice", age=age))

    history = graph.entity("Person", "Alice").history(limit=2)

    assert (len(history), history.more, history.reclaimed) == (2, True, False)
    assert not graph.entity("Person", "Alice").history(limit=4).more


def test_cleaned_history_is_said(graph: Graph) -> None:
    put(graph, "main", person("Alice", age=31))
    graph.store.raise_floor("main", graph.store.snapshot().state.version - 1)
    put(graph, "main", person("Alice", age=32))

    history = graph.entity("Person", "Alice").history()

    assert next(one.fields for one in history) == {"age": (31, 32)}
    assert history.reclaimed


def test_edges_have_versions_with_their_ends(graph: Graph) -> None:
    put(graph, "main", knows("bc", "Bob", "Dan"))

    moved, _ = graph.entity("Knows", "bc").history()

    assert moved.fields == {"to": ("Carol", "Dan")}


def test_values_at_any_moment(graph: Graph) -> None:
    put(graph, "main", person("Alice", age=31))
    alice = graph.entity("Person", "Alice")

    now, then = alice.get(), alice.get(at="main~1")

    assert now == {"id": "Alice", "name": "Alice", "age": 31, "city": None}
    assert then is not None
    assert then["age"] == 30
    assert alice.get(at="main~2") is None
    assert len(graph.entity("Person", "Nobody").history()) == 0


def test_an_unknown_type_is_not_found(graph: Graph) -> None:
    with pytest.raises(NotFound, match="'Persn'"):
        graph.entity("Persn", "Alice").history()


def test_who_touched_an_entity_last_between_two_states(graph: Graph) -> None:
    base = graph.store.snapshot().state
    graph.load([person("Alice", age=31)], mode="merge", actor="ada")
    put(graph, "main", person("Bob", age=1))
    head = graph.store.snapshot().state
    declared = graph.schema.catalog().node("Person")

    def last(entity: str) -> str | None:
        found = last_touched(graph.store, graph._catalogs, declared, entity, head, base)
        return None if found is None else found.actor or found.id

    assert last("Alice") == "ada"
    assert last("Bob") == head.head
    assert last("Carol") is None
