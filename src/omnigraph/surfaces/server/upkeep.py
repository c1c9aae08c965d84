"""Upkeep: graphs of a server are optimized where it is due, beside the requests and never in their way.

One graph after the other is looked at, which reads no rows. One that is due is optimized by a process of its
own, at the lowest priority: it takes the cores that requests leave, and none of the memory, threads and locks
that they need. It can be stopped at any moment, since nothing that it does is visible before it is done.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from omnigraph.base.errors import GraphError
from omnigraph.engine.graph import Graph
from omnigraph.engine.open import connect
from omnigraph.storage.tables.compaction import OptimizePolicy
from omnigraph.surfaces.server.graphs import ServedGraph
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.settings import UpkeepPolicy

log = logging.getLogger(__name__)
LOWEST = 19  # what `nice` calls it
STOPPED_WITHIN = 5.0  # seconds
Outcome = tuple[str | None, str | None]  # the commit that was made, and why it failed


class Upkeep:
    """Looks after the graphs of one server process, one at a time."""

    def __init__(self, policy: UpkeepPolicy, graphs: Sequence[ServedGraph], metrics: Metrics) -> None:
        self._policy = policy
        self._graphs = graphs
        self._metrics = metrics
        self._in_vain: dict[str, str] = {}  # the commit of a graph at which nothing came of it

    async def run(self) -> None:
        """Go on until cancelled; whoever is at work then is stopped."""
        while True:
            await asyncio.sleep(self._policy.every_seconds)
            for served in self._graphs:
                if served.graph is not None:
                    await self._look_after(served.graph_id, served.graph)

    async def _look_after(self, graph_id: str, graph: Graph) -> None:
        try:
            head = await asyncio.to_thread(lambda: graph.store.snapshot().commit_id)
            if head == self._in_vain.get(graph_id):
                return
            if not self._policy.due.is_due(await asyncio.to_thread(graph.fragmentation)):
                return
            commit_id, failure = await self._optimize(graph_id, graph.uri)
        except (GraphError, OSError) as error:  # the second: the system has no room for one more process
            commit_id, failure = None, str(error)
        if failure is not None:
            log.warning("graph %s could not be optimized: %s", graph_id, failure)
            self._metrics.optimized(graph_id, "failed")
            return
        if commit_id is None:
            self._in_vain[graph_id] = head
        self._metrics.optimized(graph_id, "nothing" if commit_id is None else "committed")
        log.info("graph %s was optimized: %s", graph_id, commit_id or "nothing came of it")

    async def _optimize(self, graph_id: str, address: str) -> Outcome:
        """Let a process optimize a graph; return the commit that it made, or why it failed."""
        context = multiprocessing.get_context("spawn")  # Lance does not survive a fork
        told, tells = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(address, tells), daemon=True)
        process.start()
        tells.close()  # so that the end of the process is the end of the pipe
        log.info("graph %s is optimized by process %s", graph_id, process.pid)
        try:
            return await asyncio.to_thread(_outcome, told)
        finally:
            await asyncio.to_thread(_stop, process)  # at its priority a process may take long to end


def _stop(process: BaseProcess) -> None:
    process.terminate()
    process.join(STOPPED_WITHIN)
    if process.is_alive():
        process.kill()
        process.join()


def _outcome(told: Connection) -> Outcome:
    try:
        outcome: Outcome = told.recv()
    except EOFError:
        return None, "the process ended before it was done"
    return outcome


def end_with_parent() -> None:
    """Wait for the end of the process that started this one, and end it, too."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _work(address: str, tells: Connection) -> None:
    """Optimize one graph, and tell which commit came of it."""
    os.nice(LOWEST)
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        with connect(address) as graph:
            report = graph.optimize(policy=OptimizePolicy(concurrency=1))
        failed = [f"{row.type}: {row.error}" for row in report.types if row.error]
        tells.send((report.commit_id, "; ".join(failed) or None))
    except GraphError as error:
        tells.send((None, str(error)))
