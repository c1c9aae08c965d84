"""Branch operations, opening and repeated reads cost the same whatever the graph's size."""

from __future__ import annotations

import pytest

from omnigraph.engine.branches import GraphBranches
from omnigraph.engine.options import View
from omnigraph.storage.store import GraphStore
from tests.cost.test_write_cost import places, report
from tests.support.gates import (
    BRANCH_REQUESTS,
    LIST_REQUESTS,
    OPEN_REQUESTS,
    TAG_REQUESTS,
    Figures,
    check_at_most,
    check_flat,
    count,
    graph_at,
    measure_branches,
    read_table,
)
from tests.support.graphs import upsert_person
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

SIZES = [
    pytest.param([(2, 1), (40, 20)], id="default"),
    pytest.param([(2, 1), (2, 200), (200, 1), (200, 200)], id="full", marks=pytest.mark.full),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("sizes", SIZES)
def test_branch_operations_cost_the_same_with_any_number_of_tables_and_branches(
    s3_server: S3Server, proxy: S3Proxy, sizes: list[tuple[int, int]]
) -> None:
    created, listed, deleted = [], [], []
    for tables, branches in sizes:
        with graph_at(*places(s3_server, proxy), depth=5, tables=tables, branches=branches) as store:
            a, b, c = measure_branches(store, proxy, f"{tables} tables, {branches} branches")
            created.append(a)
            listed.append(b)
            deleted.append(c)
    report(created + listed + deleted)
    for figures in created + deleted:
        check_at_most(figures, BRANCH_REQUESTS)
    for figures in listed:
        check_at_most(figures, LIST_REQUESTS)
    for one_kind in (created, listed, deleted):
        check_flat(one_kind)


@pytest.mark.timeout(300)
def test_a_cold_list_of_branches_is_two_requests(s3_server: S3Server, proxy: S3Proxy) -> None:
    found = []
    for branches in (1, 20):
        direct, proxied = places(s3_server, proxy)
        with (
            graph_at(direct, proxied, depth=2, branches=branches),
            GraphStore.open(proxied.address, **proxied.kwargs) as fresh,
        ):
            found.append(Figures(f"cold list, {branches} branches", (count(proxy, fresh.branches.list),)))
    report(found)
    for figures in found:
        check_at_most(figures, LIST_REQUESTS)


@pytest.mark.timeout(300)
def test_renames_and_tags_cost_the_same_with_any_number_of_branches(
    s3_server: S3Server, proxy: S3Proxy
) -> None:
    renamed, tagged = [], []
    for branches in (1, 20):
        with graph_at(*places(s3_server, proxy), depth=5, branches=branches) as store:
            store.branches.list()
            cost = count(proxy, lambda s=store: s.branches.rename("live-000", "other"))  # type: ignore[misc]
            renamed.append(Figures(f"rename, {branches} branches", (cost,)))
            state = store.snapshot().state
            cost = count(proxy, lambda s=store, head=state: s.tags.create("v1", head))  # type: ignore[misc]
            tagged.append(Figures(f"tag, {branches} branches", (cost,)))
    report(renamed + tagged)
    for figures in renamed:
        check_at_most(figures, BRANCH_REQUESTS)
    for figures in tagged:
        check_at_most(figures, TAG_REQUESTS)
    check_flat(renamed)
    check_flat(tagged)


@pytest.mark.timeout(300)
def test_the_list_of_branches_that_people_see_is_two_requests_and_heads_are_asked_for(
    s3_server: S3Server, proxy: S3Proxy
) -> None:
    with graph_at(*places(s3_server, proxy), depth=5, branches=20) as store:
        branches = GraphBranches(store, View())
        plain = Figures("list, 20 branches", (count(proxy, branches.list),))
        counted = Figures("list with counts", (count(proxy, lambda: branches.list(counts=True)),))
        report([plain, counted])
    check_at_most(plain, LIST_REQUESTS)
    check_at_most(counted, LIST_REQUESTS + 21 * 2)  # heads and counts: a cold probe of each chain


@pytest.mark.timeout(300)
def test_opening_and_reading_cost_the_same_at_any_depth(s3_server: S3Server, proxy: S3Proxy) -> None:
    opened, first, warm, changed = [], [], [], []
    for depth in (10, 100):
        direct, proxied = places(s3_server, proxy)
        with graph_at(direct, proxied, depth=depth) as store:
            proxy.reset()
            with GraphStore.open(proxied.address, **proxied.kwargs) as fresh:
                opened.append(Figures(f"open, depth {depth}", (proxy.count(),)))
                first.append(read_cost(fresh, proxy, f"first read, depth {depth}"))
                warm.append(read_cost(fresh, proxy, f"warm read, depth {depth}"))
                upsert_person(store, "moved")
                changed.append(read_cost(fresh, proxy, f"read after a commit, depth {depth}"))
    report(opened + first + warm + changed)
    for figures in opened:
        check_at_most(figures, OPEN_REQUESTS)
    for figures in warm:
        check_at_most(figures, 1)  # one probe; a row count needs no data request
    for figures in changed:
        check_at_most(figures, 4)  # probe and manifest, then the table's new version
    for one_kind in (opened, first, warm, changed):
        check_flat(one_kind)


def read_cost(store: GraphStore, proxy: S3Proxy, label: str) -> Figures:
    """Measure one read of a table's row count."""
    return Figures(label, (count(proxy, lambda: read_table(store)),))
