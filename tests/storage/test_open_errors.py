"""Opening what is not there, or not whole: a typed error that names thing and remedy; nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.base.errors import (
    BranchNotFound,
    CommitNotFound,
    FormatTooNew,
    FormatTooOld,
    FormatUnreadable,
    GraphError,
    GraphNotFound,
    IntegrityError,
    InvalidRequest,
    Kind,
    NotFound,
    TypeNotFound,
)
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.chain import MANIFEST, chain_path
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append
from tests.storage.bare import change_map
from tests.support.graphs import KNOWS, PERSON, make_graph, people, persons, upsert_person, write
from tests.support.places import Place
from tests.support.stores import again, check_error, location, nothing_written


def put(place: Place, key: str, data: bytes = b"x") -> None:
    assert location(place).objects.create(key, data)


def remove(place: Place, prefix: str) -> None:
    """Delete everything below a prefix, directories too."""
    objects = location(place).objects
    keys = [key for key, _ in objects.list(prefix)]
    assert keys, f"nothing at {prefix}"
    for key in keys:
        objects.delete(key)
    if location(place).is_local:
        folders = sorted((p for p in Path(place.address, prefix).rglob("*") if p.is_dir()), reverse=True)
        for folder in [*folders, Path(place.address, prefix)]:
            folder.rmdir()


# -- not a graph


def a_plain_file(place: Place) -> None:
    Path(place.address).write_text("not a graph")


def an_empty_folder(place: Place) -> None:
    Path(place.address).mkdir()


def other_files(place: Place) -> None:
    put(place, "notes/readme.txt")
    put(place, "_versions/1.manifest")


LOCAL_ONLY = {"a plain file": a_plain_file, "an empty folder": an_empty_folder}


@pytest.mark.parametrize("what", LOCAL_ONLY)
def test_an_address_on_disk_that_holds_no_graph_is_not_found(local_place: Place, what: str) -> None:
    LOCAL_ONLY[what](local_place)

    with nothing_written(local_place), pytest.raises(GraphNotFound) as caught:
        GraphStore.open(local_place.address)

    check_error(caught.value, "graph_not_found", local_place.address, "init")


@pytest.mark.parametrize("made", [lambda place: None, other_files], ids=["nothing", "other files"])
def test_an_address_that_holds_no_graph_is_not_found(place: Place, made: Callable[[Place], None]) -> None:
    made(place)

    with nothing_written(place), pytest.raises(GraphNotFound) as caught:
        GraphStore.open(place.address, **place.kwargs)

    check_error(caught.value, "graph_not_found", place.address, "init")
    assert caught.value.kind is Kind.NOT_FOUND
    if location(place).is_local and made is not other_files:
        assert not Path(place.address).exists(), "looking for a graph made a folder"


@pytest.mark.parametrize("address", ["", "   ", "ftp://host/x", "http://host/x"])
def test_an_address_of_no_known_kind_is_refused(address: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        GraphStore.open(address)

    check_error(caught.value, "bad_request", address.strip())


@pytest.mark.parametrize(
    "name", ["with space", "ünïcødé", "per%20cent", "a#b", "a?b", "a+b", "a&b=c", "it's", "a[1]{2}", "dot."]
)
def test_a_graph_may_live_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    address = str(tmp_path / name)
    with make_graph(address, durability="os") as store:
        upsert_person(store, "a")
    with GraphStore.open(address) as store:
        assert set(persons(store)) == {"a"}
    assert sorted(one.name for one in tmp_path.iterdir()) == [name]


def test_the_same_graph_is_reached_by_path_and_by_file_url(local_place: Place) -> None:
    with make_graph(local_place.address, durability="os") as store:
        upsert_person(store, "a")

    for address in (f"file://{local_place.address}", f"{local_place.address}/", Path(local_place.address)):
        with GraphStore.open(address) as store:
            assert set(persons(store)) == {"a"}


# -- half a graph


@pytest.mark.parametrize("gone", [MANIFEST, f"{MANIFEST}/_versions"])
def test_a_graph_without_its_manifest_is_half_a_graph(place: Place, store: GraphStore, gone: str) -> None:
    remove(place, gone)

    with nothing_written(place), pytest.raises(IntegrityError) as caught:
        GraphStore.open(place.address, **place.kwargs)

    check_error(caught.value, "integrity", place.address, "__schema", "tables", MANIFEST)
    assert caught.value.kind is Kind.CORRUPT


def test_a_graph_without_its_registry_says_so_when_branches_are_asked_for(
    place: Place, store: GraphStore
) -> None:
    remove(place, "__refs")
    with again(place) as opened:
        assert set(persons(opened)) == {"a", "b"}, "main does not need it"

        for ask in (
            opened.branches.list,
            lambda: opened.snapshot("dev"),
            lambda: opened.branches.create("dev", "main"),
            lambda: opened.branches.delete("dev"),
        ):
            with nothing_written(place), pytest.raises(GraphError) as caught:
                ask()
            assert caught.value.code in ("integrity", "storage")
            assert "__refs" in str(caught.value)
            assert caught.value.remedy


@pytest.mark.parametrize("how", ["missing", "changed", "empty"])
def test_a_damaged_schema_object_is_never_taken_for_the_schema(
    place: Place, store: GraphStore, how: str
) -> None:
    digest = store.snapshot().schema
    key = f"__schema/{digest}.json"
    remove_one = location(place).objects
    remove_one.delete(key)
    if how != "missing":
        put(place, key, b'{"schema": "tampered"}' if how == "changed" else b"")

    with again(place) as opened, nothing_written(place), pytest.raises(IntegrityError) as caught:
        opened.schemas.get(opened.snapshot().schema)

    check_error(caught.value, "integrity", key, place.address)
    assert ("is missing" in str(caught.value)) == (how == "missing")


def test_a_missing_table_is_named_and_the_others_still_read(place: Place, store: GraphStore) -> None:
    remove(place, f"tables/{PERSON}")
    with again(place) as opened:
        snapshot = opened.snapshot()
        assert opened.table(snapshot, KNOWS).count_rows() == 0
        for use in (
            lambda: opened.table(snapshot, PERSON),
            lambda: upsert_person(opened, "c"),
            lambda: write(opened, {PERSON: Append(people(["c"]))}),
        ):
            with nothing_written(place), pytest.raises(IntegrityError) as caught:
                use()
            check_error(caught.value, "integrity", PERSON, str(snapshot.pin(PERSON).version))


def test_a_missing_data_file_is_an_error_and_never_fewer_rows(place: Place, store: GraphStore) -> None:
    remove(place, f"tables/{PERSON}/data")
    with again(place) as opened:
        handle = opened.table(opened.snapshot(), PERSON)
        for read in (handle.to_table, lambda: list(handle.to_batches())):
            with pytest.raises((OSError, pa.ArrowInvalid), match=r"[Nn]ot found"):
                read()

        with nothing_written(place), pytest.raises(GraphError) as caught:
            upsert_person(opened, "a")

        assert caught.value.code in ("integrity", "storage")
        assert opened.snapshot().state.version == 2


# -- names that mean nothing here


def test_an_unknown_branch_is_not_found(place: Place, store: GraphStore) -> None:
    for ask in (
        lambda: store.snapshot("nobody"),
        lambda: upsert_person(store, "c", branch="nobody"),
        lambda: store.branches.create("dev", "nobody"),
        lambda: store.branches.delete("nobody"),
        lambda: store.raise_floor("nobody", 1),
    ):
        with nothing_written(place), pytest.raises(BranchNotFound) as caught:
            ask()
        check_error(caught.value, "branch_not_found", "nobody")


def test_an_unknown_commit_is_not_found(place: Place, store: GraphStore) -> None:
    with nothing_written(place):
        for commit in ("01JAAAAAAAAAAAAAAAAAAAAAAA", "0" * 26, "Z" * 26, "not an id", "", "ünï"):
            with pytest.raises(CommitNotFound) as caught:
                store.snapshot(at=commit)
            check_error(caught.value, "commit_not_found", commit)


def test_an_unknown_version_is_not_found(place: Place, store: GraphStore) -> None:
    with nothing_written(place):
        for version in (0, -1, 3, 10**6, 2**63, 2**64):
            with pytest.raises(NotFound) as caught:
                store.snapshot(at=version)
            assert str(version) in str(caught.value)


def test_an_unknown_table_is_not_found(place: Place, store: GraphStore) -> None:
    with pytest.raises(TypeNotFound) as caught:
        store.table(store.snapshot(), "t-nothing")
    assert "t-nothing" in str(caught.value)
    with nothing_written(place), pytest.raises(TypeNotFound):
        write(store, {"t-nothing": Append(people(["x"]))})


# -- formats


@pytest.fixture
def forked(store: GraphStore) -> GraphStore:
    """A graph with a branch."""
    store.branches.create("dev", "main")
    return store


STAMPS: list[tuple[str | None, type[GraphError], str]] = [
    ("0", FormatTooOld, "format_too_old"),
    ("3", FormatTooNew, "format_too_new"),
    (None, FormatUnreadable, "format_unreadable"),
    ("soon", FormatUnreadable, "format_unreadable"),
]


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_another_format_is_refused_before_anything_else_on_main_and_on_branches(
    place: Place, forked: GraphStore, branch: str
) -> None:
    """PT-12: the stamp is read with the manifest, whatever the other keys may have become."""
    where = chain_path("main" if branch == "main" else forked.branches.list()[0].incarnation)
    options: Any = place.kwargs

    def use() -> None:
        with again(place) as opened:
            opened.snapshot(branch)

    for stamp, error, code in STAMPS:
        handle = lance.dataset(location(place).join(where), **options)
        change_map(handle, {"omnigraph.format": stamp, "graph_commit": "in another shape"})
        with nothing_written(place), pytest.raises(error) as caught:
            use()
        check_error(caught.value, code, where)


# -- reading writes nothing


def test_opening_and_reading_write_nothing(place: Place, forked: GraphStore) -> None:
    """PT-11."""
    commit = forked.snapshot().commit_id
    with nothing_written(place), again(place) as opened:
        opened.snapshot()
        opened.snapshot("dev")
        opened.snapshot(at=1)
        opened.snapshot(at=commit)
        opened.branches.list()
        opened.schemas.get(opened.snapshot().schema)
        opened.table(opened.snapshot(), PERSON).to_table()
        persons(opened, "dev")


WRONG_OPTIONS: dict[str, dict[Any, Any]] = {
    "a name that nobody knows": {"bogus": "1"},
    "a bad time": {"timeout": "abc"},
    "a bad yes or no": {"allow_http": "maybe"},
    "no number": {"client_max_retries": "x"},
    "no address": {"endpoint": "::::"},
    "an address without a host": {"aws_endpoint_url": "http://"},
    "one name in two spellings": {"region": "a", "aws_region": "b"},
    "a name that is no text": {1: "x"},
    "a value that is no text": {"region": 1},
}


@pytest.mark.parametrize("wrong", WRONG_OPTIONS)
def test_storage_options_that_are_wrong_are_refused_at_every_door(wrong: str, tmp_path: Path) -> None:
    options = WRONG_OPTIONS[wrong]
    schema = "node P { k: String @key }"
    with og.init(tmp_path / "g.og", schema, durability="os") as graph:
        calls: list[Callable[[], object]] = [
            lambda: og.init("s3://nowhere/g.og", schema, storage_options=options),
            lambda: og.connect("s3://nowhere/g.og", storage_options=options),
            lambda: graph.export("s3://nowhere/out", storage_options=options),
            lambda: Location.parse("s3://nowhere/g.og", options),
        ]
        for call in calls:
            with pytest.raises(InvalidRequest, match=r"storage.option"):
                call()
