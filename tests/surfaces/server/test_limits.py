"""Limits: one table, told by flags, variables and the project file, shown in the docs, and each in use."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from omnigraph.base.errors import InvalidRequest
from omnigraph.surfaces.cli.app import main
from omnigraph.surfaces.server import process
from omnigraph.surfaces.server.limits import GIB, Limits, table, variable_of
from omnigraph.surfaces.server.settings import ServerSettings

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs/server.md").read_text(encoding="utf-8")
    assert table() in page, f"docs/server.md, Limits:\n{table()}"


def test_every_limit_is_asked_somewhere() -> None:
    sources = [*(ROOT / "src/omnigraph/surfaces/server").rglob("*.py")]
    code = "".join(file.read_text(encoding="utf-8") for file in sources if file.name != "limits.py")
    unused = [one.name for one in fields(Limits) if not re.search(rf"limits\.{one.name}\b", code)]
    assert unused == []


def test_the_limits_of_the_contract_are_the_usual_ones() -> None:
    usual = Limits()
    assert (usual.max_json_bytes, usual.max_load_bytes) == (1 << 20, 256 << 20)
    assert (usual.actor_writes, usual.actor_bytes) == (16, 4 * GIB)
    assert (usual.reads, usual.read_queue, usual.exports) == (64, 256, 16)
    assert (usual.deadline_seconds, usual.max_json_rows) == (30, 100_000)


def test_a_flag_wins_over_a_variable_and_that_over_the_file() -> None:
    file = {"reads": 1, "exports": 1, "body_seconds": 0.5}
    environment = {"OG_READS": "2", "OMNIGRAPH_EXPORTS": "2", "OG_PER_ACTOR_INFLIGHT_MAX": "3"}
    told = Limits.told(["reads=3"], environment, file)
    assert told == Limits(reads=3, exports=2, body_seconds=0.5, actor_writes=3)
    assert Limits.told() == Limits()


def test_every_limit_has_a_variable() -> None:
    for one in fields(Limits):
        told = Limits.told((), {f"OG_{variable_of(one)}": "7"})
        assert told == Limits(**{one.name: 7})


@pytest.mark.parametrize(
    "flag", ["reads", "reads=", "reads=many", "reads=-1", "reads=1.5", "reads=1k", "reads=0", "writes=3"]
)
def test_a_limit_that_is_none_is_refused(flag: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Limits.told([flag])
    assert caught.value.remedy


def test_a_misspelt_limit_is_told_what_it_may_have_meant() -> None:
    with pytest.raises(InvalidRequest, match="max_json_rows"):
        Limits.told(["max_json_row=3"])


def test_a_queue_may_be_empty_and_a_queue_only() -> None:
    assert Limits(read_queue=0).read_queue == 0
    with pytest.raises(InvalidRequest):
        Limits(reads=0)


def test_a_server_is_told_its_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[ServerSettings]()

    def noted(settings: ServerSettings) -> int:
        told.append(settings)
        return 0

    monkeypatch.setattr(process, "serve", noted)
    monkeypatch.setenv("OMNIGRAPH_EXPORTS", "5")
    config = tmp_path / "omnigraph.yaml"
    config.write_text(
        "graphs:\n  kb: { uri: kb.og }\nserver:\n  limits: { exports: 4, drain_seconds: 1.5 }\n"
    )
    assert main(["serve", "--config", str(config), "--unauthenticated", "--limit", "reads=6"]) == 0
    assert told[0].limits == Limits(reads=6, exports=5, drain_seconds=1.5)
    assert main(["serve", "--config", str(config), "--unauthenticated", "--limit", "reads=x"]) == 2
