"""Making a graph: it exists with its manifest, one of several wins, and nothing is taken over unasked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.base.errors import (
    AlreadyInitialized,
    GraphError,
    GraphNotFound,
    IntegrityError,
    InvalidRequest,
    StoreUnsupported,
)
from omnigraph.storage.durability import FailpointHit, armed
from omnigraph.storage.location import LocalObjects, Objects, RemoteObjects
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import NewTable
from tests.support.graphs import KNOWS, PERSON, PERSON_SCHEMA, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.stores import Once, again, check_error, everything, location, nothing_written

INIT_STEPS = ("table_create", "schema_put", "refs_create", "genesis")


def test_a_new_graph_has_its_tables_its_schema_and_one_commit_without_a_parent(place: Place) -> None:
    """L-11: genesis is part of the creation of the manifest."""
    with make_graph(place.address, actor="ada", **place.kwargs):
        pass

    with again(place) as store:
        snapshot = store.snapshot()
        commit = snapshot.state.commit
        assert (commit.kind, commit.parent, commit.actor) == (CommitKind.GENESIS, None, "ada")
        assert snapshot.state.version == 1
        assert {t: (pin.name, pin.kind) for t, pin in snapshot.state.pins.items()} == {
            PERSON: ("Person", "node"),
            KNOWS: ("Knows", "edge"),
        }
        assert store.schemas.get(snapshot.schema) == b'{"schema": "test"}'
        assert all(store.table(snapshot, table).count_rows() == 0 for table in snapshot.state.pins)
        assert store.branches.list() == ()


def test_a_new_graph_holds_nothing_but_its_parts(place: Place) -> None:
    """The probe for create-if-absent is taken away again."""
    make_graph(place.address, **place.kwargs).close()

    folders = {key.split("/")[0] for key in everything(place)}
    checksums = {"__checksums"} if not place.options else set()
    assert folders == {"__manifest", "__refs", "__schema", "tables"} | checksums


def test_a_graph_without_tables_is_a_graph(place: Place) -> None:
    GraphStore.create(place.address, schema=b"empty", tables={}, **place.kwargs).close()

    with again(place) as store:
        assert len(store.snapshot().state.pins) == 0


def test_making_a_graph_over_another_is_refused_and_changes_nothing(place: Place, store: GraphStore) -> None:
    for force in (False, True):
        with nothing_written(place), pytest.raises(AlreadyInitialized) as caught:
            make_graph(place.address, force=force, **place.kwargs)
        check_error(caught.value, "already_initialized", place.address)
    assert set(persons(store)) == {"a", "b"}


@pytest.mark.parametrize("key", ["tables/x/data/f.lance", "__schema/abc.json", "__refs/_versions/1.manifest"])
def test_leftovers_of_a_graph_are_not_built_upon_unasked(place: Place, key: str) -> None:
    assert location(place).objects.create(key, b"left over")

    with nothing_written(place), pytest.raises(InvalidRequest) as caught:
        make_graph(place.address, **place.kwargs)

    check_error(caught.value, "bad_request", place.address, key.split("/")[0], "force")


def test_leftovers_of_a_graph_are_cleared_when_asked(place: Place) -> None:
    """Tables go, branches and tags are forgotten; schema objects stay: their names are their content."""
    tables = {"t-left": NewTable("Left", "node", PERSON_SCHEMA)}
    with GraphStore.create(place.address, schema=b"left", tables=tables, **place.kwargs) as store:
        store.branches.create("left", "main")
        store.tags.create("tagged", store.snapshot().state)
    objects = location(place).objects
    assert objects.create("tables/t-left/_derived/f/keys-0", b"left over")
    for key, _ in list(objects.list("__manifest")):
        objects.delete(key)

    with make_graph(place.address, force=True, **place.kwargs) as store:
        upsert_person(store, "a")

    assert not [key for key in everything(place) if "t-left" in key and not key.endswith("/")]
    with again(place) as store:
        assert set(persons(store)) == {"a"}
        assert (store.branches.list(), store.tags.list()) == ((), ())
        store.branches.create("left", "main")


def test_a_registry_that_cannot_be_read_is_left_for_a_person_to_delete(place: Place) -> None:
    """Deleting it might take the registry of an init that is running."""
    key = "__refs/_versions/1.manifest"
    assert location(place).objects.create(key, b"left over")

    with nothing_written(place), pytest.raises(InvalidRequest, match="delete __refs/") as caught:
        make_graph(place.address, force=True, **place.kwargs)

    check_error(caught.value, "bad_request", place.address)
    location(place).objects.delete(key)
    make_graph(place.address, force=True, **place.kwargs).close()


def test_other_files_beside_a_graph_are_left_alone(place: Place) -> None:
    assert location(place).objects.create("notes/readme.txt", b"mine")

    make_graph(place.address, force=True, **place.kwargs).close()

    assert everything(place)["notes/readme.txt"] == b"mine"


@pytest.mark.parametrize("step", INIT_STEPS)
@pytest.mark.parametrize("side", ["before", "after"])
def test_an_init_that_stopped_is_no_graph_until_its_manifest_exists(
    local_place: Place, step: str, side: str
) -> None:
    tables = {"t-stopped": NewTable("Stopped", "node", PERSON_SCHEMA)}
    with armed({f"{step}.{side}": "raise"}), pytest.raises(FailpointHit):
        GraphStore.create(local_place.address, schema=b"stopped", tables=tables)

    if (step, side) == ("genesis", "after"):
        assert set(again(local_place).snapshot().state.pins) == {"t-stopped"}
        return
    with nothing_written(local_place), pytest.raises((GraphNotFound, IntegrityError)):
        again(local_place)
    with make_graph(local_place.address, force=True) as store:
        assert upsert_person(store, "a").attempts == 1


def test_of_threads_that_make_one_graph_exactly_one_wins_and_the_others_are_told(place: Place) -> None:
    """G-47, with table ids of their own, as the engine mints them."""

    def attempt(number: int) -> str:
        tables = {f"t-{number}": NewTable("Person", "node", PERSON_SCHEMA)}
        try:
            GraphStore.create(
                place.address, schema=b"one", tables=tables, durability="os", force=True, **place.kwargs
            ).close()
        except GraphError as error:
            return error.code
        return f"t-{number}"

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(attempt, range(6)))

    winners = [one for one in found if one.startswith("t-")]
    assert len(winners) == 1
    assert set(found) - set(winners) <= {"already_initialized", "bad_request", "storage", "integrity"}
    with again(place) as store:
        assert set(store.snapshot().state.pins) == set(winners)
        assert store.table(store.snapshot(), winners[0]).count_rows() == 0


def test_a_forced_init_never_clears_what_another_one_is_making(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its look at the address is old when it acts on it: the other one has finished in between."""
    looked, finished = threading.Event(), threading.Event()
    clients = {client: client.list for client in (LocalObjects, RemoteObjects)}

    def slow_list(self: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
        listed = list(clients[type(self)](self, prefix))
        if threading.current_thread() is forced and prefix == "tables":
            looked.set()
            assert finished.wait(30)
        return iter(listed)

    def make_by_force() -> None:
        tables = {"t-forced": NewTable("Person", "node", PERSON_SCHEMA)}
        with pytest.raises(AlreadyInitialized):
            GraphStore.create(place.address, schema=b"two", tables=tables, force=True, **place.kwargs)

    def start_the_other() -> None:
        forced.start()
        assert looked.wait(30)

    forced = threading.Thread(target=make_by_force)
    for client in clients:
        monkeypatch.setattr(client, "list", slow_list)
    with armed({"genesis.before": Once(start_the_other)}), make_graph(place.address, **place.kwargs) as store:
        upsert_person(store, "winner")
        store.branches.create("kept", "main")
    finished.set()
    forced.join()

    with again(place) as store:
        assert set(persons(store)) == {"winner"}
        assert [branch.name for branch in store.branches.list()] == ["kept"]
    assert not [key for key in everything(place) if "t-forced" in key]


@pytest.mark.parametrize("step", INIT_STEPS)
def test_an_init_overtaken_by_another_is_told_and_the_winner_is_whole(place: Place, step: str) -> None:
    """The other one came, made its graph and wrote to it while this one was between two steps."""

    def overtake() -> None:
        with make_graph(place.address, force=True, **place.kwargs) as winner:
            upsert_person(winner, "winner")

    with armed({f"{step}.before": Once(overtake)}), pytest.raises(AlreadyInitialized) as caught:
        GraphStore.create(
            place.address,
            schema=b"slow",
            tables={"t-slow": NewTable("Slow", "node", PERSON_SCHEMA)},
            **place.kwargs,
        )

    check_error(caught.value, "already_initialized", place.address)
    assert set(persons(again(place))) == {"winner"}


@pytest.mark.parametrize(
    "schema", [pa.schema([("name", pa.string())]), pa.schema([("id", pa.int64())])], ids=["none", "a number"]
)
def test_a_table_without_a_text_column_called_id_is_refused_before_anything_is_written(
    place: Place, schema: pa.Schema
) -> None:
    tables = {"t-good": NewTable("Good", "node", PERSON_SCHEMA), "t-bad": NewTable("Bad", "node", schema)}

    with nothing_written(place), pytest.raises(InvalidRequest, match="'t-bad'"):
        GraphStore.create(place.address, schema=b"x", tables=tables, **place.kwargs)


# -- stores that cannot refuse


def test_a_store_without_create_if_absent_is_refused_and_left_as_it_was(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-48: everything rests on it, so it is tried first."""

    def always(self: Objects, key: str, data: bytes) -> bool:
        return True

    for client in (LocalObjects, RemoteObjects):
        monkeypatch.setattr(client, "create", always)
    with pytest.raises(StoreUnsupported) as caught:
        make_graph(place.address, **place.kwargs)

    check_error(caught.value, "store_unsupported", place.address)
    assert caught.value.fields["capability"] == "create-if-absent"
    assert everything(place) == {}


def test_a_failed_init_on_disk_makes_no_folder_that_was_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(GraphError):
        make_graph(str(tmp_path / "x"), durability="maybe")

    assert list(tmp_path.iterdir()) == []
