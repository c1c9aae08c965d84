"""A validated one-edge load costs the same at any depth, with any number of tables, in a graph of any size.

The edge is merged by id into a type with every kind of set check: both endpoints must exist, (from, to) is
unique, and a source may have only so many edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph import Graph
from tests.cost.test_write_cost import places, report
from tests.support.gates import Figures, check_flat, count
from tests.support.places import Place
from tests.support.proxy import S3Proxy, serial_hops
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

REQUESTS, WORST, HOPS = 18, 28, 12
WRITES = 30
SOURCES = 200  # at most five edges each
# Sizes as (depth, tables, rows of the endpoint table), the largest last. Every day all of them grow at once.
SIZES = [
    pytest.param([(10, 2, 1_000), (60, 20, 8_000)], id="all"),
    pytest.param([(n, 2, 1_000) for n in (10, 100, 1000)], id="depth-in-full", marks=pytest.mark.full),
    pytest.param([(10, 2, 1_000), (10, 200, 1_000)], id="tables-in-full", marks=pytest.mark.full),
    pytest.param([(10, 2, 1_000), (10, 2, 1_000_000)], id="endpoints-in-full", marks=pytest.mark.full),
]
HOP_LATENCIES = (0.0, 80.0, 160.0)


def schema(tables: int) -> str:
    others = "\n".join(f"node Other{n} {{ name: String @key }}" for n in range(tables - 2))
    return f"""
    node Person {{ name: String @key }}
    edge Knows: Person -> Person @card(0..5000) {{ since: I32?  @unique(src, dst) }}
    {others}
    """


@contextmanager
def graph_at(
    direct: Place, proxied: Place, *, depth: int, tables: int = 2, rows: int = 1_000, pages: bool = True
) -> Iterator[Graph]:
    with og.init(direct.address, schema(tables), **direct.kwargs) as builder:
        people = pa.table({"name": [f"p{n}" for n in range(rows)]})
        builder.load(people, type="Person", mode="append")
        for number in range(depth):
            merge_edge(builder, f"h{number}", number, number + 1 + number // SOURCES)
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        for number in range(3):
            merge_edge(graph, f"warm-{number}", number, 900 + number)
        if pages:
            meet_index_pages(graph)
        yield graph


def meet_index_pages(graph: Graph) -> None:
    """Ask once for everybody that the writes will name.

    Key hashes are fetched a block at a time, and a block stays in the cache folder. One that is met for the
    first time may be a request more; `test_ends_that_were_never_met_cost_little` counts that.
    """
    for start in range(0, 1_000, 100):
        edges = [edge(f"try-{n}", n, n) for n in range(start, start + 100)]
        graph.load(edges, mode="merge", dry_run=True)


def edge(edge_id: str, source: int, target: int) -> dict[str, object]:
    return {
        "edge": "Knows",
        "from": f"p{source % SOURCES}",
        "to": f"p{target % 1_000}",
        "data": {"id": edge_id},
    }


def merge_edge(graph: Graph, edge_id: str, source: int, target: int) -> None:
    graph.load([edge(edge_id, source, target)], mode="merge")


def measure(graph: Graph, proxy: S3Proxy, label: str, *, hops: bool) -> Figures:
    """Merge edges: two new ones, then one that replaces another."""
    requests = tuple(
        count(
            proxy,
            lambda n=n: merge_edge(graph, f"h{n}" if n % 3 == 2 else f"{label}-{n}", n, 400 + n),  # type: ignore[misc]
        )
        for n in range(WRITES)
    )
    if not hops:
        return Figures(label, requests)
    slope = serial_hops(lambda: merge_edge(graph, f"{label}-hops", 3, 777), proxy, HOP_LATENCIES)
    return Figures(label, requests, slope)


def check(found: list[Figures]) -> None:
    report(found)
    for figures in found:
        assert figures.mean <= REQUESTS, str(figures)
        assert max(figures.requests) <= WORST, str(figures)
    largest = found[-1]
    assert largest.hops is not None
    assert largest.hops <= HOPS, str(largest)
    check_flat(found)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("sizes", SIZES)
def test_flat_in_depth_tables_and_endpoints(
    s3_server: S3Server, proxy: S3Proxy, sizes: list[tuple[int, int, int]]
) -> None:
    found = []
    for size in sizes:
        depth, tables, rows = size
        with graph_at(*places(s3_server, proxy), depth=depth, tables=tables, rows=rows) as graph:
            label = f"depth {depth}, {tables} tables, {rows} nodes"
            found.append(measure(graph, proxy, label, hops=size == sizes[-1]))
    check(found)


@pytest.mark.timeout(300)
def test_ends_that_were_never_met_cost_little(s3_server: S3Server, proxy: S3Proxy) -> None:
    """Two ends anywhere in a file cost at most two requests each; met again, one at most."""
    rows = 40_000
    with graph_at(*places(s3_server, proxy), depth=10, rows=rows, pages=False) as graph:

        def merging(name: str, source: int, target: int) -> int:
            one = {"edge": "Knows", "from": f"p{source}", "to": f"p{target}", "data": {"id": name}}
            return count(proxy, lambda: graph.load([one], mode="merge"))

        known = [merging(f"known-{n}", n % 3, 900 + (n + 1) % 3) for n in range(3)]  # met while warming up
        far = [(rows - 1 - 5_000 * n, rows // 2 + 997 * n) for n in range(6)]
        first = [merging(f"first-{n}", *ends) for n, ends in enumerate(far)]
        again = [merging(f"again-{n}", target, source) for n, (source, target) in enumerate(far)]
    report([Figures("known", tuple(known)), Figures("first", tuple(first)), Figures("again", tuple(again))])
    assert max(first) <= max(known) + 2 * 2
    assert max(again) <= max(known) + 1
