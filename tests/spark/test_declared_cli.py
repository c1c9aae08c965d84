"""`pipeline check` and `pipeline run`: what people see, what scripts read, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from tests.support.desk import Desk
from tests.surfaces.conftest import desk, template
from tests.surfaces.test_cli_pipeline import PEOPLE, PIPELINE, job

__all__ = ["desk", "job", "template"]  # fixtures
pytestmark = pytest.mark.spark


def ages(desk: Desk, branch: str = "main") -> dict[str, int]:
    with og.connect(desk.graph) as graph:
        return {
            row["slug"]: row["age"] for row in graph.nodes("Person", branch=branch).to_arrow().to_pylist()
        }


def test_check_says_what_would_be_read_and_made(spark: SparkSession, desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "check", "jobs/import.yaml")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "  source raw  struct<slug:string,age:string,day:string>\n"
        "  transforms in order: people\n"
        "OK jobs/import.yaml: 0 errors, 0 warnings\n"
    )
    document = desk.run("pipeline", "check", "jobs/import.yaml", "--json").document
    assert (document["status"], document["uri"]) == ("ok", str(desk.folder / "jobs" / ".." / "kb.og"))
    assert document["branch"] == "import"
    assert (
        desk.run("pipeline", "check", "jobs/import.yaml", "--branch", "x", "--json").document["branch"] == "x"
    )


def test_check_points_at_what_spark_and_the_schema_refuse(spark: SparkSession, desk: Desk, job: Path) -> None:
    (job / "import.yaml").write_text(
        PIPELINE.replace("cast(age as int) as age", "age").replace("where age", "where aeg")
    )
    ran = desk.run("pipeline", "check", "jobs/import.yaml", "--graph", desk.graph)
    assert (ran.code, ran.err) == (1, "")
    assert "jobs/import.yaml:8:26: error[PL205]: Person.age is of type I32? and takes integers" in ran.out
    assert "error[PL103]: expectation 'grown up'" in ran.out
    assert ran.out.endswith("ERROR jobs/import.yaml: 2 errors, 0 warnings\n")


def test_run_publishes_merges_and_reports(spark: SparkSession, desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "run", "jobs/import.yaml", "--report", "out", "--as", "ann")
    assert ran.code == 0
    assert ran.err == f"pipeline run → {desk.folder / 'jobs' / '..' / 'kb.og'} (embedded, local)\n"
    lines = ran.out.splitlines()
    assert lines[0] == "import on import: published"
    assert lines[2].split() == ["source", "raw", *lines[2].split()[2:4], "2", "rows"]
    assert lines[6:8] == [
        "  merge into main       " + lines[6][24:],
        "  node Person (merge): +2 ~0 -0",
    ]
    assert lines[8] == "  merged import into main: fast_forward"
    assert lines[9].startswith("  commit 01")
    assert lines[10] == "  report out/report.html"
    assert ages(desk) == {"a": 1, "b": 20, "c": 30}
    report = json.loads((desk.folder / "out" / "report.json").read_text())
    assert (report["rows_in"], report["rows_out"]) == (2, 2)

    document = desk.run("pipeline", "run", "jobs/import.yaml", "--since", "--json").document
    assert (document["outcome"], document["graph_commit_id"]) == ("nothing_new", None)
    assert document["merge"]["outcome"] == "already_up_to_date"
    ran = desk.run("pipeline", "run", "jobs/import.yaml", "--since")
    assert ran.out.startswith("import on import: nothing new since the last run: no commit was made\n")


def test_a_broken_expectation_is_a_table_and_exit_1(spark: SparkSession, desk: Desk, job: Path) -> None:
    (job / "people.csv").write_text(PEOPLE + "d,7,3\n")
    ran = desk.run("pipeline", "run", "jobs/import.yaml")
    assert ran.code == 1
    assert "error [constraint_violation]: pipeline 'import' is not as expected: 'grown up'" in ran.err
    assert 'jobs/import.yaml:10  expectation  -     grown up: {"slug": "d"}' in ran.err
    assert ages(desk) == {"a": 1}


def test_a_dry_run_and_another_branch(spark: SparkSession, desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "run", "jobs/import.yaml", "--dry-run", "--branch", "other")
    assert (ran.code, ran.out.splitlines()[0]) == (
        0,
        "import on other: would be published: nothing was written",
    )
    assert ages(desk) == {"a": 1}
    with og.connect(desk.graph) as graph:
        assert [one.name for one in graph.branches.list()] == ["main"]


def test_a_preview_with_conflicts_exits_5(spark: SparkSession, desk: Desk, job: Path) -> None:
    with og.connect(desk.graph) as graph:
        graph.branches.create("import")
        graph.load([{"type": "Person", "data": {"slug": "b", "age": 99}}], mode="append")
    (job / "import.yaml").write_text(PIPELINE.replace("kb.og", "../kb.og").replace("{merge:", "{preview:"))
    ran = desk.run("pipeline", "run", "jobs/import.yaml")
    assert ran.code == 5
    assert "  a merge would give import into main: conflicts" in ran.out
    assert ages(desk) == {"a": 1, "b": 99}


@pytest.mark.full
@pytest.mark.timeout(300)  # it starts a Spark of its own
def test_a_process_of_its_own_leaves_nothing_behind_but_the_commit(desk: Desk, job: Path) -> None:
    before = {path.name for path in desk.folder.iterdir()}
    line = [str(Path(sys.executable).with_name("omnigraph")), "pipeline", "run", "jobs/import.yaml", "--json"]
    ran = subprocess.run(
        [*line, "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"],
        cwd=desk.folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["outcome"] == "published"
    assert ages(desk) == {"a": 1, "b": 20, "c": 30}
    assert {path.name for path in desk.folder.iterdir()} == before
