"""A merge costs what it changes, whatever the size of the graph it changes.

Eight node types; the branch changes one row, or fifty over all types, and the target changed the same types
meanwhile, so that nothing can be taken over by pointer. A type of a thousand rows is in memory as a whole,
which saves a few requests; from there on, size does not count.
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
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

TYPES = 8
SCHEMA = "\n".join(f"node T{n} {{ name: String @key  value: I32? }}" for n in range(TYPES))
FIXED, EACH = 12, 9  # a row that is replaced in a large file is read once more: a hash never decides
ROUNDS = 3
IN_MEMORY = 1_000
ROWS = [
    (IN_MEMORY, 10_000, 20_000),
    pytest.param((IN_MEMORY, 100_000, 200_000), marks=pytest.mark.full),
]


@contextmanager
def graph_of(direct: Place, proxied: Place, rows: int) -> Iterator[Graph]:
    with og.init(direct.address, SCHEMA, **direct.kwargs) as builder:
        names = pa.array([f"p{n}" for n in range(rows)])
        zeros = pa.array([0] * rows, pa.int32())
        builder.load(
            {f"T{n}": pa.table({"name": names, "value": zeros}) for n in range(TYPES)}, mode="append"
        )
        builder.ensure_indexes()
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        yield graph


def merge_once(graph: Graph, proxy: S3Proxy, number: int, changes: int) -> int:
    """Change both sides, merge, and return the requests of the merge."""
    branch = f"b{changes}-{number}"
    graph.store.branches.create(branch, "main")
    touched = min(changes, TYPES)
    theirs = [row(n % touched, f"p{number * 60 + n // touched}", number) for n in range(changes)]
    graph.load(theirs, mode="merge", branch=branch)
    graph.load([row(n, f"p{900 - number}", number) for n in range(touched)], mode="merge")
    return count(proxy, lambda: graph.merge(branch))


def row(kind: int, name: str, value: int) -> dict[str, object]:
    return {"type": f"T{kind}", "data": {"name": name, "value": value}}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_flat_in_the_size_of_the_graph(s3_server: S3Server, proxy: S3Proxy, rows: tuple[int, ...]) -> None:
    single: list[Figures] = []
    many: list[Figures] = []
    for number in rows:
        with graph_of(*places(s3_server, proxy), number) as graph:
            for changes, found in ((1, single), (50, many)):
                merge_once(graph, proxy, 0, changes)
                requests = tuple(merge_once(graph, proxy, n, changes) for n in range(1, ROUNDS))
                found.append(Figures(f"{changes} changes into {TYPES} x {number} rows", requests))
    report(single + many)
    for figures, touched in [*((one, 1) for one in single), *((one, TYPES) for one in many)]:
        assert max(figures.requests) <= FIXED + EACH * touched, str(figures)
    for found in (single, many):
        in_memory, *others = found
        assert in_memory.mean <= others[0].mean
        check_flat(others)
