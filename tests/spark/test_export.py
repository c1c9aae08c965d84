"""Executors write what the engine writes: equal graphs after a load, in both formats, of any commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.base.errors import IntegrityError
from omnigraph.engine.export.files import DestinationTaken
from omnigraph.pipeline.reading import scan
from omnigraph.pipeline.reading.export import export
from omnigraph.storage.location import Location
from omnigraph.surfaces.cli.app import main
from tests.support import everything
from tests.support.everything import RECORDS, content, fetched, reloaded
from tests.support.places import Place

pytestmark = pytest.mark.spark
FORMATS = ("parquet", "jsonl")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that nobody changes."""
    with everything.make(tmp_path_factory.mktemp("export") / "graph.og") as made:
        yield made


@pytest.mark.parametrize("format", FORMATS)
def test_a_load_of_the_folder_gives_an_equal_graph(
    spark: SparkSession, graph: Graph, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan.TableScan.groups, "__defaults__", (1, 1))  # a file for each fragment

    report = export(spark, graph, tmp_path / "out", format=format)

    assert report.rows == 60
    assert {one.name: len(one.files) for one in report.types}["Note"] > 1
    assert json.loads((tmp_path / "out" / "_manifest.json").read_text()) == report.to_json()
    assert not list((tmp_path / "out").glob("_staging*"))
    assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph)


@pytest.mark.parametrize("format", FORMATS)
def test_one_commit_is_exported_whoever_writes_meanwhile(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    with everything.make(tmp_path / "graph.og") as graph:
        tagged = graph.commits.get("main~1").id
        graph.load([{"type": "Note", "data": {"text": "later"}}], mode="append")

        report = export(spark, graph, tmp_path / "out", format=format, at=tagged)

        assert (report.commit_id, report.rows) == (tagged, len(RECORDS))
        assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph, tagged)


def test_some_types_of_a_branch_with_progress(spark: SparkSession, tmp_path: Path) -> None:
    with everything.make(tmp_path / "graph.og") as graph:
        graph.branches.create("dev")
        graph.load([{"type": "Note", "data": {"id": "dev"}}], mode="append", branch="dev")
        told: list[tuple[int, int]] = []

        report = export(
            spark,
            graph,
            tmp_path / "out",
            types=["Note", "Nobody"],
            branch="dev",
            progress=lambda done, known: told.append((done, known)),
        )

    assert [(one.name, one.rows) for one in report.types] == [("Nobody", 0), ("Note", 53)]
    assert spark.read.parquet(str(tmp_path / "out" / "Note")).where("id = 'dev'").count() == 1
    assert spark.read.parquet(str(tmp_path / "out" / "Nobody")).columns == ["id", "name", "v"]
    assert told[-1][0] == told[-1][1] > 0


def test_a_folder_that_is_taken_is_refused_before_spark_is_asked(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DestinationTaken):
        export(spark, graph, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_task_that_fails_leaves_nothing_and_is_a_typed_error(spark: SparkSession, tmp_path: Path) -> None:
    with everything.make(tmp_path / "graph.og") as graph:
        table = graph.schema.catalog().node("Note").table_id
        for file in (tmp_path / "graph.og" / "tables" / table / "data").iterdir():
            file.unlink()
        with pytest.raises(IntegrityError, match="not stored"):
            export(spark, graph, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.s3
def test_executors_reach_a_graph_on_s3(spark: SparkSession, s3_place: Place, tmp_path: Path) -> None:
    import omnigraph as og

    with og.init(s3_place.address, everything.SCHEMA, **s3_place.kwargs) as graph:
        graph.load(RECORDS, mode="append")
        assert export(spark, graph, tmp_path / "out", format="jsonl").rows == len(RECORDS)
        assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph)


@pytest.mark.s3
def test_executors_write_to_an_object_store(
    spark: SparkSession, graph: Graph, s3_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan.TableScan.groups, "__defaults__", (1, 1))  # a file for each fragment

    report = export(spark, graph, s3_place.address, storage_options=s3_place.options)

    objects = Location(s3_place.address, s3_place.options).objects
    names = [file.name for one in report.types for file in one.files]
    assert sorted(key for key, _ in objects.list()) == sorted([*names, "_manifest.json", "_schema.pg"])
    assert len(names) > len(report.types)
    assert reloaded(fetched(objects, tmp_path / "out"), tmp_path / "copy.og") == content(graph)


def test_the_command_lets_spark_write_where_it_is_told_to(
    spark: SparkSession, graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", graph.uri, str(tmp_path / "out"), "--engine", "spark", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["destination"], document["rows"]) == (str(tmp_path / "out"), 60)
    assert reloaded(tmp_path / "out", tmp_path / "copy.og") == content(graph)
