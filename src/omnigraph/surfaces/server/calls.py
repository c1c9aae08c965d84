"""Calls: what a route is given for one request: the graph it may use, its caller, its headers, its deadline.

request -> **who, which graph, may he, until when** -> engine call in a thread
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends
from starlette.requests import Request

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NoRoomNow, PermissionDenied
from omnigraph.engine.access import Action, Guard
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.engine.query import NamedQuery
from omnigraph.execution.memory import Memory, counted_bytes
from omnigraph.execution.result import Result
from omnigraph.language.diagnostics import did_you_mean
from omnigraph.storage.cost import Cost
from omnigraph.storage.manifest.records import MAIN, CommitRecord
from omnigraph.storage.transaction import PinnedSnapshot
from omnigraph.surfaces.server.access import AccessRules
from omnigraph.surfaces.server.admission import Admission, Place
from omnigraph.surfaces.server.graphs import ServedGraph, ServedGraphs, opened, unknown
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.models import Problem
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.work import Pools
from omnigraph.surfaces.wire import ARROW, NDJSON

T = TypeVar("T")
REPEATED = frozenset({"kind", "type", "op", "columns", "replace_types"})
IF_COMMIT = ("if-commit", "omnigraph-if-graph-commit")
COMMIT_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")
KEY = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,126}[\x21-\x7e])?")


@dataclass(eq=False)
class Server:
    """What all requests of a process share."""

    settings: ServerSettings
    graphs: ServedGraphs
    pools: Pools
    access: AccessRules
    admission: Admission
    metrics: Metrics

    @property
    def memory(self) -> Memory:
        """What queries of all graphs, and their answers, take memory from."""
        return self.graphs.memory


class Committed(Protocol):
    """What every receipt says: of a mutation, a load, a merge, a schema change."""

    @property
    def commit(self) -> CommitRecord | None:
        """The commit, if one was made."""
        ...

    @property
    def replayed(self) -> bool:
        """Whether an earlier call made it."""
        ...

    @property
    def cost(self) -> Cost:
        """What that asked of storage."""
        ...


@dataclass(eq=False)
class Measured:
    """What a request did, for the metrics."""

    result: Result | None = None
    receipt: Committed | None = None
    op: str = "mutate"
    query: str | None = None  # the name of a stored query


@dataclass(frozen=True, eq=False)
class GraphCall:
    """One request on one graph."""

    server: Server
    request: Request
    served: ServedGraph
    graph: Graph
    actor: str | None
    guard: Guard | None = None

    @property
    def seconds(self) -> float:
        """How long the caller waits at most."""
        return self._within(self.server.settings.limits.deadline_seconds)

    @property
    def long_seconds(self) -> float:
        """How long he waits for work that grows with what he sent."""
        return self._within(self.server.settings.limits.long_seconds)

    def _within(self, most: float) -> float:
        given = self.request.headers.get("x-timeout-ms")
        if given is None:
            return most
        if not given.isdecimal() or len(given) > 9 or int(given) < 1:
            raise InvalidRequest("X-Timeout-Ms is a number of milliseconds", remedy="Give 1 or more")
        return min(most, int(given) / 1000)

    async def read(self, act: Callable[[], T], text: str = "") -> T:
        """Run a read; `text` is that of a query."""
        server, seconds = self.server, self.seconds
        kind = hash((self.served.graph_id, self.request.scope["route"].path, text))
        try:
            placed = server.admission.read(self.actor, kind)
            return await server.pools.read(self.request, seconds, placed, act)
        except NoRoomNow as error:
            raise server.admission.later(error) from error

    @contextmanager
    def keeping(self, size: int) -> Iterator[Place]:
        """Have memory for an answer, while a block and the stream that it begins last."""
        memory, size = self.server.memory, counted_bytes(size)
        try:
            memory.take(size, "the answer")
        except NoRoomNow as error:
            raise self.server.admission.later(error) from error
        place = Place(lambda: memory.take(-size, "the answer"))
        try:
            yield place
        finally:
            place.leave()

    async def write(self, act: Callable[[], T], *, long: bool = False) -> T:
        """Run a write."""
        self.check_writable()
        seconds = self.long_seconds if long else self.seconds
        with self.upload(self.server.settings.limits.max_json_bytes) as upload:
            return await self.server.pools.write(self.request, seconds, self._placed(upload), act)

    def upload(self, most: int) -> AbstractContextManager[Place]:
        """Count a write for its actor: by the length of its body, or by the most that it may be."""
        length = self.request.headers.get("content-length", "")
        size = int(length) if length.isdecimal() and len(length) < 20 else most
        return self.server.admission.upload(self.actor, self.served.graph_id, size)

    async def load(self, upload: Place, act: Callable[[], T]) -> T:
        """Run a load whose body is here; it is given up with its caller until it publishes."""
        seconds, placed = self.long_seconds, self._placed(upload)
        return await self.server.pools.write(self.request, seconds, placed, act, stoppable=True)

    def _placed(self, upload: Place) -> AbstractAsyncContextManager[Place]:
        return self.server.admission.write(self.actor, self.served.graph_id, upload)

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[Measured]:
        """Count what a block does, once it is told what that was."""
        loop = asyncio.get_running_loop()
        done, began = Measured(), loop.time()
        yield done
        seconds, graph_id, metrics = loop.time() - began, self.served.graph_id, self.server.metrics
        if done.result is not None:
            metrics.queried(graph_id, done.query, seconds, len(done.result), done.result.cost)
        commit = None if done.receipt is None else done.receipt.commit
        if done.receipt is not None and commit is not None and not done.receipt.replayed:
            metrics.committed(graph_id, commit.branch, seconds, op=done.op, cost=done.receipt.cost)

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Ask whether the actor may, before anything costly is begun."""
        if self.guard is not None:
            self.guard.check(action, branch=branch, target=target)

    def check_load(self, branch: str | None, from_branch: str | None) -> None:
        """Ask whether the actor may load, before the data is received."""
        self.check(Action.CHANGE, branch=branch or MAIN)

    def check_writable(self) -> None:
        """Refuse to write on a server that only reads."""
        if self.server.settings.read_only:
            raise PermissionDenied(
                "this server only reads",
                remedy="Ask a server without --read-only",
                action="change",
                resource="",
            )

    @property
    def if_commit(self) -> str | None:
        """The head that the caller expects."""
        given = [value for name in IF_COMMIT for value in self.request.headers.getlist(name)]
        if not given:
            return None
        if len(given) > 1 or not COMMIT_ID.fullmatch(given[0]):
            raise InvalidRequest(
                "If-Commit is one commit id, as it is", remedy="Leave out quotes, lists, * and W/"
            )
        return given[0]

    @property
    def idempotency_key(self) -> str | None:
        """Under which key the caller would ask again."""
        given = self.request.headers.getlist("idempotency-key")
        if not given:
            return None
        if len(given) > 1 or not KEY.fullmatch(given[0]):
            raise InvalidRequest("Idempotency-Key is given once, and has 1 to 128 visible characters")
        return given[0]

    @property
    def form(self) -> str:
        """How the caller wants rows: as JSON, JSON lines or Arrow."""
        accepted = self.request.headers.get("accept", "")
        for part in accepted.split(","):
            kind = part.partition(";")[0].strip().lower()
            if kind in (ARROW, NDJSON):
                return kind
            if kind in ("application/json", "*/*", "application/*"):
                return "application/json"
        return "application/json"


def server_of(request: Request) -> Server:
    """Return what the requests of this application share."""
    server: Server = request.app.state.server
    return server


def authorised(request: Request) -> GraphCall:
    """Return the call of a request: the graph that it names, bound to its actor and what he may do."""
    server = server_of(request)
    actor: str | None = request.scope["state"]["actor"]
    graph_id = request.path_params.get("graph_id")
    served = server.graphs.get(graph_id)
    if not server.access.knows(actor, served.graph_id):
        raise unknown(graph_id)
    request.scope["state"]["graph_id"] = served.graph_id
    request.scope["omnigraph.route"] = template(request.scope["route"].path)
    guard = server.access.guard(actor, served.graph_id, request.scope["state"]["request_id"])
    return GraphCall(server, request, served, opened(served).acting(actor, guard), actor, guard)


def template(path: str) -> str:
    """Return the template of a route, the same with and without the prefix of a graph.

    >>> template("/graphs/{graph_id}/query"), template("/graphs/{graph_id}")
    ('/query', '/graphs/{graph_id}')
    """
    return path.removeprefix("/graphs/{graph_id}") or path


async def _call(request: Request) -> GraphCall:
    call = authorised(request)
    _check_query(request)
    return call


def _check_query(request: Request) -> None:
    """Refuse parameters of the address that the route does not know, or takes once."""
    taken = {field.alias: field for field in request.scope["route"].dependant.query_params}
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if name not in taken:
            hint = did_you_mean(name, list(taken)) or f"There is {', '.join(taken) or 'none'}"
            raise InvalidRequest(
                f"there is no parameter {name!r} here", remedy=hint, places=[f"query.{name}"]
            )
        if times > 1 and name not in REPEATED:
            raise InvalidRequest(f"parameter {name!r} is given {times} times", places=[f"query.{name}"])


CallOf = Annotated[GraphCall, Depends(_call)]


def text_of(query: str) -> str:
    """Return query text that is never taken for the path of a file."""
    return query if "{" in query else NamedQuery(query, "query.gq")


def pinned(graph: Graph, branch: str | None, at: Any, action: Action = Action.READ) -> PinnedSnapshot:
    """Return the state that a call of several steps means, if it may: all of its steps mean the same one."""
    return resolve(graph.store, *graph.view.read(branch, at, action))


def bad_request(faults: Sequence[Any]) -> InvalidRequest:
    """Return what a model said as one of our errors, with the places."""
    places = [(".".join(str(part) for part in fault["loc"]), str(fault["msg"])) for fault in faults]
    lines = [f"{place}: {said}" for place, said in places]
    return InvalidRequest(
        lines[0] if lines else "the request is not understood",
        remedy="/openapi.json describes what is taken",
        problems=lines,
        places=[place for place, _ in places],
    )


def streamed(media_type: str) -> dict[int | str, dict[str, Any]]:
    """Return what the document says of a route that streams."""
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    return documented() | {200: {"description": "A stream.", "content": content}}


def documented(*models: Any) -> dict[int | str, dict[str, Any]]:
    """Return what the OpenAPI document says of the answer of a route."""
    shown: dict[int | str, dict[str, Any]] = (
        {200: {"model": models[0], "description": "Done."}} if models else {}
    )
    return shown | {"default": {"model": Problem, "description": "A failure."}}
