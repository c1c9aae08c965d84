"""Applies that meet other applies, branch creations and data writes of other processes (A-06 to A-10)."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import StaleVersion
from omnigraph.catalog.catalog import UnknownType
from omnigraph.storage.durability import armed
from tests.engine import workers
from tests.engine.cases import person
from tests.engine.workers import Answer
from tests.support.contents import check_whole, insert, read
from tests.support.graphs import chain_of
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import once

BASE = person("p: I32?")
WITH_CITY = person("p: I32?", "node City { name: String @key }")
WITH_TOWN = person("p: I32? q: I32 @default(4)", "node Town { name: String @key }")


def made(place: Place) -> Graph:
    """Make a graph with one row."""
    graph = og.init(place.address, BASE, **place.kwargs)
    insert(graph, {"Person": [{"slug": "a", "p": 1}]})
    return graph


def race(place: Place, tmp_path: Path, *parts: tuple[str, str]) -> list[Answer]:
    """Run (role, argument) pairs in processes that publish together."""
    jobs = [
        (role, place.address, place.options, str(tmp_path / "meeting"), f"{number}", what)
        for number, (role, what) in enumerate(parts)
    ]
    outcomes = run_processes(workers.race, jobs)
    assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
    return [outcome.value for outcome in outcomes if outcome.value is not None]


def test_of_two_processes_applying_different_schemas_one_wins_and_one_gets_the_conflict(
    place: Place, tmp_path: Path
) -> None:
    with made(place) as graph:
        answers = race(place, tmp_path, ("apply", WITH_CITY), ("apply", WITH_TOWN))

        assert sorted(what for what, _ in answers) == ["applied", "read_set_conflict"]
        assert [member for what, member in answers if what == "read_set_conflict"] == ["schema"]
        winner = [WITH_CITY, WITH_TOWN][[what for what, _ in answers].index("applied")]
        assert graph.schema.show() == winner
        assert len(chain_of(graph.store)) == 3
        check_whole(graph)


def test_two_processes_applying_one_schema_make_one_commit(place: Place, tmp_path: Path) -> None:
    with made(place) as graph:
        answers = race(place, tmp_path, ("apply", WITH_TOWN), ("apply", WITH_TOWN))

        first, other = sorted(answers, key=lambda answer: answer[0] != "applied")
        assert first[0] == "applied"
        assert other in [("nothing to do", ""), ("read_set_conflict", "schema")]
        assert len(chain_of(graph.store)) == 3
        assert graph.schema.apply(WITH_TOWN).applied is False
        check_whole(graph)


def test_a_branch_created_during_an_apply_has_the_old_or_the_new_schema_whole(
    place: Place, tmp_path: Path
) -> None:
    with made(place) as graph:
        answers = race(place, tmp_path, ("apply", WITH_TOWN), ("fork", "review"))

        assert sorted(what for what, _ in answers) == ["applied", "ok"]
        assert graph.schema.show() == WITH_TOWN
        assert graph.schema.show("review") in (BASE, WITH_TOWN)
        check_whole(graph)
        check_whole(graph, "review")


def test_a_data_write_racing_a_rewrite_is_in_the_result_or_stops_the_apply(
    place: Place, tmp_path: Path
) -> None:
    with made(place) as graph:
        applied, written = race(place, tmp_path, ("apply", WITH_TOWN), ("insert", "b"))

        assert written[0] == "ok"
        assert applied[0] == "applied" or applied == ("read_set_conflict", "Person")
        assert [row["slug"] for row in read(graph, "Person")] == ["a", "b"]
        assert graph.schema.show() == (WITH_TOWN if applied[0] == "applied" else BASE)
        check_whole(graph)


def test_a_data_write_racing_an_apply_that_adds_a_type_lands_with_it(place: Place, tmp_path: Path) -> None:
    with made(place) as graph:
        applied, written = race(place, tmp_path, ("apply", WITH_CITY), ("insert", "b"))

        assert (applied[0], written[0]) == ("applied", "ok")
        assert graph.schema.show() == WITH_CITY
        assert [row["slug"] for row in read(graph, "Person")] == ["a", "b"]


def test_an_apply_that_lost_to_another_schema_names_both_schemas(local_place: Place) -> None:
    with made(local_place) as graph, og.connect(local_place.address) as other:
        was = graph.store.snapshot().schema
        with (
            armed({"publish.before": once(lambda: other.schema.apply(WITH_CITY))}),
            pytest.raises(StaleVersion) as caught,
        ):
            graph.schema.apply(WITH_TOWN)

        now = graph.store.snapshot().schema
        assert caught.value.fields == {"member": "schema", "expected": was, "actual": now}


def test_applies_on_different_branches_do_not_meet(place: Place) -> None:
    with made(place) as graph, og.connect(place.address, **place.kwargs) as other:
        graph.store.branches.create("review", "main")
        with armed({"publish.before": once(lambda: other.schema.apply(WITH_CITY, branch="review"))}):
            assert graph.schema.apply(WITH_TOWN).applied

        assert (graph.schema.show(), graph.schema.show("review")) == (WITH_TOWN, WITH_CITY)
        check_whole(graph)
        check_whole(graph, "review")


def test_branches_that_add_the_same_name_give_it_different_identities(local_place: Place) -> None:
    with made(local_place) as graph:
        graph.store.branches.create("review", "main")
        graph.schema.apply(WITH_CITY)
        graph.schema.apply(WITH_CITY, branch="review")

        mine, theirs = (graph.schema.catalog(b).node("City").id for b in ("main", "review"))
        assert mine != theirs


def test_a_long_lived_handle_notices_a_new_schema_on_its_next_operation(place: Place) -> None:
    with made(place) as graph, og.connect(place.address, **place.kwargs) as other:
        assert graph.schema.catalog().find_node("City") is None
        with pytest.raises(UnknownType):
            graph.nodes("City")
        other.schema.apply(WITH_CITY)

        assert graph.nodes("City").to_arrow().num_rows == 0
        assert insert(graph, {"City": [{"name": "delft"}]}).attempts == 1
        assert graph.schema.apply(WITH_CITY).applied is False


def test_a_view_in_flight_keeps_the_schema_of_its_snapshot(local_place: Place) -> None:
    with made(local_place) as graph, og.connect(local_place.address) as other:
        view = graph.nodes("Person")
        other.schema.apply(person('r: I64? @rename_from("p")'))

        assert view.to_arrow().to_pylist() == [{"id": "a", "p": 1, "slug": "a"}]
        assert graph.nodes("Person").to_arrow().to_pylist() == [{"id": "a", "r": 1, "slug": "a"}]


def test_an_apply_is_recorded_with_its_actor_message_and_kind(local_place: Place) -> None:
    with made(local_place) as graph:
        graph.schema.apply(WITH_CITY, actor="ada", message="cities")
        commit = graph.store.snapshot().state.commit

        assert (commit.actor, commit.message, commit.kind.value) == ("ada", "cities", "schema")
