"""A warm look-up by key costs one probe and a few reads at any depth, and asks nothing about the schema."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph import Graph
from tests.cost.test_write_cost import places, report
from tests.support.gates import Figures, check_flat, count
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

SCHEMA = "node Person { name: String @key  age: I32?  city: String? }"
FIND = "query find($k: String) { match { $p: Person { name: $k } } return { $p.name, $p.age, $p.city } }"
BOUND = 1 + 3  # the probe, and the data
DEPTHS = [(10, 60), pytest.param((10, 100, 1000), marks=pytest.mark.full)]


def find(graph: Graph, key: str) -> None:
    assert graph.query(FIND, k=key).one()["p.name"] == key


@pytest.mark.timeout(2000)
@pytest.mark.parametrize("depths", DEPTHS, ids=str)
def test_a_warm_look_up_by_key(s3_server: S3Server, proxy: S3Proxy, depths: tuple[int, ...]) -> None:
    found = []
    for depth in depths:
        direct, proxied = places(s3_server, proxy)
        with og.init(direct.address, SCHEMA, **direct.kwargs) as builder:
            people = pa.table(
                {"name": [f"p{n}" for n in range(20_000)], "age": [n % 90 for n in range(20_000)]}
            )
            builder.load(people, type="Person", mode="append")
            for number in range(depth):
                builder.load([{"type": "Person", "data": {"name": f"h{number}"}}], mode="merge")
        with og.connect(proxied.address, **proxied.kwargs) as graph:
            for key in ("p1", "h1", "p2"):
                find(graph, key)
            requests = tuple(
                count(proxy, lambda k=key: find(graph, k))  # type: ignore[misc]
                for key in [f"p{n * 601}" for n in range(1, 20)] + [f"h{n}" for n in range(10)]
            )
            found.append(Figures(f"look-up, depth {depth}", requests))
    report(found)
    for figures in found:
        assert max(figures.requests) <= BOUND, str(figures)
    check_flat(found)


def test_what_was_asked_before_asks_only_whether_anything_changed(
    s3_server: S3Server, proxy: S3Proxy
) -> None:
    direct, proxied = places(s3_server, proxy)
    with og.init(direct.address, SCHEMA, **direct.kwargs) as builder:
        builder.load(pa.table({"name": ["a", "b"]}), type="Person", mode="append")
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        for _ in range(3):
            find(graph, "a")
        assert count(proxy, lambda: find(graph, "a")) == 1


GRAPH = "node Person { name: String @key }\nedge Knows: Person -> Person { since: I32? }"
FRIENDS = "query q($k: String) { match { $p: Person { name: $k }  $p knows $f } return { $f.name } }"


@pytest.mark.timeout(300)
def test_a_first_traversal_touches_a_few_blocks_and_not_the_edges(
    s3_server: S3Server, proxy: S3Proxy
) -> None:
    """On a cold open, following one node's edges reads its lists in the stored adjacency, not the table."""
    people, degree = 10_000, 40
    direct, proxied = places(s3_server, proxy)
    with og.init(direct.address, GRAPH, **direct.kwargs) as builder:
        names = [f"p{n}" for n in range(people)]
        ends = [(n, (n * 7 + k * 131) % people) for n in range(people) for k in range(degree)]
        edges = {"from": [names[a] for a, _ in ends], "to": [names[b] for _, b in ends]}
        builder.load({"Person": pa.table({"name": names}), "Knows": pa.table(edges)}, mode="append")
        builder.ensure_indexes()
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        table = graph.schema.catalog().edge("Knows").table_id
        stored = sum(
            file.file_size_bytes or 0
            for f in graph.store.table(graph.store.snapshot(), table).get_fragments()
            for file in f.metadata.files
        )
        proxy.reset()
        found = graph.query(FRIENDS, k="p77")
        read = found.cost.bytes_read
        assert len(found) == degree
        assert "Knows: topology" in str(graph.profile(FRIENDS, k="p78"))
    print(f"\n  {read} bytes of {stored} in {proxy.count()} requests")
    assert read < stored / 8


AGES = "query q($k: String) { match { $p: Person { name: $k }  $p knows $f } return { $f.name, $f.age } }"
COLD_HOP = 40


@pytest.mark.timeout(300)
def test_a_cold_hop_to_scattered_neighbours_takes_few_requests(
    s3_server: S3Server, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening included: rows that lie close together are fetched by one request, and no value twice."""
    monkeypatch.setattr("omnigraph.execution.columns.PICK_COST", 0)  # as if there were millions of people
    people, degree = 60_000, 20
    direct, proxied = places(s3_server, proxy)
    with og.init(direct.address, GRAPH.replace("@key", "@key  age: I32?"), **direct.kwargs) as builder:
        names = [hashlib.sha512(str(n).encode()).hexdigest() for n in range(people)]
        near = range(0, people, 10)
        ends = [(n, (n * 7 + k * 2999) % people) for n in near for k in range(degree)]
        edges = {"from": [names[a] for a, _ in ends], "to": [names[b] for _, b in ends]}
        nodes = pa.table({"name": names, "age": [n % 90 for n in range(people)]})
        builder.load({"Person": nodes, "Knows": pa.table(edges)}, mode="append")
    proxy.reset()
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        assert len(graph.query(AGES, k=names[770])) == degree
        print(f"\n  cold hop: {proxy.count()} requests")
        assert proxy.count() <= COLD_HOP
