"""One-row writes cost the same at any history depth and any number of tables, with no maintenance between."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from omnigraph.storage.store import GraphStore
from tests.support.gates import (
    CAP,
    WORST_WRITE,
    Figures,
    check_flat,
    check_write,
    count,
    graph_at,
    measure_cold_writes,
    measure_first_writes,
    measure_writes,
)
from tests.support.graphs import upsert_person
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

DEPTHS = [(10, 60), pytest.param((10, 100, 1000), marks=pytest.mark.full)]
CAPPED = [(60,), pytest.param((10, 100, 1000), marks=pytest.mark.full)]


def places(server: S3Server, proxy: S3Proxy) -> tuple[Place, Place]:
    """Return one empty address, reached directly and through the proxy."""
    address = server.new_address()
    return Place(address, server.storage_options()), Place(address, server.storage_options(proxy.endpoint))


# Sizes as (depth, tables), the largest last.
SIZES = [
    pytest.param([(10, 2), (60, 2)], id="depth"),
    pytest.param([(10, 2), (100, 2), (1000, 2)], id="depth-in-full", marks=pytest.mark.full),
    pytest.param([(10, 2), (10, 40)], id="tables"),
    pytest.param([(10, 2), (10, 200)], id="tables-in-full", marks=pytest.mark.full),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_one_row_write_costs_the_same_at_any_depth_and_with_any_number_of_tables(
    s3_server: S3Server, proxy: S3Proxy, sizes: list[tuple[int, int]]
) -> None:
    found, first = [], []
    for depth, tables in sizes:
        label = f"depth {depth}, {tables} tables"
        with graph_at(*places(s3_server, proxy), depth=depth, tables=tables) as store:
            found.append(measure_writes(store, proxy, label, hops=(depth, tables) == sizes[-1]))
            first.append(measure_first_writes(store, proxy, f"first write on a branch, {label}"))
    report(found + first)
    for figures in found + first:
        check_write(figures)
    check_flat(found)
    check_flat(first)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("depths", CAPPED, ids=str)
def test_the_bounds_hold_under_a_concurrency_cap(
    s3_server: S3Server, proxy: S3Proxy, depths: tuple[int, ...]
) -> None:
    """Without a cap, growing scans hide in parallelism."""
    proxy.max_in_flight = CAP
    found = []
    for depth in depths:
        with graph_at(*places(s3_server, proxy), depth=depth) as store:
            found.append(measure_writes(store, proxy, f"capped, depth {depth}"))
    report(found)
    for figures in found:
        check_write(figures)
    check_flat(found)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("depths", DEPTHS, ids=str)
def test_the_first_write_of_a_fresh_handle_costs_the_same_at_any_depth(
    s3_server: S3Server, proxy: S3Proxy, depths: tuple[int, ...]
) -> None:
    """It opens the table and reads its tail, which folding keeps short."""
    found = []
    for depth in depths:
        direct, proxied = places(s3_server, proxy)
        with graph_at(direct, proxied, depth=depth):
            found.append(measure_cold_writes(proxied, proxy, f"fresh handle, depth {depth}"))
    report(found)
    for figures in found:
        assert max(figures.requests) <= WORST_WRITE, str(figures)
    check_flat(found)


@pytest.mark.timeout(900)
@pytest.mark.full
def test_a_writer_that_must_read_what_another_process_wrote_stays_within_the_bounds(
    s3_server: S3Server, proxy: S3Proxy
) -> None:
    """Nothing rests on remembering one's own writes: two stores take turns, neither has the other's rows."""
    found = []
    for depth in (10, 100):
        direct, proxied = places(s3_server, proxy)
        with graph_at(direct, proxied, depth=depth) as store, ExitStack() as stack:
            other = stack.enter_context(GraphStore.open(direct.address, **direct.kwargs))
            requests = []
            for number in range(30):
                upsert_person(other, f"other-{number}")
                requests.append(count(proxy, lambda n=number: upsert_person(store, f"mine-{n}")))  # type: ignore[misc]
            found.append(Figures(f"taking turns, depth {depth}", tuple(requests)))
    report(found)
    for figures in found:
        check_write(figures)
    check_flat(found)


def report(found: list[Figures]) -> None:
    """Print the table; shown by `pytest -rP` and `-s`."""
    print()
    for figures in found:
        print(f"  {figures}")
