"""Loads at a desk: small inputs, and the state that they lead to."""

from __future__ import annotations

from typing import Any

import omnigraph as og
from omnigraph import Graph
from tests.support.desk import Desk, Ran

TWO = '{"type":"Person","data":{"slug":"b","age":2}}\n{"type":"Person","data":{"slug":"c","age":3}}\n'
EDGE = '{"edge":"Knows","from":"a","to":"b"}\n'
STALE = "01" + "0" * 24
STRICT = """
node Person { slug: String @key  age: I32?  mail: String? @unique  @range(age, 0..120) }
node City { slug: String @key }
edge Knows: Person -> Person @card(0..1)
edge LivesIn: Person -> City
"""


def load(desk: Desk, text: str, *more: str, mode: str = "merge", name: str = "data.jsonl") -> Ran:
    """Load a text as a file into the graph of the desk."""
    return desk.run("load", desk.graph, "--data", desk.file(name, text), "--mode", mode, *more)


def people(graph: str | Graph, branch: str = "main") -> dict[str, int | None]:
    """Return the ages of all people."""
    if isinstance(graph, str):
        with og.connect(graph) as opened:
            return people(opened, branch)
    rows = graph.nodes("Person", branch=branch).to_arrow().to_pylist()
    return {row["slug"]: row["age"] for row in rows}


def head(desk: Desk, branch: str = "main") -> Any:
    """Return the newest commit of a branch."""
    with og.connect(desk.graph) as graph:
        return graph.store.snapshot(branch).state.commit
