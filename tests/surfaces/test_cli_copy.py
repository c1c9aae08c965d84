"""`omnigraph backup`, `restore` and `clone`: what they do, and what they say."""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.engine.doctor.damaged import put_rows
from tests.support.desk import Desk, remote_environment
from tests.support.places import Place
from tests.support.told import stored


@pytest.fixture
def graph(desk: Desk) -> str:
    """One person."""
    return desk.started()


def test_a_backup_and_its_restoring_are_told_as_json(desk: Desk, graph: str) -> None:
    ran = desk.run("backup", graph, "copy.og", "--json")
    again = desk.run("backup", "-g", graph, "copy.og", "--json")
    back = desk.run("restore", "copy.og", "back.og", "--json")

    assert (ran.code, again.code, back.code) == (0, 0, 0)
    copy = str(desk.folder / "copy.og")
    assert ran.document["destination"] == copy
    assert set(ran.document["commits"]) == {"main"}
    assert ran.document["copied"] == ran.document["files"] > 0
    assert (again.document["copied"], again.document["skipped"]) == (0, again.document["files"])
    assert back.document["source"] == copy
    assert stored(str(desk.folder / "back.og")) == stored(graph)


def test_a_person_is_told_what_was_copied(desk: Desk, graph: str) -> None:
    ran = desk.run("backup", graph, "copy.og")

    with og.connect(graph) as source:
        head = source.store.snapshot().commit_id
    first, counts, branch = ran.out.splitlines()
    assert first == f"copied {graph} to {desk.folder / 'copy.og'}"
    assert "0 there already" in counts
    assert branch.split() == ["main", head]


def test_a_clone_has_one_commit_of_a_branch(desk: Desk, graph: str) -> None:
    ran = desk.run("clone", graph, "new.og", "--at", "main~1", "--as", "ada", "--json")

    assert ran.code == 0
    with og.connect("new.og") as clone:
        (commit,) = clone.commits.list()
        assert (commit.id, commit.actor) == (ran.document["graph_commit_id"], "ada")
        assert len(clone.nodes("Person")) == 0
    text = desk.run("clone", graph, "other.og")
    assert text.out.startswith(f"cloned main of {graph} to {desk.folder / 'other.og'}\n  1 row, ")


@pytest.mark.parametrize("command", ["backup", "clone"])
def test_a_copy_with_something_broken_in_it_is_named_and_ends_with_one(
    desk: Desk, graph: str, command: str
) -> None:
    with og.connect(graph, durability="os") as source:
        put_rows(source, "Person", [{"id": "Eve", "slug": "Eva"}])

    told = desk.run(command, graph, "copy.og")
    as_json = desk.run(command, graph, "other.og", "--json")

    assert (told.code, as_json.code) == (1, 1)
    assert "1 thing broken in the copy" in told.out
    assert "wrong_id" in told.out
    assert [finding["code"] for finding in as_json.document["findings"]] == ["wrong_id"]


@pytest.mark.parametrize(
    "words",
    [
        ["backup"],
        ["backup", "a", "b", "c"],
        ["clone", "a", "b", "-g", "c"],
        ["backup", "a", "b", "--dry-run"],
    ],
)
def test_wrong_words_are_refused(desk: Desk, words: list[str]) -> None:
    ran = desk.run(*words, "--json")

    assert (ran.code, ran.document["code"]) == (2, "bad_request")


def test_a_destination_that_is_refused_says_why(desk: Desk, graph: str) -> None:
    og.init("other.og", "node A { n: I64? }", durability="os").close()
    ran = desk.run("backup", graph, "other.og", "--json")

    assert (ran.code, ran.document["code"]) == (5, "destination_refused")
    assert ran.document["details"]["reason"] == "another_graph"


@pytest.mark.s3
def test_object_stores_are_reached_as_the_environment_says(
    desk: Desk, graph: str, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in remote_environment(s3_place).items():
        monkeypatch.setenv(name, value)

    assert desk.run("backup", graph, s3_place.address).code == 0
    assert desk.run("restore", s3_place.address, "back.og").code == 0
    assert stored(str(desk.folder / "back.og")) == stored(graph)
