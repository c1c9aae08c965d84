"""A handle that stays open while the schema changes: names may come back, but never with another's values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import StaleVersion
from omnigraph.storage.durability import armed
from tests.support.workers import once

PLAIN = "node P { k: String @key  a: String?  b: String? }"
SWAPS = [
    'node P { k: String @key  t: String? @rename_from("a")  b: String? }',
    'node P { k: String @key  t: String?  a: String? @rename_from("b") }',
    'node P { k: String @key  b: String? @rename_from("t")  a: String? }',
]
WITHOUT_A = "node P { k: String @key  b: String? }"
INSERT = "query q($k: String) { insert P { k: $k, a: 'A', b: 'B' } }".replace("'", '"')
READ = "query r() { match { $p: P } return { $p.k as k, $p.a as a, $p.b as b } order { $p.k } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", PLAIN, durability="os") as made:
        yield made


def rows(graph: Graph, **at: Any) -> list[tuple[Any, ...]]:
    return [(row["k"], row["a"], row["b"]) for row in graph.query(READ, **at).rows]


def remade(graph: Graph, branch: str = "main") -> None:
    """Drop the property `a` and add it again: the same text, another property."""
    graph.schema.apply(WITHOUT_A, branch=branch)
    graph.schema.apply(PLAIN, branch=branch)


def test_after_names_were_exchanged_an_insert_writes_what_it_says(graph: Graph) -> None:
    graph.mutate(INSERT, k="1")
    assert rows(graph) == [("1", "A", "B")]
    for schema in SWAPS:
        graph.schema.apply(schema)

    graph.mutate(INSERT, k="2")

    assert rows(graph) == [("1", "B", "A"), ("2", "A", "B")]
    with og.connect(graph.uri) as fresh:
        assert rows(fresh) == rows(graph)


def test_after_a_property_was_made_again_the_same_texts_work_on(graph: Graph) -> None:
    graph.mutate(INSERT, k="1")
    assert rows(graph) == [("1", "A", "B")]
    remade(graph)

    assert rows(graph) == [("1", None, "B")]
    graph.mutate(INSERT, k="2")
    graph.mutate('query u() { update P set { a: "new" } where k = "1" }')

    assert rows(graph) == [("1", "new", "B"), ("2", "A", "B")]


def test_after_a_type_was_made_again_the_same_texts_work_on(graph: Graph) -> None:
    graph.mutate(INSERT, k="1")
    assert rows(graph) == [("1", "A", "B")]
    graph.schema.apply("node Other { k: String @key }")
    graph.schema.apply(PLAIN)

    assert rows(graph) == []
    graph.mutate(INSERT, k="2")

    assert rows(graph) == [("2", "A", "B")]


def test_a_read_of_the_past_does_not_serve_the_present(graph: Graph) -> None:
    """The version of the table is one, the schemas that it is read under are two."""
    graph.mutate(INSERT, k="1")
    before = graph.store.snapshot().commit_id
    for schema in SWAPS:
        graph.schema.apply(schema)

    assert rows(graph, at=before) == [("1", "B", "A")]
    assert rows(graph) == [("1", "B", "A")]


def test_an_insert_that_meets_a_schema_change_is_prepared_again(graph: Graph) -> None:
    graph.mutate(INSERT, k="1")
    assert rows(graph) == [("1", "A", "B")]

    with og.connect(graph.uri) as other, armed({"publish.before": once(lambda: remade(other))}):
        receipt = graph.mutate(INSERT, k="2")

    assert receipt.attempts == 2
    assert rows(graph) == [("1", None, "B"), ("2", "A", "B")]


@pytest.mark.parametrize("mode", ["append", "merge"])
@pytest.mark.parametrize("shape", [list, iter], ids=["list", "iterator"])
def test_a_load_that_meets_a_schema_change_is_prepared_again(graph: Graph, mode: Any, shape: Any) -> None:
    records = [{"type": "P", "data": {"k": "2", "a": "A", "b": "B"}}]

    def swapped() -> None:
        for schema in (*SWAPS, "node Other { k: String @key }", PLAIN, *SWAPS):
            other.schema.apply(schema)

    with og.connect(graph.uri) as other, armed({"publish.before": once(swapped)}):
        receipt = graph.load(shape(records), mode=mode)

    assert [(one.name, one.inserted, one.given) for one in receipt.types] == [("P", 1, 1)]
    assert rows(graph) == [("2", "A", "B")]


def test_a_load_whose_types_are_declared_otherwise_meanwhile_says_so(graph: Graph) -> None:
    """An iterator cannot be read again; what was read may not be what the new schema would read."""
    other_type = PLAIN.replace("b: String?", "b: String?  c: I32?")

    def changed() -> None:
        other.schema.apply(other_type)

    with og.connect(graph.uri) as other, armed({"publish.before": once(changed)}):
        with pytest.raises(StaleVersion):
            graph.load(iter([{"type": "P", "data": {"k": "2", "a": "A"}}]), mode="append")
        assert rows(graph) == []
        graph.load([{"type": "P", "data": {"k": "2", "a": "A"}}], mode="append")
    assert rows(graph) == [("2", "A", None)]


def test_an_overwrite_that_meets_a_type_made_again_is_refused(graph: Graph) -> None:
    records = [{"type": "P", "data": {"k": "2", "a": "A"}}]
    with (
        og.connect(graph.uri) as other,
        armed({"publish.before": once(lambda: remade(other))}),
        pytest.raises(StaleVersion),
    ):
        graph.load(records, mode="overwrite")
