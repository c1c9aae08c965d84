"""Death: run something on a graph and die at a step of it, or note the steps that it passes.

Room    tests. Spawned children import this module by name; no pytest here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.failpoints import armed, names

Options = Mapping[str, str]


def die_at(run: Callable[[Graph], object], address: str, options: Options, point: str, passage: int) -> None:
    """Run it and die at the n-th passage of a point."""
    passed = 0

    def count() -> None:
        nonlocal passed
        passed += 1
        if passed == passage:
            os.kill(os.getpid(), signal.SIGKILL)

    with og.connect(address, storage_options=options) as graph, armed({point: count}):
        run(graph)


def points_of(run: Callable[[Graph], object], address: str, options: Options) -> list[str]:
    """Run it in this process and return the points it passed, in order."""
    passed: list[str] = []
    points: dict[str, Any] = {point: partial(passed.append, point) for point in names()}
    with og.connect(address, storage_options=options) as graph, armed(points):
        run(graph)
    return passed
