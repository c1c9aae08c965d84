"""How fast are reads, next to kuzu on the same data in the same run?

    1, 2 and 3 hops from one node; the full two-hop count; filter + group + order over one hop; a key look-up;
    best of several warm runs on 1,000,000 nodes and 10,000,000 edges

    .venv/bin/python bench/traversal.py [--nodes N --edges N --runs 5] [--json]

Needs kuzu (`pip install -c constraints.txt .[bench]`). The two systems must agree on every answer; where
kuzu counts walks and we count pairs of nodes, its query says DISTINCT.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kuzu
from writes import LOAD_SCHEMA, kuzu_load, make_parquet

import omnigraph as og
from omnigraph.engine.graph import Graph

KEY = "person-00000042"
ONE = "$p: Person { name: $k }"
QUERIES: dict[str, tuple[str, str]] = {
    "1 hop": (
        f"query q($k: String) {{ match {{ {ONE} $p knows $f }} return {{ $f.name }} }}",
        "MATCH (p:Person {name: $k})-[:Knows]->(f:Person) RETURN DISTINCT f.name",
    ),
    "2 hops": (
        f"query q($k: String) {{ match {{ {ONE} $p knows{{1,2}} $f }} return {{ $f.name }} }}",
        "MATCH (p:Person {name: $k})-[:Knows*1..2]->(f:Person) RETURN DISTINCT f.name",
    ),
    "3 hops": (
        f"query q($k: String) {{ match {{ {ONE} $p knows{{1,3}} $f }} return {{ $f.name }} }}",
        "MATCH (p:Person {name: $k})-[:Knows*1..3]->(f:Person) RETURN DISTINCT f.name",
    ),
    "two-hop count": (
        "query q() { match { $a knows $b  $b knows $c } return { count($c) as n } }",
        "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person) RETURN count(*) AS n",
    ),
    "filter, group, order": (
        "query q() { match { $a: Person $a knows $b  $a.age > 90 } "
        "return { $b.city as city, count($a) as n } order { n desc } limit 10 }",
        "MATCH (a:Person)-[:Knows]->(b:Person) WHERE a.age > 90 "
        "RETURN b.city AS city, count(a) AS n ORDER BY n DESC LIMIT 10",
    ),
    "key look-up": (
        f"query q($k: String) {{ match {{ {ONE} }} return {{ $p.name, $p.age, $p.city }} }}",
        "MATCH (p:Person {name: $k}) RETURN p.name, p.age, p.city",
    ),
}


def best(action: Callable[[], Any], runs: int) -> float:
    """Return the shortest of several runs, in milliseconds; enough of them first to be warm."""
    for _ in range(25):
        started = time.perf_counter()
        action()
        if time.perf_counter() - started > 0.5:
            break
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        found.append(time.perf_counter() - started)
    return min(found) * 1000


def compare(graph: Graph, connection: Any, runs: int) -> dict[str, dict[str, float]]:
    """Time every query on both."""
    report = {}
    for name, (ours, theirs) in QUERIES.items():
        params = {"k": KEY} if "$k" in ours else {}
        graph.query(QUERIES["two-hop count"][0])  # the topology is warm
        mine = best(lambda q=ours, p=params: graph.query(q, p).table, runs)  # type: ignore[misc]
        other = best(lambda q=theirs, p=params: connection.execute(q, p).get_all(), runs)  # type: ignore[misc]
        report[name] = {
            "ms": round(mine, 3),
            "kuzu ms": round(other, 3),
            "ratio": round(mine / other, 3),
        }
    return report


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_parquet(folder, options.nodes, options.edges)
        connection = kuzu.Connection(kuzu.Database(str(folder / "kuzu.db")))
        kuzu_load(connection, files)
        with og.init(folder / "graph.og", LOAD_SCHEMA) as graph:
            graph.load(files, mode="append")
            report = compare(graph, connection, options.runs)
    if options.json:
        print(json.dumps(report))
        return
    print(f"{options.nodes} nodes, {options.edges} edges, best of {options.runs} warm runs")
    for query, figures in report.items():
        print(
            f"  {query:22} {figures['ms']:10.3f} ms   kuzu {figures['kuzu ms']:10.3f} ms   {figures['ratio']}"
        )


if __name__ == "__main__":
    main()
