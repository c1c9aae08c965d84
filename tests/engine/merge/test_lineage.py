"""Which commit a merge starts from: repeated, crosswise and indirect merges (engine contract 6.8)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, InvalidRequest
from omnigraph.engine.merge.conflicts import MergeConflict
from tests.support.two_branches import change, fork, image, knows, person, put, world


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with world(tmp_path) as made:
        yield made


def age(graph: Graph, name: str, branch: str = "main") -> int | None:
    rows = {row["id"]: row["age"] for row in image(graph, branch)["nodes"]}
    found: int | None = rows[name]
    return found


def test_only_what_is_new_since_the_last_merge_counts(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=1))
    graph.merge("side")
    put(graph, "main", person("Alice", age=2))  # on top of what was merged: no conflict later
    put(graph, "side", person("Bob", age=3))

    done = graph.merge("side")

    assert done.outcome.value == "merged"
    assert (age(graph, "Alice"), age(graph, "Bob")) == (2, 3)


def test_merging_back_what_took_main_in_is_a_fast_forward(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=1))
    put(graph, "main", person("Bob", age=2))
    assert graph.merge("main", "side").outcome.value == "merged"

    done = graph.merge("side", "main")

    assert done.outcome.value == "fast_forward"
    assert image(graph) == image(graph, "side")


def test_a_branch_of_a_branch_merges_without_its_parent(graph: Graph) -> None:
    fork(graph, "one")
    put(graph, "one", person("Alice", age=1))
    fork(graph, "two", "one")
    put(graph, "two", person("Bob", age=2))
    put(graph, "main", person("Carol", age=3))

    graph.merge("two")

    assert (age(graph, "Alice"), age(graph, "Bob"), age(graph, "Carol")) == (1, 2, 3)
    assert graph.merge("one").outcome.value == "already_up_to_date"


def test_a_branch_that_was_made_anew_has_nothing_of_its_old_self(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=1))
    graph.merge("side")
    graph.store.branches.delete("side")
    put(graph, "main", person("Alice", age=2))
    fork(graph)
    put(graph, "side", person("Alice", age=3))

    assert graph.merge("side").outcome.value == "fast_forward"
    assert age(graph, "Alice") == 3


def crosswise(graph: Graph) -> None:
    """Merge two branches into each other at the same time, as two processes would."""
    fork(graph, "left")
    fork(graph, "right")
    put(graph, "left", person("Alice", age=1))
    put(graph, "right", person("Bob", age=2))
    fork(graph, "old-left", "left")
    graph.merge("right", "left")
    graph.merge("old-left", "right")


def test_crosswise_merges_without_disagreement(graph: Graph) -> None:
    crosswise(graph)
    put(graph, "left", person("Carol", age=3))
    put(graph, "right", person("Dan", age=4))

    graph.merge("right", "left")

    assert [age(graph, name, "left") for name in ("Alice", "Bob", "Carol", "Dan")] == [1, 2, 3, 4]


def test_what_equally_good_bases_disagree_on_is_a_conflict(graph: Graph) -> None:
    crosswise(graph)
    put(graph, "left", person("Alice", age=30))  # as it was before both: a silent choice would lose it
    put(graph, "right", person("Dan", age=4))

    with pytest.raises(MergeConflict) as caught:
        graph.merge("right", "left")

    assert [(one.kind.value, one.entity_id) for one in caught.value.conflicts] == [
        ("divergent_update", "Alice")
    ]


def test_bases_disagree_also_about_a_type_that_the_source_has_as_the_nearer_one_has_it(graph: Graph) -> None:
    fork(graph, "left")
    fork(graph, "right")
    put(graph, "right", knows("k", "Alice", "Bob"))
    put(graph, "left", person("Eve"))  # the later of the two bases, which the source's people never left
    fork(graph, "old-left", "left")
    graph.merge("right", "left")
    graph.merge("old-left", "right")
    change(graph, "right", 'delete Person where name = "Eve"')

    with pytest.raises(MergeConflict) as caught:
        graph.merge("left", "right")

    (conflict,) = caught.value.conflicts
    assert (conflict.kind.value, conflict.entity_id) == ("divergent_update", "Eve")


def test_edits_that_cancel_out_are_one_commit_and_then_nothing(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Eve"))
    change(graph, "side", 'delete Person where name = "Eve"')
    before = image(graph)

    done = graph.merge("side")

    assert (done.outcome.value, done.types) == ("fast_forward", ())
    assert done.commit is not None
    assert image(graph) == before
    assert graph.merge("side").outcome.value == "already_up_to_date"


def test_the_source_may_advance_meanwhile(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=1))
    seen = graph.store.snapshot("side").commit_id
    done = graph.merge("side")
    put(graph, "side", person("Alice", age=2))

    assert done.commit is not None
    assert done.commit.merged_parent == seen
    assert graph.merge("side").outcome.value == "merged"
    assert age(graph, "Alice") == 2


def test_what_cannot_be_merged_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidRequest, match="into itself"):
        graph.merge("main", "main")
    with pytest.raises(BranchNotFound):
        graph.merge("nowhere")
    fork(graph)
    with pytest.raises(BranchNotFound):
        graph.merge("side", "nowhere")


def test_a_merged_branch_can_be_deleted_at_once(graph: Graph) -> None:
    fork(graph)
    put(graph, "side", person("Alice", age=1))
    fork(graph, "child", "side")

    kept = graph.merge("side", delete_branch=True)

    assert kept.branch_deleted is False
    assert "child" in str(kept.branch_delete_error)
    graph.store.branches.delete("child")
    assert graph.merge("side", delete_branch=True).branch_deleted is True
    with pytest.raises(BranchNotFound):
        graph.store.snapshot("side")
