"""An export goes to an object store as it goes to a folder: whole, or not to be seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.base.errors import StorageError
from omnigraph.engine.export import files
from omnigraph.engine.export.export import stored_rows
from omnigraph.engine.export.files import DestinationTaken, destination_at, write_files
from omnigraph.engine.export.plan import plan_export
from omnigraph.storage.location import Location, RemoteObjects
from tests.support import everything
from tests.support.everything import content, fetched, reloaded
from tests.support.places import Place
from tests.support.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that nobody changes."""
    with everything.make(tmp_path_factory.mktemp("export") / "graph.og") as made:
        yield made


def objects_at(place: Place) -> RemoteObjects:
    return RemoteObjects(Location(place.address, place.options))


def keys(place: Place) -> list[str]:
    return sorted(key for key, _ in objects_at(place).list())


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_a_load_of_what_was_exported_gives_an_equal_graph(
    graph: Graph, s3_place: Place, format: str, tmp_path: Path
) -> None:
    report = graph.export(s3_place.address, format=format, storage_options=s3_place.options)

    assert (report.rows, report.destination) == (60, s3_place.address)
    names = [file.name for one in report.types for file in one.files]
    assert keys(s3_place) == sorted([*names, "_manifest.json", "_schema.pg"])
    assert json.loads(objects_at(s3_place).read("_manifest.json") or b"") == report.to_json()
    sizes = dict(objects_at(s3_place).list())
    assert all(sizes[file.name] == file.bytes for one in report.types for file in one.files)
    folder = fetched(objects_at(s3_place), tmp_path / "out")
    assert reloaded(folder, tmp_path / "copy.og") == content(graph)


def test_beside_a_graph_it_is_reached_as_the_graph_is(s3_place: Place) -> None:
    with everything.make(s3_place.address, **s3_place.kwargs) as graph:
        assert graph.export(f"{s3_place.address}-export", types=["Room"]).rows == 1
        with pytest.raises(StorageError):
            graph.export(f"{s3_place.address}-other", types=["Room"], storage_options={})


def test_a_place_with_objects_is_refused_and_kept(graph: Graph, s3_place: Place) -> None:
    objects_at(s3_place).create("deep/mine", b"mine")
    with pytest.raises(DestinationTaken, match="not an empty folder"):
        graph.export(s3_place.address, storage_options=s3_place.options)
    assert keys(s3_place) == ["deep/mine"]


def test_two_exports_never_share_a_place(graph: Graph, s3_place: Place) -> None:
    taken = destination_at(s3_place.address, graph.store.location, s3_place.options)
    with taken, pytest.raises(DestinationTaken):
        graph.export(s3_place.address, storage_options=s3_place.options)
    assert keys(s3_place) == []
    assert graph.export(s3_place.address, types=["Room"], storage_options=s3_place.options).rows == 1


def test_what_a_killed_export_left_is_taken_over_after_an_hour(
    graph: Graph, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"part-00000-{'0' * 26}.parquet"
    for key in ("_staging/_claim", f"_staging/Note/{name}", f"Room/{name}"):
        objects_at(s3_place).create(key, b"left")
    with pytest.raises(DestinationTaken):  # it may be one that is at work
        graph.export(s3_place.address, storage_options=s3_place.options)
    assert f"Room/{name}" in keys(s3_place)

    monkeypatch.setattr(files, "BEING_WRITTEN_US", -3_600_000_000)  # all that is there is old
    report = graph.export(s3_place.address, types=["Room"], storage_options=s3_place.options)
    written = [file.name for each in report.types for file in each.files]
    assert keys(s3_place) == sorted([*written, "_manifest.json", "_schema.pg"])


def test_one_export_alone_takes_over_what_a_killed_one_left(
    graph: Graph, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one judged the same objects, and is late."""
    monkeypatch.setattr(files, "BEING_WRITTEN_US", -3_600_000_000)
    bucket = objects_at(s3_place)
    bucket.create("_staging/_claim", b"left")
    entries = list(bucket.entries())
    assert files._claimed_over(bucket, b"one")

    monkeypatch.setattr(bucket, "entries", lambda: iter(entries))
    assert not files._claimed_over(bucket, b"other")


def test_an_export_that_slept_leaves_alone_what_the_next_one_staged(
    graph: Graph, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BEING_WRITTEN_US", -3_600_000_000)  # it slept for longer
    slept, next_one = (
        destination_at(s3_place.address, graph.store.location, s3_place.options) for _ in range(2)
    )
    slept.__enter__()
    with next_one as place:
        place.staging.objects.create("Room/mine", b"mine")
        slept.__exit__(None, None, None)
        assert place.staging.objects.read("Room/mine") == b"mine"
        monkeypatch.undo()
        with pytest.raises(DestinationTaken):
            graph.export(s3_place.address, storage_options=s3_place.options)
    assert keys(s3_place) == []


def test_a_neighbour_whose_name_begins_alike_is_not_in_the_way(graph: Graph, s3_place: Place) -> None:
    objects_at(Place(f"{s3_place.address}-2", s3_place.options)).create("mine", b"mine")
    report = graph.export(s3_place.address, types=["Room"], storage_options=s3_place.options)
    assert report.rows == 1


def test_an_export_that_fails_leaves_nothing(graph: Graph, s3_place: Place) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph.export(s3_place.address, storage_options=s3_place.options, progress=stop)
    assert keys(s3_place) == []


def test_files_that_nobody_reported_are_no_part_of_an_export(graph: Graph, s3_place: Place) -> None:
    plan = plan_export(graph.store, ["Room"])
    (room,) = plan.types
    with destination_at(s3_place.address, graph.store.location, s3_place.options) as place:
        names = iter(("Room/lost.parquet", "Room/won.parquet"))
        for _ in range(2):
            rows = stored_rows(graph.store, plan, room)
            written = write_files(place.staging, lambda: next(names), rows, room, "parquet")
        place.complete(plan, "parquet", {room.id: written})

    assert keys(s3_place) == ["Room/won.parquet", "_manifest.json", "_schema.pg"]


def test_a_store_that_refuses_is_named(graph: Graph, s3_server: S3Server) -> None:
    with pytest.raises(StorageError, match="s3://nowhere/out"):
        graph.export("s3://nowhere/out", storage_options=s3_server.storage_options())
