"""Merges and a revert that are killed half way, and the graph they start from.

Room    tests. Spawned children import this module by name; no pytest here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.merge.merge import MergeOutcome
from tests.support.death import Options, die_at
from tests.support.people import SCHEMA, knows, person

SETTLED = 4_200  # rows past the first tier
UNDONE = "the commit to undo"


def make_base(address: str, options: Options) -> None:
    """Two branches: `ahead` can be taken over as it is, `apart` and main changed the same types."""
    with og.init(address, SCHEMA, storage_options=options, durability="os") as graph:
        graph.load([person(f"p{n}", age=n % 100) for n in range(SETTLED)], mode="append")
        graph.load([knows("p1", "p2", id="e")], mode="append")
        graph.store.branches.create("apart", "main")
        graph.load([person("p3", age=1), knows("p3", "p4", id="f")], mode="merge", branch="apart")
        graph.load([person("p5", age=1)], mode="merge", message=UNDONE)
        graph.load([person("p6", age=1), knows("p5", "p6", id="g")], mode="merge")
        graph.store.branches.create("ahead", "main")
        graph.load([person("p7", age=1), knows("p7", "p8", id="h")], mode="merge", branch="ahead")


def merge(graph: Graph) -> MergeOutcome:
    """Merge a branch that changed the same types."""
    return graph.merge("apart", message="once")


def take_over(graph: Graph) -> MergeOutcome:
    """Merge a branch that is only ahead."""
    return graph.merge("ahead", message="once")


def revert(graph: Graph) -> MergeOutcome:
    """Undo the commit before the last, unless that was done."""
    state = graph.store.snapshot().state
    if state.commit.message == "once":
        return graph.revert(state.commit.id, preview=True)
    wanted = graph.store.snapshot(at=state.version - 1).state
    assert wanted.commit.message == UNDONE
    return graph.revert(wanted.head, message="once")


@dataclass(frozen=True)
class Merge:
    """One operation."""

    name: str
    run: Callable[[Graph], MergeOutcome]

    def __str__(self) -> str:
        return self.name


MERGES = (Merge("merge", merge), Merge("take-over", take_over), Merge("revert", revert))
BY_NAME = {one.name: one for one in MERGES}


def perform(name: str, address: str, options: Options, point: str, passage: int) -> None:
    """Run one by its name and die at the n-th passage of a point."""
    die_at(BY_NAME[name].run, address, options, point, passage)
