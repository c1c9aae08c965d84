"""What the command line goes by is shown with its source; profiles are listed, and what is wrong with one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from omnigraph.surfaces.cli.app import main

OPERATOR = """
operator: { actor: ada }
servers: { team: { url: "http://127.0.0.1:9/base" } }
defaults: { server: team, default_graph: kb, output: csv }
profiles:
  work: { server: team, default_graph: other }
  laptop: { store: kb.og }
  lost: { server: nobody }
  both: { server: team, store: kb.og }
"""
PROJECT = "cli: { graph: project.og, branch: review, actor: bob, table_max_column_width: 40 }\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator config and a project file, and no variable."""
    for name in ("PROFILE", "GRAPH", "HOME"):
        for prefix in ("OG_", "OMNIGRAPH_"):
            monkeypatch.delenv(prefix + name, raising=False)
    monkeypatch.setenv("OG_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.yaml").write_text(OPERATOR)
    (tmp_path / "omnigraph.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a line with `--json`, and return the exit code and the document."""

    def run(*line: str) -> tuple[int, dict[str, Any]]:
        code = main([*line, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_values_are_shown_with_their_sources(files: Path, asked: Any) -> None:
    code, document = asked("config", "show")
    assert code == 0
    assert document["values"] == {
        "graph": "http://127.0.0.1:9/base/graphs/kb",
        "actor": "ada",
        "branch": "review",
        "output": "csv",
        "table_max_column_width": 40,
        "table_cell_layout": "truncate",
    }
    assert document["sources"] == {
        "graph": "config.yaml: defaults.server",
        "actor": "config.yaml: operator.actor",
        "branch": "omnigraph.yaml: cli.branch",
        "output": "config.yaml: defaults.output",
        "table_max_column_width": "omnigraph.yaml: cli.table_max_column_width",
        "table_cell_layout": "default",
    }


# In the order of precedence: each step takes away what decided before.
def test_the_graph_of_a_call_is_that_of_the_strongest_source(
    files: Path, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def graph(*flags: str) -> tuple[str, str]:
        document = asked("config", "show", *flags)[1]
        return document["values"]["graph"], document["sources"]["graph"]

    monkeypatch.setenv("OMNIGRAPH_GRAPH", "variable.og")
    monkeypatch.setenv("OG_PROFILE", "laptop")
    served = "http://127.0.0.1:9/base/graphs"
    assert graph("--server", "team", "--graph", "x", "--profile", "work") == (f"{served}/x", "--server")
    assert graph("--profile", "work") == (f"{served}/other", "--profile")
    assert graph() == ("kb.og", "OG_PROFILE")
    monkeypatch.delenv("OG_PROFILE")
    assert graph() == ("variable.og", "OMNIGRAPH_GRAPH")
    monkeypatch.delenv("OMNIGRAPH_GRAPH")
    assert graph() == (f"{served}/kb", "config.yaml: defaults.server")
    (files / "home/config.yaml").write_text("{}")
    assert graph() == (str(files / "project.og"), "omnigraph.yaml: cli.graph")
    (files / "omnigraph.yaml").unlink()
    assert asked("config", "show")[1]["values"]["graph"] is None


def test_flags_are_stronger_than_files(files: Path, asked: Any) -> None:
    document = asked("config", "show", "--as", "eve", "--branch", "b")[1]
    assert [document["values"][name] for name in ("actor", "branch")] == ["eve", "b"]
    assert [document["sources"][name] for name in ("actor", "branch")] == ["--as", "--branch"]


def test_files_are_named_whether_or_not_they_are_there(files: Path, asked: Any) -> None:
    document = asked("config", "path")[1]
    assert document == {
        "operator_config": {"path": str(files / "home/config.yaml"), "exists": True},
        "credentials": {"path": str(files / "home/credentials"), "exists": False},
        "project_file": {"path": str(files / "omnigraph.yaml"), "exists": True},
    }


def test_profiles_are_listed_with_what_is_wrong(files: Path, asked: Any) -> None:
    listed = {one["name"]: one for one in asked("profile", "list", "--profile", "work")[1]["profiles"]}
    assert list(listed) == ["work", "laptop", "lost", "both"]
    assert listed["work"] == {
        "name": "work",
        "binding": "team",
        "scope_kind": "server",
        "target": "http://127.0.0.1:9/base/graphs/other",
        "valid": True,
        "error": None,
        "default_graph": "other",
        "active": True,
    }
    assert (listed["laptop"]["scope_kind"], listed["laptop"]["target"]) == ("store", "kb.og")
    assert [listed[name]["valid"] for name in ("laptop", "lost", "both")] == [True, False, False]
    assert "no server 'nobody'" in listed["lost"]["error"]


def test_one_profile_is_shown(files: Path, asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked("profile", "show", "work")[1]["endpoint"] == "http://127.0.0.1:9/base/graphs/other"
    code, refused = asked("profile", "show")
    assert (code, refused["code"]) == (2, "bad_request")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "laptop")
    shown = asked("profile", "show")[1]
    assert (shown["name"], shown["active"], shown["endpoint"]) == ("laptop", True, None)
    assert shown["output_format"] == "csv"
    code, refused = asked("profile", "show", "wrok")
    assert (code, refused["code"]) == (6, "not_found")
    assert "'work'" in refused["error"]


def test_profile_alone_still_measures_a_query(files: Path, asked: Any) -> None:
    assert asked("profile", "-g", "none.og", "-e", "query q() {")[1]["code"] == "graph_not_found"


def test_the_script_of_a_shell_completes_commands(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scripts = {}
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == 0
        scripts[shell] = capsys.readouterr().out
    assert all("_OMNIGRAPH_COMPLETE" in script for script in scripts.values())
    checked = subprocess.run(["bash", "-n"], input=scripts["bash"], text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert main(["completion", "tcsh"]) == 2
