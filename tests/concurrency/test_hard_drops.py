"""One process takes history away, while others read and write: each gets an answer or the reason.

The dropper adds a property and drops it hard; that rewrites the table and deletes all that the heads do not
need. The others work on the same type all the while.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
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
from tests.support.contents import check_whole
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.workers import once

pytestmark = pytest.mark.s3_when_full

PLAIN = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key }
edge Knows: Person -> Person
"""
WITH_NOTE = PLAIN.replace("age: I32?", "{}: String?  age: I32?")
PEOPLE = 60
ADD = "query add($name: String) { insert Person { name: $name, age: 1 } }"
AGE = "query older($name: String) { update Person set { age: 2 } where name = $name }"
NAMES = "query names() { match { $p: Person } return { $p.name as name } }"
KNOWN = 'query known() { match { $p: Person { name: "p1" } $p knows $f } return { $f.name as name } }'
# What a caller may be told: history is gone, or another commit came first and the write is to be repeated.
ALLOWED = {"ok", "history_reclaimed", "change_feed_gap", "read_set_conflict", "publish_contention"}
Task = Callable[[Graph, int], object]


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


def work(address: str, options: dict[str, Any], number: int, task: str, done: str) -> dict[str, Any]:
    """Do one thing over and over until the dropper is done; count how it ended, and keep what was written."""
    outcomes, texts, written = Counter[str](), dict[str, str](), list[str]()
    with og.connect(address, **options) as graph:
        for turn in count():
            try:
                name = TASKS[task](graph, number * 1_000_000 + turn)
                outcomes["ok"] += 1
                if isinstance(name, str):
                    written.append(name)
            except GraphError as error:
                outcomes[error.code] += 1
                texts.setdefault(error.code, str(error))
            except Exception as error:  # noqa: BLE001 - that nothing untyped comes out is the point
                outcomes[type(error).__name__] += 1
                texts.setdefault(type(error).__name__, str(error))
            if Path(done).exists():
                break
            time.sleep(1.0 if "storage_options" in options else 0.01)  # a row that arrives refuses a drop
    return {"task": task, "outcomes": dict(outcomes), "texts": texts, "written": written}


# -- what the others do ------------------------------------------------------------------------------


def _query(graph: Graph, _: int) -> None:
    names = {row["name"] for row in graph.query(NAMES).rows}
    assert names >= {f"p{n}" for n in range(PEOPLE)}
    assert [row["name"] for row in graph.query(KNOWN).rows] == ["p2"]


def _query_fresh(graph: Graph, _: int) -> None:
    """Without caches, from a process that has opened nothing."""
    with og.connect(graph.uri, storage_options=dict(graph.store.location.options)) as fresh:
        _query(fresh, 0)


def _view(graph: Graph, _: int) -> None:
    assert graph.nodes("Person").to_arrow().num_rows >= PEOPLE


def _entity(graph: Graph, _: int) -> None:
    found = graph.entity("Person", "p1").get()
    assert found is not None
    assert found["name"] == "p1"
    graph.entity("Person", "p1").history()


def _diff(graph: Graph, _: int) -> None:
    commits = graph.commits.list(limit=4).commits
    list(graph.diff(commits[-1].id, "main"))


def _feed(graph: Graph, _: int) -> None:
    list(graph.changes.baseline(types=["Person"]))
    commits = graph.commits.list(limit=5).commits
    graph.changes.poll(start=f"after:{commits[-1].id}")


def _export(graph: Graph, _: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph.export(os.path.join(folder, "out"))


def _insert(graph: Graph, number: int) -> str:
    graph.mutate(ADD, name=f"m{number}")
    return f"m{number}"


def _update(graph: Graph, number: int) -> None:
    graph.mutate(AGE, name=f"p{number % PEOPLE}")


def _load(graph: Graph, number: int) -> str:
    graph.load([{"type": "Person", "data": {"name": f"l{number}"}}], mode="append")
    return f"l{number}"


def _merge(graph: Graph, number: int) -> str:
    graph.branches.create(f"b{number}")
    graph.mutate(ADD, name=f"b{number}", branch=f"b{number}")
    graph.merge(f"b{number}", "main")
    graph.branches.delete(f"b{number}")
    return f"b{number}"


def _branch(graph: Graph, number: int) -> None:
    graph.branches.create(f"c{number}")
    assert len(graph.query(NAMES, branch=f"c{number}")) >= PEOPLE
    graph.branches.delete(f"c{number}")


def _index(graph: Graph, _: int) -> None:
    report = graph.ensure_indexes()
    assert [row.error for row in report.types if row.error] == []


TASKS: dict[str, Task] = {
    "query": _query,
    "query fresh": _query_fresh,
    "view": _view,
    "entity": _entity,
    "diff": _diff,
    "feed": _feed,
    "export": _export,
    "insert": _insert,
    "update": _update,
    "load": _load,
    "merge": _merge,
    "branch": _branch,
    "index": _index,
}
GROUPS = {
    "reads": ["query", "query fresh", "entity", "view"],
    "history": ["diff", "feed", "export", "branch"],
    "writes": ["insert", "update", "load", "merge", "index"],
}


@pytest.fixture
def prepared(place: Place) -> Place:
    with og.init(place.address, PLAIN, durability="os", **place.kwargs) as graph:
        rows = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(PEOPLE)]
        edges = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}"} for n in range(PEOPLE - 1)]
        graph.load([*rows, *edges], mode="append")
    return place


@pytest.mark.parametrize("group", GROUPS)
def test_beside_hard_drops_everybody_gets_an_answer_or_the_reason(
    prepared: Place, group: str, tmp_path: Path
) -> None:
    options = {"durability": "os", **prepared.kwargs}
    done = str(tmp_path / "done")
    drops = 3 if prepared.options else 12  # on an object store a drop takes longer, and loses more often
    calls: list[tuple[Any, ...]] = [(drop, (prepared.address, options, drops, done))]
    calls += [
        (work, (prepared.address, options, n, task, done)) for n, task in enumerate(GROUPS[group], start=1)
    ]
    outcomes = run_processes(run_one, calls, timeout_s=240)

    failed = [one.trace or one.error_text for one in outcomes if not one.ok]
    assert failed == []
    dropper, *others = [one.value or {} for one in outcomes]
    assert dropper == {"errors": []}
    surprises = {
        other["task"]: {code: other["texts"][code] for code in other["outcomes"] if code not in ALLOWED}
        for other in others
    }
    assert {task: texts for task, texts in surprises.items() if texts} == {}, others
    # An update goes by rows that the others write all the while: it may be told to repeat every time.
    assert all(other["outcomes"].get("ok") for other in others if other["task"] != "update"), others
    with og.connect(prepared.address, **prepared.kwargs) as graph:
        check_whole(graph)
        names = [row["name"] for row in graph.query(NAMES).rows]
        assert len(names) == len(set(names))
        assert {name for other in others for name in other["written"]} <= set(names)


def run_one(target: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return target(*arguments)


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
