"""One server for all tests of parity, and a graph to copy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from tests.parity.ground import RECORDS, SCHEMA, STORED
from tests.support.doors import Doors, doors


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Copies of one graph: for this process, and behind a server."""
    template = tmp_path_factory.mktemp("parity") / "template"
    with og.init(template, SCHEMA, durability="os", actor="maker", embedding="mock") as graph:
        graph.load(RECORDS, mode="append", message="everybody")
        graph.embed()
        graph.mutate('query up() { update Person set { age: 37 } where name = "Ada" }', actor="ada")
        graph.tags.create("v1", message="the first")
    queries = tmp_path_factory.mktemp("queries")
    for name, text in STORED.items():
        (queries / name).parent.mkdir(exist_ok=True)
        (queries / name).write_text(text)
    with doors(tmp_path_factory.mktemp("served"), template, queries) as running:
        yield running
