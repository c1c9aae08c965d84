"""After optimize and cleanup a graph that was written row by row asks and stores what a fresh one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.storage.location import Location
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from tests.cost.test_write_cost import places
from tests.support.gates import FLAT
from tests.support.places import Place
from tests.support.proxy import S3Proxy
from tests.support.s3 import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.slow]

SCHEMA = """
node Person { name: String @key  age: I64? @index }
node City { name: String @key }
edge Lives: Person -> City { since: I64? }
"""
ADD = "query w($k: String) { insert Person { name: $k, age: 1 } }"
WRITES = [
    "query w($k: String) { insert City { name: $k } }",
    ADD,
    ADD,
    'query w($k: String) { insert Lives { from: "k2", to: "k0", since: 7 } insert Person { name: $k } }',
    'query w($k: String) { update Person set { age: 3 } where name != $k and name = "k2" }',
    "query w($k: String) { delete Person where age = 1 and name != $k }",
]
COUNT = "query q() { match { $p: Person  $p lives $c } return { count($p) as n } }"
BYTES = 1.3  # of a fresh graph with the same rows and indexes


def wear(place: Place, commits: int) -> dict[str, Any]:
    """Commit row by row; return the rows that are left, as a load takes them."""
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        for number in range(commits):
            graph.mutate(WRITES[number % len(WRITES)], k=f"k{number}")
        nodes = {name: graph.nodes(name).to_arrow().drop_columns(["id"]) for name in ("Person", "City")}
        edges = graph.edges("Lives").to_arrow().drop_columns(["id"])
        return {**nodes, "Lives": edges.rename_columns({"src": "from", "dst": "to"})}


def maintain(place: Place) -> None:
    """Optimize and give up all history, versions of the branch at once."""
    store = GraphStore.open(place.address, retry=RetryPolicy(confirm_after_s=0), **place.kwargs)
    with Graph(store) as graph:
        graph.optimize()
        graph.cleanup(keep=0, grace="0s", dry_run=False)


def asked(place: Place, proxy: S3Proxy) -> dict[str, int]:
    """Count the requests of a handle that knows nothing."""
    found = {}

    def counting(name: str, call: Callable[[], Any]) -> Any:
        proxy.reset()
        answer = call()
        found[name] = proxy.count()
        return answer

    with counting("open", lambda: og.connect(place.address, **place.kwargs)) as graph:
        counting("read", lambda: graph.query(COUNT))
        counting("probe", lambda: graph.query(COUNT))
        counting("first write", lambda: graph.mutate(ADD, k="x"))
        counting("write", lambda: graph.mutate(ADD, k="y"))
    return found


def stored(place: Place) -> int:
    """Return the bytes of a graph."""
    return sum(size for _, size in Location.parse(place.address, place.options).objects.list())


@pytest.mark.timeout(300)
def test_after_maintenance_a_graph_costs_what_a_fresh_one_costs(s3_server: S3Server, proxy: S3Proxy) -> None:
    worn, worn_counted = places(s3_server, proxy)
    fresh, fresh_counted = places(s3_server, proxy)
    rows = wear(worn, 36)
    before = stored(worn)
    maintain(worn)
    with og.init(fresh.address, SCHEMA, **fresh.kwargs) as graph:
        graph.load(rows, mode="append")
        graph.ensure_indexes()

    assert stored(worn) <= BYTES * stored(fresh) < before / 5
    after, expected = asked(worn_counted, proxy), asked(fresh_counted, proxy)
    print(after, expected)
    assert {name: count for name, count in after.items() if count > (1 + FLAT) * expected[name]} == {}
