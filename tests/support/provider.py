"""A provider of vectors on the loopback interface: it speaks both protocols and misbehaves when told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from omnigraph.execution.search.embedding import MockEmbedder

KEY = "sk-very-secret-0123456789"


@dataclass(frozen=True)
class Reply:
    """What the provider does instead of answering well."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    vectors: Callable[[list[list[float]]], list[Any]] | None = None  # spoils good ones
    before: Callable[[], object] = lambda: None  # what happens before it answers
    pieces: int = 1  # in how many pieces the body comes


@dataclass(frozen=True)
class Request:
    """What it was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The texts in the request, whichever protocol it is of."""
        if "input" in self.body:
            return list(self.body["input"])
        return [part["content"]["parts"][0]["text"] for part in self.body.get("requests", [self.body])]

    @property
    def size(self) -> int:
        """The length that vectors shall have."""
        first = self.body.get("requests", [self.body])[0]
        return int(first.get("dimensions") or first["outputDimensionality"])


class Provider:
    """Answers with the vectors of the mock, and remembers what it was asked."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/v1"
        self.requests: list[Request] = []
        self.replies: dict[int, Reply] = {}  # by the number of the request, from 0
        self.always: Reply | None = None
        self.lock = threading.Lock()
        self.under_way = self.most_at_once = 0

    @property
    def texts(self) -> list[str]:
        """All texts that it was asked for, in order."""
        return [text for request in self.requests for text in request.texts]

    def fail(self, *replies: Reply) -> None:
        """Answer the next requests like this."""
        for at, reply in enumerate(replies, len(self.requests)):
            self.replies[at] = reply

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what a graph is opened with to ask this provider."""
        return {
            "kind": "openai-compatible",
            "model": "m1",
            "base_url": self.base,
            "api_key": KEY,
            **more,
        }

    def answer(self, request: Request) -> tuple[Reply, bytes]:
        """Return what to say to a request."""
        with self.lock:
            number = len(self.requests)
            self.requests.append(request)
        reply = self.replies.get(number) or self.always or Reply()
        reply.before()
        if reply.body is not None or reply.status != 200:
            return reply, reply.body or b'{"error": {"message": "no, said with ' + KEY.encode() + b'"}}'
        vectors: list[Any] = [list(vector) for vector in MockEmbedder()(request.texts, request.size)]
        if reply.vectors is not None:
            vectors = reply.vectors(vectors)
        if "input" in request.body:
            rows = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
            document: Any = {"data": rows[::-1]}  # the order says nothing, the index does
        elif request.path.endswith(":embedContent"):
            document = {"embedding": {"values": vectors[0]}}
        else:
            document = {"embeddings": [{"values": vector} for vector in vectors]}
        return reply, json.dumps(document).encode()


@contextmanager
def provider_here() -> Iterator[Provider]:
    """Run a provider for the length of a block."""
    provider: Provider

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            with provider.lock:
                provider.under_way += 1
                provider.most_at_once = max(provider.most_at_once, provider.under_way)
            reply, content = provider.answer(Request(self.path, headers, body))
            with provider.lock:
                provider.under_way -= 1
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                step = -(-len(content) // reply.pieces)
                for start in range(0, len(content), step):
                    self.wfile.write(content[start : start + step])
                    self.wfile.flush()
            except OSError:  # whoever asked has gone
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provider = Provider(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class StillClock:
    """A clock that moves when somebody sleeps, and notes how long."""

    def __init__(self, tick: float = 0.0) -> None:
        self.slept: list[float] = []
        self._now = 1_000_000.0
        self._tick = tick  # how far each look at it moves it

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return int(self._now * 1e6)

    def monotonic(self) -> float:
        """Seconds."""
        self._now += self._tick
        return self._now

    def sleep(self, seconds: float) -> None:
        """Go on in time."""
        self.slept.append(round(seconds, 6))
        self._now += seconds
