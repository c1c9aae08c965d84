"""`commit`, `log` and `tag`: who changed what, when, and names for it; `--snapshot` takes them all."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import omnigraph as og
from omnigraph.base.ids import minted_us
from tests.support.desk import Desk

ADD = "query q($s: String) { insert Person { slug: $s } }"
ALL = "query q() { match { $p: Person } return { $p.slug } }"


@pytest.fixture
def ids(desk: Desk) -> list[str]:
    """Three more commits on main and one on `review`; the ids of main, newest first."""
    with og.connect(desk.started()) as graph:
        for slug in ("b", "c"):
            graph.mutate(ADD, s=slug, actor="ada", message=f"add {slug}")
        graph.branches.create("review")
        graph.mutate(ADD, s="r", branch="review")
        graph.mutate(ADD, s="d", actor="bo")
        return [commit.id for commit in graph.commits.list()]


def slugs(desk: Desk, *flags: str) -> set[str]:
    ran = desk.run("query", desk.graph, "-e", ALL, "--format", "csv", *flags)
    assert ran.code == 0, ran.err
    return set(ran.out.split()[1:])


def test_commits_are_listed_newest_first(desk: Desk, ids: list[str]) -> None:
    ran = desk.run("commit", "list", desk.graph)
    assert [line.split()[0] for line in ran.out.splitlines()] == ids
    assert "ada" in ran.out
    assert "add b" in ran.out

    document = desk.run("commit", "list", desk.graph, "--json").document
    assert [one["graph_commit_id"] for one in document["commits"]] == ids
    assert document["next"] is None
    assert document["commits"][-1]["parent_commit_id"] is None


def test_pages_are_bounded_and_resumable(desk: Desk, ids: list[str]) -> None:
    first = desk.run("commit", "list", desk.graph, "--limit", "2")
    assert first.out.splitlines()[-1] == f"more: --before {ids[1]}"
    page = desk.run("commit", "list", desk.graph, "--limit", "2", "--before", ids[1], "--json").document
    assert [one["graph_commit_id"] for one in page["commits"]] == ids[2:4]
    assert page["next"] == ids[3]
    assert desk.run("commit", "list", desk.graph, "--limit", "0").code == 2


def test_commits_are_chosen_by_actor(desk: Desk, ids: list[str]) -> None:
    for limit, expected in (("50", ids[1:3]), ("1", ids[1:2])):
        document = desk.run(
            "commit", "list", desk.graph, "--actor", "ada", "--limit", limit, "--json"
        ).document
        assert [one["graph_commit_id"] for one in document["commits"]] == expected
    after = desk.run(
        "commit", "list", desk.graph, "--actor", "ada", "--limit", "1", "--before", ids[1], "--json"
    ).document
    assert [one["graph_commit_id"] for one in after["commits"]] == [ids[2]]


def test_a_branch_lists_what_it_inherited(desk: Desk, ids: list[str]) -> None:
    document = desk.run("commit", "list", desk.graph, "--branch", "review", "--json").document
    assert [one["graph_commit_id"] for one in document["commits"]][1:] == ids[1:]


def test_one_commit_is_shown_whichever_branch_made_it(desk: Desk, ids: list[str]) -> None:
    with og.connect(desk.graph) as graph:
        review = graph.store.snapshot("review").commit_id
    document = desk.run("commit", "show", desk.graph, review, "--json").document
    assert (document["graph_commit_id"], document["graph_branch"]) == (review, "review")
    assert document["parent_commit_id"] == ids[1]

    ran = desk.run("commit", "show", desk.graph, ids[1])
    assert f"graph_commit_id          {ids[1]}" in ran.out
    assert "  Person: 1 inserted, 0 updated, 0 deleted" in ran.out
    assert desk.run("commit", "show", desk.graph, "01ARZ3NDEKTSV4RRFFQ69G5FAV").code == 6


def test_a_log_is_one_line_for_each_commit(desk: Desk, ids: list[str]) -> None:
    lines = desk.run("log", desk.graph).out.splitlines()
    assert [line.split()[:2] for line in lines] == [["*", one] for one in ids]
    assert lines[1].endswith("main ada: add c")
    assert desk.run("log", desk.graph, "--limit", "2").out.splitlines() == lines[:2]
    document = desk.run("log", desk.graph, "--graph", "--json").document
    assert [one["graph_commit_id"] for one in document["commits"]] == ids


def test_a_log_draws_a_merge_with_both_parents(desk: Desk, ids: list[str]) -> None:
    with og.connect(desk.graph) as graph:
        side = graph.store.snapshot("review").commit_id
        graph.merge("review")
    lines = desk.run("log", desk.graph, "--graph").out.splitlines()
    assert f"(merge of {side})" in lines[0]
    drawn = [line.partition(" 01")[0] for line in lines]
    assert drawn[:6] == ["*", "|\\", "* |", "| *", "|/", "*"]
    assert side not in desk.run("log", desk.graph).out.split("\n", 1)[1]


def test_tags_are_made_listed_and_deleted(desk: Desk, ids: list[str]) -> None:
    ran = desk.run("--as", "ada", "tag", "create", desk.graph, "v1", "--at", "main~1", "--message", "one")
    assert (ran.code, ran.out) == (0, f"tagged commit {ids[1]} as v1\n")
    assert desk.run("tag", "create", desk.graph, "tip", "--json").document["graph_commit_id"] == ids[0]

    (tip, v1) = desk.run("tag", "list", desk.graph, "--json").document["tags"]
    assert (tip["name"], v1["name"]) == ("tip", "v1")
    assert (v1["graph_commit_id"], v1["actor_id"], v1["message"]) == (ids[1], "ada", "one")
    lines = desk.run("tag", "list", desk.graph).out.splitlines()
    assert lines[1].startswith(f"v1   {ids[1]}  ")
    assert lines[1].endswith("  one")

    assert desk.run("tag", "create", desk.graph, "v1").code == 5
    assert desk.run("tag", "create", desk.graph, "2026-01-01").code == 2
    ran = desk.run("tag", "delete", desk.graph, "v1", "--quiet")
    assert (ran.code, ran.out) == (0, f"deleted tag v1\n  it named commit {ids[1]}\n")
    assert desk.run("tag", "delete", desk.graph, "v1").code == 6


def test_a_dry_run_of_a_tag_writes_nothing(desk: Desk, ids: list[str]) -> None:
    assert desk.run("tag", "create", desk.graph, "v1", "--dry-run").out.startswith("would tag commit")
    assert desk.run("tag", "create", desk.graph, "review", "--dry-run").code == 5
    assert desk.run("tag", "list", desk.graph).out == ""
    desk.run("tag", "create", desk.graph, "v1")
    assert desk.run("tag", "delete", desk.graph, "v1", "--dry-run").code == 0
    assert desk.run("tag", "list", desk.graph).out != ""


def test_snapshot_takes_every_way_to_name_a_state(desk: Desk, ids: list[str]) -> None:
    desk.run("tag", "create", desk.graph, "v1", "--at", ids[2])
    with og.connect(desk.graph) as graph:
        version = graph.commits.get(ids[2]).manifest_version
    for at in (ids[2], "v1", "main~2", "review~2", "v1~0", str(version)):
        assert slugs(desk, "--snapshot", at) == {"a", "b"}, at
    assert slugs(desk, "--snapshot", "review~0") == {"a", "b", "c", "r"}
    assert "Person" in desk.run("schema", "show", desk.graph, "--snapshot", "v1").out


def test_a_time_is_read_on_the_branch_that_was_named(desk: Desk, ids: list[str]) -> None:
    now = datetime.fromtimestamp(minted_us(ids[0]) / 1e6 + 5, UTC).isoformat()
    assert slugs(desk, "--snapshot", now) == {"a", "b", "c", "d"}
    assert slugs(desk, "--snapshot", now, "--branch", "review") == {"a", "b", "c", "r"}


def test_what_names_no_state_says_what_would(desk: Desk, ids: list[str]) -> None:
    for at, code in (("nope", "tag_not_found"), ("nope~1", "branch_not_found"), ("a//b", "bad_moment")):
        ran = desk.run("query", desk.graph, "-e", ALL, "--snapshot", at, "--json")
        assert ran.document["code"] == code
    ran = desk.run("query", desk.graph, "-e", ALL, "--snapshot", "nope")
    for form in ("a commit id", "a tag", "BRANCH~N", "2026-05-01"):
        assert form in ran.err
    assert desk.run("query", desk.graph, "-e", ALL, "--snapshot", "1970-01-01").code == 6
    both = desk.run("query", desk.graph, "-e", ALL, "--snapshot", ids[0], "--branch", "main")
    assert both.code == 2
