"""Work: how the engine, which waits, is called by a server that must not.

Pools of threads, so that a heavy query holds up neither a health check nor a write. A read ends when its
deadline passes or its caller goes away, also while it waits for its place: it is told to stop
(base/cancellation.py), and its answer is dropped. So does a load that has not begun to publish. Any other
write that began goes on to its end, whoever waits for it. A place (admission.py) is kept until the thread has
ended, whatever the caller was told.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from omnigraph.base.cancellation import Cancellation, cancelled_by
from omnigraph.base.errors import DeadlineExceeded
from omnigraph.surfaces.server.admission import Place
from omnigraph.surfaces.server.limits import Limits

T = TypeVar("T")
Placed = AbstractAsyncContextManager[Place]
WRITE_THREADS, STREAM_THREADS = 64, 32
LOOK_THREADS = 8  # for those who wait for changes
CONTROL_THREADS = 8  # for what never waits long
GONE = "its caller went away"


class Pools:
    """The threads of one server process."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.reads = ThreadPoolExecutor(limits.reads, "og-read")  # as many as are admitted
        self.writes = ThreadPoolExecutor(max(WRITE_THREADS, limits.graph_writes), "og-write")
        self.streams = ThreadPoolExecutor(STREAM_THREADS, "og-stream")
        self.looks = ThreadPoolExecutor(LOOK_THREADS, "og-look")
        self.control = ThreadPoolExecutor(CONTROL_THREADS, "og-control")
        self.draining = threading.Event()
        self.under_way: set[asyncio.Future[Any]] = set()  # writes
        self._ends_at: float | None = None
        self.running: set[asyncio.Future[Any]] = set()  # in threads, whoever waits for it

    async def read(self, request: Request, seconds: float, placed: Placed, call: Callable[[], T]) -> T:
        """Run a read; stop it when its time is over or its caller has gone."""
        stop = Cancellation()

        async def run() -> T:
            async with placed as place:
                return await self._run(self.reads, place, partial(_stoppable, stop, call))

        return await self.listen(request, seconds, run(), stop)

    async def listen(
        self, request: Request, seconds: float, work: Coroutine[Any, Any, T], stop: Cancellation | None = None
    ) -> T:
        """Wait for work as long as its caller does."""
        task, reason = await _attended(request, seconds, work, stop or Cancellation())
        if reason is None:
            return task.result()
        raise DeadlineExceeded(
            f"the request was given up: {reason}",
            remedy="Ask for less, or allow more time where the server lets you (X-Timeout-Ms)",
            stage="reading",
        )

    async def write(
        self,
        request: Request,
        seconds: float,
        placed: Placed,
        call: Callable[[], T],
        *,
        stoppable: bool = False,
    ) -> T:
        """Run a write to its end. After a deadline its caller is told to ask for the receipt.

        A write that waits for its place is given up like a read; so is one that is `stoppable`, until it asks
        to go on (`Cancellation.go_on`).
        """
        stop = Cancellation()

        async def run() -> T:
            async with placed as place:
                if not stoppable:
                    stop.go_on()
                return await self._run(self.writes, place, partial(_stoppable, stop, call), self.under_way)

        task, reason = await _attended(request, seconds, run(), stop)
        if reason is None:
            return task.result()
        if stop.cancel(reason):
            raise DeadlineExceeded(
                f"the write was given up: {reason}; nothing was written",
                remedy="Try again, with less at once or when the server has less to do",
                stage="writing",
            )
        raise DeadlineExceeded(
            f"the write took longer than {seconds:g} s, and goes on",
            remedy="Ask for its receipt by its Idempotency-Key, or repeat it under the same key",
            stage="writing",
        )

    async def look(self, place: Place, call: Callable[[], T]) -> T:
        """Look for changes, for somebody who waits for them; stop when he does not any more."""
        stop = Cancellation()
        try:
            return await self._run(self.looks, place, partial(_stoppable, stop, call))
        except asyncio.CancelledError:
            stop.cancel(GONE)
            raise

    async def small(self, call: Callable[[], T]) -> T:
        """Run something short."""
        return await self._start(self.control, call)

    async def _run(
        self, pool: ThreadPoolExecutor, place: Place, call: Callable[[], T], noted: set[Any] | None = None
    ) -> T:
        """Run something in a thread; the place is kept until it has ended, whoever waits for it."""
        future = self._start(pool, call)
        place.lasts(future)
        future.add_done_callback(_forget)
        self.running.add(future)
        future.add_done_callback(self.running.discard)
        if noted is not None:
            noted.add(future)
            future.add_done_callback(noted.discard)
        return await asyncio.shield(future)

    def _start(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)

    def drain(self) -> None:
        """Begin to end: from now on writes have so many seconds."""
        self.draining.set()
        self._ends_at = asyncio.get_running_loop().time() + self.limits.drain_seconds

    async def finish_writes(self) -> None:
        """Wait for the writes that are under way, as long as they have."""
        left = self.limits.drain_seconds
        if self._ends_at is not None:
            left = max(self._ends_at - asyncio.get_running_loop().time(), 0)
        if self.under_way:
            await asyncio.wait(set(self.under_way), timeout=left)

    def close(self) -> None:
        """Let the threads end; nothing new is begun."""
        for pool in (self.reads, self.writes, self.streams, self.looks, self.control):
            pool.shutdown(wait=False, cancel_futures=True)


async def _attended(
    request: Request, seconds: float, work: Coroutine[Any, Any, T], stop: Cancellation
) -> tuple[asyncio.Task[T], str | None]:
    """Wait for work while its caller does; return it, and why it was given up if it was.

    Work that has gone on is waited for when its caller has gone, too: it is counted when it ends.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    loop = asyncio.get_running_loop()
    until, reason = loop.time() + seconds, "its request was given up"
    try:
        await asyncio.wait({task, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not task.done():
            if stop.cancel(GONE):
                raise ClientDisconnect
            await asyncio.wait({task}, timeout=until - loop.time())
        if task.done():
            return task, None
        reason = f"it took longer than {seconds:g} s"
        return task, reason
    finally:
        gone.cancel()
        if not task.done():
            stop.cancel(reason)
            task.cancel()
            task.add_done_callback(_forget)
            await asyncio.wait({task})  # it waits for no thread: its turn and its place are settled now


def _stoppable(stop: Cancellation, call: Callable[[], T]) -> T:
    with cancelled_by(stop):
        stop.check()  # it may have waited for a thread longer than it had
        return call()


async def _gone(request: Request) -> None:
    """Return when the caller has closed the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _forget(work: asyncio.Future[T]) -> None:
    """Take notice of a failure that nobody waits for, so that asyncio does not complain of it."""
    if not work.cancelled():
        work.exception()
