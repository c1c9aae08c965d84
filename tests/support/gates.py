"""The cost gates: what an operation may ask of the object store, judged by the proxy in front of it.

A gate runs real operations on a warm handle, takes the proxy's figures, and asserts the contract of
docs/operations/cost.md. It is a plain function, so that a test can also show it fail on a broken store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean

from omnigraph.storage.store import GraphStore
from tests.support.graphs import PERSON, build_history, make_graph, upsert_person
from tests.support.places import Place
from tests.support.proxy import S3Proxy, serial_hops

WRITES = 30
MEAN_WRITE, WORST_WRITE, WRITE_HOPS = 14, 24, 10
BRANCH_REQUESTS, LIST_REQUESTS, OPEN_REQUESTS, TAG_REQUESTS = 10, 2, 5, 5
FLAT = 0.10
CAP = 8
HOP_LATENCIES = (0.0, 80.0, 160.0)  # wide enough to see hops past the noise of a busy machine


@dataclass(frozen=True)
class Figures:
    """Requests of consecutive operations of one kind."""

    label: str
    requests: tuple[int, ...]
    hops: float | None = None

    @property
    def mean(self) -> float:
        return mean(self.requests)

    def __str__(self) -> str:
        hops = "" if self.hops is None else f", {self.hops:.1f} serial hops"
        return f"{self.label}: mean {self.mean:.2f}, worst {max(self.requests)} requests{hops}"


@contextmanager
def graph_at(
    direct: Place, proxied: Place, *, depth: int, tables: int = 2, branches: int = 0
) -> Iterator[GraphStore]:
    """Build a graph past the proxy, then open it through the proxy: a fresh process that warms up."""
    with make_graph(direct.address, extra_tables=tables - 2, **direct.kwargs) as builder:
        build_history(builder, depth)
        for number in range(branches):
            builder.branches.create(f"live-{number:03d}", "main")
    with GraphStore.open(proxied.address, **proxied.kwargs) as store:
        for number in range(3):
            upsert_person(store, f"warm-{number}")
        yield store


def count(proxy: S3Proxy, operation: Callable[[], object]) -> int:
    """Return the number of requests that one operation makes."""
    proxy.reset()
    operation()
    return proxy.count()


def measure_writes(store: GraphStore, proxy: S3Proxy, label: str, *, hops: bool = True) -> Figures:
    """Measure consecutive one-row upserts on main: two new rows, then one that replaces an old one.

    Serial hops take several seconds to see: tests of several sizes ask for those of the largest.
    """
    requests = tuple(
        count(proxy, lambda n=n: upsert_person(store, f"h{n}" if n % 3 == 2 else f"{label}-{n}"))  # type: ignore[misc]
        for n in range(WRITES)
    )
    slope = serial_hops(lambda: upsert_person(store, f"{label}-hops"), proxy, HOP_LATENCIES) if hops else None
    return Figures(label, requests, slope)


def measure_cold_writes(place: Place, proxy: S3Proxy, label: str) -> Figures:
    """Measure the first write of each of several fresh handles, which know nothing of the table yet."""
    requests = []
    for number in range(10):  # two full rounds of folding, so that every length of the tail is met
        with GraphStore.open(place.address, **place.kwargs) as fresh:
            requests.append(count(proxy, lambda s=fresh, n=number: upsert_person(s, f"cold-{n}")))  # type: ignore[misc]
    return Figures(label, tuple(requests))


def measure_first_writes(store: GraphStore, proxy: S3Proxy, label: str, number: int = 10) -> Figures:
    """Measure the first write on each of several fresh branches."""
    names = [f"{label}-{n}" for n in range(number)]
    for name in names:
        store.branches.create(name, "main")
    requests = tuple(count(proxy, lambda n=name: upsert_person(store, "first", branch=n)) for name in names)  # type: ignore[misc]
    for name in names:
        store.branches.delete(name)
    return Figures(label, requests)


def measure_branches(store: GraphStore, proxy: S3Proxy, label: str) -> tuple[Figures, Figures, Figures]:
    """Measure create, list and delete of a branch."""
    store.branches.list()
    names = [f"{label}-{n}" for n in range(5)]
    created = tuple(count(proxy, lambda n=name: store.branches.create(n, "main")) for name in names)  # type: ignore[misc]
    listed = (count(proxy, store.branches.list),)
    deleted = tuple(count(proxy, lambda n=name: store.branches.delete(n)) for name in names)  # type: ignore[misc]
    return (
        Figures(f"create, {label}", created),
        Figures(f"list, {label}", listed),
        Figures(f"delete, {label}", deleted),
    )


def check_write(figures: Figures) -> None:
    """Assert the bounds of a one-row write."""
    assert figures.mean <= MEAN_WRITE, str(figures)
    assert max(figures.requests) <= WORST_WRITE, str(figures)
    if figures.hops is not None:
        assert figures.hops <= WRITE_HOPS, str(figures)


def check_flat(figures: list[Figures]) -> None:
    """Assert that the means are the same, whatever varied between them."""
    means = [one.mean for one in figures]
    assert max(means) <= min(means) * (1 + FLAT), "; ".join(map(str, figures))


def check_at_most(figures: Figures, bound: int) -> None:
    """Assert that no operation exceeds a bound."""
    assert max(figures.requests) <= bound, str(figures)


def read_table(store: GraphStore) -> int:
    """Read one table's row count at the head: a probe, and an open if the version is new."""
    return int(store.table(store.snapshot(), PERSON).count_rows())
