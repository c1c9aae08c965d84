"""`diff`, `branch diff`, `commit changes`, `changes poll`, `entity history`: for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.support.desk import GROWN, Desk
from tests.support.people import head


@pytest.fixture
def graph(desk: Desk) -> Iterator[Graph]:
    """A graph with `a` on main, and a branch that changes it and adds `b`."""
    with og.connect(desk.started()) as made:
        made.branches.create("review")
        made.mutate(
            'query q() { update Person set { age: 7 } where slug = "a"  insert Person { slug: "b" } }',
            branch="review",
            actor="ada",
            message="a and b",
        )
        made.mutate('query q() { delete Person where slug = "a" }')
        yield made


def test_a_diff_shows_numbers_and_then_changes(desk: Desk, graph: Graph) -> None:
    ran = desk.run("diff", desk.graph, "main~1", "review")

    assert (ran.code, ran.err) == (0, "")
    before = graph.commits.get("main~1").id
    assert ran.out.splitlines() == [
        f"from {before} (main) to {head(graph, 'review')} (review)",
        "  node Person: 1 inserted, 1 updated, 0 deleted",
        "~ node Person a  age: 1 -> 7",
        "+ node Person b",
    ]


def test_one_side_alone_is_compared_with_the_head_of_the_branch(desk: Desk, graph: Graph) -> None:
    assert desk.run("diff", desk.graph, "main~1").out.splitlines()[-1] == "- node Person a"
    assert desk.run("diff", "main~1", "-g", desk.graph).out.splitlines()[-1] == "- node Person a"
    assert desk.run("diff", desk.graph, "main").out.splitlines()[-1] == "no difference"


def test_a_branch_diff_leads_from_main_to_the_branch(desk: Desk, graph: Graph) -> None:
    ran = desk.run("branch", "diff", desk.graph, "review", "--json")

    assert ran.document["from"] == head(graph)
    assert ran.document["to"] == head(graph, "review")
    assert [(one["id"], one["op"]) for one in ran.document["changes"]] == [("a", "insert"), ("b", "insert")]


def test_numbers_alone_limits_and_filters(desk: Desk, graph: Graph) -> None:
    stat = desk.run("diff", desk.graph, "main", "review", "--stat")
    assert stat.out.splitlines()[1:] == ["  node Person: 2 inserted, 0 updated, 0 deleted"]
    document = desk.run("diff", desk.graph, "main", "review", "--stat", "--json").document
    assert document["stats"]["nodes"] == [{"name": "Person", "inserted": 2, "updated": 0, "deleted": 0}]
    assert "changes" not in document
    limited = desk.run("diff", desk.graph, "main", "review", "--limit", "1")
    assert limited.out.splitlines()[-1].startswith("… 1 more")
    assert desk.run("diff", desk.graph, "main", "review", "--op", "delete").out.endswith("no difference\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("main", "nowhere"), 6),
        (("main", "review", "--type", "Persn"), 2),
        (("main", "review", "--limit", "0"), 2),
        (("main", "review", "third", "fourth"), 2),
    ],
)
def test_bad_diffs_are_refused(desk: Desk, graph: Graph, arguments: tuple[str, ...], code: int) -> None:
    assert desk.run("diff", desk.graph, *arguments).code == code


def test_schema_changes_are_part_of_a_diff(desk: Desk, graph: Graph) -> None:
    before = head(graph)
    graph.schema.apply(GROWN)

    ran = desk.run("diff", desk.graph, before)

    assert "* add_property Person.nick" in ran.out.splitlines()
    kinds = [step["kind"] for step in desk.run("diff", desk.graph, before, "--json").document["schema"]]
    assert "add_property" in kinds


def test_the_changes_of_a_commit(desk: Desk, graph: Graph) -> None:
    commit = head(graph, "review")

    ran = desk.run("commit", "changes", desk.graph, commit)
    document = desk.run("commit", "changes", desk.graph, commit, "--limit", "1", "--json").document
    token = document["next_page_token"]
    rest = desk.run("commit", "changes", desk.graph, commit, "--page-token", token, "--json").document

    assert ran.out.splitlines()[0].endswith("review  ada: a and b")
    assert ran.out.splitlines()[1:] == ["  ~ node Person a  age: 1 -> 7", "  + node Person b"]
    assert document["cause"]["graph_commit_id"] == commit
    assert document["cause"]["actor_id"] == "ada"
    assert document["changes"][0]["before"] == {"properties": {"age": 1, "slug": "a"}}
    assert [one["id"] for one in rest["changes"]] == ["b"]
    assert "next_page_token" not in rest


def test_the_first_commit_has_no_changes(desk: Desk, graph: Graph) -> None:
    ran = desk.run("commit", "changes", desk.graph, graph.store.snapshot(at=1).commit_id, "--json")
    assert (ran.code, ran.document["code"]) == (2, "parentless_commit")


def test_polling_goes_on_from_its_cursor(desk: Desk, graph: Graph) -> None:
    first = desk.run("changes", "poll", desk.graph, "--json").document
    assert (first["blocks"], first["caught_up"]) == ([], True)
    graph.mutate('query q() { insert Person { slug: "c" } }')

    ran = desk.run("changes", "poll", desk.graph, "--cursor", first["cursor"])
    following = desk.run("changes", "poll", desk.graph, "--cursor", first["cursor"], "--json").document

    lines = ran.out.splitlines()
    assert lines[1:3] == ["  + node Person c", "caught up"]
    assert lines[3] == f"cursor {following['cursor']}"
    assert [one["id"] for one in following["blocks"][0]["changes"]] == ["c"]


def test_polling_from_the_beginning_in_pages(desk: Desk, graph: Graph) -> None:
    options = ("changes", "poll", desk.graph, "--branch", "review", "--limit", "1", "--json")
    page = desk.run(*options, "--start", "beginning").document
    seen: list[str] = []
    while True:
        seen += [one["id"] for block in page["blocks"] for one in block["changes"]]
        if page.get("caught_up"):
            break
        on = (
            ("--page-token", page["next_page_token"])
            if "next_page_token" in page
            else ("--cursor", page["cursor"])
        )
        page = desk.run(*options, *on).document

    assert seen == ["a", "a", "b"]


def test_waiting_has_an_end(desk: Desk, graph: Graph) -> None:
    assert desk.run("changes", "poll", desk.graph, "--wait", "0.1").out.startswith("caught up")


def test_a_bad_cursor_is_a_bad_request(desk: Desk, graph: Graph) -> None:
    ran = desk.run("changes", "poll", desk.graph, "--cursor", "nonsense", "--json")
    assert (ran.code, ran.document["code"]) == (2, "cursor_rejected")


def test_the_versions_of_an_entity(desk: Desk, graph: Graph) -> None:
    ran = desk.run("entity", "history", desk.graph, "Person", "a", "--branch", "review")
    document = desk.run(
        "entity", "history", desk.graph, "Person", "a", "--branch", "review", "--json"
    ).document

    lines = ran.out.splitlines()
    assert lines[0] == "node Person a"
    assert lines[1].endswith("review  ada: a and b")
    assert lines[2] == "  ~ node Person a  age: 1 -> 7"
    assert [version["op"] for version in document["versions"]] == ["update", "insert"]
    assert document["versions"][0]["fields"] == [{"name": "age", "before": 1, "after": 7}]


def test_an_entity_that_never_was_is_not_found(desk: Desk, graph: Graph) -> None:
    ran = desk.run("entity", "history", desk.graph, "Person", "zoe", "--json")
    assert (ran.code, ran.document["code"]) == (6, "entity_not_found")
