"""One process takes history away, while others read and write: each gets an answer or the reason.

The dropper adds a property and drops it hard; that rewrites the table and deletes all that the heads do not
need. The others work on the same type all the while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError, HistoryReclaimed
from omnigraph.base.ids import SystemClock
from omnigraph.engine.load.assembly import LoadProgress
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from tests.concurrency.tasks import ADD, GROUPS, NAMES, PEOPLE, PLAIN, make_people, run_beside
from tests.support.contents import check_whole
from tests.support.places import Place
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

WITH_NOTE = PLAIN.replace("age: I32?", "{}: String?  age: I32?")


def drop(address: str, options: dict[str, Any], times: int, done: str) -> dict[str, Any]:
    """Drop a property hard, so many times; return what went wrong."""
    warnings: list[str] = []
    try:
        with og.connect(address, **options) as graph:
            for number in range(times):
                repeated(partial(graph.schema.apply, WITH_NOTE.replace("{}", f"note{number}")))
                receipt = repeated(lambda: graph.schema.apply(PLAIN, allow_data_loss=True))
                warnings += [f"drop {number}: {one.error}" for one in receipt.reclaimed if one.error]
    finally:
        Path(done).touch()
    return {"errors": warnings}


def repeated(act: Callable[[], Any]) -> Any:
    """Do something until no other commit comes first."""
    while True:
        try:
            return act()
        except GraphError as error:
            if not error.retryable:
                raise


@pytest.fixture
def prepared(place: Place) -> Place:
    make_people(place)
    return place


@pytest.mark.parametrize("group", GROUPS)
def test_beside_hard_drops_everybody_gets_an_answer_or_the_reason(
    prepared: Place, group: str, tmp_path: Path
) -> None:
    options = {"durability": "os", **prepared.kwargs}
    done = str(tmp_path / "done")
    drops = 3 if prepared.options else 6  # on an object store a drop takes longer, and loses more often
    run_beside([(drop, (prepared.address, options, drops, done))], prepared, group, done)


# -- one drop, in the worst moment -------------------------------------------------------------------

NOTED = WITH_NOTE.replace("{}", "note")
OLDER = 'query older() { update Person set { age: 99 } where name = "p1" }'


@pytest.fixture
def noted(place: Place) -> Place:
    """A graph with a property that can be dropped, on main and on a branch beside it."""
    with og.init(place.address, NOTED, durability="os", **place.kwargs) as graph:
        rows = [{"type": "Person", "data": {"name": f"p{n}", "note": "x"}} for n in range(PEOPLE)]
        graph.load([{"type": "City", "data": {"name": "Ulm"}}, *rows], mode="append")
        graph.mutate(ADD, name="new")
    return place


class DropOnce:
    """Drops the property when it is called for the first time, from a graph of its own."""

    def __init__(self, place: Place, branch: str = "main") -> None:
        self._place, self._branch = place, branch
        self.done = False

    def __call__(self, *_: object) -> None:
        if not self.done:
            self.done = True
            with og.connect(self._place.address, **self._place.kwargs) as graph:
                graph.schema.apply(PLAIN, branch=self._branch, allow_data_loss=True)


class Clock(SystemClock):
    """Calls something when it is asked for the time: a query asks when it has captured its state."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def now_us(self) -> int:
        self._act()
        return super().now_us()


def opened(place: Place, clock: Clock) -> Graph:
    return Graph(GraphStore.open(place.address, clock=clock, **place.kwargs))


def test_a_query_of_the_newest_state_reads_again_when_its_files_go(noted: Place) -> None:
    drop_once = DropOnce(noted)
    with opened(noted, Clock(drop_once)) as graph:
        result = graph.query(NAMES)

        assert drop_once.done
        assert len(result) == PEOPLE + 1
        assert result.commit_id == graph.store.snapshot().commit_id


def test_a_query_at_a_commit_says_that_it_is_gone(noted: Place) -> None:
    drop_once = DropOnce(noted)
    with opened(noted, Clock(drop_once)) as graph:
        named = graph.store.snapshot().commit_id
        with pytest.raises(HistoryReclaimed):
            graph.query(NAMES, at=named)
        assert drop_once.done


def test_an_export_starts_over_or_says_that_its_commit_is_gone(noted: Place, tmp_path: Path) -> None:
    with og.connect(noted.address, **noted.kwargs) as graph:
        before = graph.store.snapshot().commit_id
        report = graph.export(tmp_path / "newest", progress=DropOnce(noted))
        assert report.commit_id == graph.store.snapshot().commit_id != before
        assert report.rows == PEOPLE + 2

        with pytest.raises(HistoryReclaimed):
            graph.export(tmp_path / "named", at=before)
        assert not (tmp_path / "named").exists()


def test_a_load_that_was_checked_on_a_base_that_goes_is_prepared_again(noted: Place) -> None:
    drop_once = DropOnce(noted)

    def report(progress: LoadProgress) -> None:
        if progress.stage == "writing":
            drop_once()

    with og.connect(noted.address, **noted.kwargs) as graph:
        graph.load([{"type": "Person", "data": {"name": "late"}}], mode="append", progress=report)
    assert drop_once.done
    with og.connect(noted.address, **noted.kwargs) as fresh:
        check_whole(fresh)
        assert len(fresh.query(NAMES)) == PEOPLE + 2


def test_what_was_captured_and_is_read_later_says_that_it_is_gone(noted: Place) -> None:
    with og.connect(noted.address, **noted.kwargs) as graph:
        commits = graph.commits.list().commits
        diff = graph.diff(commits[1].id, "main")
        baseline = graph.changes.baseline()
        view = graph.nodes("Person")
        DropOnce(noted)()

        with pytest.raises(HistoryReclaimed):
            list(diff)
        with pytest.raises(HistoryReclaimed):
            list(baseline)
        with pytest.raises(HistoryReclaimed):
            view.to_arrow()


def test_a_merge_takes_nothing_over_that_was_reclaimed_meanwhile(noted: Place) -> None:
    """The source moves on and a third branch drops, just before the source's version becomes main's."""
    with og.connect(noted.address, **noted.kwargs) as graph:
        for branch in ("source", "third"):
            graph.branches.create(branch)
        graph.mutate(ADD, name="theirs", branch="source")

        def move_and_drop() -> None:
            with og.connect(noted.address, **noted.kwargs) as other:
                other.mutate(OLDER, branch="source")
            DropOnce(noted, "third")()

        with armed({"publish.before": once(move_and_drop)}):
            graph.merge("source", "main")
    with og.connect(noted.address, **noted.kwargs) as fresh:
        check_whole(fresh)
        assert "theirs" in {row["name"] for row in fresh.query(NAMES).rows}


def test_a_merge_that_begins_while_a_sweep_is_announced_takes_nothing_over_that_it_deletes(
    noted: Place,
) -> None:
    """Main has been told, the source not yet: it moves on after the merge has looked at it."""
    go, held = threading.Event(), threading.Event()

    def hold() -> None:
        if threading.current_thread().name == "merge" and not held.is_set():
            held.set()
            assert go.wait(60)

    with og.connect(noted.address, **noted.kwargs) as graph:
        for branch in ("source", "third"):
            graph.branches.create(branch)
        graph.mutate(ADD, name="theirs", branch="source")
        merge = threading.Thread(target=graph.merge, args=("source", "main"), name="merge")

        def merge_then_move() -> None:
            merge.start()
            assert held.wait(60)
            with og.connect(noted.address, **noted.kwargs) as other:
                other.mutate(OLDER, branch="source")

        with armed({"floor.after": once(merge_then_move), "publish.before": hold}):
            DropOnce(noted, "third")()
            go.set()
            merge.join()
    with og.connect(noted.address, **noted.kwargs) as fresh:
        check_whole(fresh)
        assert "theirs" in {row["name"] for row in fresh.query(NAMES).rows}
