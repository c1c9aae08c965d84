"""A graph whose changes are read as a stream, and the source that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.pipeline.reading.source import OmnigraphSource

SCHEMA = """
node Person { name: String @key age: I32? born: Date? at: DateTime? n: U64? v: Vector(2)? raw: Blob? }
node Town { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        yield made


def add(graph: Graph, *names: str, age: int | None = None, **options: Any) -> str:
    """Load people, and return the commit."""
    people = [{"type": "Person", "data": {"name": name, "age": age}} for name in names]
    return str(graph.load(people, mode="merge", **options).commit_id)


def source(graph: Graph, **options: str) -> OmnigraphSource:
    """Return the source of the changes."""
    return OmnigraphSource({"uri": graph.uri, "changes": "true", **options})
