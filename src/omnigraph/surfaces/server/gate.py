"""Gate: what every request passes before a route sees it, and every answer on its way out.

    connection -> **request id, limits of the head, who is it, bounds of the body** -> route

Plain ASGI: a route that streams is not held up. Paths are matched as they were sent, so that a branch name is
one segment whatever it is made of; `Segment` of models.py decodes it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omnigraph.base.errors import (
    AuthenticationError,
    DeadlineExceeded,
    GraphError,
    InvalidRequest,
    LimitExceeded,
    UnsupportedMedia,
)
from omnigraph.surfaces.server.answers import problem
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.logs import request_id_of
from omnigraph.surfaces.server.observing import route_of
from omnigraph.surfaces.server.tracing import Tracing
from omnigraph.surfaces.wire import public

log = logging.getLogger(__name__)
LONGEST_PATH = 8_192
SLOWEST_BYTES = 1_024  # a second, of a body
OPEN_PATHS = frozenset({b"/healthz", b"/readyz", b"/openapi.json", b"/docs"})
METRICS_PATH = b"/metrics"
LOADS = (b"/load", b"/load/ndjson", b"/ingest")
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


class Identifies(Protocol):
    """Whoever knows actors by what they send."""

    @property
    def may_wait(self) -> bool:
        """Whether that may wait for the network."""
        ...

    def identify(self, header: str | None) -> str:
        """Return the actor, or raise AuthenticationError."""
        ...


class Observes(Protocol):
    """Whoever counts and logs requests."""

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Take note of a request that was answered."""
        ...


class Gate:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        version: str,
        identity: Identifies | None = None,
        observer: Observes | None = None,
        open_metrics: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        self._app = app
        self._limits = limits
        self._version = version
        self._identity = identity
        self._observer = observer
        self._tracing = tracing or Tracing()
        self._open = OPEN_PATHS | {METRICS_PATH} if open_metrics else OPEN_PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = asyncio.get_running_loop().time()
        passage = _Passage(scope, send, self._version, self._limits.answer_seconds)
        try:
            try:
                await self._admit(scope, passage)
                await self._serve(scope, _Body(scope, receive, self._limits).receive, passage.send)
            except ClientDisconnect:
                log.debug("request %s: its caller went away", passage.request_id)
            except Exception as error:  # noqa: BLE001 - the last resort: a stranger gets a document
                await passage.fail(error)
        finally:
            if self._observer is not None:
                seconds = asyncio.get_running_loop().time() - started
                self._observer.answered(scope, passage.status or 499, seconds)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer, within a span where spans go anywhere."""
        if not self._tracing.active:
            await self._app(scope, receive, send)
            return
        parent = Headers(scope=scope).get("traceparent")
        method = str(scope["method"])
        with self._tracing.span(f"HTTP {method}", traceparent=parent, http_request_method=method) as note:
            try:
                await self._app(scope, receive, send)
            finally:
                note("http_route", route_of(scope))
                note("omnigraph_request_id", scope["state"]["request_id"])

    async def _admit(self, scope: Scope, passage: _Passage) -> None:
        """Look at the head of a request; refuse what cannot be right whatever it asks for."""
        headers = Headers(scope=scope)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"], state["actor"] = passage.request_id, None
        raw = scope["raw_path"]
        if len(raw) > LONGEST_PATH:
            raise InvalidRequest(f"the path has more than {LONGEST_PATH} bytes")
        scope["path"] = raw.decode("latin-1")
        if self._identity is not None and raw not in self._open:
            state["actor"] = await self._identified(headers.getlist("authorization"))
        elif self._identity is not None and headers.get("authorization") is not None:
            with suppress(AuthenticationError):  # more is told to whoever is known
                state["actor"] = await self._identified(headers.getlist("authorization"))
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMedia(
                "a compressed body is not taken", remedy="Send it as it is, without Content-Encoding"
            )
        if scope["method"] in WITH_BODY and not _is_load(scope):
            _check_json(headers)

    async def _identified(self, given: list[str]) -> str:
        assert self._identity is not None
        header = given[0] if len(given) == 1 else None
        if not self._identity.may_wait:
            return self._identity.identify(header)
        return await asyncio.to_thread(self._identity.identify, header)


class _Passage:
    """The answer to one request, as it goes out."""

    def __init__(self, scope: Scope, send: Send, version: str, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self._version = version
        given = Headers(scope=scope).getlist("x-request-id")
        self.request_id = request_id_of(given[0] if len(given) == 1 else None)
        self.status: int | None = None
        self._scope = scope

    async def send(self, message: Message) -> None:
        """Send a part of the answer; the first has the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.request_id
            headers["Og-Version"] = self._version
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise ClientDisconnect from None  # he takes nothing of the answer

    async def fail(self, error: Exception) -> None:
        """Answer with a problem; an answer that has begun is broken off instead."""
        if self.status is not None:
            if not isinstance(error, GraphError):
                log.error("request %s broke off", self.request_id, exc_info=error)
            raise error
        if not isinstance(error, GraphError) or public(error) is not error:
            log.error("request %s failed", self.request_id, exc_info=error)
        shown = error if isinstance(error, GraphError) else public(error)
        self._scope["state"]["code"] = shown.code
        await problem(shown, self.request_id)(self._scope, _nothing, self.send)


class _Body:
    """The body of one request, bounded in size and time."""

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        self._receive = receive
        self._limit = limits.max_load_bytes if _is_load(scope) else limits.max_json_bytes
        self._seconds = limits.body_seconds
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()
        self._bytes = 0
        self._ended = False
        length = Headers(scope=scope).get("content-length", "0")
        self._declared = int(length) if length.isdecimal() and len(length) < 20 else 0

    async def receive(self) -> Message:
        """Return the next part."""
        if self._ended:
            return await self._receive()
        if self._declared > self._limit:
            raise self._too_large(self._declared)
        # An honest caller on a slow line sends a kilobyte a second; others may not hold a connection forever.
        left = self._started + self._seconds + self._bytes / SLOWEST_BYTES - self._loop.time()
        try:
            message = await asyncio.wait_for(self._receive(), min(self._seconds, max(left, 0.001)))
        except TimeoutError:
            raise DeadlineExceeded(
                "the body did not arrive in time", remedy="Send it without pauses", stage="receiving"
            ) from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
            if self._bytes > self._limit:
                raise self._too_large(self._bytes)
        return message

    def _too_large(self, size: int) -> LimitExceeded:
        return LimitExceeded(
            f"the body has more than {self._limit} bytes",
            remedy="Send less at once: several loads, or a file loaded where the graph is",
            resource="request_body",
            limit=self._limit,
            actual=size,
        )


def _is_load(scope: Scope) -> bool:
    return scope["method"] == "POST" and bool(scope["raw_path"].endswith(LOADS))


def _check_json(headers: Headers) -> None:
    """Refuse a body that is no JSON; a request without one needs no type."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    empty = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    if kind != "application/json" and (kind or not empty) and not (empty and not kind):
        raise UnsupportedMedia(
            f"a body of type {kind or 'unknown'!r} is not taken here",
            remedy="Send JSON with Content-Type: application/json",
            content_type=kind,
        )


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
