"""Writers that wait for one another, in an order that the test decides; and what comes between.

Room    tests of group commit. Also imported by spawned processes: no pytest here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.write import Receipt
from omnigraph.storage.durability import armed
from tests.support.people import NOTE

PATIENCE_S = 30.0
KEYS = ("k0", "k1", "k2")
Act = Callable[[], Receipt]


def waiting(graph: Graph) -> int:
    """Return how many writers stand in line."""
    return sum(len(line.waiting) for line in graph._mutate._group._lines.values())


class Held:
    """The first writer at its publish, until it is let go."""

    def __init__(self, point: str) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        self._first = True
        self.armed = armed({point: self.hold})

    def hold(self) -> None:
        """Wait, if it is the first."""
        if self._first:
            self._first = False
            self._reached.set()
            assert self._go.wait(PATIENCE_S), "never let go"

    def reached(self) -> None:
        """Wait until the first writer is held."""
        assert self._reached.wait(PATIENCE_S), "nobody came to the point"

    @property
    def is_reached(self) -> bool:
        """Whether it is held."""
        return self._reached.is_set()

    def let_go(self) -> None:
        """Let it go on."""
        self._go.set()


@contextmanager
def behind(
    graph: Graph, acts: Sequence[Act], leader: Act
) -> Iterator[tuple[Future[Receipt], list[Future[Receipt]]]]:
    """Hold a leader, line the others up in order, let all go; yield their futures."""
    held = Held("publish.before")
    with held.armed, ThreadPoolExecutor(len(acts) + 1) as pool:
        try:
            first = pool.submit(leader)
            held.reached()
            futures = [line_up(graph, pool, act) for act in acts]
        finally:
            held.let_go()
        yield first, futures


def line_up(graph: Graph, pool: ThreadPoolExecutor, act: Act) -> Future[Receipt]:
    """Start a write, and wait until it stands in line."""
    before = waiting(graph)
    future = pool.submit(act)
    wait_until(lambda: waiting(graph) > before or future.done())
    return future


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.002)


def error_of(future: Future[Receipt]) -> BaseException:
    """Return what a write was stopped by."""
    error = future.exception(PATIENCE_S)
    assert error is not None
    return error


# -- a group under keys ------------------------------------------------------------------------------


def note(graph: Graph, key: str, value: str | None = None) -> Receipt:
    """Insert one thing under a key."""
    return graph.mutate(NOTE, value=value or key, idempotency_key=key)


@contextmanager
def group_at(
    graph: Graph, point: str, happens: Callable[[], object], acts: Sequence[Act] | None = None
) -> Iterator[list[Future[Receipt]]]:
    """Let writes under keys go out together; something happens the first time that they come to a point."""
    lock, seen = threading.Lock(), {"claims": False, "happened": False}

    def passing(name: str) -> None:
        with lock:
            seen["claims"] |= name == "claim.before"  # the one whom they wait for has no key
            now = name == point and seen["claims"] and not seen["happened"]
            seen["happened"] |= now
        if now:
            happens()
        elif name == "publish.before":
            hold()

    held = Held("publish.before")
    hold = held.hold
    names = {point, "claim.before", "publish.before"}
    with armed({name: partial(passing, name) for name in names}), ThreadPoolExecutor(8) as pool:
        try:
            pool.submit(lambda: graph.mutate(NOTE, value="leader"))
            held.reached()
            writes = acts or [partial(note, graph, key) for key in KEYS]
            futures = [line_up(graph, pool, act) for act in writes]
        finally:
            held.let_go()
        yield futures
        assert seen["happened"], f"nobody came to {point}"


def die_together(address: str, point: str) -> None:
    """Be killed when a group comes to a point."""
    with og.connect(address) as graph:
        graph.mutate(NOTE, value="first")  # from now on it is known that the text only inserts
        with group_at(graph, point, lambda: os.kill(os.getpid(), signal.SIGKILL)) as futures:
            for future in futures:
                future.result(PATIENCE_S)
