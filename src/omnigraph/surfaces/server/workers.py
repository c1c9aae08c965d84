"""Workers: several processes that serve the same graphs from one socket.

The parent binds, starts the others and waits; the system hands each connection to one of them. A worker that
dies is replaced. Told to end, or to read things again (SIGHUP), the parent tells its workers; it ends when
they have drained, and without a parent they end, too. Limits and metrics are those of each process.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        if hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload)
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
        settings = self._settings
        kept = self._keeper is not None and self._keeper.is_alive()
        if kept:
            settings = replace(settings, upkeep=None)  # one does it for all
        process = self._context.Process(target=_work, args=(settings, self._socket, told, _logging()))
        with _reload_held_back():
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

    def _reload(self, number: int, frame: FrameType | None) -> None:
        for process in self._running:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)

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


@contextmanager
def _reload_held_back() -> Iterator[None]:
    """Begin a process that a reload does not end before it has said what it does with one."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_ready(ready: Connection) -> bool:
    try:
        return ready.poll(STARTED_WITHIN) and bool(ready.recv())
    except EOFError:
        return False


def _logging() -> tuple[int, logging.Formatter | None]:
    """Return how this process logs: from which level, in which form."""
    logger = logging.getLogger(LOGGER)
    forms = [handler.formatter for handler in logger.handlers if handler.formatter is not None]
    return logger.getEffectiveLevel(), forms[0] if forms else None


def _work(
    settings: ServerSettings,
    sock: socket.socket,
    told: Connection,
    logs: tuple[int, logging.Formatter | None],
) -> None:
    """Be a worker, which logs as its parent does."""
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it serves, it has nothing to read again
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    level, form = logs
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    logging.getLogger(LOGGER).addHandler(handler)
    logging.getLogger(LOGGER).setLevel(level)
    threading.Thread(target=end_with_parent, daemon=True).start()
    raise SystemExit(serve_on(settings, sock, lambda: told.send(True)))
