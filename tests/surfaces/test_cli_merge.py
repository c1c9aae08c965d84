"""`merge` and `revert`: what they print, what they return, what they refuse."""

from __future__ import annotations

import json

import pytest

import omnigraph as og
from tests.support.desk import Desk

SCHEMA = "node Person { name: String @key  age: I32?  city: String? }\n"
SET = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"


@pytest.fixture
def split(desk: Desk) -> Desk:
    """Ada has another age on each side; Bob is new on the branch."""
    desk.file("people.pg", SCHEMA)
    assert desk.run("init", desk.graph, "--schema", "people.pg").code == 0
    with og.connect(desk.graph) as graph:
        graph.load([{"type": "Person", "data": {"name": "Ada", "age": 36}}], mode="append")
    assert desk.run("branch", "create", desk.graph, "review").code == 0
    change(desk, "review", 41, "ann")
    change(desk, "main", 42, "bob")
    add = 'query q() { insert Person { name: "Bob" } }'
    assert desk.run("mutate", desk.graph, "-e", add, "--branch", "review").code == 0
    return desk


def change(desk: Desk, branch: str, age: int, actor: str) -> str:
    words = (
        "--as",
        actor,
        "mutate",
        desk.graph,
        "-e",
        SET,
        "--branch",
        branch,
        "--param",
        "n=Ada",
        "--param",
    )
    commit = desk.run(*words, f"a={age}", "--json").document["commit"]
    assert isinstance(commit, dict)
    return str(commit["graph_commit_id"])


def ages(desk: Desk) -> dict[str, int | None]:
    with og.connect(desk.graph) as graph:
        return {row["id"]: row["age"] for row in graph.nodes("Person").to_arrow().to_pylist()}


def test_a_conflict_is_reported_so_that_one_can_act(split: Desk) -> None:
    ran = split.run("merge", split.graph, "review", "--quiet")
    assert ran.code == 5
    assert "1 conflict" in ran.err
    assert "add a --resolve for each, or --strategy" in ran.err

    ran = split.run("merge", split.graph, "review", "--preview")
    assert ran.code == 5
    assert "age: base 36, ours 42, theirs 41" in ran.out
    assert "ours by bob at" in ran.out
    assert "theirs by ann at" in ran.out
    assert "--resolve Person/Ada:age=ours  or  --resolve Person/Ada:age=theirs" in ran.out

    ran = split.run("branch", "merge", split.graph, "review", "--json")
    assert ran.code == 5
    details = (
        ran.document["merge_conflicts"] if "merge_conflicts" in ran.document else ran.document["details"]
    )
    assert "divergent_update" in json.dumps(details)
    assert ages(split) == {"Ada": 42}


@pytest.mark.parametrize(
    ("flags", "age"),
    [
        (["--resolve", "Person/Ada=theirs"], 41),
        (["--resolve", "Person/Ada:age=ours"], 42),
        (["--resolve", "Person/Ada:age:=77"], 77),
        (["--strategy", "theirs"], 41),
        (["--resolve-file", "choices.json"], 99),
    ],
)
def test_conflicts_are_decided_on_the_line(split: Desk, flags: list[str], age: int) -> None:
    split.file("choices.json", json.dumps([{"type": "Person", "id": "Ada", "property": "age", "value": 99}]))

    ran = split.run("--as", "cid", "merge", split.graph, "review", *flags, "--delete-branch", "--json")

    assert ran.code == 0, ran.err
    assert ran.document["outcome"] == "merged"
    assert ran.document["actor_id"] == "cid"
    assert ran.document["branch_deleted"] is True
    assert ages(split) == {"Ada": age, "Bob": None}
    assert split.run("branch", "list", split.graph).out == "main\n"


def test_the_outcome_is_said_in_words(split: Desk) -> None:
    ran = split.run("merge", split.graph, "review", "--strategy", "ours", "--quiet")
    assert ran.out.startswith("merged review into main: merged\n  node Person  +1 ~0 -0\n  commit ")
    ran = split.run("merge", split.graph, "review", "--quiet")
    assert ran.out == "merged review into main: already_up_to_date\n"
    ran = split.run("merge", split.graph, "main", "--into", "review", "--quiet")
    assert ran.out.startswith("merged main into review: fast_forward\n")


def test_a_dry_run_writes_nothing(split: Desk) -> None:
    ran = split.run("merge", split.graph, "review", "--strategy", "theirs", "--dry-run", "--json")
    assert (ran.code, ran.document["preview"], ran.document["commit"]) == (0, True, None)
    assert ages(split) == {"Ada": 42}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--resolve", "Ada=theirs"], "not understood"),
        (["--resolve", "Person/Ada=mine"], "neither 'ours' nor 'theirs'"),
        (["--resolve", "Person/Ada:age:=x"], "is not JSON"),
        (["--resolve-file", "absent.json"], "cannot read"),
        (["--strategy", "both"], "neither 'ours' nor 'theirs'"),
    ],
)
def test_decisions_that_cannot_be_read_are_refused(split: Desk, flags: list[str], problem: str) -> None:
    ran = split.run("merge", split.graph, "review", *flags)
    assert ran.code == 2
    assert problem in ran.err


def test_a_commit_is_undone(split: Desk) -> None:
    wrong = change(split, "main", 7, "eve")

    ran = split.run("revert", split.graph, wrong, "--quiet")

    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"reverted {wrong} on main\n  node Person  +0 ~1 -0\n  commit ")
    assert ages(split) == {"Ada": 42}
    change(split, "main", 8, "eve")
    ran = split.run("revert", split.graph, wrong)
    assert ran.code == 5
    assert "divergent_update" in ran.err


def test_what_happens_to_the_schema_is_said(split: Desk) -> None:
    with og.connect(split.graph) as graph:
        for branch in ("main", "review"):
            graph.schema.apply(SCHEMA + "node Town { name: String @key }\n", branch=branch)

    ran = split.run("merge", split.graph, "review", "--strategy", "ours")

    assert ran.code == 0, ran.err
    assert "node Town: made on both branches, now one" in ran.out


def test_what_goes_with_the_schema_is_counted(split: Desk) -> None:
    with og.connect(split.graph) as graph:
        graph.load([{"type": "Person", "data": {"name": "Cy", "city": "Oslo"}}], mode="append")
        graph.branches.create("lean")
        graph.schema.apply(SCHEMA.replace("  city: String?", ""), branch="lean")

    ran = split.run("merge", split.graph, "lean")

    assert ran.code == 0, ran.err
    assert "node Person.city: dropped, with 1 value" in ran.out
