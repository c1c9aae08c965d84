"""A schema change under an idempotency key is made once, and every call gets its receipt."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import SchemaUnsupported
from omnigraph.storage.claims import KeyReused

SCHEMA = "node Person { name: String @key  age: I32? }\n"
MORE = SCHEMA + "node Company { name: String @key }\n"
IMPOSSIBLE = SCHEMA.replace("age: I32?", "age: String?")


@pytest.fixture
def graph() -> Iterator[Graph]:
    with og.init(None, SCHEMA) as graph:
        yield graph


def test_a_repetition_gets_the_first_receipt(graph: Graph) -> None:
    first = graph.schema.apply(MORE, idempotency_key="k")
    graph.schema.apply(MORE + "node Later { name: String @key }\n")
    again = graph.schema.apply(MORE, idempotency_key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert again.commit == first.commit
    assert again.to_json() == first.to_json()
    assert "Later" in graph.schema.show()  # which a second run would have dropped


def test_another_schema_under_the_key_is_refused(graph: Graph) -> None:
    graph.schema.apply(MORE, idempotency_key="k")
    with pytest.raises(KeyReused):
        graph.schema.apply(SCHEMA + "node Other { name: String @key }\n", idempotency_key="k")
    assert "Other" not in graph.schema.show()


def test_a_change_that_cannot_be_made_claims_nothing(graph: Graph) -> None:
    with pytest.raises(SchemaUnsupported):
        graph.schema.apply(IMPOSSIBLE, idempotency_key="k")
    assert graph.schema.apply(MORE, idempotency_key="k").applied


def test_a_key_belongs_to_its_branch_and_actor(graph: Graph) -> None:
    graph.branches.create("side")
    receipts = [
        graph.schema.apply(MORE, idempotency_key="k", actor="ada"),
        graph.schema.apply(MORE, idempotency_key="k", actor="ada", branch="side"),
        graph.schema.apply(MORE, idempotency_key="k", actor="bob"),
    ]
    assert [receipt.replayed for receipt in receipts] == [False, False, False]
    assert [receipt.applied for receipt in receipts] == [True, True, False]
