"""`pipeline check` and `pipeline run` before Spark is asked; the rest: tests/spark/test_declared_cli.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from omnigraph.pipeline.declared import RunProgress
from omnigraph.surfaces.cli.support.progress import pipeline_bar
from tests.support.desk import Desk

PIPELINE = """\
graph: kb.og
branch: import
sources:
  raw: {format: csv, path: people.csv, options: {header: true}, watermark: day}
transforms:
  people: {sql: "select slug, cast(age as int) as age from raw"}
targets:
  - {type: Person, from: people, mode: merge}
expectations:
  - {name: grown up, sql: select slug from people where age < 18}
then: {merge: main}
"""
PEOPLE = "slug,age,day\nb,20,1\nc,30,2\n"


@pytest.fixture
def job(desk: Desk) -> Path:
    """A pipeline and its source in a folder below the working directory, beside the graph."""
    desk.started()
    folder = desk.folder / "jobs"
    folder.mkdir()
    (folder / "people.csv").write_text(PEOPLE)
    (folder / "import.yaml").write_text(PIPELINE.replace("kb.og", "../kb.og"))
    return folder


def test_a_file_that_is_wrong_is_underlined_and_exits_1_or_2(desk: Desk, job: Path) -> None:
    (job / "import.yaml").write_text(PIPELINE.replace("targets", "targetss"))
    ran = desk.run("pipeline", "check", "jobs/import.yaml")
    assert ran.code == 1
    assert "jobs/import.yaml:7:1: error[PL002]: the pipeline has no key 'targetss'" in ran.out
    assert "did you mean 'targets'?" in ran.out
    assert ran.out.endswith("ERROR jobs/import.yaml: 2 errors, 0 warnings\n")

    document = desk.run("pipeline", "check", "jobs/import.yaml", "--json").document
    assert (document["status"], document["errors"], document["file"]) == ("error", 2, "jobs/import.yaml")
    assert [one["code"] for one in document["diagnostics"]] == ["PL004", "PL002"]

    ran = desk.run("pipeline", "run", "jobs/import.yaml")
    assert ran.code == 2
    assert "error[PL002]" in ran.err
    assert desk.run("pipeline", "run", "jobs/import.yaml", "--json").document["code"] == "pipeline_invalid"


def test_a_file_that_is_not_there(desk: Desk) -> None:
    for command in ("check", "run"):
        ran = desk.run("pipeline", command, "nowhere.yaml")
        assert (ran.code, "cannot read pipeline 'nowhere.yaml'" in ran.err) == (2, True)


def test_a_graph_that_is_not_there(desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "check", "jobs/import.yaml", "--graph", "nowhere.og")
    assert (ran.code, "graph_not_found" in ran.err) == (6, True)


def test_a_branch_on_the_line_may_not_be_the_one_to_merge_into(desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "run", "jobs/import.yaml", "--branch", "main")
    assert (ran.code, "which is the branch of this run" in ran.err) == (2, True)


def test_a_setting_of_spark_has_a_name_and_a_value(desk: Desk, job: Path) -> None:
    ran = desk.run("pipeline", "check", "jobs/import.yaml", "--conf", "spark.x")
    assert (ran.code, "--conf 'spark.x' is not understood" in ran.err) == (2, True)


def test_replacing_rows_of_a_remote_graph_needs_consent(desk: Desk) -> None:
    text = PIPELINE.replace("kb.og", "s3://bucket/kb.og").replace("mode: merge", "mode: overwrite")
    ran = desk.run("pipeline", "run", desk.file("p.yaml", text))
    assert (ran.code, "confirmation_required" in ran.err) == (2, True)
    assert "destroys all rows of Person" in ran.err


def test_without_pyspark_it_says_what_to_install(desk: Desk, job: Path) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\nfrom omnigraph.surfaces.cli.app import main\n"
        "sys.exit(main(['pipeline', 'check', 'jobs/import.yaml']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, "pip install 'omnigraph[spark]'" in ran.stderr) == (2, True)


def test_a_terminal_sees_the_step_its_tasks_and_its_rows() -> None:
    console = Console(force_terminal=True, width=120, record=True)
    with pipeline_bar(console) as tell:
        assert tell is not None
        for now in (
            RunProgress("check", "", 1, 4),
            RunProgress("source", "raw", 2, 4, tasks_done=3, tasks=7),
            RunProgress("load", "main", 4, 4, "writing", 12_345),
        ):
            tell(now)
    shown = console.export_text()
    for words in ("1/4 check", "2/4 source raw", "3 of 7 tasks", "4/4 load main", "writing, 12,345 rows"):
        assert words in shown, words
    with pipeline_bar(None) as tell:
        assert tell is None
