"""What processes do beside one that takes history away: each task over and over, its outcomes counted."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from tests.support.contents import check_whole
from tests.support.places import Place
from tests.support.processes import run_processes

PLAIN = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key }
edge Knows: Person -> Person
"""
PEOPLE = 60
ADD = "query add($name: String) { insert Person { name: $name, age: 1 } }"
AGE = "query older($name: String) { update Person set { age: 2 } where name = $name }"
NAMES = "query names() { match { $p: Person } return { $p.name as name } }"
KNOWN = 'query known() { match { $p: Person { name: "p1" } $p knows $f } return { $f.name as name } }'
# What a caller may be told: history is gone, or another commit came first and the write is to be repeated.
ALLOWED = {"ok", "history_reclaimed", "change_feed_gap", "read_set_conflict", "publish_contention"}
Task = Callable[[Graph, int], object]


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


def make_people(place: Place) -> None:
    """Make the graph that the tasks work on."""
    with og.init(place.address, PLAIN, durability="os", **place.kwargs) as graph:
        rows = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(PEOPLE)]
        edges = [{"edge": "Knows", "from": f"p{n}", "to": f"p{n + 1}"} for n in range(PEOPLE - 1)]
        graph.load([*rows, *edges], mode="append")


def run_beside(
    destroyers: list[tuple[Callable[..., Any], tuple[Any, ...]]], place: Place, group: str, done: str
) -> None:
    """Run tasks beside processes that delete files; check that all got an answer or the reason."""
    options = {"durability": "os", **place.kwargs}
    calls: list[tuple[Any, ...]] = list(destroyers)
    calls += [
        (work, (place.address, options, n, task, done)) for n, task in enumerate(GROUPS[group], start=1)
    ]
    outcomes = run_processes(run_one, calls, timeout_s=240)

    failed = [one.trace or one.error_text for one in outcomes if not one.ok]
    assert not failed, "\n\n".join(map(str, failed))
    values = [one.value or {} for one in outcomes]
    assert values[: len(destroyers)] == [{"errors": []}] * len(destroyers)
    others = values[len(destroyers) :]
    surprises = {
        other["task"]: {code: other["texts"][code] for code in other["outcomes"] if code not in ALLOWED}
        for other in others
    }
    assert {task: texts for task, texts in surprises.items() if texts} == {}, others
    # An update goes by rows that the others write all the while: it may be told to repeat every time.
    assert all(other["outcomes"].get("ok") for other in others if other["task"] != "update"), others
    with og.connect(place.address, **place.kwargs) as graph:
        check_whole(graph)
        names = [row["name"] for row in graph.query(NAMES).rows]
        assert len(names) == len(set(names))
        assert {name for other in others for name in other["written"]} <= set(names)


def run_one(target: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return target(*arguments)
