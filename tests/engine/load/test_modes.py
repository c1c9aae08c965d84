"""What each load mode does with an id that is absent, committed, or given twice (engine contract 3.3)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import ConstraintViolation, InvalidRequest, KeyConflict, StaleVersion
from omnigraph.catalog.catalog import UnknownType
from tests.support.contents import read, state
from tests.support.people import (
    INSERT,
    NOTE,
    SCHEMA,
    ages,
    coming_first,
    company,
    head,
    knows,
    pairs,
    person,
    q,
    thing,
    violations,
)
from tests.support.places import Place

MODES = ("append", "merge", "overwrite")
every_mode = pytest.mark.parametrize("mode", MODES)


def things(graph: Graph) -> dict[str, str]:
    """Return the values of all things by id."""
    return {row["id"]: row["value"] for row in read(graph, "Thing")}


@pytest.fixture(autouse=True)
def _committed(graph: Graph) -> None:
    graph.load(
        [
            person("a", age=1, note="x"),
            person("b", age=2),
            company("c"),
            thing("1", id="t"),
            knows("a", "b", id="e"),
        ],
        mode="append",
    )


# -- ids that are absent, and ids that are there -----------------------------------------------------


@every_mode
def test_an_absent_id_is_inserted(graph: Graph, mode: Any) -> None:
    receipt = graph.load([thing("2", id="u")], mode=mode)

    assert things(graph)["u"] == "2"
    assert [(c.name, c.inserted) for c in receipt.types] == [("Thing", 1)]


@pytest.mark.parametrize(
    ("record", "entity"),
    [
        (person("a"), ("node", "Person", "a")),
        (thing("2", id="t"), ("node", "Thing", "t")),
        (knows("b", "a", id="e"), ("edge", "Knows", "e")),
    ],
    ids=["keyed", "unkeyed", "edge"],
)
def test_append_refuses_a_committed_id_and_writes_nothing(
    graph: Graph, record: dict[str, Any], entity: tuple[str, str, str]
) -> None:
    before = state(graph)

    with pytest.raises(KeyConflict) as caught:
        graph.load([thing("new"), record], mode="append")

    fields = caught.value.fields
    assert (fields["entity_kind"], fields["type_name"], fields["entity_id"]) == entity
    assert state(graph) == before


def test_merge_replaces_the_whole_entity(graph: Graph) -> None:
    receipt = graph.load([person("a", age=5), thing("2", id="t"), knows("b", "b", id="e")], mode="merge")

    replaced = read(graph, "Person")[0]
    assert (replaced["age"], replaced["note"], replaced["mood"]) == (5, None, "calm")
    assert things(graph) == {"t": "2"}
    assert pairs(graph) == [("b", "b")]
    assert [(c.inserted, c.updated) for c in receipt.types] == [(0, 1)] * 3


def test_overwrite_makes_the_image_what_was_given(graph: Graph) -> None:
    receipt = graph.load([person("a", age=9), person("b"), person("z")], mode="overwrite")

    assert ages(graph) == {"a": 9, "b": None, "z": None}
    assert read(graph, "Person")[0]["note"] is None
    assert [(c.name, c.inserted, c.deleted) for c in receipt.types] == [("Person", 3, 2)]


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_what_is_not_in_the_input_is_kept(graph: Graph, mode: Any) -> None:
    graph.load([person("z")], mode=mode)

    assert ages(graph) == {"a": 1, "b": 2, "z": None}


def test_overwrite_removes_what_is_not_in_the_input_without_a_cascade(graph: Graph) -> None:
    before = state(graph)

    with pytest.raises(ConstraintViolation) as caught:
        graph.load([person("a")], mode="overwrite")

    assert violations(caught.value) == ["orphan_edge"]
    assert state(graph) == before


def test_a_type_that_is_not_in_the_input_is_untouched_and_still_seen(graph: Graph) -> None:
    table = graph.schema.catalog().node("Person").table_id
    before = graph.store.snapshot().pin(table)

    graph.load([knows("b", "a")], mode="overwrite")

    assert graph.store.snapshot().pin(table) == before
    assert pairs(graph) == [("b", "a")]


# -- types to be emptied -----------------------------------------------------------------------------


def test_a_type_is_emptied_by_naming_it(graph: Graph) -> None:
    graph.load([], mode="overwrite", replace_types=["Thing", "Knows"])

    assert things(graph) == {}
    assert pairs(graph) == []
    assert ages(graph) == {"a": 1, "b": 2}


def test_a_type_that_is_named_and_given_gets_what_is_given(graph: Graph) -> None:
    graph.load([thing("2", id="u")], mode="overwrite", replace_types=["Thing", "Thing"])

    assert things(graph) == {"u": "2"}


def test_emptying_nodes_that_edges_name_is_refused(graph: Graph) -> None:
    with pytest.raises(ConstraintViolation) as caught:
        graph.load([], mode="overwrite", replace_types=["Person"])

    assert violations(caught.value) == ["orphan_edge", "orphan_edge"]


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_only_overwrite_empties_types(graph: Graph, mode: Any) -> None:
    with pytest.raises(InvalidRequest):
        graph.load([], mode=mode, replace_types=["Thing"])


def test_a_type_that_is_not_there_cannot_be_emptied(graph: Graph) -> None:
    with pytest.raises(UnknownType):
        graph.load([], mode="overwrite", replace_types=["Nothing"])


def test_a_mode_is_one_of_three(graph: Graph) -> None:
    with pytest.raises(InvalidRequest, match="upsert"):
        graph.load([], mode="upsert")  # type: ignore[arg-type]


# -- the same id twice in one input ------------------------------------------------------------------


@every_mode
def test_a_key_twice_in_one_input_is_a_violation(graph: Graph, mode: Any) -> None:
    before = state(graph)

    with pytest.raises(ConstraintViolation) as caught:
        graph.load([company("z"), company("y"), company("z")], mode=mode)

    (violation,) = caught.value.fields["violations"]
    assert (violation["code"], violation["entity_id"], violation["property"]) == ("unique", "z", "name")
    assert violation["place"] == "<records>:3"
    assert state(graph) == before


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("rows", "entity"),
    [
        ([thing("1", id="u"), thing("2", id="u")], ("Thing", "u")),
        ([knows("a", "b", id="f"), knows("b", "a", id="f")], ("Knows", "f")),
    ],
    ids=["node", "edge"],
)
def test_an_id_twice_in_one_input_is_a_key_conflict(
    graph: Graph, mode: Any, rows: list[Any], entity: tuple[str, str]
) -> None:
    with pytest.raises(KeyConflict) as caught:
        graph.load(rows, mode=mode)

    assert (caught.value.fields["type_name"], caught.value.fields["entity_id"]) == entity
    assert caught.value.fields["total"] == 1


def test_of_an_id_twice_in_one_merge_the_last_counts(graph: Graph) -> None:
    receipt = graph.load(
        [
            thing("1", id="u"),
            thing("x", id="v"),
            thing("2", id="u"),
            knows("a", "b", id="f"),
            knows("b", "a", id="f"),
        ],
        mode="merge",
    )

    assert things(graph) == {"t": "1", "u": "2", "v": "x"}
    assert pairs(graph) == [("a", "b"), ("b", "a")]
    assert receipt.facts["total_entities"] == 5, "counts are input records"
    assert [(c.name, c.inserted) for c in receipt.types] == [("Thing", 2), ("Knows", 1)]


def test_two_records_with_one_unique_value_are_a_violation_even_under_one_id(graph: Graph) -> None:
    """A load has no order, so the first record of the pair cannot have freed the value (E-05)."""
    schema = SCHEMA.replace("node Thing { value: String ", "node Thing { value: String @unique ")
    graph.schema.apply(schema)
    with pytest.raises(ConstraintViolation) as caught:
        graph.load([thing("same", id="u"), thing("same", id="u")], mode="merge")

    assert violations(caught.value) == ["unique"]


def test_rows_without_an_id_are_all_new(graph: Graph) -> None:
    for _ in range(2):
        graph.load([thing("x"), thing("x"), knows("a", "b"), knows("a", "b")], mode="merge")

    assert len(things(graph)) == 5
    assert pairs(graph) == [("a", "b")] * 5


# -- order -------------------------------------------------------------------------------------------


@every_mode
def test_the_order_of_records_does_not_matter(tmp_path: Path, mode: Any) -> None:
    rows = [person("z"), person("y"), knows("z", "y", id="f"), knows("y", "z", id="g"), thing("2", id="u")]
    images = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        with og.init(tmp_path / f"{seed}.og", SCHEMA, durability="os") as graph:
            graph.load(list(rows), mode=mode)
            images.append(state(graph).rows)
    assert images[0] == images[1] == images[2]


@every_mode
def test_an_empty_input_is_an_empty_commit(graph: Graph, mode: Any) -> None:
    before, rows = head(graph), state(graph).rows

    receipt = graph.load([], mode=mode)

    assert receipt.parents == (before,)
    assert receipt.types == ()
    assert state(graph).rows == rows


# -- lost races --------------------------------------------------------------------------------------


def test_append_that_lost_a_race_stays_strict(graph: Graph, local_place: Place) -> None:
    with (
        coming_first(local_place.address, lambda other: other.load([person("z", age=9)], mode="append")),
        pytest.raises(KeyConflict),
    ):
        graph.load([person("z", age=1)], mode="append")

    assert ages(graph)["z"] == 9


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_that_lost_a_race_lands_after_the_winner(graph: Graph, local_place: Place, mode: Any) -> None:
    with coming_first(local_place.address, lambda other: other.load([person("y")], mode="append")):
        receipt = graph.load([person("z")], mode=mode)

    assert receipt.attempts == 2
    assert set(ages(graph)) == {"a", "b", "y", "z"}


def test_overwrite_of_a_table_that_moved_is_a_conflict(graph: Graph, local_place: Place) -> None:
    with (
        coming_first(local_place.address, lambda other: other.mutate(NOTE, value="y")),
        pytest.raises(StaleVersion) as caught,
    ):
        graph.load([thing("z")], mode="overwrite")

    assert caught.value.fields["member"] == "Thing"
    assert caught.value.retryable
    assert sorted(things(graph).values()) == ["1", "y"]


def test_overwrite_is_not_disturbed_by_tables_that_it_does_not_replace(
    graph: Graph, local_place: Place
) -> None:
    with coming_first(local_place.address, lambda other: other.mutate(INSERT, name="z")):
        receipt = graph.load([thing("only", id="u")], mode="overwrite")

    assert receipt.attempts == 2
    assert things(graph) == {"u": "only"}
    assert "z" in ages(graph)


# -- a schema that moves -----------------------------------------------------------------------------

WIDER = SCHEMA.replace("age: I32?", "age: I64?")
STRICTER = SCHEMA.replace("note: String?\n", 'note: String? @rename_from("note")\n  height: I32?\n', 1)


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("schema", [WIDER, STRICTER], ids=["wider", "more"])
def test_a_load_is_read_again_under_a_schema_that_came_first(
    graph: Graph, local_place: Place, mode: Any, schema: str
) -> None:
    with coming_first(local_place.address, lambda other: other.schema.apply(schema)):
        graph.load([person("z", age=1)], mode=mode)

    assert ages(graph)["z"] == 1
    assert graph.schema.show() == schema


def test_an_input_that_can_be_read_only_once_is_a_conflict_under_another_schema(
    graph: Graph, local_place: Place
) -> None:
    with (
        coming_first(local_place.address, lambda other: other.schema.apply(WIDER)),
        pytest.raises(StaleVersion) as caught,
    ):
        graph.load(iter([person("z", age=1)]), mode="append")

    assert caught.value.fields["member"] == "schema"
    assert "z" not in ages(graph)


def test_overwrite_under_another_schema_is_a_conflict(graph: Graph, local_place: Place) -> None:
    with (
        coming_first(local_place.address, lambda other: other.schema.apply(WIDER)),
        pytest.raises(StaleVersion) as caught,
    ):
        graph.load([thing("z")], mode="overwrite")

    assert caught.value.fields["member"] == "schema"
    assert things(graph) == {"t": "1"}


def test_an_insert_runs_again_under_a_schema_that_came_first(graph: Graph, local_place: Place) -> None:
    with coming_first(local_place.address, lambda other: other.schema.apply(WIDER)):
        graph.mutate(INSERT, name="z", age=1)

    assert ages(graph)["z"] == 1


def test_an_insert_that_makes_no_sense_under_the_new_schema_is_refused(
    graph: Graph, local_place: Place
) -> None:
    renamed = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")').replace(
        "range(age", "range(years"
    )
    with (
        coming_first(local_place.address, lambda other: other.schema.apply(renamed)),
        pytest.raises(GraphError) as caught,
    ):
        graph.mutate(INSERT, name="z", age=1)

    assert caught.value.code == "compile_error"


def test_an_update_under_another_schema_is_a_conflict(graph: Graph, local_place: Place) -> None:
    with (
        coming_first(local_place.address, lambda other: other.schema.apply(WIDER)),
        pytest.raises(StaleVersion) as caught,
    ):
        graph.mutate(q('update Person set { age: 5 } where name = "a"'))

    assert caught.value.fields["member"] == "schema"


def test_a_type_that_is_named_and_has_no_rows_is_emptied_by_an_overwrite(graph: Graph) -> None:
    none = pa.table({"from": pa.array([], pa.string()), "to": pa.array([], pa.string())})
    graph.load({"Knows": none}, mode="merge")
    assert pairs(graph) == [("a", "b")]

    receipt = graph.load({"Knows": none}, mode="overwrite")

    assert [(c.name, c.deleted) for c in receipt.types] == [("Knows", 1)]
    assert pairs(graph) == []
