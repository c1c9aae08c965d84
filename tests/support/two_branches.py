"""World: a small graph that two branches change, and what is in it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32?  note: String? }
"""
PEOPLE = ("Alice", "Bob", "Carol", "Dan")
Image = dict[str, list[dict[str, Any]]]


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(edge: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": edge, **data}}


@contextmanager
def world(place: Path, schema: str = SCHEMA) -> Iterator[Graph]:
    """Alice, Bob, Carol and Dan; Bob knows Carol."""
    with og.init(place / "graph.og", schema, durability="os") as graph:
        graph.load([*(person(name, age=30) for name in PEOPLE), knows("bc", "Bob", "Carol")], mode="append")
        yield graph


def fork(graph: Graph, name: str = "side", source: str = "main") -> None:
    graph.store.branches.create(name, source)


def put(graph: Graph, branch: str, *records: dict[str, Any]) -> None:
    graph.load(list(records), mode="merge", branch=branch)


def change(graph: Graph, branch: str, statement: str) -> None:
    graph.mutate(f"query q() {{ {statement} }}", branch=branch)


def image(graph: Graph, branch: str = "main") -> Image:
    """Everything in a branch, by id."""
    nodes = graph.nodes("Person", branch=branch).to_arrow().to_pylist()
    edges = graph.edges("Knows", branch=branch).to_arrow().to_pylist()
    return {"nodes": nodes, "edges": edges}
