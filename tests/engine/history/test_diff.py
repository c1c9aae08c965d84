"""What a diff says: by type and by entity, across branches, schemas and rewrites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.base.errors import HistoryReclaimed, InvalidRequest, NotFound
from omnigraph.engine.history.changes import Op
from tests.engine.history.brute import as_brute, brute_diff, in_order, rows_at
from tests.support.people import head
from tests.support.two_branches import SCHEMA, change, fork, knows, person, put, world

NAMES = ("Person", "Knows")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        yield made


def test_a_diff_of_two_branches_names_operations_and_fields_with_both_images(graph: Graph) -> None:
    fork(graph)
    put(
        graph,
        "side",
        person("Alice", age=31, city="Oslo"),
        person("Eve"),
        knows("ae", "Alice", "Eve", since=7),
    )
    change(graph, "side", 'delete Person where name = "Dan"')

    diff = graph.diff("main", "side")

    alice, dan, eve, edge = diff.changes()
    assert (alice.op, alice.id, alice.fields) == (Op.UPDATE, "Alice", ("age", "city"))
    assert alice.before == {"id": "Alice", "name": "Alice", "age": 30, "city": None}
    assert alice.after == {"id": "Alice", "name": "Alice", "age": 31, "city": "Oslo"}
    assert (dan.op, dan.id, dan.after) == (Op.DELETE, "Dan", None)
    assert dan.before is not None
    assert dan.before["age"] == 30
    assert (eve.op, eve.id, eve.before) == (Op.INSERT, "Eve", None)
    assert edge.after == {"id": "ae", "from": "Alice", "to": "Eve", "since": 7, "note": None}
    assert [(t.name, t.inserted, t.updated, t.deleted) for t in diff.types] == [
        ("Person", 1, 1, 1),
        ("Knows", 1, 0, 0),
    ]


def test_the_other_way_round_inserts_are_deletes(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Eve"))

    (there,) = graph.diff("main", "side")
    (back,) = graph.diff("side", "main")

    assert (there.op, back.op) == (Op.INSERT, Op.DELETE)
    assert there.after == back.before


def test_equal_states_differ_in_nothing_and_open_no_table(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork(graph)
    monkeypatch.setattr(graph.store.reads, "differences", None)

    diff = graph.diff("side", "main")

    assert list(diff) == []
    assert diff.types == ()
    assert not diff


def test_writes_that_change_no_value_are_no_changes(graph: Graph) -> None:
    before = head(graph)
    put(graph, "main", person("Alice", age=30))
    change(graph, "main", 'delete Person where name = "Dan"')
    put(graph, "main", person("Dan", age=30))
    graph.ensure_indexes()

    assert list(graph.diff(before, "main")) == []


def test_null_and_empty_text_are_different_values(graph: Graph) -> None:
    put(graph, "main", person("Alice", age=30, city=""))

    (alice,) = graph.diff("main~1", "main")

    assert alice.fields == ("city",)


def test_filters_choose_before_anything_else_is_read(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Eve"), person("Bob", age=1), knows("ae", "Alice", "Eve"))

    def told(**options: str) -> list[str]:
        return [change.id for change in graph.diff("main", "side", **options)]

    assert told(types="Knows") == ["ae"]
    assert told(kinds="node") == ["Bob", "Eve"]
    assert told(ops="update") == ["Bob"]
    counts = graph.diff("main", "side", ops="update").types
    assert [(one.name, one.inserted, one.updated) for one in counts] == [("Person", 0, 1)]


@pytest.mark.parametrize(
    ("option", "name", "hint"),
    [("types", "Persn", "'Person'"), ("ops", "upsert", "insert"), ("kinds", "vertex", "node")],
)
def test_unknown_names_in_filters_are_bad_requests(graph: Graph, option: str, name: str, hint: str) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        graph.diff("main", "main", **{option: name})


def test_an_unknown_side_is_not_found(graph: Graph) -> None:
    with pytest.raises(NotFound, match="'review'"):
        graph.diff("main", "review")


# -- schemas -----------------------------------------------------------------------------------------


def test_a_renamed_type_and_property_are_schema_steps_and_no_rows(graph: Graph) -> None:
    before = head(graph)
    renamed = """
    node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age")  city: String? }
    edge Knows: Human -> Human { since: I32?  note: String? }
    """
    graph.schema.apply(renamed)

    diff = graph.diff(before, "main")

    assert list(diff) == []
    assert {step.kind for step in diff.schema} == {"rename_type", "rename_property"}


def test_images_are_under_the_names_of_the_newer_side(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")'))
    change(graph, "main", 'update Person set { years: 5 } where name = "Bob"')

    (bob,) = graph.diff(before, "main")

    assert bob.fields == ("years",)
    assert bob.before is not None
    assert bob.after is not None
    assert (bob.before["years"], bob.after["years"]) == (30, 5)


def test_a_property_that_came_with_a_default_changes_only_rows_that_have_another_value(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("city: String?", 'city: String?  team: String @default("none")'))
    assert list(graph.diff(before, "main")) == []
    change(graph, "main", 'update Person set { team: "red" } where name = "Bob"')

    (bob,) = graph.diff(before, "main")

    assert (bob.id, bob.fields) == ("Bob", ("team",))


def test_a_widened_property_is_compared_by_value(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    assert list(graph.diff(before, "main")) == []
    change(graph, "main", 'update Person set { age: 5000000000 } where name = "Bob"')

    (bob,) = graph.diff(before, "main")

    assert bob.before is not None
    assert (bob.id, bob.fields, bob.before["age"]) == ("Bob", ("age",), 30)


def test_a_type_dropped_and_declared_again_is_deletes_and_inserts(graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply("node Person { name: String @key  age: I32?  city: String? }")
    graph.schema.apply(SCHEMA)
    put(graph, "main", knows("bc", "Bob", "Carol"))

    changes = list(graph.diff(before, "main"))

    assert sorted((one.id, one.op.value) for one in changes) == [("bc", "delete"), ("bc", "insert")]
    assert len({one.type_id for one in changes}) == 2


def test_what_a_hard_drop_took_away_is_said_and_other_types_are_compared(graph: Graph) -> None:
    before = head(graph)
    put(graph, "main", person("Eve"))
    graph.schema.apply(SCHEMA.replace("note: String?", ""), allow_data_loss=True)
    put(graph, "main", knows("ab", "Alice", "Bob"))

    with pytest.raises(HistoryReclaimed, match="'Knows'"):
        list(graph.diff(before, "main", types="Knows"))
    assert [one.id for one in graph.diff(before, "main", types="Person")] == ["Eve"]


# -- rewrites ----------------------------------------------------------------------------------------


def test_exact_after_folding_overwrites_and_index_building(graph: Graph) -> None:
    before = head(graph)
    for number in range(60):
        put(graph, "main", person(f"p{number:02d}", age=number), person("Alice", age=number))
        if number % 7 == 0:
            change(graph, "main", f'delete Person where name = "p{number:02d}"')
    graph.ensure_indexes()
    middle = head(graph)
    everybody = [person(f"p{number:02d}", age=number + number % 2) for number in range(50)]
    graph.load([*everybody, person("Bob", age=30), person("Carol", age=30)], mode="overwrite")
    after = head(graph)

    for older, newer in [(before, middle), (middle, after), (before, after), (after, before)]:
        changes = list(graph.diff(older, newer))
        expected = brute_diff(rows_at(graph, older, NAMES), rows_at(graph, newer, NAMES))
        assert as_brute(changes) == expected
        assert in_order(changes)


def test_the_public_shape_has_no_physical_names(graph: Graph) -> None:
    put(graph, "main", person("Eve"), knows("be", "Bob", "Eve"))

    document = graph.diff("main~1", "main").to_json(limit=1)

    assert set(document) == {"from", "to", "stats", "schema", "changes", "truncated"}
    assert document["truncated"]
    assert document["stats"]["inserted"] == 2
    (eve,) = document["changes"]
    assert eve["after"] == {"properties": {"name": "Eve", "age": None, "city": None}}
    (edge,) = graph.diff("main~1", "main", kinds="edge").to_json()["changes"]
    assert edge["after"]["endpoints"] == {"from": "Bob", "to": "Eve"}
