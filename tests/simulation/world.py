"""The ground of a simulation: a small graph to copy, simulated time, and work that stays in its thread.

Room    tests.simulation. Everything an actor does happens in its own thread: pools run what they are given at
        once. So whoever is to run next can be chosen at every durable step and at every look at the store.
Why     Time is simulated and near that of the machine, since the age of a file is what the disk says. A
        simulation has one of two clocks: a day ahead, where everything is old enough for a cleanup and every
        commit is read back before it is believed; or a minute ahead, where files of tables are old enough,
        but versions of branches are not, and commits are believed as they are usually.
"""

from __future__ import annotations

import random
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

import omnigraph as og
from omnigraph.base.ids import drawing_from
from omnigraph.engine.graph import Graph
from omnigraph.storage import store as store_module
from omnigraph.storage.durability import armed, names
from omnigraph.storage.location import LocalObjects
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain, MetadataDataset
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.opener import Opener
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore

SCHEMA = """
node Person { name: String @key
  age: I64? }
node Company { name: String @key }
edge Knows: Person -> Person { tag: String }
"""
MINUTE_US, DAY_US = 60_000_000, 86_400_000_000


# -- who is running ----------------------------------------------------------------------------------


class Pausing(Protocol):
    """Whoever gives the turn away at points."""

    def pause(self, point: str) -> None:
        """Let the others run, and wait to be chosen again."""
        ...

    def captured(self, branch: str, incarnation: str) -> None:
        """Note which lifetime of a branch is about to be written."""
        ...


_here = threading.local()


@contextmanager
def acting(actor: Pausing, bits: random.Random, clock: SimulatedClock) -> Iterator[None]:
    """Let this thread be an actor: points pause it, and what it draws can be repeated."""
    _here.actor = actor
    try:
        with drawing_from(SeededSource(bits, clock)):
            yield
    finally:
        _here.actor = None


def pause_here(point: str) -> None:
    """Pause, if this thread is an actor."""
    actor: Pausing | None = getattr(_here, "actor", None)
    if actor is not None:
        actor.pause(point)


# -- what the package takes from the machine ---------------------------------------------------------


class SimulatedClock:
    """Time that passes when somebody looks at it or sleeps."""

    def __init__(self, start_us: int) -> None:
        self._start_us = self._us = start_us

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        self._us += 1
        return self._us

    def monotonic(self) -> float:
        """Seconds since the simulation began."""
        return (self.now_us() - self._start_us) / 1e6

    def sleep(self, seconds: float) -> None:
        """Let time pass, and others run."""
        self._us += round(seconds * 1e6)
        pause_here("sleep")


class SeededSource:
    """Random numbers of one actor."""

    def __init__(self, bits: random.Random, clock: SimulatedClock) -> None:
        self._random = bits
        self._clock = clock

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._clock.now_us() // 1000

    def bits(self, count: int) -> int:
        """Draw a number of this many bits."""
        return self._random.getrandbits(count)


class AtOnce(Executor):
    """A pool that runs work where it is handed in. Whoever is killed there does nothing any more."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (told by the future)
            future.set_exception(error)
        return future


@contextmanager
def simulated() -> Iterator[None]:
    """Put points and pools of the simulation in place for the length of a block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_Threads", AtOnce)
        for name, module in list(sys.modules.items()):
            # What operators do to arrays has no points, and keeps its pool for the life of the process.
            if not name.startswith("omnigraph.") or name == "omnigraph.execution.arrays":
                continue
            if getattr(module, "ThreadPoolExecutor", None) is ThreadPoolExecutor:
                patch.setattr(module, "ThreadPoolExecutor", AtOnce)
        for owner, method, point in (
            (MetadataDataset, "latest", "probe"),
            (Opener, "_open_table", "open table"),
            (LocalObjects, "entries", "list"),
        ):
            patch.setattr(owner, method, _pausing(getattr(owner, method), point))
        patch.setattr(Branches, "writable", _noting(Branches.writable))
        with armed({name: partial(pause_here, name) for name in names()}):
            yield


def _pausing(method: Callable[..., Any], point: str) -> Callable[..., Any]:
    def paused(*args: Any, **kwargs: Any) -> Any:
        pause_here(point)
        return method(*args, **kwargs)

    return paused


def _noting(method: Callable[..., tuple[Chain, ManifestState]]) -> Callable[..., tuple[Chain, ManifestState]]:
    def noted(self: Branches, name: str, *rest: Any) -> tuple[Chain, ManifestState]:
        chain, state = method(self, name, *rest)
        actor: Pausing | None = getattr(_here, "actor", None)
        if actor is not None:
            actor.captured(name, chain.incarnation)
        return chain, state

    return noted


# -- the graph -----------------------------------------------------------------------------------------


class World:
    """One copy of the graph that every simulation starts from."""

    def __init__(self, template: Path, folder: Path, *, patient: bool) -> None:
        self.folder = folder
        shutil.copytree(template, folder, copy_function=shutil.copyfile)  # with the time of now
        ahead = MINUTE_US if patient else DAY_US
        self.clock = SimulatedClock(time.time_ns() // 1000 + ahead)  # noqa: TID251 (files have its time)
        self._retry = RetryPolicy() if patient else RetryPolicy(confirm_after_s=0)

    def open(self) -> Graph:
        """Open the graph as another process does."""
        store = GraphStore.open(self.folder, durability="os", clock=self.clock, retry=self._retry)
        return Graph(store)

    def remove(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def make_template(folder: Path) -> Path:
    """Make the graph to copy: people, an edge, rows that were changed and deleted, branches, a tag."""
    address = folder / "template"
    with og.init(address, SCHEMA, durability="os") as graph:
        for number in range(5):
            graph.mutate(f'query q() {{ insert Person {{ name: "p{number}", age: {number} }} }}')
        graph.mutate(
            'query q() { insert Company { name: "c" } insert Knows { from: "p0", to: "p1", tag: "t" } }'
        )
        graph.branches.create("a")
        graph.mutate('query q() { update Person set { age: 7 } where name = "p2" }', branch="a")
        graph.mutate('query q() { delete Person where name = "p4" }')
        graph.branches.create("b")
        graph.tags.create("t0", at="main~3")
    return address
