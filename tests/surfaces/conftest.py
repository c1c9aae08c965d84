"""A desk to run the command at: an empty working directory, no configuration of the person who runs tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.surfaces.cli.app import main
from omnigraph.surfaces.cli.support.call import LOGGER
from tests.support.contents import insert
from tests.support.desk import SCHEMA, Desk, Ran


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph to be copied: making one takes longer than most commands."""
    path = tmp_path_factory.mktemp("template") / "kb.og"
    with og.init(path, SCHEMA, durability="os") as graph:
        insert(graph, {"Person": [{"slug": "a", "age": 1}]})
    return path


@pytest.fixture
def desk(
    tmp_path: Path, template: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Desk]:
    """A working directory of its own, with the command run in this process."""
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OG_HOME", str(home))
    for name in ("OMNIGRAPH_HOME", "OG_PROFILE", "OMNIGRAPH_PROFILE", "OG_GRAPH", "OMNIGRAPH_GRAPH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    logger = logging.getLogger(LOGGER)
    before, level = list(logger.handlers), logger.level
    yield Desk(folder, run, template)
    logger.handlers[:] = before  # a run leaves its handler, whose stream ends with the test
    logger.setLevel(level)


@pytest.fixture
def operator_home(desk: Desk) -> Path:
    """The directory of the operator config."""
    return desk.folder.parent / "home"
