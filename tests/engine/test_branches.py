"""`graph.branches`, `graph.tags` and `graph.commits`: what people see of branches and history."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, CommitNotFound, TagNotFound
from omnigraph.storage.cost import process_totals
from tests.support.people import head

SCHEMA = "node Person { name: String @key }\n"
ADD = "query q($n: String) { insert Person { name: $n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as made:
        made.mutate(ADD, n="a", actor="ada")
        yield made


def test_a_new_branch_tells_where_it_starts(graph: Graph) -> None:
    made = graph.branches.create("dev")
    assert (made.name, made.parent, made.head) == ("dev", "main", head(graph))

    graph.mutate(ADD, n="b")
    old = graph.branches.create("old", at="main~1")
    assert (old.parent, old.head) == ("main", head(graph, "dev"))


def test_a_branch_forked_at_a_state_of_another_one_is_a_child_of_that_one(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.mutate(ADD, n="b", branch="dev")

    assert graph.branches.create("one", "main", at=head(graph, "dev")).parent == "dev"
    assert graph.branches.create("two", "dev", at="dev~1").parent == "main"


def test_branches_are_listed_with_main_first(graph: Graph) -> None:
    for name in ("z", "a"):
        graph.branches.create(name)
    found = graph.branches.list()

    assert [branch.name for branch in found] == ["main", "a", "z"]
    assert found[0].created_us <= found[2].created_us <= found[1].created_us
    assert [branch.head for branch in found] == [None] * 3


def test_ahead_and_behind_count_commits_since_the_fork(graph: Graph) -> None:
    graph.branches.create("dev")
    for name in "bcd":
        graph.mutate(ADD, n=name, branch="dev")
    graph.store.raise_floor("dev", 1)  # control writes are no commits
    graph.branches.create("leaf", "dev")
    for name in "ef":
        graph.mutate(ADD, n=name)
    graph.mutate(ADD, n="g", branch="dev")

    found = {branch.name: branch for branch in graph.branches.list(counts=True)}

    assert (found["dev"].ahead, found["dev"].behind) == (4, 2)
    assert (found["leaf"].ahead, found["leaf"].behind, found["leaf"].parent) == (0, 1, "dev")
    assert (found["main"].ahead, found["main"].behind, found["main"].head) == (None, None, head(graph))
    for name, branch in found.items():
        assert graph.branches.get(name) == branch


def test_a_commit_from_before_the_fork_is_not_counted_though_the_floor_has_passed_it(graph: Graph) -> None:
    graph.branches.create("dev")
    for _ in range(3):
        graph.store.raise_floor("main", graph.store.snapshot().state.version)

    assert graph.branches.get("dev").behind == 0


def test_counts_are_right_beyond_what_a_version_remembers(graph: Graph) -> None:
    graph.branches.create("dev")
    for number in range(70):
        graph.mutate(ADD, n=f"n{number}", branch="dev")

    assert graph.branches.get("dev").ahead == 70


def test_a_list_reads_the_registry_alone(graph: Graph) -> None:
    for number in range(10):
        graph.branches.create(f"b{number}")
    graph.branches.list()
    before = process_totals().requests

    graph.branches.list()

    assert process_totals().requests - before <= 2


def test_rename_and_delete_return_what_they_did(graph: Graph) -> None:
    graph.branches.create("dev")
    assert graph.branches.rename("dev", "kept").name == "kept"
    was = graph.branches.delete("kept")
    assert (was.name, was.head, was.ahead) == ("kept", head(graph), 0)
    with pytest.raises(BranchNotFound):
        graph.branches.get("kept")


def test_tags_are_made_at_heads_and_at_the_past(graph: Graph) -> None:
    graph.branches.create("dev")
    graph.mutate(ADD, n="b", branch="dev")

    tags = [
        graph.tags.create("tip"),
        graph.tags.create("dev-tip", branch="dev", actor="ada", message="done"),
        graph.tags.create("old", "main~1"),
    ]

    assert [tag.commit_id for tag in tags] == [
        head(graph),
        head(graph, "dev"),
        graph.commits.get("main~1").id,
    ]
    assert [tag.name for tag in graph.tags.list()] == ["dev-tip", "old", "tip"]
    assert graph.tags.get("dev-tip") == tags[1]
    assert (tags[1].actor, tags[1].message) == ("ada", "done")
    assert graph.tags.delete("tip") == tags[0]
    with pytest.raises(TagNotFound):
        graph.tags.get("tip")


def test_commits_come_in_pages(graph: Graph) -> None:
    made = [graph.mutate(ADD, n=name, actor=name).commit_id for name in "bcd"]
    page = graph.commits.list(limit=2)
    assert (len(page), page[0], page[-1:]) == (2, page.commits[0], page.commits[1:])
    assert page.commits[1] in page
    assert [commit.id for commit in page] == made[:0:-1]
    assert len(page) == 2

    rest = graph.commits.list(limit=10, before=page.next)
    assert [commit.actor for commit in rest] == ["b", "ada", None]
    assert rest.next is None
    assert [commit.id for commit in graph.commits.list(actor="c")] == [made[1]]


def test_a_commit_is_found_by_id_from_any_branch(graph: Graph) -> None:
    graph.branches.create("dev")
    made = graph.mutate(ADD, n="b", branch="dev").commit
    assert made is not None

    assert graph.commits.get(made.id) == made
    with pytest.raises(CommitNotFound):
        graph.commits.get("01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_the_graph_of_commits_holds_what_was_merged(graph: Graph) -> None:
    graph.branches.create("dev")
    side = graph.mutate(ADD, n="b", branch="dev").commit_id
    graph.mutate(ADD, n="c")
    graph.merge("dev")

    ids = [commit.id for commit in graph.commits.graph()]

    assert side in ids
    assert len(ids) == len(set(ids)) == 5
    assert side not in [commit.id for commit in graph.commits.list()]


@pytest.mark.parametrize("anew", [False, True])
def test_a_branch_that_is_deleted_while_it_is_looked_at_is_not_found_or_is_the_new_one(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    graph.branches.create("dev")
    listed = graph.store.branches.list

    def deleted_first() -> Any:
        monkeypatch.undo()
        with og.connect(graph.uri, durability="os") as other:
            other.branches.delete("dev")
            if anew:
                other.branches.create("dev")
        return listed()

    monkeypatch.setattr(graph.store.branches, "list", deleted_first)
    if anew:
        assert graph.branches.get("dev").name == "dev"
    else:
        with pytest.raises(BranchNotFound):
            graph.branches.get("dev")
