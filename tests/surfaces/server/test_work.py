"""A read ends with its deadline; a write goes on to its end; nothing holds up a health check."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from fastapi import FastAPI

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.cancellation import Cancellation, Cancelled, cancelled_by
from omnigraph.engine.mutate.group import GroupCommit
from omnigraph.engine.open import connect
from omnigraph.engine.query import Queries
from omnigraph.engine.write import ChangeWrite
from omnigraph.execution import memory as memory_module
from omnigraph.execution.memory import Memory
from omnigraph.storage.tables.differences import OneSided
from omnigraph.surfaces.server.answers import stream
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServedAddress, ServerSettings
from omnigraph.surfaces.wire import ARROW, EVENTS
from tests.support.inside import inside
from tests.support.people import INSERT, person
from tests.surfaces.server.conftest import make_graph

JSON = "application/json"
READ = "query all() { match { $p: Person } return { $p.name as name } }"
PAIRS = "query pairs() { match { $p: Person  $q: Person } return { $p.name, $q.name } }"

MANY = "query many() { match { $p: Person  $q: Person  $p.name < $q.name } return { count($p) as n } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.connect(make_graph(tmp_path), durability="os") as opened:
        yield opened


@asynccontextmanager
async def running(
    graph: Graph | ServedGraphs, **limits: Any
) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """Run the application in this process, without a socket."""
    graphs = {"kb": graph} if isinstance(graph, Graph) else graph
    app = create_app(ServerSettings(limits=Limits(**limits)), graphs)
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


class Caller:
    """Somebody who sends one request and may leave before it is answered."""

    def __init__(
        self, method: str, path: str, body: bytes = b"", kind: bytes = b"application/json", accept: str = JSON
    ) -> None:
        where, _, query = f"/graphs/kb{path}".partition("?")
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        self.sent = list[Any]()
        self.takes = asyncio.Event()
        self.takes.set()
        self._body = [body]
        self._left = asyncio.Event()
        self._scope = {
            "type": "http",
            "method": method,
            "path": where,
            "raw_path": where.encode(),
            "query_string": query.encode(),
            "headers": [(b"accept", accept.encode()), *(headers if body else [])],
            "server": ("kb", 80),
        }

    async def ask(self, app: FastAPI) -> None:
        """Send it, and take the answer."""
        await app(self._scope, self._receive, self._send)

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def _receive(self) -> Any:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        await self.takes.wait()


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
            assert await asyncio.to_thread(held.ended.wait, 60)

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

    async def ask() -> None:
        async with running(graph) as (app, _):
            caller = Caller("POST", "/query", json.dumps({"query": PAIRS}).encode())
            asked = asyncio.ensure_future(caller.ask(app))
            assert await asyncio.to_thread(held.begun.wait, 60)
            caller.leave()
            await asked
            assert caller.sent == []
            held.may_end.set()
            assert await asyncio.to_thread(held.ended.wait, 60)

    asyncio.run(ask())
    assert isinstance(outcome[0], Cancelled)


def test_a_read_that_was_given_up_counts_until_it_has_ended(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr(Queries, "run", held.around(Queries.run))

    async def ask() -> None:
        async with running(graph, reads=1, read_queue=1) as (app, http):
            admission = app.state.server.admission
            late = await http.post("/query", json={"query": READ}, headers={"X-Timeout-Ms": "50"})
            assert late.status_code == 504
            assert admission.running["read"] == 1
            # Whoever waits behind it is given up in time, too, and was never begun.
            waited = await http.post("/query", json={"query": READ}, headers={"X-Timeout-Ms": "50"})
            assert waited.status_code == 504
            assert (admission.running["read"], admission.waiting["read"]) == (1, 0)
            held.may_end.set()
            assert (await http.post("/query", json={"query": READ})).status_code == 200
            assert admission.running["read"] == 0

    asyncio.run(ask())


@pytest.mark.parametrize("path", ["/query", "/mutate"])
def test_whoever_leaves_the_queue_is_never_begun(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    held, begun = Held(), list[str]()
    verb = path.removeprefix("/")
    act = getattr(Graph, verb)

    def noted(self: Graph, text: str, *args: Any, **kwargs: Any) -> Any:
        begun.append(text)
        return held.around(act)(self, text, *args, **kwargs)

    monkeypatch.setattr(Graph, verb, noted)
    params = {"params": {"name": "New", "age": 1}} if path == "/mutate" else {}

    async def ask() -> None:
        async with running(graph, reads=1, graph_writes=1) as (app, http):
            text = INSERT if path == "/mutate" else READ
            first = asyncio.ensure_future(http.post(path, json={"query": text, **params}))
            assert await asyncio.to_thread(held.begun.wait, 60)
            caller = Caller("POST", path, json.dumps({"query": f"{text} ", **params}).encode())
            waiting = asyncio.ensure_future(caller.ask(app))
            kind = "write" if path == "/mutate" else "read"
            while not app.state.server.admission.waiting[kind]:
                await asyncio.sleep(0.01)
            caller.leave()
            await waiting
            assert app.state.server.admission.waiting[kind] == 0
            held.may_end.set()
            assert (await first).status_code == 200

    asyncio.run(ask())
    assert len(begun) == 1


LINES = b"".join(json.dumps(person(f"P{number}")).encode() + b"\n" for number in range(3))


def test_a_load_whose_caller_goes_while_it_is_checked_writes_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr(ChangeWrite, "validate", held.around(ChangeWrite.validate))
    before = graph.store.snapshot().commit_id

    async def ask() -> None:
        async with running(graph) as (app, _):
            caller = Caller("POST", "/load/ndjson", LINES, b"application/x-ndjson")
            asked = asyncio.ensure_future(caller.ask(app))
            assert await asyncio.to_thread(held.begun.wait, 60)
            caller.leave()
            await asked
            assert app.state.server.admission.running["write"] == 1
            held.may_end.set()
            assert await asyncio.to_thread(held.ended.wait, 60)
            while app.state.server.admission.running["write"]:
                await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert graph.store.snapshot().commit_id == before


def test_a_load_that_publishes_outlives_its_caller(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    held, accepted = Held(), Cancellation.go_on

    def gone_on(self: Cancellation) -> None:
        accepted(self)
        held.around(lambda: None)()

    monkeypatch.setattr(Cancellation, "go_on", gone_on)
    before = graph.store.snapshot().commit_id

    async def ask() -> None:
        async with running(graph) as (app, _):
            caller = Caller("POST", "/load/ndjson", LINES, b"application/x-ndjson")
            asked = asyncio.ensure_future(caller.ask(app))
            assert await asyncio.to_thread(held.begun.wait, 60)
            caller.leave()
            await asyncio.sleep(0)
            held.may_end.set()
            await asked

    asyncio.run(ask())
    assert graph.store.snapshot().commit_id != before


@pytest.mark.parametrize("path", ["/diff?from=other", "/commits/{head}/changes", "/changes?start=beginning"])
def test_a_comparison_whose_caller_has_gone_is_stopped(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    graph.branches.create("other")
    graph.load([person("Zoe")], mode="append", branch="other")
    held, rest, head = Held(), list[Any](), graph.store.snapshot().commit_id
    batches = OneSided._batches

    def noted(self: OneSided, columns: Any) -> Any:
        held.around(lambda: None)()
        yield from batches(self, columns)
        if self.rows:
            rest.append(columns)

    monkeypatch.setattr(OneSided, "_batches", noted)

    async def ask() -> None:
        async with running(graph) as (app, _):
            caller = Caller("GET", path.format(head=head))
            asked = asyncio.ensure_future(caller.ask(app))
            assert await asyncio.to_thread(held.begun.wait, 60)
            caller.leave()
            await asked
            held.may_end.set()
            while app.state.server.admission.running["read"]:
                await asyncio.sleep(0.01)

    asyncio.run(ask())
    assert rest == []  # no rows were read to their end


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
            assert await asyncio.to_thread(held.begun.wait, 60)
            assert (await http.get("http://kb/healthz")).status_code == 200
            assert (await http.get("/branches")).status_code == 200
            held.may_end.set()
            assert {(await one).status_code for one in heavy} == {200}

    asyncio.run(ask())


def test_writes_of_several_requests_share_commits(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    lead = GroupCommit._lead
    graph.mutate(INSERT, name="First", age=0)  # it is known from now on that this only inserts

    def late(self: GroupCommit, branch: str, intent: Any, line: Any, mine: Any) -> None:
        while len(line.waiting) < 7:  # the others have lined up behind the first
            time.sleep(0.001)
        lead(self, branch, intent, line, mine)

    monkeypatch.setattr(GroupCommit, "_lead", late)

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
    assert len(commits) == graph.store.snapshot().state.version - before == 1


def test_a_server_that_drains_is_not_ready_and_ends_with_its_writes(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    monkeypatch.setattr(Graph, "mutate", held.around(Graph.mutate))
    asked = {"query": INSERT, "params": {"name": "Last", "age": 1}}

    async def ask() -> None:
        async with running(graph) as (app, http):
            writing = asyncio.create_task(http.post("/mutate", json=asked))
            assert await asyncio.to_thread(held.begun.wait, 60)
            app.state.server.pools.draining.set()
            ready = await http.get("http://kb/readyz")
            assert (ready.status_code, ready.json()["draining"]) == (503, True)
            writing.cancel()  # its caller has gone
            held.may_end.set()
        assert held.ended.is_set()  # the application ended after the write

    asyncio.run(ask())
    assert "Last" in [row["name"] for row in graph.query(READ)]


def test_memory_that_others_have_is_answered_with_when_to_come_again(tmp_path: Path) -> None:
    limit = 64 << 20
    memory = Memory(limit)
    graph = connect(make_graph(tmp_path), durability="os", memory=memory)
    graph.load([person(f"P{number}") for number in range(300)], mode="append")

    async def ask() -> None:
        async with running(ServedGraphs.of({"kb": graph}, memory)) as (_, http):
            with memory.taking(limit, "others"):
                assert (await http.post("/query", json={"query": READ})).status_code == 200  # it is small
                answer = await http.post("/query", json={"query": MANY})
            problem = answer.json()
            assert (answer.status_code, problem["code"]) == (503, "resource_limit")
            assert problem["resource_limit"] == {"resource": "memory", "limit": limit, "actual": ANY}
            assert problem["retryable"] is True
            assert answer.headers["Retry-After"] == "1"
            assert (await http.post("/query", json={"query": MANY})).status_code == 200
            assert memory.taken == 0

    with graph:
        asyncio.run(ask())


def test_what_an_answer_takes_as_json_is_asked_for(graph: Graph) -> None:
    graph.load([person(f"P{number}") for number in range(6_000)], mode="append")

    async def ask() -> None:
        async with running(graph, memory_bytes=2 << 20) as (app, http):
            full = await http.post("/query", json={"query": READ})
            assert (full.status_code, full.json()["code"]) == (503, "resource_limit")
            assert "the JSON of the answer" in full.json()["message"]
            few = await http.post("/query", json={"query": READ.replace("} }", "} limit 99 }")})
            assert few.status_code == 200
            assert app.state.server.memory.taken == 0

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("path", "accept"), [("/query", ARROW), ("/query", JSON), ("/rows/node/Person", ARROW)]
)
def test_a_large_answer_counts_until_it_was_taken(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, path: str, accept: str
) -> None:
    monkeypatch.setattr(memory_module, "SMALL_BYTES", 0)

    async def ask() -> None:
        async with running(graph) as (app, _):
            memory, body = app.state.server.memory, json.dumps({"query": READ}).encode()
            sent = ("POST", body) if path == "/query" else ("GET", b"")
            caller = Caller(sent[0], path, sent[1], accept=accept)
            caller.takes.clear()
            asked = asyncio.ensure_future(caller.ask(app))
            while not caller.sent:
                await asyncio.sleep(0.01)
            assert memory.taken > 0
            caller.takes.set()
            await asked
            while memory.taken:
                await asyncio.sleep(0.01)
            length = dict(caller.sent[0]["headers"]).get(b"content-length")
            assert length in (None, b"%d" % sum(len(part["body"]) for part in caller.sent[1:]))

    asyncio.run(ask())


def test_whoever_takes_nothing_of_an_answer_loses_it_and_his_place(graph: Graph) -> None:
    async def ask() -> None:
        async with running(graph, exports=1, answer_seconds=0.05) as (app, http):
            caller = Caller("POST", "/export", b"{}")
            caller.takes.clear()
            async with asyncio.timeout(30):
                await caller.ask(app)
            assert len(caller.sent) == 1
            while app.state.server.admission.running["export"]:
                await asyncio.sleep(0.01)
            assert (await http.post("/export", json={})).status_code == 200

    asyncio.run(ask())


def test_listeners_are_bounded_and_leave_their_place_when_they_go(graph: Graph) -> None:
    async def ask() -> None:
        async with running(graph, listeners=1) as (app, http):
            admission = app.state.server.admission
            for path, accept in (("/changes?wait=60&start=now", JSON), ("/changes?start=now", EVENTS)):
                caller = Caller("GET", path, accept=accept)
                asked = asyncio.ensure_future(caller.ask(app))
                while not admission.running["listener"]:
                    await asyncio.sleep(0.01)
                refused = await http.get("/changes", params={"start": "now", "wait": 60})
                assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
                assert refused.json()["details"]["scope"] == "listener"
                caller.leave()
                await asked
                while admission.running["listener"]:
                    await asyncio.sleep(0.01)

    asyncio.run(ask())


def test_a_strict_server_refuses_what_is_broad(tmp_path: Path) -> None:
    settings = ServerSettings(graphs=(ServedAddress("kb", str(make_graph(tmp_path))),), strict=True)
    with closing(ServedGraphs.open(settings)) as graphs, inside(create_app(settings, graphs)) as http:
        for answer in (http.post("/query", json={"query": READ}), http.get("/rows/node/Person")):
            assert (answer.status_code, answer.json()["code"]) == (400, "too_broad")
            assert "strict" in answer.json()["remedy"]
        narrow = READ.replace("} }", "} limit 5 }")
        assert http.post("/query", json={"query": narrow}).status_code == 200
