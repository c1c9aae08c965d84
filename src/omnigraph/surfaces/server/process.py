"""Process: a server from its settings to its end: bind, open, say where it listens, serve, drain."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from types import FrameType
from typing import NoReturn

import uvicorn

from omnigraph.base.errors import GraphError, InvalidRequest, Kind
from omnigraph.surfaces.server.access import read_access
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.calls import Server
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.request_heads import bounded_heads
from omnigraph.surfaces.server.settings import ServerSettings, split_bind

log = logging.getLogger(__name__)
BACKLOG = 2048


class NoGraph(GraphError):
    """A server could open none of its graphs, or not all of those that it needs."""

    code = "no_graph_to_serve"
    kind = Kind.UNAVAILABLE


def serve(settings: ServerSettings) -> int:
    """Serve until a signal says to stop; return the exit code."""
    _leave_no_core()
    for warning in read_access(settings).state.warnings:
        log.warning("%s", warning)
    with closing(_bound(settings.bind)) as sock:
        announce = partial(_announce, sock)
        if settings.workers == 1:
            return serve_on(settings, sock, announce)
        from omnigraph.surfaces.server.workers import Workers

        return Workers(settings, sock).run(announce)


def serve_on(settings: ServerSettings, sock: socket.socket, announce: Callable[[], None]) -> int:
    """Serve from a socket that is bound, in this process; `announce` is called when it listens."""
    access = read_access(settings)
    with closing(ServedGraphs.open(settings)) as graphs:
        _check_graphs(settings, graphs)
        app = create_app(settings, graphs, access)
        server: Server = app.state.server
        config = uvicorn.Config(
            app,
            http=bounded_heads(settings.limits),
            ws="none",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(settings.limits.drain_seconds),
        )
        asyncio.run(_Serving(config, server, announce).serve(sockets=[sock]))
        if server.pools.running:
            _leave()
        return 0


class _Serving(uvicorn.Server):
    """Says where it listens, and drains when it is told to end."""

    def __init__(self, config: uvicorn.Config, server: Server, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._state = server
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, then say so."""
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain: writes have as long as requests have, from now on."""
        self._state.pools.drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain on SIGTERM and SIGINT, and end with 0, not by the signal; on SIGHUP read things again."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        if hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _reload(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(
            target=read_again, args=(self._state,), daemon=True
        ).start()  # it may wait for a command

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._state.pools.draining.set()
        self.handle_exit(number, frame)


def _leave_no_core() -> None:
    """Keep what is in memory, tokens among it, out of core files."""
    try:
        import resource
    except ImportError:  # not on Windows, which writes none
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def read_again(server: Server) -> None:
    """Read tokens, policies and stored queries again, and try again to open what could not be opened.

    What is broken stays as it was, and is logged.
    """
    server.access.reload()
    for mended in server.graphs.reopen(server.settings):
        log.info("graph %s is served again", mended.graph_id)
        server.metrics.ready(mended.graph_id, served=True)
    for served in server.graphs.ready:
        if served.stored is not None:
            served.stored.reload()


def _leave() -> NoReturn:
    """End although threads are at work, for which the interpreter would wait.

    Nothing is lost but their work: what a write has not published is not there.
    """
    log.warning("what did not end in time is given up")
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


def _announce(sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sys.stdout.write(f"OMNIGRAPH_LISTEN_ADDR={place}\nOG_LISTEN_ADDR={place}\n")
    sys.stdout.flush()


def _check_graphs(settings: ServerSettings, graphs: ServedGraphs) -> None:
    failed = graphs.quarantined
    if not graphs.ready or (failed and settings.require_all_graphs):
        raise NoGraph(
            "; ".join(f"graph {one.graph_id!r}: {one.reason}" for one in failed)
            or "there is no graph to serve",
            remedy="Check the addresses, and that the graphs can be read",
        )


def _bound(bind: str) -> socket.socket:
    host, port = split_bind(bind)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so that asyncio sets TCP_NODELAY
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise InvalidRequest(
            f"cannot listen on {bind}: {error.strerror}", remedy="Choose another port"
        ) from error
    sock.listen(BACKLOG)
    sock.set_inheritable(True)
    return sock
