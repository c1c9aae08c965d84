"""Credentials that run out, and a clock that is off: said at once, and the handle goes on afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import Kind
from tests.support.places import Place
from tests.support.proxy import Fault, S3Proxy

pytestmark = pytest.mark.s3

SCHEMA = "node Person { name: String @key  age: I32? }"
ADD = "query add($n: String) { insert Person { name: $n, age: 1 } }"
ALL = "query all() { match { $p: Person } return { $p.name, $p.age } }"
FOR_EVER = 100_000
REQUESTS = 25  # of one call that is refused; a storm would be hundreds

CALLS: dict[str, Callable[[Graph], object]] = {
    "query": lambda g: g.query(ALL),
    "rows": lambda g: g.nodes("Person").to_arrow(),
    "mutate": lambda g: g.mutate(ADD, n="new"),
    "load": lambda g: g.load([{"type": "Person", "data": {"name": "loaded"}}], mode="append"),
    "branches": lambda g: g.branches.list(counts=True),
    "fork": lambda g: g.branches.create("new"),
    "commits": lambda g: g.commits.list(),
    "time travel": lambda g: g.nodes("Person", at="main~1").to_arrow(),
    "tag": lambda g: g.tags.create("v1"),
    "tags": lambda g: g.tags.list(),
    "merge": lambda g: g.merge("side"),
    "optimize": lambda g: g.optimize(),
    "backup": lambda g: g.backup(f"{g.uri}-copy", storage_options=g.store.location.options),
    "doctor": lambda g: g.doctor(),
    "cleanup": lambda g: g.cleanup(keep=1),
    "open": lambda g: og.connect(g.uri, storage_options=g.store.location.options),
}


@pytest.fixture
def graph(counted_place: Place) -> Iterator[Graph]:
    """A graph behind the proxy, with a few commits, and a handle that knows nothing of its tables."""
    with og.init(counted_place.address, SCHEMA, **counted_place.kwargs) as made:
        for name in ("a", "b"):
            made.mutate(ADD, n=name)
        made.branches.create("side")
        made.mutate(ADD, n="aside", branch="side")
    with og.connect(counted_place.address, **counted_place.kwargs) as opened:
        yield opened


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        pytest.param(Fault.EXPIRED, "credentials", id="expired"),
        pytest.param(Fault.SKEWED, "clock", id="skewed", marks=pytest.mark.full),
    ],
)
def test_every_call_says_what_is_refused_without_a_storm(
    graph: Graph, proxy: S3Proxy, fault: Fault, named: str
) -> None:
    found: dict[str, str] = {}
    for name, call in CALLS.items():
        proxy.fail(lambda method, key: True, fault, FOR_EVER)
        proxy.reset()
        try:
            call(graph)
            found[name] = "answered"
        except og.GraphError as error:
            good = error.kind is Kind.DENIED and error.code == "storage" and named in str(error.remedy)
            found[name] = "" if good else f"{error.code} {error.kind} {error}"
        if proxy.count() > REQUESTS:
            found[name] += f" {proxy.count()} requests"
        proxy.clear_faults()
    assert {name: said for name, said in found.items() if said} == {}
    for call in CALLS.values():  # with good credentials on the same handle
        call(graph)
    assert {row["p.name"] for row in graph.query(ALL).to_json()["rows"]} == {
        "a",
        "b",
        "new",
        "loaded",
        "aside",
    }


@pytest.mark.parametrize("after", [2, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 3, 5, 8))])
def test_a_write_whose_credentials_run_out_on_the_way_says_whether_it_landed(
    graph: Graph, proxy: S3Proxy, after: int
) -> None:
    seen = [0]

    def from_then_on(method: str, key: str) -> bool:
        seen[0] += 1
        return seen[0] > after

    proxy.fail(from_then_on, Fault.EXPIRED, FOR_EVER)
    with pytest.raises(og.GraphError) as caught:
        graph.mutate(ADD, n="late")
    proxy.clear_faults()

    assert caught.value.code in ("storage", "outcome_unknown")
    names = {row["p.name"] for row in graph.query(ALL).to_json()["rows"]}
    assert caught.value.code == "outcome_unknown" or "late" not in names
    graph.mutate('query del() { delete Person where name = "late" }')
    graph.mutate(ADD, n="late")
