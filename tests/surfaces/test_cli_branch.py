"""`branch`: make, list, rename and delete branches."""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.support.desk import SCHEMA, Desk, remote_environment
from tests.support.places import Place

ADD = "query q($s: String) { insert Person { slug: $s } }"


def head(desk: Desk, branch: str = "main") -> str:
    with og.connect(desk.graph) as graph:
        return graph.store.snapshot(branch).commit_id


def names(desk: Desk) -> list[str]:
    found = desk.run("branch", "list", desk.graph, "--json").document["branches"]
    assert isinstance(found, list)
    return found


def test_create_says_what_it_made_and_from_what(desk: Desk) -> None:
    desk.started()
    ran = desk.run("branch", "create", desk.graph, "review", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "created branch review from main\n", "")

    ran = desk.run("--as", "ada", "branch", "create", "fix", "-g", desk.graph, "--from", "review", "--json")
    assert ran.document == {
        "uri": desk.graph,
        "from": "review",
        "name": "fix",
        "actor_id": "ada",
        "graph_commit_id": head(desk),
        "dry_run": False,
    }
    assert names(desk) == ["main", "fix", "review"]


def test_a_branch_starts_at_any_past_state(desk: Desk) -> None:
    desk.started()
    first = head(desk)
    desk.run("mutate", desk.graph, "-e", ADD, "--param", "s=b")
    for name, at in (("by-id", first), ("by-steps", "main~1")):
        assert desk.run("branch", "create", desk.graph, name, "--from-commit", at).code == 0
        assert head(desk, name) == first


def test_the_graph_may_come_from_the_project_file(desk: Desk) -> None:
    desk.started()
    desk.file("omnigraph.yaml", "cli: { graph: kb.og }\n")
    assert desk.run("branch", "create", "review").code == 0
    assert desk.run("branch", "list").out == "main\nreview\n"


def test_list_shows_one_name_per_line_main_first(desk: Desk) -> None:
    desk.started()
    for name in ("z", "a", "ä"):
        desk.run("branch", "create", desk.graph, name)
    assert desk.run("branch", "list", desk.graph).out == "main\na\nz\nä\n"


def test_a_long_list_adds_heads_ages_and_counts(desk: Desk) -> None:
    desk.started()
    desk.run("branch", "create", desk.graph, "review")
    for branch, slug in (("review", "b"), ("review", "c"), ("main", "d")):
        desk.run("mutate", desk.graph, "-e", ADD, "--param", f"s={slug}", "--branch", branch)

    ran = desk.run("branch", "list", desk.graph, "--long")
    assert f"review  {head(desk, 'review')}  " in ran.out
    assert ran.out.endswith("from main: 2 ahead, 1 behind\n")
    main, review = desk.run("branch", "list", desk.graph, "--long", "--json").document["details"]
    assert (main["name"], main["graph_commit_id"], main["parent"]) == ("main", head(desk), None)
    assert (review["parent"], review["ahead"], review["behind"]) == ("main", 2, 1)


def test_rename_keeps_everything_but_the_name(desk: Desk) -> None:
    desk.started()
    desk.run("branch", "create", desk.graph, "review")
    desk.run("mutate", desk.graph, "-e", ADD, "--param", "s=b", "--branch", "review")
    was = head(desk, "review")

    ran = desk.run("branch", "rename", desk.graph, "review", "done", "--quiet")

    assert (ran.code, ran.out) == (0, "renamed branch review to done\n")
    assert head(desk, "done") == was
    assert desk.run("snapshot", desk.graph, "--branch", "review").code == 6
    assert desk.run("branch", "rename", desk.graph, "done", "x", "--json").document["from"] == "done"


def test_delete_says_where_the_branch_was(desk: Desk) -> None:
    desk.started()
    desk.run("branch", "create", desk.graph, "review")
    was = head(desk)
    ran = desk.run("branch", "delete", desk.graph, "review", "--quiet")
    assert (ran.code, ran.out) == (0, f"deleted branch review\n  it was at commit {was}\n")
    assert names(desk) == ["main"]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("create", "main"), 2, "reserved_branch"),
        (("create", "a//b"), 2, "bad_branch_name"),
        (("create", "taken"), 5, "branch_exists"),
        (("create", "v1"), 5, "tag_exists"),
        (("create", "new", "--from", "nope"), 6, "branch_not_found"),
        (("create", "new", "--from-commit", "nope"), 6, "tag_not_found"),
        (("rename", "main", "new"), 2, "reserved_branch"),
        (("rename", "nope", "new"), 6, "branch_not_found"),
        (("rename", "taken", "parent"), 5, "branch_exists"),
        (("delete", "main"), 2, "reserved_branch"),
        (("delete", "nope"), 6, "branch_not_found"),
        (("delete", "parent"), 5, "branch_has_descendants"),
        (("delete", "tagged"), 5, "branch_has_tags"),
    ],
)
@pytest.mark.parametrize("dry", [False, True])
def test_refusals_are_typed_also_in_a_dry_run(
    desk: Desk, arguments: tuple[str, ...], code: int, reason: str, dry: bool
) -> None:
    with og.connect(desk.started()) as graph:
        for name, source in (("taken", "main"), ("parent", "main"), ("leaf", "parent"), ("tagged", "main")):
            graph.branches.create(name, source)
        graph.mutate(ADD, s="t", branch="tagged")
        graph.tags.create("v1")
        graph.tags.create("on-branch", branch="tagged")
    before = names(desk)

    ran = desk.run("branch", *arguments, "-g", desk.graph, "--json", *(["--dry-run"] if dry else []))

    assert (ran.code, ran.document["code"]) == (code, reason)
    assert names(desk) == before


def test_a_dry_run_writes_nothing(desk: Desk) -> None:
    desk.started()
    desk.run("branch", "create", desk.graph, "review")
    for arguments in (("create", "new"), ("rename", "review", "new"), ("delete", "review")):
        ran = desk.run("branch", *arguments, "-g", desk.graph, "--dry-run")
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("would ")
    assert names(desk) == ["main", "review"]


def test_too_many_or_too_few_words_are_bad_usage(desk: Desk) -> None:
    desk.started()
    for words in (("a", "b", "c"),):
        ran = desk.run("branch", "create", *words)
        assert ran.code == 2
        assert "NAME" in ran.err
    assert desk.run("branch", "rename", "a").code == 2
    assert desk.run("branch", "create").code == 2


@pytest.mark.s3
def test_deleting_a_remote_branch_needs_consent(
    desk: Desk, s3_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in remote_environment(s3_place).items():
        monkeypatch.setenv(name, value)
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        graph.branches.create("review")

    ran = desk.run("branch", "delete", s3_place.address, "review", "--json")
    assert (ran.code, ran.document["code"]) == (2, "confirmation_required")
    assert desk.run("branch", "delete", s3_place.address, "review", "--yes").code == 0
