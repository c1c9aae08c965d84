"""Background optimize: off unless asked for, when it is due, by a process that a server stops with itself."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from pathlib import Path

import httpx
import pytest

import omnigraph as og
from omnigraph.base.errors import InvalidRequest
from omnigraph.execution.memory import Memory
from omnigraph.surfaces.server.admission import Admission
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.settings import ServerSettings, UpkeepPolicy
from omnigraph.surfaces.server.upkeep import Upkeep
from tests.support.people import INSERT, SCHEMA
from tests.support.served import PATIENCE, Served, serving

WHEN = "every=1s,small_fragments=4"
LOUD = ("--log-level", "info")
SYSTEM = "system:optimize"
READ = {"query": "query all() { match { $p: Person } return { $p.name } }"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A graph whose rows lie in many small files."""
    root = tmp_path / "kb.og"
    with og.init(root, SCHEMA, durability="os") as graph:
        for n in range(6):
            graph.load([{"type": "Person", "data": {"name": f"p{n}"}}], mode="append")
    return root


def wait_until(true: Callable[[], object]) -> None:
    """Wait for something that the server does by itself."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def actors(server: Served) -> list[str | None]:
    """Return who made the commits."""
    with server.client() as http:
        return [commit["actor_id"] for commit in http.get("/commits").json()["commits"]]


def test_a_server_optimizes_only_where_it_is_told_to() -> None:
    assert ServerSettings().upkeep is None


@pytest.mark.slow
def test_a_graph_that_is_due_is_optimized_once_and_says_so(place: Path) -> None:
    with serving(place, "--optimize", WHEN, *LOUD) as server:
        wait_until(lambda: SYSTEM in actors(server))
        wait_until(lambda: 'og_optimize_runs_total{graph="kb",outcome="committed"} 1.0' in metrics(server))
        with server.client() as http:
            answer = http.post("/mutate", json={"query": INSERT, "params": {"name": "New", "age": 1}})
            assert answer.status_code == 200
        time.sleep(2.5)  # it looks again, and one small file more is not worth it
        assert actors(server).count(SYSTEM) == 1
        assert "was optimized" in server.log
        assert server.stop() == 0
    with og.connect(place) as graph:
        assert len(graph.nodes("Person")) == 7
        assert not UpkeepPolicy.read(WHEN).due.is_due(graph.fragmentation())


def metrics(server: Served) -> str:
    """Return what the server counts."""
    return httpx.get(f"{server.url}/metrics").text


@pytest.mark.slow
def test_it_works_at_the_lowest_priority_and_ends_with_the_server(place: Path) -> None:
    with og.connect(place) as graph:
        head = graph.store.snapshot().commit_id
    config = place.with_name("omnigraph.yaml")
    config.write_text(f'graphs:\n  kb: {{ uri: {place} }}\nserver: {{ optimize: "{WHEN}" }}\n')
    stalled = {"OMNIGRAPH_FAILPOINTS": "publish.before=sleep:600"}
    with serving(None, "--config", str(config), *LOUD, environment=stalled) as server:
        wait_until(lambda: "is optimized by process" in server.log)
        found = re.search(r"is optimized by process (\d+)", server.log)
        assert found is not None
        worker = int(found[1])
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, worker) == 19)
        with server.client() as http:
            assert http.post("/query", json=READ).status_code == 200
        assert server.stop() == 0
        wait_until(lambda: not Path(f"/proc/{worker}").exists())
    with og.connect(place) as graph:
        assert graph.store.snapshot().commit_id == head


def test_it_looks_again_after_the_system_had_no_room_for_a_process(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[SpawnProcess]()

    def refused(process: SpawnProcess) -> None:
        tried.append(process)
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def wait() -> None:
        with og.connect(place) as graph:
            served = ServedGraphs.of({"kb": graph}, Memory(1 << 30))
            policy = replace(UpkeepPolicy.read(WHEN), every_seconds=0.01)
            upkeep = Upkeep(policy, list(served), Metrics(Admission(), served.embedder))
            running = asyncio.create_task(upkeep.run())
            async with asyncio.timeout(PATIENCE):
                while len(tried) < 2 and not running.done():
                    await asyncio.sleep(0.01)
            assert not running.done()
            running.cancel()
            await asyncio.wait({running})

    monkeypatch.setattr(SpawnProcess, "start", refused)
    asyncio.run(wait())


def test_a_policy_is_read_from_a_text() -> None:
    policy = UpkeepPolicy.read("every=5m, small_fragments=32,deleted_share=0.5")

    assert policy.every_seconds == 300
    assert (policy.due.small_fragments, policy.due.deleted_share) == (32, 0.5)
    assert policy.due.unindexed_share == UpkeepPolicy().due.unindexed_share


@pytest.mark.parametrize(
    "text",
    ["", "on", "every=soon", "every=0s", "small_fragments=many", "every=5m,files=3", "small_fragments=1"],
)
def test_a_policy_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        UpkeepPolicy.read(text)
