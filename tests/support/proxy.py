"""A proxy in front of an S3 store that counts, delays, limits, breaks and holds requests.

Room    test support. Any S3 client of any process may use its endpoint; nothing above HTTP is known here.
Given   the address of a store.
Gives   an endpoint with the same content, a record of every request, and switches for what goes wrong.
Touch   framing is in `wire.py`, naming and classes in `recording.py`, the ways to fail in `faults.py`.

A request is held by `pause`, gets its fault from `fail`, takes one of `max_in_flight` places, waits
`latency_ms`, and only then meets the store. It is recorded before its answer is sent: whoever has the answer
finds the record.
"""

from __future__ import annotations

import asyncio
import math
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.faults import REFUSALS, Fault, FaultPlan, Gate, Match, Slots
from tests.support.recording import Recorder, Request, classify, identify
from tests.support.wire import CONTINUE, READ_LIMIT, Body, Head, Reply, read_reply, read_request_body, refusal

__all__ = ["Fault", "Request", "S3Proxy", "serial_hops"]

BACKLOG = 1024
STOP_TIMEOUT_S = 10.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class S3Proxy:
    """A counting proxy, open for as long as the `with` block lasts.

    `latency_ms` delays every request before it is forwarded; delays of concurrent requests overlap.
    `hang_s` bounds `Fault.HANG`. Both may be set at any time, also while requests are on their way.
    """

    def __init__(self, upstream: str) -> None:
        self.endpoint = ""
        self.latency_ms = 0.0
        self.hang_s = 10.0
        self._recorder = Recorder()
        self._faults = FaultPlan()
        self._gate = Gate()
        self._slots = Slots()
        self._store = _Store(upstream)
        self._clients: set[asyncio.Task[None]] = set()
        self._bug: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop = asyncio.Event()

    # -- life

    def __enter__(self) -> Self:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self.endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._run(listener),), name="s3-proxy", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()
        self._loop = None
        if self._bug is not None and error is None:
            raise self._bug  # say, from a test's own `match`; the client only saw a closed connection

    async def _run(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listener, limit=READ_LIMIT, backlog=BACKLOG)
        await self._stop.wait()
        server.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        await self._store.close()

    # -- what happened

    @property
    def requests(self) -> list[Request]:
        """The finished requests since the last reset, in the order in which they finished."""
        return self._recorder.snapshot()

    def count(self) -> int:
        return len(self.requests)

    def by_class(self) -> dict[str, int]:
        return dict(Counter(request.klass for request in self.requests))

    def by_method(self) -> dict[str, int]:
        return dict(Counter(request.method for request in self.requests))

    @property
    def peak_in_flight(self) -> int:
        """The most requests that were in flight at once since the last reset."""
        return self._slots.peak

    def reset(self) -> None:
        """Forget what happened; latency, limit, faults and pause stay as they are."""
        self._recorder.reset()
        self._in_loop(self._forget_peak)

    def _forget_peak(self) -> None:
        self._slots.peak = self._slots.taken

    # -- what goes wrong

    @property
    def max_in_flight(self) -> int | None:
        """How many requests may be in flight at once, injected latency included; None for any number."""
        return self._slots.limit

    @max_in_flight.setter
    def max_in_flight(self, limit: int | None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"max_in_flight must be at least 1 or None, not {limit}")
        self._slots.limit = limit
        self._in_loop(self._slots.admit)

    def fail(self, match: Match, action: Fault, times: int = 1) -> None:
        """Let the next `times` requests for which `match(method, key)` holds fail."""
        self._faults.add(match, action, times)

    @property
    def pending_faults(self) -> int:
        """Failures that were ordered and have not happened yet."""
        return self._faults.pending

    def clear_faults(self) -> None:
        self._faults.clear()

    def pause(self, match: Match) -> None:
        """Hold every request for which `match(method, key)` holds until `resume`."""
        self._gate.match = match

    @property
    def parked(self) -> int:
        """How many requests are being held now."""
        return self._gate.parked

    def wait_parked(self, number: int = 1, timeout_s: float = 30.0) -> None:
        """Return once at least `number` requests are held."""
        with self._gate.changed:
            if not self._gate.changed.wait_for(lambda: self._gate.parked >= number, timeout_s):
                raise TimeoutError(f"{self._gate.parked} of {number} requests parked after {timeout_s} s")

    def resume(self, *, deliver: bool = True) -> None:
        """Stop holding requests.

        Those held go on to the store, even if their client has died in the meantime, as bytes already sent
        would. With `deliver=False` they are lost instead, and their connections closed.
        """
        self._gate.match = None
        self._in_loop(lambda: self._gate.release(deliver))

    def _in_loop(self, action: Callable[[], None]) -> None:
        """Run a short action in the proxy's thread and wait for it; before the start nobody else is there."""
        if self._loop is None:
            action()
            return
        done = threading.Event()
        self._loop.call_soon_threadsafe(action)
        self._loop.call_soon_threadsafe(done.set)
        if not done.wait(STOP_TIMEOUT_S):
            raise TimeoutError("the proxy's thread does not answer")

    # -- one client, one request

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await Head.read(reader)) is not None:
                if not await self._exchange(head, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away, which is its right
        except Exception as error:  # noqa: BLE001 - raised again in the test's thread, by __exit__
            self._bug = self._bug or error
        finally:
            writer.close()

    async def _exchange(self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Deal with one request; return whether the connection can carry another."""
        started, in_round = time.perf_counter(), self._recorder.round
        if "100-continue" in head.header("expect"):
            writer.write(CONTINUE)
        body = await read_request_body(reader, head)
        verb, target, *_ = head.start_line
        method, key = identify(verb, target, body.raw)
        reply = await self._answer(method, key, head, body, reader)
        self._recorder.add(_request(method, key, body, reply, started), in_round)
        if reply is None:
            writer.transport.abort()
            return False
        writer.write(reply.raw)
        await writer.drain()
        return head.keeps_connection

    async def _answer(
        self, method: str, key: str, head: Head, body: Body, reader: asyncio.StreamReader
    ) -> Reply | None:
        """Return what the client will be told, or None to close the connection in silence."""
        if not await self._gate.pass_through(method, key):
            return None
        fault = self._faults.take(method, key)
        async with self._slots:
            if self.latency_ms > 0:
                await asyncio.sleep(self.latency_ms / 1000)
            if fault in (None, Fault.CUT_AFTER, Fault.TWICE):
                reply = await self._store.ask(head, body)
                if fault is Fault.TWICE:
                    reply = await self._store.ask(head, body)
                return None if fault is Fault.CUT_AFTER else reply
            if fault is Fault.HANG:
                await _until_gone(reader, self.hang_s)
            if fault in REFUSALS:
                return refusal(method, *REFUSALS[fault])
            return None


class _Store:
    """The store behind the proxy, reached over connections that are kept when it allows."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._idle: list[Connection] = []

    async def ask(self, head: Head, body: Body) -> Reply:
        """Forward a request as it came; a store that cannot be reached answers 502."""
        method = head.start_line[0]
        try:
            reader, writer = await self._connect()
        except OSError:
            return refusal(method, 502, "BadGateway")
        reusable = False
        try:
            writer.write(head.raw + body.raw)
            await writer.drain()
            reply = await read_reply(reader, method)
            reusable = reply.reusable
        except (OSError, asyncio.IncompleteReadError):
            reply = refusal(method, 502, "BadGateway")
        finally:
            if reusable:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return reply

    async def _connect(self) -> Connection:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(self._host, self._port, limit=READ_LIMIT)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        for _, writer in self._idle:
            with suppress(OSError):
                await writer.wait_closed()


def _request(method: str, key: str, body: Body, reply: Reply | None, started: float) -> Request:
    return Request(
        method=method,
        key=key,
        klass=classify(key),
        status=reply.status if reply else 0,
        bytes_up=body.size,
        bytes_down=reply.size if reply else 0,
        started=started,
        ended=time.perf_counter(),
    )


async def _until_gone(reader: asyncio.StreamReader, limit_s: float) -> None:
    """Wait until the client closes its side, or the limit passes. The connection is of no use afterwards."""
    with suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(limit_s):
            await reader.read(1)


def serial_hops(
    run: Callable[[], object],
    proxy: S3Proxy,
    latencies_ms: Sequence[float] = (0.0, 30.0, 60.0),
    repeats: int = 3,
) -> float:
    """Return how many requests of `run` wait for one another: the slope of its wall time over the latency.

    The fastest of the repeats counts: whatever else the machine does can only slow a run down. Latencies
    take turns, so that a busy moment does not fall on one of them alone. Wider latencies cost time and make
    the answer steadier: on a crowded machine the default spread may be off by several hops.
    """
    before = proxy.latency_ms
    fastest_ms = dict.fromkeys(latencies_ms, math.inf)
    try:
        for _ in range(repeats):
            for latency_ms in latencies_ms:
                proxy.latency_ms = latency_ms
                fastest_ms[latency_ms] = min(fastest_ms[latency_ms], _wall_ms(run))
    finally:
        proxy.latency_ms = before
    return statistics.linear_regression(list(fastest_ms), list(fastest_ms.values())).slope


def _wall_ms(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1000
