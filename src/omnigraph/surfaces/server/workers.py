"""Workers: several processes that serve the same graphs from one socket.

The parent binds, starts the others and waits; the system hands each connection to one of them. A worker that
dies is replaced. Told to end, the parent tells its workers, and ends when they have drained; without a parent
they end, too. Limits and metrics are those of each process.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType

from omnigraph.surfaces.server.process import NoGraph, serve_on
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.upkeep import end_with_parent

log = logging.getLogger(__name__)
LOGGER = "omnigraph"
STARTED_WITHIN = 120.0  # seconds
LOOKED_EVERY = 1.0
PATIENCE = 15.0  # seconds beyond the drain


class Workers:
    """The processes of one server."""

    def __init__(self, settings: ServerSettings, sock: socket.socket) -> None:
        self._settings = replace(settings, environment=dict(settings.environment))
        self._socket = sock
        self._context = multiprocessing.get_context("spawn")  # Lance does not survive a fork
        self._running: dict[BaseProcess, Connection] = {}  # kept open: who tells that it is ready needs it
        self._keeper: BaseProcess | None = None  # who looks after the graphs
        self._ending = threading.Event()

    def run(self, announce: Callable[[], None]) -> int:
        """Serve until a signal says to stop; return the exit code."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            waiting = [self._start() for _ in range(self._settings.workers)]
            if not all(_is_ready(ready) for ready in waiting):
                raise NoGraph("a worker did not start", remedy="Its reason is on stderr")
            announce()
            while not self._ending.wait(LOOKED_EVERY):
                self._replace_dead()
        finally:
            codes = self._end()
            for number, handler in before.items():
                signal.signal(number, handler)
        told = (0, -signal.SIGTERM)  # the second if it had not begun to listen
        return max((abs(code) for code in codes if code not in told), default=0)

    def _start(self) -> Connection:
        ready, told = self._context.Pipe(duplex=False)
        level = logging.getLogger(LOGGER).getEffectiveLevel()
        settings = self._settings
        kept = self._keeper is not None and self._keeper.is_alive()
        if kept:
            settings = replace(settings, upkeep=None)  # one does it for all
        process = self._context.Process(target=_work, args=(settings, self._socket, told, level))
        process.start()
        self._keeper = self._keeper if kept else process
        told.close()  # so that the end of the worker is the end of the pipe
        self._running[process] = ready
        return ready

    def _replace_dead(self) -> None:
        for process in [process for process in self._running if not process.is_alive()]:
            log.error("worker %s ended with %s; another one starts", process.pid, process.exitcode)
            del self._running[process]
            self._start()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._ending.set()

    def _end(self) -> list[int]:
        """Tell the workers to drain, and wait for them."""
        for process in self._running:
            if process.is_alive():
                process.terminate()
        codes = []
        for process in self._running:
            process.join(self._settings.limits.drain_seconds + PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
            codes.append(process.exitcode or 0)
        return codes


def _is_ready(ready: Connection) -> bool:
    try:
        return ready.poll(STARTED_WITHIN) and bool(ready.recv())
    except EOFError:
        return False


def _work(settings: ServerSettings, sock: socket.socket, told: Connection, level: int) -> None:
    """Be a worker."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger(LOGGER).setLevel(level)
    threading.Thread(target=end_with_parent, daemon=True).start()
    raise SystemExit(serve_on(settings, sock, lambda: told.send(True)))
