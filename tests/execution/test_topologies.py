"""Topologies: what versions share is kept, looked for again and counted; what ends a query is typed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import LimitExceeded
from omnigraph.base.ids import SystemClock
from omnigraph.catalog.query.expressions import Direction, Hops
from omnigraph.engine.derive import complete_adjacency
from omnigraph.execution import moved_nodes
from omnigraph.execution import topology as topology_file
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import ColumnCache
from omnigraph.execution.context import Caches, Context
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.expand import Expander
from omnigraph.execution.moved_nodes import Homes
from omnigraph.execution.topology import Topologies, Topology
from tests.support.derived import TINY, small_tiers

SCHEMA = "node P { name: String @key  note: String? }\nedge Knows: P -> P { note: String? }"
PEOPLE = 120
LONG = "x" * 40
FRIENDS = "query q() { match { $a knows $b } return { $a.name, $b.name } }"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    small_tiers(monkeypatch)
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as opened:
        people = {"name": [f"p{n:03d}" for n in range(PEOPLE)], "note": [LONG] * PEOPLE}
        opened.load({"P": pa.table(people)}, mode="append")
        link(opened, [(n, n * 7 % PEOPLE) for n in range(PEOPLE)] + [(3, 3), (3, 21), (5, 3)])
        yield opened


def link(graph: Graph, pairs: list[tuple[int, int]]) -> None:
    """Make edges."""
    rows = {
        "from": [f"p{a:03d}" for a, _ in pairs],
        "to": [f"p{b:03d}" for _, b in pairs],
        "note": [LONG] * len(pairs),
    }
    graph.load({"Knows": pa.table(rows)}, mode="append")


def tables_of(graph: Graph, columns: ColumnCache | None = None) -> tuple[EntityTable, ...]:
    """Return the edges and the nodes at their ends, as queries see them now."""
    snapshot = graph.store.snapshot("main")
    catalog = graph.schema.catalog("main")
    edge = catalog.edge("Knows")
    return tuple(
        EntityTable(catalog.table(t), t, snapshot.pin(t).version, graph.store.reads, columns or ColumnCache())
        for t in (edge.id, edge.source, edge.target)
    )


def topology_of(graph: Graph, topologies: Topologies) -> Topology:
    return topologies.get(*tables_of(graph))


def test_arrays_over_all_edges_are_on_the_account_once_they_are_made(graph: Graph) -> None:
    link(graph, [(1, 1)])  # so that they are not the base's own
    topologies = Topologies()
    topology = topology_of(graph, topologies)
    before = topologies.nbytes

    offsets, others, edges = topology.forward.flat_edges()

    assert topologies.nbytes >= before + offsets.nbytes + others.nbytes + edges.nbytes


def test_arrays_over_all_edges_are_not_kept_for_every_version(graph: Graph) -> None:
    topologies = Topologies()
    first = weakref.ref(topology_of(graph, topologies).forward.flat()[0])
    for n in range(4):
        link(graph, [(n, n + 1)])
        topology_of(graph, topologies).forward.flat()
    gc.collect()

    assert first() is None


def test_a_topology_that_is_kept_does_not_keep_what_a_query_held(graph: Graph) -> None:
    topologies, budget = Topologies(), Budget()
    edges, sources, targets = (table.under(budget) for table in tables_of(graph))
    topologies.get(edges, sources, targets)
    gone = weakref.ref(budget)
    del edges, sources, targets, budget
    gc.collect()

    assert gone() is None


def test_what_was_worked_out_in_memory_serves_the_next_version(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled files that are not large have no stored base: it is built, and not again after each write."""
    built: list[Any] = []
    build = EntityTable.built_base

    def counted(self: EntityTable, *asked: Any) -> Any:
        built.extend(asked if len(asked) == 1 else [])  # a load, which stores one, says how to number ends
        return build(self, *asked)

    monkeypatch.setattr(EntityTable, "built_base", counted)
    small_tiers(monkeypatch, (TINY[0], 1 << 30))  # no file is large from here on
    monkeypatch.setattr(EntityTable, "stored_base", lambda self, cover: None)
    monkeypatch.setattr(topology_file, "CHEAP", 10)
    topologies = Topologies()
    for n in range(3):
        topology = topology_of(graph, topologies)
        assert topology.base is not None
        assert len(topology.forward.flat()[1]) == PEOPLE + 3 + n
        link(graph, [(n, n + 1)])

    assert len(built) == 1


class MovedClock(SystemClock):
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_base_that_is_stored_later_is_found_after_a_while(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock()
    monkeypatch.setattr(topology_file, "CHEAP", 1 << 20)
    link(graph, [(n, n * 11 % PEOPLE) for n in range(PEOPLE)] * 4)
    edges = tables_of(graph)[0]
    stored = EntityTable.stored_base
    monkeypatch.setattr(EntityTable, "stored_base", lambda self, cover: None)
    topologies = Topologies(clock=clock)
    assert topology_of(graph, topologies).base is None
    monkeypatch.setattr(EntityTable, "stored_base", stored)
    complete_adjacency(graph.store, graph.schema.catalog("main"), graph.store.snapshot("main"))
    assert edges.large, "the fixture has no large file"
    link(graph, [(1, 2)])
    assert topology_of(graph, topologies).base is None  # not looked for at every write

    clock.now += 60
    link(graph, [(1, 2)])

    assert topology_of(graph, topologies).base is not None


def test_what_look_ups_cost_is_remembered_of_a_bounded_number_of_versions() -> None:
    topologies = Topologies()
    for n in range(5_000):
        edges, sources, targets = (cast(EntityTable, SimpleNamespace(key=(name, n))) for name in "est")
        topologies.spend(edges, sources, targets, 7)

    assert topologies.spend(edges, sources, targets, 7) == 14
    assert len(topologies._spent) < 5_000


@pytest.mark.parametrize("name", ["WIDEST", "TEXT_BYTES"])
def test_more_than_a_base_can_number_is_a_typed_error(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(f"omnigraph.storage.derived.adjacency.{name}", 20)
    monkeypatch.setattr(EntityTable, "stored_base", lambda self, cover: None)
    monkeypatch.setattr(topology_file, "CHEAP", 10)

    with pytest.raises(LimitExceeded):
        graph.query(FRIENDS)


def test_nodes_beyond_what_a_base_can_number_are_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch)
    monkeypatch.setattr("omnigraph.storage.derived.adjacency.WIDEST", PEOPLE - 1)
    monkeypatch.setattr(EntityTable, "stored_base", lambda self, cover: None)
    monkeypatch.setattr(topology_file, "CHEAP", 10)
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as graph:
        people = {"name": [f"p{n:03d}" for n in range(PEOPLE)], "note": [LONG] * PEOPLE}
        graph.load({"P": pa.table(people)}, mode="append")
        link(graph, [(n, n + 1) for n in range(PEOPLE // 2)])  # fewer edges than nodes

        with pytest.raises(LimitExceeded):
            graph.query(FRIENDS)


def test_homes_that_another_thread_forgets_are_still_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moved_nodes, "KEPT_FILES", 1 / 32, raising=False)
    monkeypatch.setattr(moved_nodes, "KEPT_HOMES", 1, raising=False)
    homes = Homes(())

    class Table:
        """Looks ids up, while another thread does so too."""

        def first_places(self, ids: pa.Array) -> Any:
            if ids.to_pylist() == ["b"]:
                for text in "cde":
                    homes.find(self, pa.array([text]))  # type: ignore[arg-type]
            return np.array([ord(text) for text in ids.to_pylist()])

    homes._known["a"] = 97

    assert homes.find(Table(), pa.array(["a", "b"])).tolist() == [97, 98]  # type: ignore[arg-type]


def test_edges_followed_either_way_are_counted_edge_by_edge(graph: Graph) -> None:
    """Parallel edges count each, a loop once."""
    catalog = graph.schema.catalog("main")
    context = Context(
        snapshot=graph.store.snapshot("main"),
        catalog=catalog,
        reads=graph.store.reads,
        caches=Caches.within(),
        values={},
        now_ms=0,
        embeddings=None,  # type: ignore[arg-type]
    )
    expander = Expander(context, Hops(catalog.edge("Knows"), Direction.EITHER, 1, 1))
    nodes = expander.start.every()
    expansion = expander.neighbours(nodes)
    expected = np.bincount(nodes[expansion.places], minlength=expander.start.span)

    offsets, others = expander.lists(edges=True)

    assert np.diff(offsets).tolist() == expected.tolist()
    assert sorted(others.tolist()) == sorted(expansion.others.tolist())
    degrees: Any = expander.degrees(edges=True)
    assert (degrees.dense() if hasattr(degrees, "dense") else degrees).tolist() == expected.tolist()
