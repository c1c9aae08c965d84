"""Mutations and a load that are killed half way, and the graph they start from.

Room    tests. Spawned children import this module by name; no pytest here.
Base    people enough that their table has a settled fragment, which has key hashes, and a tail.
Key     all are run under an idempotency key, so that whoever comes after the crash can repeat them and find
        out whether they had landed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.write import Receipt
from omnigraph.storage.durability import Step
from tests.support.death import Options, die_at
from tests.support.people import SCHEMA, knows, person, q, thing

SETTLED = 4_200  # rows past the first tier
KEY = "the one write"


def make_base(address: str, options: Options) -> None:
    """Make the graph that all start from."""
    with og.init(address, SCHEMA, storage_options=options, durability="os") as graph:
        graph.load([person(f"p{n}", age=n % 100) for n in range(SETTLED)], mode="append")
        graph.load([person("tail", age=7), knows("p1", "p2", id="e")], mode="append")


def update(graph: Graph) -> Receipt:
    """Update people of the settled fragment and of the tail, and insert into another table."""
    body = 'update Person set { note: "x" } where age = 7 insert Slot { day: 1, row: 2 }'
    return graph.mutate(q(body), idempotency_key=KEY)


def delete(graph: Graph) -> Receipt:
    """Delete people of the settled fragment and of the tail, with an edge."""
    return graph.mutate(q('delete Person where age = 7 delete Person where name = "p1"'), idempotency_key=KEY)


def load(graph: Graph) -> Receipt:
    """Replace some people, add enough for a new settled fragment, and add things and edges."""
    rows = [person(f"p{n}", note="new") for n in range(SETTLED - 50, 2 * SETTLED)]
    rows += [knows("p0", "p5000", id="f"), thing("t", id="t")]
    return graph.load(rows, mode="merge", idempotency_key=KEY)


@dataclass(frozen=True)
class Write:
    """One write, and the durable steps on its way."""

    name: str
    run: Callable[[Graph], Receipt]
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return self.name


STEPS = (
    Step.CLAIM,
    Step.TABLE_DATA,
    Step.TABLE_DELETIONS,
    Step.DERIVED,
    Step.TABLE_COMMIT,
    Step.STAGED_SYNC,
    Step.CHECKSUM,
    Step.PUBLISH,
    Step.HEAD_SYNC,
)
WRITES = (
    Write("update", update, tuple(step for step in STEPS if step is not Step.DERIVED)),
    Write("delete", delete, tuple(step for step in STEPS if step not in (Step.TABLE_DATA, Step.DERIVED))),
    Write("load", load, STEPS),
)
BY_NAME = {write.name: write for write in WRITES}


def perform(name: str, address: str, options: Options, point: str, passage: int) -> None:
    """Run one by its name and die at the n-th passage of a point."""
    die_at(BY_NAME[name].run, address, options, point, passage)
