"""Deciding conflicts: previews, resolutions, strategies, reverts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest, PreconditionFailed
from omnigraph.engine.merge.conflicts import MergeConflict, Resolve, Take
from tests.support.two_branches import SCHEMA, change, fork, image, knows, person, put, world


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Alice has another age and another city on each side, Bob is gone on one and changed on the other."""
    with world(tmp_path) as made:
        fork(made)
        put(made, "side", person("Alice", age=1, city="there"))
        put(made, "main", person("Alice", age=2, city="here"))
        change(made, "side", 'delete Person where name = "Bob"')
        put(made, "main", person("Bob", age=9))
        yield made


def alice(graph: Graph) -> tuple[Any, Any]:
    row = next(row for row in image(graph)["nodes"] if row["id"] == "Alice")
    return row["age"], row["city"]


def test_a_preview_tells_everything_and_writes_nothing(graph: Graph) -> None:
    before = graph.store.snapshot("main").state

    found = graph.merge("side", preview=True)

    assert (found.outcome.value, found.total_conflicts, found.preview) == ("conflicts", 2, True)
    update, delete = found.conflicts
    assert (update.kind.value, update.entity_id) == ("divergent_update", "Alice")
    assert [(p.name, p.base, p.ours, p.theirs) for p in update.properties] == [
        ("age", 30, 2, 1),
        ("city", None, "here", "there"),
    ]
    assert (delete.kind.value, delete.entity_id) == ("delete_vs_update", "Bob")
    assert graph.store.snapshot("main").state == before
    settled = graph.merge("side", preview=True, strategy="theirs")
    assert (settled.outcome.value, settled.commit) == ("merged", None)
    assert [(one.name, one.updated, one.deleted) for one in settled.types] == [
        ("Person", 1, 1),
        ("Knows", 0, 1),
    ]
    assert graph.store.snapshot("main").state == before


@pytest.mark.parametrize(("strategy", "left"), [("ours", (2, "here")), ("theirs", (1, "there"))])
def test_a_strategy_decides_all_conflicts(graph: Graph, strategy: Take, left: tuple[int, str]) -> None:
    put(graph, "side", person("Carol", city="new"))  # no conflict: kept whatever the strategy

    graph.merge("side", strategy=strategy)

    rows = {row["id"]: row for row in image(graph)["nodes"]}
    assert alice(graph) == left
    assert ("Bob" in rows) is (strategy == "ours")
    assert rows["Carol"]["city"] == "new"


def test_each_conflict_can_be_decided_by_itself(graph: Graph) -> None:
    graph.merge(
        "side",
        resolutions=[
            Resolve("Person", "Alice", "age", value=77),
            {"type": "Person", "id": "Alice", "property": "city", "take": "theirs"},
            Resolve("Person", "Bob", take="ours"),
            Resolve("Knows", "bc", take="ours"),
        ],
    )

    assert alice(graph) == (77, "there")
    assert {row["id"] for row in image(graph)["nodes"]} == {"Alice", "Bob", "Carol", "Dan"}
    assert [row["id"] for row in image(graph)["edges"]] == ["bc"]


def test_what_is_not_decided_is_still_a_conflict(graph: Graph) -> None:
    with pytest.raises(MergeConflict) as caught:
        graph.merge("side", resolutions=[Resolve("Person", "Alice", "age", take="ours")])

    assert [one.entity_id for one in caught.value.conflicts] == ["Alice", "Bob"]
    assert [p.name for p in caught.value.conflicts[0].properties] == ["city"]


def test_a_choice_can_make_the_image_invalid_and_is_refused_then(graph: Graph) -> None:
    """Bob stays away, but his edge is kept: nothing that a merge decides skips the constraints."""
    with pytest.raises(MergeConflict) as caught:
        graph.merge("side", strategy="theirs", resolutions=[Resolve("Knows", "bc", take="ours")])

    assert [(one.kind.value, one.entity_id) for one in caught.value.conflicts] == [("orphan_edge", "bc")]


def test_an_edge_without_an_end_is_dropped_by_a_choice(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", knows("ad", "Alice", "Dan"))
        change(graph, "main", 'delete Person where name = "Dan"')
        with pytest.raises(MergeConflict):
            graph.merge("side")

        graph.merge("side", resolutions=[Resolve("Knows", "ad", take="ours")])

        assert [row["id"] for row in image(graph)["edges"]] == ["bc"]


def test_an_edge_without_an_end_is_one_conflict_also_under_a_new_schema(tmp_path: Path) -> None:
    """The target's edge is judged again, on an image that has lost the node already."""
    with world(tmp_path) as graph:
        fork(graph)
        graph.schema.apply(SCHEMA.replace("city: String?", "city: String?  new: I32?"), branch="side")
        change(graph, "side", 'delete Person where name = "Dan"')
        put(graph, "main", knows("ad", "Alice", "Dan"))

        found = graph.merge("side", preview=True)

        assert [(one.kind.value, one.entity_id) for one in found.conflicts] == [("orphan_edge", "ad")]
        assert found.total_conflicts == 1


@pytest.mark.parametrize(
    ("resolution", "problem"),
    [
        ({"type": "Person"}, "type and id are needed"),
        ({"type": "Person", "id": "Alice", "pick": "ours"}, "unknown key 'pick'"),
        (Resolve("Nobody", "Alice", take="ours"), "no type 'Nobody'"),
        (Resolve("Person", "Alice", "nmae", take="ours"), "no such property"),
        (Resolve("Person", "Alice"), "either take or value"),
        (Resolve("Person", "Alice", "age", take="ours", value=1), "either take or value"),
        (Resolve("Person", "Alice", value=1), "name the property|for a property"),
        (Resolve("Person", "Alice", "age", value="old"), "age"),
        (Resolve("Person", "Alice", take="mine"), "cannot take"),  # type: ignore[arg-type]
        (Resolve("Person", "Dan", take="ours"), "neither side changed"),
        (Resolve("Knows", "bc", "from", value="Dan"), "go together"),
        (Resolve("Person", "Alice", "name", value="Eve"), "makes up the node's id"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_refused(graph: Graph, resolution: Any, problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        graph.merge("side", strategy="ours", resolutions=[resolution])


def test_the_expected_head_is_checked(graph: Graph) -> None:
    head = graph.store.snapshot("main").commit_id
    put(graph, "main", person("Eve"))

    with pytest.raises(PreconditionFailed):
        graph.merge("side", strategy="ours", if_commit=head)


def test_an_entity_can_be_the_smallest_thing_that_is_merged(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        put(graph, "side", person("Alice", age=1), person("Bob", age=30, city="there"))
        put(graph, "main", person("Alice", age=30, city="here"), person("Carol", age=2))

        with pytest.raises(MergeConflict) as caught:
            graph.merge("side", granularity="entity")
        (one,) = caught.value.conflicts
        assert (one.entity_id, [p.name for p in one.properties]) == ("Alice", ["age", "city"])
        with pytest.raises(InvalidRequest, match="granularity"):
            graph.merge("side", granularity="row")  # type: ignore[arg-type]

        assert graph.merge("side").outcome.value == "merged"


def test_a_conflict_says_who_made_each_side_of_it(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        fork(graph)
        theirs = graph.load([person("Alice", age=1)], mode="merge", branch="side", actor="ann")
        graph.load([person("Bob", age=1)], mode="merge", branch="side", actor="bea")
        ours = graph.load([person("Alice", age=2)], mode="merge", actor="cid")
        graph.load([person("Carol", age=2)], mode="merge", actor="dov")

        with pytest.raises(MergeConflict) as caught:
            graph.merge("side")

        (one,) = caught.value.conflicts
        assert one.ours is not None
        assert one.theirs is not None
        assert (one.ours.commit_id, one.ours.actor) == (ours.commit_id, "cid")
        assert (one.theirs.commit_id, one.theirs.actor) == (theirs.commit_id, "ann")


# -- reverts ---------------------------------------------------------------------------------------------


def test_a_revert_undoes_one_commit_and_keeps_what_came_after(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        before = image(graph)
        done = graph.load([person("Alice", age=1), person("Eve"), knows("ae", "Alice", "Eve")], mode="merge")
        put(graph, "main", person("Dan", city="later"))
        assert done.commit_id is not None

        undone = graph.revert(done.commit_id, actor="somebody")

        assert undone.commit is not None
        assert (undone.commit.message, undone.commit.actor) == (f"Revert {done.commit_id}", "somebody")
        assert undone.commit.merged_parent is None
        rows = {row["id"]: row for row in image(graph)["nodes"]}
        assert rows.pop("Dan")["city"] == "later"
        assert list(rows.values()) == [row for row in before["nodes"] if row["id"] != "Dan"]
        assert image(graph)["edges"] == before["edges"]


def test_a_revert_of_what_later_commits_build_on_is_refused(tmp_path: Path) -> None:
    with world(tmp_path) as graph:
        done = graph.load([person("Eve")], mode="merge")
        put(graph, "main", knows("ae", "Alice", "Eve"))
        put(graph, "main", person("Alice", age=1))
        later = graph.store.snapshot().commit_id
        put(graph, "main", person("Alice", age=2))
        assert done.commit_id is not None

        with pytest.raises(MergeConflict) as caught:
            graph.revert(done.commit_id)
        assert [one.kind.value for one in caught.value.conflicts] == ["orphan_edge"]
        with pytest.raises(MergeConflict) as caught:
            graph.revert(later)
        assert [one.kind.value for one in caught.value.conflicts] == ["divergent_update"]
        with pytest.raises(InvalidRequest, match="first commit"):
            graph.revert(graph.store.snapshot(at=1).commit_id)
