"""Death: be killed at a durable step of whatever runs, or note the steps that it passes.

Room    test support. Spawned children import this module by name; no pytest here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.durability import armed, names
from tests.support.places import Place
from tests.support.processes import run_processes

KILLED = -signal.SIGKILL
Options = Mapping[str, str]


def dying_at(point: str, passage: int) -> AbstractContextManager[None]:
    """Let this process be killed at the n-th passage of a point: one may be passed more than once."""
    passed = 0

    def count() -> None:
        nonlocal passed
        passed += 1
        if passed == passage:
            os.kill(os.getpid(), signal.SIGKILL)

    return armed({point: count})


@contextmanager
def noting_points() -> Iterator[list[str]]:
    """Yield the points that are passed inside, in order."""
    passed: list[str] = []
    with armed({point: partial(passed.append, point) for point in names()}):
        yield passed


def die_at(run: Callable[[Graph], object], address: str, options: Options, point: str, passage: int) -> None:
    """Run something on a graph and die at the n-th passage of a point."""
    with og.connect(address, storage_options=options) as graph, dying_at(point, passage):
        run(graph)


def points_of(run: Callable[[Graph], object], address: str, options: Options) -> list[str]:
    """Run something on a graph in this process and return the points it passed, in order."""
    with og.connect(address, storage_options=options) as graph, noting_points() as passed:
        run(graph)
    return passed


def die_on_copies(
    target: Callable[..., None],
    fresh: Callable[[], Place],
    passages: Iterable[int],
    arguments: Callable[[Place, int], tuple[Any, ...]],
) -> list[tuple[Place, int]]:
    """Let processes be killed, one for each passage of a point on a place of its own; return where."""
    deaths = [(fresh(), passage) for passage in passages]
    outcomes = run_processes(target, [arguments(place, passage) for place, passage in deaths])
    assert [outcome.exit_code for outcome in outcomes] == [KILLED] * len(deaths)
    return deaths


def position(trace: list[str], point: str, passage: int) -> int:
    """Return where the n-th passage of a point is among all that were passed."""
    return [at for at, name in enumerate(trace) if name == point][passage - 1]
