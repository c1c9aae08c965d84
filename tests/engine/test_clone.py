"""`graph.clone`: one commit as a new graph, with every value, id and index as it was, and no history."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.durability import armed
from tests.support import everything
from tests.support.death import KILLED, die_at, points_of
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.told import digest_at, stored

pytestmark = pytest.mark.slow

NEWER = everything.SCHEMA.replace("node Nobody", "node Later { n: I64? }\nnode Nobody")


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    """A value of every kind, a branch with a newer schema, deleted rows, and indexes."""
    with everything.make(local_place.address) as made:
        made.tags.create("v1")
        made.branches.create("side")
        made.schema.apply(NEWER, branch="side")
        made.load([{"type": "Later", "data": {"id": "l", "n": 7}}], mode="append", branch="side")
        made.mutate('query gone() { delete Note where text = "first" }')
        made.ensure_indexes()
        yield made


@pytest.fixture
def free(tmp_path: Path) -> str:
    """An address with nothing there."""
    return str(tmp_path / "clone.og")


def check_clone(graph: Graph, clone: Graph, branch: str = "main", at: str | None = None) -> None:
    """Assert that a clone holds one state of a graph, to the byte, and nothing before it."""
    view = graph.branch(branch) if at is None else graph.at(at)
    assert everything.content(clone) == everything.content(view)
    assert digest_at(clone, "main") == digest_at(graph, branch, at)
    (commit,) = clone.commits.list()
    assert [each.name for each in clone.branches.list()] == ["main"]
    assert clone.tags.list() == ()
    assert commit.parent is None
    assert clone.schema.catalog().to_json() == view.schema.catalog().to_json()
    assert clone.verify().ok
    assert clone.verify().unrecorded == ()


@pytest.mark.parametrize(
    ("branch", "at"), [("main", None), ("side", None), ("main", "v1"), ("main", "main~2")]
)
def test_a_clone_is_one_state_of_the_graph(graph: Graph, free: str, branch: str, at: str | None) -> None:
    report = graph.clone(free, branch, at, actor="ada")

    with og.connect(free) as clone:
        check_clone(graph, clone, branch, at)
        (commit,) = clone.commits.list()
        assert (commit.id, commit.actor) == (report.graph_commit_id, "ada")
        assert report.source_commit_id in (commit.message or "")
        assert report.rows == sum(change.inserted for change in commit.tables)
    assert report.files <= len(stored(free))
    assert report.to_json()["destination"] == free


def test_a_view_of_the_past_is_what_is_cloned(graph: Graph, free: str) -> None:
    assert graph.at("v1").clone(free).source_commit_id == graph.tags.get("v1").commit_id


@pytest.mark.s3
def test_a_clone_on_an_object_store_is_cloned_back(graph: Graph, s3_place: Place, free: str) -> None:
    graph.clone(s3_place.address, storage_options=s3_place.options)
    with og.connect(s3_place.address, storage_options=s3_place.options) as clone:
        assert everything.content(clone) == everything.content(graph)
        clone.clone(free)
    with og.connect(free) as back:
        assert everything.content(back) == everything.content(graph)


def test_a_clone_goes_its_own_way(graph: Graph, free: str) -> None:
    before = stored(graph.uri)
    graph.clone(free)
    with og.connect(free) as clone:
        clone.load(everything.RECORDS, mode="merge")
        clone.branches.create("work")
        clone.load([{"type": "Note", "data": {"id": "mine"}}], mode="append", branch="work")
        clone.merge("work")
        assert [change.id for change in clone.diff("main~1")] == ["mine"]
        blocks = clone.changes(start="beginning").blocks
        assert len(blocks) == 2, "the feed begins after the first commit"
        clone.schema.apply(NEWER)
        clone.ensure_indexes()
        assert clone.verify().ok
    assert stored(graph.uri) == before
    with pytest.raises(og.DestinationRefused):
        graph.backup(free)


def test_a_graph_and_parts_of_one_are_not_cloned_over(graph: Graph, free: str) -> None:
    graph.clone(free)
    with pytest.raises(og.AlreadyInitialized):
        graph.clone(free, force=True)
    for version in Path(free, "__manifest/_versions").iterdir():
        version.unlink()
    with pytest.raises(og.InvalidRequest, match="force"):
        graph.clone(free)
    graph.clone(free, force=True)
    with og.connect(free) as clone:
        check_clone(graph, clone)


def test_a_clone_whose_state_is_dropped_meanwhile_is_of_the_newest(graph: Graph, free: str) -> None:
    graph.branches.delete("side")
    without = everything.SCHEMA.replace("edge Inside: All -> Room\n", "")
    first, asked = graph.store.snapshot().commit_id, threading.Lock()

    def drop() -> None:
        # No file is copied before it is over. By a handle of its own: the threads of this one wait here.
        with asked, og.connect(graph.uri) as other:
            if other.store.snapshot().commit_id == first:
                other.schema.apply(without, allow_data_loss=True)

    with armed({"copy_file.before": drop}):
        report = graph.clone(free)
    assert report.source_commit_id != first
    with og.connect(free) as clone:
        check_clone(graph, clone)


def test_a_named_state_that_is_dropped_meanwhile_is_refused(graph: Graph, free: str) -> None:
    without = everything.SCHEMA.replace("edge Inside: All -> Room\n", "")
    graph.branches.delete("side")
    graph.schema.apply(without, allow_data_loss=True)

    with pytest.raises(og.HistoryReclaimed):
        graph.clone(free, at="v1")
    with pytest.raises(og.GraphError):
        og.connect(free)


def test_a_clone_that_dies_leaves_no_graph_and_is_made_with_force(graph: Graph, tmp_path: Path) -> None:
    passed = points_of(partial(Graph.clone, destination=str(tmp_path / "trial")), graph.uri, {})
    points = sorted(set(passed))
    cases: list[tuple[Any, ...]] = [
        (_clone_to(str(tmp_path / f"c{n}")), graph.uri, {}, point, max(1, passed.count(point) // 2))
        for n, point in enumerate(points)
    ]
    outcomes = run_processes(die_at, cases)
    assert [outcome.exit_code for outcome in outcomes] == [KILLED] * len(points)
    for n, point in enumerate(points):
        destination = str(tmp_path / f"c{n}")
        if point in ("genesis.after", "head_sync.before", "head_sync.after") and _is_graph(destination):
            continue
        assert not _is_graph(destination), point
        graph.clone(destination, force=True)
        with og.connect(destination) as clone:
            check_clone(graph, clone)


def _clone_to(destination: str) -> partial[og.CloneReport]:
    return partial(Graph.clone, destination=destination)


def _is_graph(address: str) -> bool:
    try:
        og.connect(address).close()
    except og.GraphError:
        return False
    return True
