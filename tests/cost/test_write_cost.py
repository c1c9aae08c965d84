"""One-row writes cost the same at any history depth and any number of tables, with no maintenance between."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from omnigraph.storage.store import GraphStore
from tests.support.gates import (
    CAP,
    WORST_WRITE,
    Figures,
    check_at_most,
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


def places(server: S3Server, proxy: S3Proxy) -> tuple[Place, Place]:
    """Return one empty address, reached directly and through the proxy."""
    address = server.new_address()
    return Place(address, server.storage_options()), Place(address, server.storage_options(proxy.endpoint))


# Sizes as (depth, tables), the largest last. Every day both grow at once; which of them it was, --full says.
SIZES = [
    pytest.param([(10, 2), (60, 40)], id="both"),
    pytest.param([(10, 2), (100, 2), (1000, 2)], id="depth-in-full", marks=pytest.mark.full),
    pytest.param([(10, 2), (10, 200)], id="tables-in-full", marks=pytest.mark.full),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_one_row_write_costs_the_same_at_any_depth_and_with_any_number_of_tables(
    s3_server: S3Server, proxy: S3Proxy, sizes: list[tuple[int, int]]
) -> None:
    """By a warm handle, as the first on a branch, and by a fresh handle, whose reads folding keeps few.

    On the largest graph once more under a cap on concurrency: without one, growing scans hide in parallelism.
    """
    warm, first, cold = [], [], []
    for depth, tables in sizes:
        label, largest = f"depth {depth}, {tables} tables", (depth, tables) == sizes[-1]
        direct, proxied = places(s3_server, proxy)
        with graph_at(direct, proxied, depth=depth, tables=tables) as store:
            warm.append(measure_writes(store, proxy, label, hops=largest))
            first.append(measure_first_writes(store, proxy, f"first write on a branch, {label}"))
            if largest:
                proxy.max_in_flight = CAP
                warm.append(measure_writes(store, proxy, f"capped, {label}"))
                proxy.max_in_flight = None
            cold.append(measure_cold_writes(proxied, proxy, f"fresh handle, {label}"))
    report(warm + first + cold)
    for figures in warm + first:
        check_write(figures)
    for figures in cold:
        check_at_most(figures, WORST_WRITE)
    for one_kind in (warm, first, cold):
        check_flat(one_kind)


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
