"""What an apply asks of the object store does not grow with the graph, and writes after it read no schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.durability import armed
from tests.cost.test_write_cost import places, report
from tests.engine.cases import person
from tests.support.contents import insert, read
from tests.support.gates import Figures, check_at_most, check_flat
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = pytest.mark.s3

APPLY = 16
SIZES = [
    pytest.param((2, 40), id="40 tables"),
    pytest.param((2, 200), id="200 tables", marks=[pytest.mark.full, pytest.mark.timeout(600)]),
]


def wide(tables: int) -> str:
    """Return a schema with a number of tables."""
    return "".join(f"node T{n:03d} {{ slug: String @key  p: I32? }}\n" for n in range(tables))


@contextmanager
def graph_of(server: S3Server, proxy: S3Proxy, schema: str) -> Iterator[Graph]:
    """Make a graph past the proxy and open it through the proxy, warm."""
    direct, proxied = places(server, proxy)
    og.init(direct.address, schema, **direct.kwargs).close()
    with og.connect(proxied.address, **proxied.kwargs) as graph:
        graph.schema.catalog()
        yield graph


def classes(proxy: S3Proxy, act: Callable[[], object]) -> dict[str, int]:
    """Return the number of requests of each class that an operation makes."""
    proxy.reset()
    act()
    return proxy.by_class()


@pytest.mark.parametrize("sizes", SIZES)
def test_adding_a_type_costs_the_same_with_any_number_of_tables(
    s3_server: S3Server, proxy: S3Proxy, sizes: tuple[int, ...]
) -> None:
    figures = []
    for tables in sizes:
        with graph_of(s3_server, proxy, wide(tables)) as graph:
            found = classes(proxy, lambda g=graph, n=tables: g.schema.apply(wide(n) + "node Added {}\n"))  # type: ignore[misc]
            print(f"\nadd one type to {tables} tables: {sum(found.values())} requests {found}")
            figures.append(Figures(f"{tables} tables", (sum(found.values()),)))
    report(figures)
    for one in figures:
        check_at_most(one, APPLY)
    check_flat(figures)


def test_a_fresh_handle_adds_a_type_within_the_bound(s3_server: S3Server, proxy: S3Proxy) -> None:
    with graph_of(s3_server, proxy, wide(10)):
        direct, proxied = places(s3_server, proxy)
        og.init(direct.address, wide(10), **direct.kwargs).close()
        with og.connect(proxied.address, **proxied.kwargs) as fresh:
            found = classes(proxy, lambda: fresh.schema.apply(wide(10) + "node Added {}\n"))
    assert sum(found.values()) <= APPLY, found


@pytest.fixture
def warm(s3_server: S3Server, proxy: S3Proxy) -> Iterator[Graph]:
    """A graph whose schema was just changed through this handle."""
    with graph_of(s3_server, proxy, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        graph.schema.apply(person("p: I32? q: I32?"))
        yield graph


def test_a_write_after_an_apply_reads_no_schema_on_the_handle_that_applied(
    warm: Graph, proxy: S3Proxy
) -> None:
    found = classes(proxy, lambda: insert(warm, {"Person": [{"slug": "b", "q": 2}]}))
    assert found.get("schema", 0) == 0, found


def test_a_read_after_an_apply_reads_no_schema_on_the_handle_that_applied(
    warm: Graph, proxy: S3Proxy
) -> None:
    assert classes(proxy, lambda: read(warm, "Person")).get("schema", 0) == 0


def test_a_fresh_handle_reads_the_schema_once_for_any_number_of_writes(warm: Graph, proxy: S3Proxy) -> None:
    def write_thrice() -> None:
        with og.connect(warm.uri, storage_options=warm.store.location.lance_options) as fresh:
            for slug in ("b", "c", "d"):
                fresh.schema.catalog()
                insert(fresh, {"Person": [{"slug": slug, "q": 2}]})

    assert classes(proxy, write_thrice).get("schema", 0) == 1


def test_another_handle_reads_the_new_schema_once(warm: Graph, proxy: S3Proxy) -> None:
    with og.connect(warm.uri, storage_options=warm.store.location.lance_options) as other:
        insert(other, {"Person": [{"slug": "b", "q": 2}]})
        warm.schema.apply(person("p: I32? q: I32? r: I32?"))

        first = classes(proxy, lambda: insert(other, {"Person": [{"slug": "c", "r": 2}]}))
        second = classes(proxy, lambda: insert(other, {"Person": [{"slug": "d", "r": 2}]}))
    assert (first.get("schema", 0), second.get("schema", 0)) == (1, 0)


def test_an_apply_without_difference_writes_nothing_and_reads_no_table(warm: Graph, proxy: S3Proxy) -> None:
    proxy.reset()
    assert warm.schema.apply(person("p: I32? q: I32?")).applied is False
    assert {request.method for request in proxy.requests} <= {"GET", "HEAD", "LIST"}
    assert [request.key for request in proxy.requests if "/tables/" in request.key] == []


@pytest.mark.parametrize(
    "after",
    [
        pytest.param("p: I32? @index", id="index"),
        pytest.param('p: I32? @description("a number")', id="metadata"),
        pytest.param('p2: I32? @rename_from("p")', id="rename"),
    ],
)
def test_a_change_of_metadata_touches_no_table(s3_server: S3Server, proxy: S3Proxy, after: str) -> None:
    with graph_of(s3_server, proxy, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        proxy.reset()
        graph.schema.apply(person(after))
        assert [request.key for request in proxy.requests if "/tables/" in request.key] == []


def test_a_change_of_metadata_passes_no_step_of_a_table(local_place: Place) -> None:
    with og.init(local_place.address, person("p: I32?")) as graph:
        insert(graph, {"Person": [{"slug": "a", "p": 1}]})
        table_steps = ("table_create", "table_data", "table_index", "table_commit", "table_deletions")
        with armed({f"{step}.before": "raise" for step in table_steps}):
            assert graph.schema.apply(person('p: I32? @index @description("n")')).applied


def test_the_receipt_counts_what_the_store_was_asked(s3_server: S3Server, proxy: S3Proxy) -> None:
    with graph_of(s3_server, proxy, person("p: I32?")) as graph:
        proxy.reset()
        receipt = graph.schema.apply(person("p: I32?", f"node A{uuid4().hex} {{}}"))
        assert receipt.cost.requests == proxy.count()
