"""Processes that make a graph at one address at once: one wins, and what it made is whole (X-36, G-47)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.base.errors import AlreadyInitialized, GraphError, InvalidRequest
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable
from tests.support import workers
from tests.support.graphs import PERSON, chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

# A loser that looked before the winner was done sees parts of a graph: "another init is running".
LOST = {"already_initialized", "bad_request"}
INIT_POINTS = [
    "table_create.before",
    "table_create.after",
    "schema_put.before",
    "schema_put.after",
    "refs_create.before",
    "refs_create.after",
    "genesis.before",
]


def test_of_processes_making_a_graph_at_one_address_exactly_one_wins(place: Place) -> None:
    jobs = [(place.address, place.options, f"process {number}") for number in range(4)]

    outcomes = run_processes(workers.init_graph, jobs)

    assert [outcome.error_text for outcome in outcomes if not outcome.ok] == []
    results = [outcome.value for outcome in outcomes]
    assert results.count("ok") == 1
    assert set(results) - {"ok"} <= LOST
    winner = outcomes[results.index("ok")].index
    with GraphStore.open(place.address, **place.kwargs) as store:
        assert store.snapshot().state.commit.actor == f"process {winner}"
        assert upsert_person(store, "ada").commit is not None
        assert len(chain_of(store)) == 2


@pytest.mark.parametrize("point", INIT_POINTS)
def test_init_overtaken_by_another_is_refused_or_wins_and_the_graph_is_whole(
    place: Place, point: str
) -> None:
    """The second comer starts, and ends, at one place inside the first one's init."""
    results: list[str] = []

    def init(name: str) -> None:
        try:
            make_graph(place.address, actor=name, **place.kwargs).close()
            results.append("ok")
        except (AlreadyInitialized, InvalidRequest) as lost:
            results.append(lost.code)

    with armed({point: once(lambda: init("second"))}):
        init("first")

    assert sorted(results) in (["already_initialized", "ok"], ["bad_request", "ok"])
    with GraphStore.open(place.address, **place.kwargs) as store:
        upsert_person(store, "ada")
        assert list(persons(store)) == ["ada"]


@pytest.mark.parametrize("point", INIT_POINTS)
def test_init_that_lost_leaves_the_winners_branches_and_rows_alone(place: Place, point: str) -> None:
    """The winner is already at work when the loser, late, goes on with its own init."""
    winners: list[GraphStore] = []

    def win() -> None:
        try:
            store = make_graph(place.address, **place.kwargs)
        except GraphError:
            return  # the first comer holds the address already: nothing to disturb
        winners.append(store)
        store.branches.create("review", "main")
        upsert_person(store, "ada", branch="review")

    try:
        with armed({point: once(win)}):
            make_graph(place.address, **place.kwargs).close()
    except GraphError:
        assert winners, "somebody must win"

    for winner in winners:
        winner.close()
        with GraphStore.open(place.address, **place.kwargs) as store:
            assert [ref.name for ref in store.branches.list()] == ["review"]
            assert list(persons(store, "review")) == ["ada"]


@pytest.mark.parametrize("point", INIT_POINTS)
def test_winner_of_an_init_race_has_its_own_tables_not_the_losers(place: Place, point: str) -> None:
    """Both use the same table id, for different columns."""
    shapes = {
        name: pa.schema([pa.field("id", pa.string(), nullable=False), pa.field(name, pa.int32())])
        for name in ("first", "second")
    }

    def init(name: str) -> None:
        tables = {PERSON: NewTable("Person", "node", shapes[name])}
        try:
            GraphStore.create(
                place.address, schema=name.encode(), tables=tables, actor=name, **place.kwargs
            ).close()
        except GraphError:
            return

    with armed({point: once(lambda: init("second"))}):
        init("first")

    with GraphStore.open(place.address, **place.kwargs) as store:
        snapshot = store.snapshot()
        winner = str(snapshot.state.commit.actor)
        assert store.schemas.get(snapshot.schema) == winner.encode()
        assert store.table(snapshot, PERSON).schema.names == ["id", winner]


def test_init_that_began_while_another_died_half_way_has_its_own_tables_or_is_refused(place: Place) -> None:
    """The dead one left a table of the same id, with other columns."""

    def create(column: str) -> None:
        shape = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field(column, pa.int32())])
        tables = {PERSON: NewTable("Person", "node", shape)}
        GraphStore.create(place.address, schema=b"{}", tables=tables, **place.kwargs).close()

    def die_half_way() -> None:
        with armed({"schema_put.before": "raise"}), pytest.raises(FailpointHit):
            create("dead")

    try:
        with armed({"table_create.before": once(die_half_way)}):
            create("alive")
    except GraphError:
        return

    with GraphStore.open(place.address, **place.kwargs) as store:
        assert store.table(store.snapshot(), PERSON).schema.names == ["id", "alive"]
