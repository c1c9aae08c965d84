"""Work: how the engine, which waits, is called by a server that must not.

Pools of threads, so that a heavy query holds up neither a health check nor a write. A read ends when
its deadline passes or its caller goes away: it is told to stop (base/cancellation.py), and its answer is
dropped. A write that began goes on to its end, whoever waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from omnigraph.base.cancellation import Cancellation, cancelled_by
from omnigraph.base.errors import DeadlineExceeded
from omnigraph.surfaces.server.settings import Limits

T = TypeVar("T")
# As many as admission lets in, and some for what was given up and has not ended.
READ_THREADS, WRITE_THREADS, STREAM_THREADS = 80, 64, 32
CONTROL_THREADS = 8  # for what never waits long


class Pools:
    """The threads of one server process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reads = ThreadPoolExecutor(READ_THREADS, "og-read")
        self.writes = ThreadPoolExecutor(WRITE_THREADS, "og-write")
        self.streams = ThreadPoolExecutor(STREAM_THREADS, "og-stream")
        self.control = ThreadPoolExecutor(CONTROL_THREADS, "og-control")
        self.draining = threading.Event()
        self.under_way: set[asyncio.Future[Any]] = set()  # writes

    async def read(self, request: Request, seconds: float, call: Callable[[], T]) -> T:
        """Run a read; stop it when its time is over or its caller has gone."""
        cancellation = Cancellation()
        future = self._start(self.reads, partial(_cancellable, cancellation, call))
        gone = asyncio.ensure_future(_gone(request))
        waited: set[asyncio.Future[Any]] = {future, gone}
        try:
            done, _ = await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if future in done:
            return future.result()
        reason = "its caller went away" if done else f"it took longer than {seconds:g} s"
        cancellation.cancel(reason)
        future.add_done_callback(_forget)
        if done:
            raise ClientDisconnect
        raise DeadlineExceeded(
            f"the request was given up: {reason}",
            remedy="Ask for less, or allow more time where the server lets you (X-Timeout-Ms)",
            stage="reading",
        )

    async def write(self, seconds: float, call: Callable[[], T]) -> T:
        """Run a write to its end. After a deadline its caller is told to ask for the receipt."""
        future = self._start(self.writes, call)
        self.under_way.add(future)
        future.add_done_callback(self.under_way.discard)
        done, _ = await asyncio.wait({future}, timeout=seconds)
        if done:
            return future.result()
        future.add_done_callback(_forget)
        raise DeadlineExceeded(
            f"the write took longer than {seconds:g} s, and goes on",
            remedy="Ask for its receipt by its Idempotency-Key, or repeat it under the same key",
            stage="writing",
        )

    async def small(self, call: Callable[[], T]) -> T:
        """Run something short."""
        return await self._start(self.control, call)

    def _start(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)

    async def finish_writes(self) -> None:
        """Wait for the writes that are under way."""
        if self.under_way:
            await asyncio.wait(set(self.under_way), timeout=self.limits.drain_seconds)

    def close(self) -> None:
        """Let the threads end; nothing new is begun."""
        for pool in (self.reads, self.writes, self.streams, self.control):
            pool.shutdown(wait=False, cancel_futures=True)


def _cancellable(cancellation: Cancellation, call: Callable[[], T]) -> T:
    with cancelled_by(cancellation):
        cancellation.check()  # it may have waited for a thread longer than it had
        return call()


async def _gone(request: Request) -> None:
    """Return when the caller has closed the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _forget(future: asyncio.Future[T]) -> None:
    """Take notice of a result that nobody waits for, so that asyncio does not complain of it."""
    if not future.cancelled():
        future.exception()
