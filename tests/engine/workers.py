"""What the processes of the schema tests do: each function here is the whole life of one process.

Room    tests. Spawned children import this module by name: no pytest, no fixtures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import GraphError
from omnigraph.storage.durability import armed
from tests.support.contents import insert
from tests.support.death import dying_at, noting_points
from tests.support.workers import meet, once

Options = Mapping[str, str]
Answer = tuple[str, str]  # what happened, and to what


def apply_together(address: str, options: Options, directory: str, me: str, schema: str) -> Answer:
    """Prepare an apply on the same base as the other process, then publish together with it."""
    with og.connect(address, storage_options=options) as graph, _meeting(directory, me):
        return _answer(lambda: _applied(graph, schema))


def fork_together(address: str, options: Options, directory: str, me: str, name: str) -> Answer:
    """Create a branch while the other process publishes an apply."""
    with og.connect(address, storage_options=options) as graph:
        meet(directory, me, 2)
        return _answer(lambda: ("ok", graph.store.branches.create(name, "main").name))


def insert_together(address: str, options: Options, directory: str, me: str, slug: str) -> Answer:
    """Insert a person on the same base as the other process's apply, and publish together with it."""
    with og.connect(address, storage_options=options) as graph, _meeting(directory, me):
        return _answer(lambda: ("ok", str(insert(graph, {"Person": [{"slug": slug, "p": 1}]}).attempts)))


def race(role: str, address: str, options: Options, directory: str, me: str, what: str) -> Answer:
    """Play one part of a race."""
    parts = {"apply": apply_together, "fork": fork_together, "insert": insert_together}
    return parts[role](address, options, directory, me, what)


def apply_and_die(
    address: str, options: Options, schema: str, point: str, passage: int, allow_data_loss: bool = False
) -> None:
    """Apply a schema, and die at the n-th passage of a point."""
    with og.connect(address, storage_options=options) as graph, dying_at(point, passage):
        graph.schema.apply(schema, allow_data_loss=allow_data_loss)


def trace_apply(address: str, options: Options, schema: str, *, allow_data_loss: bool = False) -> list[str]:
    """Apply a schema and return the points it passed, in order."""
    with og.connect(address, storage_options=options) as graph, noting_points() as passed:
        graph.schema.apply(schema, allow_data_loss=allow_data_loss)
    return passed


def _meeting(directory: str, me: str) -> AbstractContextManager[None]:
    return armed({"publish.before": once(lambda: meet(directory, me, 2))})


def _applied(graph: Graph, schema: str) -> Answer:
    receipt = graph.schema.apply(schema)
    return (
        "applied" if receipt.applied else "nothing to do",
        "" if receipt.commit is None else receipt.commit.id,
    )


def _answer(act: Callable[[], Answer]) -> Answer:
    try:
        return act()
    except GraphError as error:
        return error.code, str(error.fields.get("member", ""))
