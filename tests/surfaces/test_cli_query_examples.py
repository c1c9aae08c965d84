"""The example projects that people wrote for the reference: queries and read aliases work unchanged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from omnigraph.catalog.types import PropertyType, Scalar
from omnigraph.language.query import parse
from tests.support.desk import Desk
from tests.surfaces.test_cli_examples import PROJECTS

pytestmark = pytest.mark.skipif(not PROJECTS, reason="the example projects are not on this machine")
TEXT = {Scalar.DATETIME: "2026-05-01T10:00:00Z", Scalar.DATE: "2026-05-01", Scalar.I32: "3"}
EMBEDS = "needs an embedder"


@pytest.fixture(params=PROJECTS, ids=lambda path: path.name)
def project(desk: Desk, request: pytest.FixtureRequest) -> Path:
    """A working copy of an example."""
    shutil.copytree(request.param, desk.folder, dirs_exist_ok=True)
    return desk.folder


def aliases(project: Path, *commands: str) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((project / "omnigraph.yaml").read_text())["aliases"]
    return {name: entry for name, entry in found.items() if entry["command"] in commands}


def words(project: Path, entry: dict[str, Any]) -> list[str]:
    """Return a word that fits each parameter of an alias."""
    parsed = parse((project / "queries" / entry["query"]).read_text())
    query = next(one for one in parsed.file.queries if one.name.text == entry["name"])
    types = {param.name.text: PropertyType.of(param.type).scalar for param in query.params}
    return [TEXT.get(types[name], "x") for name in entry.get("args", ())]


def test_every_query_passes_the_check(desk: Desk, project: Path) -> None:
    document = desk.run("lint", "--query", "queries", "--schema", "schema.pg", "--json").document
    assert (document["status"], document["errors"]) == ("ok", 0)
    assert document["queries_processed"] > 50


@pytest.mark.slow
def test_every_read_alias_runs(desk: Desk, project: Path) -> None:
    assert desk.run("init", "it.og", "--schema", "schema.pg").code == 0
    assert desk.run("load", "it.og", "--data", "seed.jsonl", "--mode", "overwrite").code == 0
    ran = {
        name: desk.run("query", "--alias", name, *words(project, entry), "-g", "it.og")
        for name, entry in aliases(project, "read", "query").items()
    }
    assert len(ran) >= 25
    refused = {name: one.err for name, one in ran.items() if one.code != 0}
    assert all(EMBEDS in text for text in refused.values()), refused
    assert len(refused) <= 2
    assert any(
        one.out.startswith("row 1\n") or " rows from branch main via " in one.out for one in ran.values()
    )
