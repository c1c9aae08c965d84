"""A read ends with its deadline; a write goes on to its end; nothing holds up a health check."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.cancellation import Cancellation, Cancelled, cancelled_by
from omnigraph.engine.query import Queries
from omnigraph.surfaces.server.answers import stream
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.settings import Limits, ServerSettings
from tests.support.people import INSERT
from tests.surfaces.server.conftest import make_graph

READ = "query all() { match { $p: Person } return { $p.name as name } }"
PAIRS = "query pairs() { match { $p: Person  $q: Person } return { $p.name, $q.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.connect(make_graph(tmp_path), durability="os") as opened:
        yield opened


@asynccontextmanager
async def running(graph: Graph, **limits: Any) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Run the application in this process, without a socket."""
    app = create_app(ServerSettings(limits=Limits(**limits)), {"kb": graph})
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://kb/graphs/kb") as client,
    ):
        yield app, client


class Held:
    """A step of the engine that begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.ended = threading.Event()

    def around(self, act: Any) -> Any:
        def held(*args: Any, **kwargs: Any) -> Any:
            self.begun.set()
            assert self.may_end.wait(60)
            try:
                return act(*args, **kwargs)
            finally:
                self.ended.set()

        return held


def test_a_cancelled_query_stops_where_it_asks_for_memory(graph: Graph) -> None:
    stopped = Cancellation()
    stopped.cancel("nobody waits")
    with cancelled_by(stopped), pytest.raises(Cancelled, match="nobody waits"):
        graph.query(PAIRS)
    assert len(graph.query(PAIRS)) == 9


def test_a_read_that_takes_too_long_is_stopped(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(Queries, "run", held.around(Queries.run))

    async def ask() -> None:
        async with running(graph) as (_, http):
            answer = await http.post("/query", json={"query": PAIRS}, headers={"X-Timeout-Ms": "50"})
            assert (answer.status_code, answer.json()["code"]) == (504, "timeout")
            assert answer.json()["retryable"] is True
            held.may_end.set()
            await asyncio.to_thread(held.ended.wait, 60)

    asyncio.run(ask())


def test_a_read_whose_caller_has_gone_is_stopped(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    held, outcome = Held(), list[BaseException]()
    run = Queries.run

    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except BaseException as error:
            outcome.append(error)
            raise

    monkeypatch.setattr(Queries, "run", held.around(noted))
    body = json.dumps({"query": PAIRS}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    path = "/graphs/kb/query"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}

    async def ask() -> None:
        async with running(graph) as (app, _):
            sent, messages = list[Any](), [{"type": "http.request", "body": body}]

            async def receive() -> Any:
                if messages:
                    return messages.pop()
                await asyncio.to_thread(held.begun.wait, 60)
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                sent.append(message)

            await app({**scope, "query_string": b"", "server": ("kb", 80)}, receive, send)
            held.may_end.set()
            await asyncio.to_thread(held.ended.wait, 60)

    asyncio.run(ask())
    assert isinstance(outcome[0], Cancelled)


def test_a_write_goes_on_after_its_deadline_and_is_told_by_its_key(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr(Graph, "mutate", held.around(Graph.mutate))
    asked = {"query": INSERT, "params": {"name": "Late", "age": 1}}

    async def ask() -> None:
        async with running(graph) as (_, http):
            headers = {"X-Timeout-Ms": "50", "Idempotency-Key": "late"}
            answer = await http.post("/mutate", json=asked, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (504, "timeout")
            assert (await http.get("/receipts/late")).status_code == 404
            held.may_end.set()
            while (receipt := await http.get("/receipts/late")).status_code != 200:
                await asyncio.sleep(0.01)
            assert receipt.json()["affected_nodes"] == 1

    asyncio.run(ask())


def test_a_body_that_does_not_arrive_is_given_up(graph: Graph) -> None:
    headers = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    path = "/graphs/kb/query"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}

    async def ask() -> Any:
        async with running(graph, body_seconds=0.05) as (app, _):
            sent = list[Any]()

            async def receive() -> Any:
                await asyncio.Event().wait()

            async def send(message: Any) -> None:
                sent.append(message)

            await app({**scope, "query_string": b"", "server": ("kb", 80)}, receive, send)
            return sent

    start, body = asyncio.run(ask())
    assert start["status"] == 504
    assert (b"connection", b"close") in start["headers"]
    assert json.loads(body["body"])["details"] == {"stage": "receiving"}


def test_a_stream_is_made_only_as_fast_as_it_is_taken() -> None:
    made = list[int]()

    def chunks() -> Iterator[bytes]:
        for number in range(10):
            made.append(number)
            yield b"x" * 10

    async def take() -> None:
        with ThreadPoolExecutor(1) as pool:
            response = await stream(pool, chunks(), 4, "text/plain", None)
            assert made == [0]
            pieces = [piece async for piece in response.body_iterator]  # type: ignore[attr-defined]
            assert max(len(piece) for piece in pieces) == 4
            assert b"".join(pieces) == b"x" * 100

    asyncio.run(take())


def test_heavy_queries_hold_up_no_health_check(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    monkeypatch.setattr(Queries, "run", held.around(Queries.run))

    async def ask() -> None:
        async with running(graph) as (_, http):
            heavy = [asyncio.create_task(http.post("/query", json={"query": READ})) for _ in range(20)]
            await asyncio.to_thread(held.begun.wait, 60)
            assert (await http.get("http://kb/healthz")).status_code == 200
            assert (await http.get("/branches")).status_code == 200
            held.may_end.set()
            assert {(await one).status_code for one in heavy} == {200}

    asyncio.run(ask())


def test_writes_of_several_requests_share_commits(graph: Graph) -> None:
    def asked(number: int) -> dict[str, Any]:
        return {"query": INSERT, "params": {"name": f"W{number}", "age": number}}

    async def ask() -> list[dict[str, Any]]:
        async with running(graph) as (_, http):
            answers = await asyncio.gather(*(http.post("/mutate", json=asked(n)) for n in range(8)))
            return [answer.json() for answer in answers]

    before = graph.store.snapshot().state.version
    receipts = asyncio.run(ask())
    commits = {receipt["commit"]["graph_commit_id"] for receipt in receipts}
    assert [receipt["affected_nodes"] for receipt in receipts] == [1] * 8
    assert len(commits) == graph.store.snapshot().state.version - before < 8


def test_a_server_that_drains_is_not_ready_and_ends_with_its_writes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr(Graph, "mutate", held.around(Graph.mutate))
    asked = {"query": INSERT, "params": {"name": "Last", "age": 1}}

    async def ask() -> None:
        async with running(graph) as (app, http):
            writing = asyncio.create_task(http.post("/mutate", json=asked))
            await asyncio.to_thread(held.begun.wait, 60)
            app.state.server.pools.draining.set()
            ready = await http.get("http://kb/readyz")
            assert (ready.status_code, ready.json()["draining"]) == (503, True)
            writing.cancel()  # its caller has gone
            held.may_end.set()
        assert held.ended.is_set()  # the application ended after the write

    asyncio.run(ask())
    assert "Last" in [row["name"] for row in graph.query(READ)]
