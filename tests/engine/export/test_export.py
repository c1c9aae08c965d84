"""What is exported can be loaded, and is then what it was: every type, both formats, any commit."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import IntegrityError, InvalidRequest
from omnigraph.catalog.catalog import UnknownType
from omnigraph.engine.export import files
from omnigraph.engine.export.export import export_files, export_lines, stored_rows
from omnigraph.engine.export.files import (
    DestinationTaken,
    ExportedFile,
    _Folder,
    destination_at,
    envelope_lines,
    write_files,
)
from omnigraph.engine.export.plan import plan_export
from omnigraph.engine.load.conform import UnreadableInput
from tests.support import everything
from tests.support.everything import RECORDS, SCHEMA, content, reloaded
from tests.support.processes import run_processes

FORMATS = ("parquet", "jsonl")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that nobody changes."""
    with everything.make(tmp_path_factory.mktemp("export") / "graph.og") as made:
        yield made


def visible(folder: Path) -> list[str]:
    """Return the files of an export, as a load sees them."""
    return sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and not file.relative_to(folder).parts[0].startswith("_")
    )


# -- there and back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_a_load_of_the_folder_gives_an_equal_graph(graph: Graph, format: str, tmp_path: Path) -> None:
    report = graph.export(tmp_path / "out", format=format)

    assert report.rows == 60
    assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph)


@pytest.mark.parametrize("format", FORMATS)
def test_an_older_commit_is_exported_as_it_was(graph: Graph, format: str, tmp_path: Path) -> None:
    report = export_files(graph.store, tmp_path / "out", format=format, at="main~1")

    assert report.rows == len(RECORDS)
    assert report.commit_id == graph.commits.get("main~1").id
    assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph, "main~1")


@pytest.mark.parametrize("framed", [False, True])
def test_the_stream_can_be_loaded_too(graph: Graph, framed: bool, tmp_path: Path) -> None:
    lines = b"".join(export_lines(graph.store, framed=framed))
    assert reloaded(io.BytesIO(lines), tmp_path / "copy.og") == content(graph)


def test_the_same_commit_gives_the_same_bytes_whatever_its_fragments(graph: Graph, tmp_path: Path) -> None:
    lines = b"".join(export_lines(graph.store))
    with og.init(tmp_path / "copy.og", SCHEMA, durability="os") as copy:
        copy.load(io.BytesIO(lines), mode="append")
        assert b"".join(export_lines(copy.store)) == lines


def test_an_export_is_in_the_schema_of_its_commit(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.og", "node A { k: String @key  n: I32? }\nnode B { k: String @key }") as graph:
        graph.load([{"type": "A", "data": {"k": "a", "n": 1}}], mode="append")
        before = graph.load([{"type": "B", "data": {"k": "b"}}], mode="append").commit_id
        graph.schema.apply('node C @rename_from("A") { k: String @key  m: I64? @rename_from("n")  o: U32? }')

        export_files(graph.store, tmp_path / "then", at=before)
        export_files(graph.store, tmp_path / "now")
        with pytest.raises(UnknownType):
            export_files(graph.store, tmp_path / "no", at=before, types=["C"])

    then = reloaded(tmp_path / "then", tmp_path / "then.og", tmp_path / "then" / "_schema.pg")
    now = reloaded(tmp_path / "now", tmp_path / "now.og", tmp_path / "now" / "_schema.pg")
    assert {name: table.to_pylist() for name, table in then.items()} == {
        "node A": [{"id": "a", "k": "a", "n": 1}],
        "node B": [{"id": "b", "k": "b"}],
    }
    assert now["node C"].to_pylist() == [{"id": "a", "k": "a", "m": 1, "o": None}]


# -- what is written ---------------------------------------------------------------------------------


def test_lines_are_envelopes_with_every_property_nodes_first_and_ids_in_order(graph: Graph) -> None:
    records = [json.loads(line) for line in b"".join(export_lines(graph.store)).splitlines()]

    names = [record.get("type") or record["edge"] for record in records]
    assert list(dict.fromkeys(names)) == ["All", "Note", "Room", "About", "Inside"]
    ids = [record["data"]["id"].encode() for record in records if record.get("type") == "Note"]
    assert ids == sorted(ids)
    (first,) = (r for r in records if r.get("type") == "All" and r["data"]["b"])
    assert list(first["data"]) == ["id", *(p.name for p in graph.schema.catalog().node("All").properties)]
    assert {n: first["data"][n] for n in ("day", "at", "w", "raw", "days", "mood", "texts")} == {
        "day": -719_162,
        "at": 253_402_300_799_999,
        "w": 2**64 - 1,
        "raw": "base64:AP8=",
        "days": [-1, 0, 19_782],
        "mood": "wild",
        "texts": ["", "a\nb", "ß"],
    }
    edge = next(r for r in records if r.get("edge") == "Inside")
    assert edge.keys() == {"edge", "from", "to", "data"}
    assert (edge["from"], edge["to"], edge["data"].keys()) == ("nothing", '["we\\"st","12"]', {"id"})


def test_parquet_has_types_that_others_read(graph: Graph, tmp_path: Path) -> None:
    report = export_files(graph.store, tmp_path / "out", types=["All", "about"])
    (every,), (about,) = (one.files for one in report.types)

    types = {field.name: field.type for field in pq.read_schema(tmp_path / "out" / every.name)}
    assert types["at"] == pa.timestamp("ms", "UTC")
    assert types["v"] == pa.list_(pa.field("element", pa.float32()))
    assert types["w"] == pa.uint64()
    assert pq.read_schema(tmp_path / "out" / about.name).names == [
        "id",
        "src",
        "dst",
        "raw",
        "seen",
        "weight",
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_the_manifest_names_exactly_the_files_there_are(graph: Graph, format: str, tmp_path: Path) -> None:
    report = export_files(graph.store, tmp_path / "out", format=format)

    told = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert told == report.to_json()
    files = {file["name"]: file for one in told["types"] for file in one["files"]}
    assert sorted(files) == visible(tmp_path / "out")
    assert all((tmp_path / "out" / name).stat().st_size == file["bytes"] for name, file in files.items())
    rows = {one["name"]: one["rows"] for one in told["types"]}
    assert rows == {"All": 3, "Nobody": 0, "Note": 52, "Room": 1, "About": 3, "Inside": 1}
    assert told["graph_commit_id"] == graph.store.snapshot().commit_id


def test_a_type_without_rows_still_says_which_columns_it_has(graph: Graph, tmp_path: Path) -> None:
    report = export_files(graph.store, tmp_path / "out", types=["Nobody"])
    assert pq.read_table(tmp_path / "out" / report.types[0].files[0].name).column_names == ["id", "name", "v"]


def test_files_that_nobody_reported_are_no_part_of_an_export(graph: Graph, tmp_path: Path) -> None:
    """S9: a task that was tried again leaves what it had written."""
    plan = plan_export(graph.store, ["Room"])
    (room,) = plan.types
    with destination_at(tmp_path / "out", graph.store.location) as place:
        names = iter(("Room/lost.parquet", "Room/won.parquet"))
        for _ in range(2):
            rows = stored_rows(graph.store, plan, room)
            files = write_files(place.staging, lambda: next(names), rows, room, "parquet")
        place.complete(plan, "parquet", {room.id: files})

    assert visible(tmp_path / "out") == ["Room/won.parquet"]
    assert not list((tmp_path / "out").glob("_staging*"))


@pytest.mark.parametrize("format", FORMATS)
def test_files_end_at_a_size(
    graph: Graph, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_files, "__defaults__", (1,))  # a file for each batch

    report = export_files(graph.store, tmp_path / "out", format=format)

    assert {one.name: len(one.files) > 1 for one in report.types}["Note"]
    assert {one.name: one.rows for one in report.types}["Note"] == 52
    assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph)


def test_types_are_chosen_by_name_and_in_the_order_of_the_schema(graph: Graph, tmp_path: Path) -> None:
    report = export_files(graph.store, tmp_path / "out", types=["inside", "Note", "Note"])
    assert [(one.kind, one.name) for one in report.types] == [("node", "Note"), ("edge", "Inside")]


def test_progress_counts_rows(graph: Graph, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    export_files(graph.store, tmp_path / "out", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (60, 60)
    assert told == sorted(told)


def test_a_name_of_a_node_and_an_edge_type_tells_which(tmp_path: Path) -> None:
    schema = "node Link { k: String @key }\nedge Link: Link -> Link"
    with og.init(tmp_path / "g.og", schema, durability="os") as graph:
        graph.load(
            [{"type": "Link", "data": {"k": "a"}}, {"edge": "Link", "from": "a", "to": "a"}], mode="append"
        )
        export_files(graph.store, tmp_path / "out")
        export_files(graph.store, tmp_path / "lines", format="jsonl")
        wanted = content(graph)

    folders = {name: tmp_path / "out" / name for name in ("node:Link", "edge:Link")}
    assert reloaded(folders, tmp_path / "copy.og", schema) == wanted
    assert reloaded(tmp_path / "lines", tmp_path / "lines.og", schema) == wanted


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["folder", "file"])
def test_a_destination_that_is_taken_is_refused_and_kept(graph: Graph, made: str, tmp_path: Path) -> None:
    target = tmp_path / "out"
    if made == "folder":
        target.mkdir()
    kept = target / "kept" if made == "folder" else target
    kept.write_text("mine")

    with pytest.raises(DestinationTaken, match="not an empty folder"):
        export_files(graph.store, target)
    assert kept.read_text() == "mine"
    assert sorted(tmp_path.rglob("*")) == sorted({target, kept})


def test_two_exports_never_share_a_folder(graph: Graph, tmp_path: Path) -> None:
    with destination_at(tmp_path / "out", graph.store.location), pytest.raises(DestinationTaken):
        export_files(graph.store, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def export_and_die(graph: str, target: str, when: str) -> None:
    """Export, and be killed while rows are written, or while the first of several files has its name."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with og.connect(graph) as opened, pytest.MonkeyPatch.context() as patch:
        if when == "names":
            show = _Folder._show
            patch.setattr(_Folder, "_show", lambda self, names: die(show(self, names[:1])))
        opened.export(target, progress=die if when == "rows" else None)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["rows", "names"])
def test_what_a_killed_export_left_is_taken_over_after_an_hour(
    graph: Graph, when: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    (outcome,) = run_processes(export_and_die, [(graph.uri, str(target), when)], timeout_s=120)
    assert outcome.exit_code == -signal.SIGKILL
    left = sorted(target.rglob("*"))
    assert left

    with pytest.raises(DestinationTaken):  # it may be one that is at work
        export_files(graph.store, target)
    assert sorted(target.rglob("*")) == left

    for path in (*left, target):
        then = path.stat().st_mtime - 3_700
        os.utime(path, (then, then))
    report = export_files(graph.store, target)
    assert visible(target) == sorted(file.name for each in report.types for file in each.files)
    assert not list(target.glob("_staging*"))


def test_an_export_that_slept_leaves_alone_what_the_next_one_staged(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BEING_WRITTEN_US", -3_600_000_000)  # it slept for longer
    slept, next_one = (destination_at(tmp_path / "out", graph.store.location) for _ in range(2))
    slept.__enter__()
    with next_one as place:
        staged = Path(place.staging.uri, "mine")
        staged.write_text("mine")
        slept.__exit__(None, None, None)
        assert staged.read_text() == "mine"
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_with_something_else_is_not_taken_over(graph: Graph, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "_staging").mkdir(parents=True)
    (target / "mine").write_text("mine")
    for path in (target / "mine", target / "_staging"):
        os.utime(path, (0, 0))

    with pytest.raises(DestinationTaken):
        export_files(graph.store, target)
    assert (target / "mine").read_text() == "mine"


def test_an_empty_folder_is_fine(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert export_files(graph.store, tmp_path / "out", types=["Room"]).rows == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"format": "csv"}, "The formats are parquet, jsonl"),
        ({"types": ["Nte"]}, "did you mean 'Note'"),
        ({"types": "Note"}, "Give a list of names"),
        ({"destination": "ftp://host/out"}, "unsupported address"),
        ({"destination": "/proc/out"}, "cannot write to '/proc/out'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(
    graph: Graph, arguments: dict[str, Any], says: str, tmp_path: Path
) -> None:
    target = arguments.pop("destination", tmp_path / "out")
    with pytest.raises((InvalidRequest, UnknownType), match=says):
        export_files(graph.store, target, **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("existed", [False, True])
def test_an_export_that_fails_leaves_the_folder_as_it_was(
    graph: Graph, existed: bool, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    if existed:
        target.mkdir()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_files(graph.store, target, progress=stop)
    assert target.exists() == existed
    assert list(tmp_path.rglob("*")) == ([target] if existed else [])


def test_a_file_that_the_driver_cannot_see_is_told_with_what_to_do(graph: Graph, tmp_path: Path) -> None:
    plan = plan_export(graph.store, ["Room"])
    elsewhere = {plan.types[0].id: [ExportedFile("Room/far.parquet", 1, 1)]}
    with (
        pytest.raises(InvalidRequest, match="does not see the disk"),
        destination_at(tmp_path / "out", graph.store.location) as place,
    ):
        place.complete(plan, "parquet", elsewhere)
    assert not (tmp_path / "out" / "_manifest.json").exists()


def test_a_framed_stream_that_is_cut_off_is_not_loaded(graph: Graph, tmp_path: Path) -> None:
    lines = b"".join(export_lines(graph.store, framed=True)).splitlines(keepends=True)
    assert json.loads(lines[-1])["og_export_end"]["last"]["type"] == "Inside"
    with pytest.raises(UnreadableInput, match="truncated"):
        reloaded(io.BytesIO(b"".join(lines[:-1])), tmp_path / "copy.og")


@pytest.mark.parametrize(
    "values", [{"f": [1.0, float("inf")]}, {"f": [float("nan"), None]}, {"ds": [[0.0], [float("nan")]]}]
)
def test_a_number_that_json_does_not_have_is_not_written(graph: Graph, values: dict[str, list[Any]]) -> None:
    declared = graph.schema.catalog().node("All")
    rows = pa.RecordBatch.from_pydict({"id": ["a", "b"], **values})
    with pytest.raises(IntegrityError, match="not finite"):
        list(envelope_lines(rows, declared))
