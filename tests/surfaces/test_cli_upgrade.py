"""`omnigraph upgrade`, and what the other commands say of a graph that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage.manifest.formats import FORMAT
from tests.support.desk import SCHEMA, Desk
from tests.support.formats import OLDER, older_release
from tests.support.places import Place
from tests.support.stores import nothing_written


@pytest.fixture
def graph(desk: Desk) -> str:
    """A graph that the older release made, with a branch."""
    with older_release(), og.init(desk.graph, SCHEMA, durability="os") as made:
        made.load([{"type": "Person", "data": {"slug": "a"}}], mode="append")
        made.branches.create("review")
    return desk.graph


def test_a_person_is_told_what_was_done_for_each_branch(desk: Desk, graph: str) -> None:
    ran = desk.run("upgrade", graph)
    assert ran.code == 0
    first, *branches = ran.out.splitlines()
    assert first == f"upgraded {graph} from storage format {OLDER} to {FORMAT}"
    with og.connect(graph) as opened:
        head = opened.commits.list()[0].id
    assert branches == [f"  main: commit {head}", f"  review: commit {head}"]
    assert "upgrade" in ran.err

    ran = desk.run("upgrade", graph)
    assert (ran.code, ran.out) == (0, f"nothing to upgrade: {graph} is in storage format {FORMAT}\n")


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(desk: Desk, graph: str) -> None:
    with nothing_written(Place(graph, {})):
        ran = desk.run("upgrade", graph, "--dry-run", "--json")
        text = desk.run("upgrade", graph, "--dry-run")
    document = ran.document
    assert (document["from_format"], document["to_format"]) == (OLDER, FORMAT)
    assert (document["dry_run"], document["upgraded"]) == (True, False)
    assert [branch["branch"] for branch in document["branches"]] == ["main", "review"]
    assert text.out.startswith(f"would upgrade {graph} from storage format {OLDER} to {FORMAT}\n")

    done = desk.run("upgrade", graph, "--json").document
    assert done == {**document, "dry_run": False, "upgraded": True}


COMMANDS = [
    ["snapshot"],
    ["schema", "show"],
    ["branch", "list"],
    ["log"],
    ["export"],
    ["optimize"],
    ["cleanup", "--keep", "1"],
    ["verify"],
    ["backup", "{graph}", "copy.og"],
    ["restore", "{graph}", "copy.og"],
    ["clone", "{graph}", "copy.og"],
]


def test_every_other_command_refuses_it_and_names_this_one(desk: Desk, graph: str) -> None:
    with nothing_written(Place(graph, {})):
        for words in COMMANDS:
            given = [word.format(graph=graph) for word in words]
            ran = desk.run(*given, *([] if graph in given else [graph]))
            assert ran.code == 2, words
            assert f"omnigraph upgrade {graph}" in ran.err, words
    assert not Path("copy.og").exists()


@pytest.mark.parametrize("flags", [[], ["--deep"], ["--fix"]])
def test_doctor_reports_the_format_with_its_remedy(desk: Desk, graph: str, flags: list[str]) -> None:
    with nothing_written(Place(graph, {})):
        ran = desk.run("doctor", graph, *flags, "--json")
    assert ran.code == 1
    findings = [finding for finding in ran.document["findings"] if finding["severity"] != "info"]
    assert {finding["code"] for finding in findings} == {"format"}
    assert all(f"omnigraph upgrade {graph}" in finding["remedy"] for finding in findings)

    desk.run("upgrade", graph)
    assert desk.run("doctor", graph, *flags).code == 0


def test_no_graph_at_all_ends_with_6(desk: Desk) -> None:
    assert desk.run("upgrade", "nowhere.og").code == 6
    assert not Path("nowhere.og").exists()
