"""`omnigraph export`: a stream, a file or a folder, and what each says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.location import Location
from omnigraph.surfaces.cli import export as command
from tests.support.desk import Desk, remote_environment
from tests.support.places import Place
from tests.surfaces.loading import EDGE, TWO, load, people


@pytest.fixture
def graph(desk: Desk) -> str:
    """Three people, two of whom know each other."""
    desk.started()
    load(desk, TWO + EDGE)
    return desk.graph


def copied(desk: Desk, data: str | Path) -> dict[str, int | None]:
    """Load an export into a new graph and return the people in it."""
    from tests.support.desk import SCHEMA

    with og.init(desk.folder / "copy.og", SCHEMA, durability="os") as copy:
        copy.load(str(data), mode="append")
        assert len(copy.edges("Knows")) == 1
        return people(copy)


def test_without_a_destination_the_lines_go_to_standard_output(desk: Desk, graph: str) -> None:
    ran = desk.run("export", graph)

    assert (ran.code, ran.err) == (0, "")
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record.get("type") or record["edge"] for record in records] == ["Person"] * 3 + ["Knows"]
    assert records[0] == {"type": "Person", "data": {"id": "a", "age": 1, "slug": "a"}}
    assert ran.out == desk.run("export", "-g", graph).out
    assert copied(desk, desk.file("dump.jsonl", ran.out)) == {"a": 1, "b": 2, "c": 3}


def test_a_name_of_one_file_gets_the_same_lines(desk: Desk, graph: str) -> None:
    out = desk.folder / "dump.jsonl"
    ran = desk.run("export", graph, str(out), "--json")

    assert ran.code == 0
    assert ran.document == {"uri": graph, "file": str(out), "bytes": out.stat().st_size}
    assert out.read_text() == desk.run("export", graph).out
    assert desk.run("export", graph, "--out", str(out)).out.startswith(f"exported {graph} to {out}: ")


def test_a_framed_file_says_that_it_is_whole(desk: Desk, graph: str) -> None:
    out = str(desk.folder / "dump.jsonl")
    desk.run("export", graph, "--framed", "--out", out)

    first, *_, last = Path(out).read_text().splitlines()
    assert json.loads(first)["og_export"]["types"] == ["Person", "Knows"]
    assert json.loads(last)["og_export_end"]["lines"] == 4
    assert copied(desk, out) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("form", [[], ["--format", "jsonl"]])
def test_a_folder_is_summed_up_and_can_be_loaded(desk: Desk, graph: str, form: list[str]) -> None:
    out = desk.folder / "out"
    ran = desk.run("export", graph, str(out), *form)

    with og.connect(graph) as opened:
        commit = opened.store.snapshot().commit_id
    assert (ran.code, ran.err) == (0, "")
    first, *rest = ran.out.splitlines()
    assert first.startswith(f"exported main to {out} ({form[-1] if form else 'parquet'}): 3 nodes, 1 edge, ")
    assert rest == [f"  commit {commit}", "  node Person  3 in 1 file", "  edge Knows   1 in 1 file"]
    assert copied(desk, out) == {"a": 1, "b": 2, "c": 3}


def test_scripts_get_the_manifest_with_the_places(desk: Desk, graph: str) -> None:
    out = desk.folder / "out"
    document = desk.run("export", graph, "--out", str(out), "--json").document
    manifest = json.loads((out / "_manifest.json").read_text())
    assert document == {"uri": graph, "destination": str(out), **manifest}


def test_types_branches_and_the_past_are_chosen(desk: Desk, graph: str) -> None:
    with og.connect(graph) as opened:
        opened.branches.create("dev")
        opened.mutate('query q() { insert Person { slug: "d" } }', branch="dev")
    assert len(desk.run("export", graph, "--type", "Person").out.splitlines()) == 3
    assert len(desk.run("export", graph, "--branch", "dev").out.splitlines()) == 5
    assert len(desk.run("export", graph, "--snapshot", "main~1").out.splitlines()) == 1
    assert desk.run("export", graph, "--branch", "dev", "--snapshot", "main~1").code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "parquet"], "Parquet is written into a folder"),
        (["--engine", "spark"], "Spark writes into a folder"),
        (["--json"], "standard output has the data"),
        (["--out", "here", "--framed"], "--framed is for one stream"),
        (["here", "--out", "there"], "two destinations given"),
        (["--type", "Persn"], "the schema has no type 'Persn'"),
        (["--out", "ftp://host/out"], "unsupported address"),
        (["--dry-run"], "export has no dry run"),
    ],
)
def test_what_does_not_go_together_is_said(desk: Desk, graph: str, arguments: list[str], says: str) -> None:
    ran = desk.run("export", graph, *arguments)
    assert ran.code in (2, 6)
    assert says in ran.err
    assert not (desk.folder / "here").exists()


def test_a_folder_with_something_in_it_is_refused(desk: Desk, graph: str) -> None:
    desk.file("mine", "mine")
    ran = desk.run("export", graph, str(desk.folder), "--json")
    assert ran.code == 2
    assert ran.document["code"] == "destination_not_empty"


def test_the_old_flag_still_works_with_a_warning(desk: Desk, graph: str) -> None:
    ran = desk.run("export", graph, "--jsonl")
    assert len(ran.out.splitlines()) == 4
    assert ran.err == "'export --jsonl' is now 'export'\n"


# -- engines -----------------------------------------------------------------------------------------


def test_where_spark_would_pay_but_is_missing_the_process_writes_itself(
    desk: Desk, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SPARK_ROWS", 1)
    for name in [name for name in sys.modules if name.startswith(("pyspark", "omnigraph.pipeline"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)

    ran = desk.run("export", graph, str(desk.folder / "auto"))
    assert (ran.code, ran.err) == (0, "without Spark: PySpark is not installed\n")
    ran = desk.run("export", graph, str(desk.folder / "spark"), "--engine", "spark")
    assert ran.code == 2
    assert "pip install 'omnigraph[spark]'" in ran.err
    assert desk.run("export", graph, str(desk.folder / "local"), "--engine", "local").err == ""


@pytest.mark.s3
def test_a_folder_and_a_file_on_an_object_store(
    desk: Desk, graph: str, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in remote_environment(s3_place).items():
        monkeypatch.setenv(name, value)
    objects = Location(s3_place.address, s3_place.options).objects

    folder = desk.run("export", graph, f"{s3_place.address}/folder", "--json")
    assert (folder.code, folder.document["destination"]) == (0, f"{s3_place.address}/folder")
    again = desk.run("export", graph, f"{s3_place.address}/folder")
    assert (again.code, "destination_not_empty" in again.err) == (2, True)

    file = desk.run("export", graph, f"{s3_place.address}/dump.jsonl")
    assert (file.code, file.err) == (0, "")
    assert (objects.read("dump.jsonl") or b"").decode() == desk.run("export", graph).out
    assert {key.split("/")[0] for key, _ in objects.list()} == {"dump.jsonl", "folder"}
