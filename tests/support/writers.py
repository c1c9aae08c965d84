"""What the processes of the write tests do: each function here is the whole life of one process.

Room    tests. Spawned children import this module by name: no pytest, no fixtures.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, GraphError
from omnigraph.engine.write import Receipt
from tests.support.people import person

Options = Mapping[str, str]


def once_under_a_key(address: str, options: Options, key: str, text: str) -> tuple[str | None, bool]:
    """Run a mutation under an idempotency key; return its commit and whether it was a repetition."""
    with og.connect(address, storage_options=options) as graph:
        receipt = graph.mutate(text, idempotency_key=key)
    return receipt.commit_id, receipt.replayed


def append_person(address: str, options: Options, name: str, age: int) -> str:
    """Load one new person; return what came of it."""
    with og.connect(address, storage_options=options) as graph:
        return outcome(graph, lambda g: g.load([person(name, age=age)], mode="append"))


def take_and_upsert(
    address: str, options: Options, me: str, wanted: str, count: int
) -> tuple[str, list[str | None]]:
    """Try to get an e-mail address that others want too, then upsert people of one's own, each twice.

    Return what came of the first, and the commits of the others.
    """
    with og.connect(address, storage_options=options) as graph:
        said = outcome(graph, lambda g: g.mutate(_TAKE, name=me, email=wanted))
        done: list[str | None] = []
        for number in range(count):
            name = f"{me}-{number}"
            done.append(graph.mutate(_TAKE, name=name, email=f"old {name}").commit_id)
            done.append(graph.load([person(name, email=name)], mode="merge").commit_id)
    return said, done


_TAKE = "query take($name: String, $email: String) { insert Person { name: $name, email: $email } }"


def outcome(graph: Graph, act: Any) -> str:
    """Run a write; return "ok" or the code of what stopped it."""
    try:
        receipt: Receipt = act(graph)
    except ConstraintViolation as error:
        return str(error.fields["violations"][0]["code"])
    except GraphError as error:
        return error.code
    return "ok" if receipt.commit is not None else "nothing"
