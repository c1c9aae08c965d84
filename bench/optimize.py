"""What optimize is worth: a scan and a one-row write after many one-row commits with deletes.

    python bench/optimize.py [COMMITS ROWS]
Every third commit deletes a row; a fifth goes at last. Cold: by a handle that has just been opened.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import omnigraph as og
from omnigraph.storage.cost import process_totals

SCHEMA = "node Item { name: String @key  size: I64? @index  note: String? }"
INSERT = (
    'query add($n: String, $s: I64) { insert Item { name: $n, size: $s, note: "a note of some length" } }'
)
DELETE = "query gone($n: String) { delete Item where name = $n }"
SCAN = "query sum() { match { $i: Item } return { sum($i.size) as total, count($i) as n } }"
Found = dict[str, list[tuple[float, float]]]


def fill(graph: og.Graph, commits: int, rows: int) -> None:
    for start in range(0, rows, rows // 10):
        numbers = range(start, start + rows // 10)
        graph.load([{"type": "Item", "data": {"name": f"r{n}", "size": n}} for n in numbers], mode="append")
    for n in range(commits):
        graph.mutate(INSERT, n=f"w{n}", s=n) if n % 3 else graph.mutate(DELETE, n=f"r{rows - 1 - n}")
    graph.mutate("query thin($s: I64) { delete Item where size < $s }", s=rows // 5)


def timed(found: Found, name: str, call: Any, text: str, **parameters: Any) -> None:
    requests, start = process_totals().requests, perf_counter()
    call(text, **parameters)
    found[name].append((process_totals().requests - requests, 1000 * (perf_counter() - start)))


def measured(uri: str, tag: str) -> dict[str, tuple[float, float]]:
    found: Found = defaultdict(list)
    for number in range(15):
        with og.connect(uri, durability="os") as graph:
            timed(found, "scan, cold", graph.query, SCAN)
            timed(found, "write, cold", graph.mutate, INSERT, n=f"{tag}{number}", s=1)
            timed(found, "write, warm", graph.mutate, DELETE, n=f"{tag}{number}")
    return {name: (median(r for r, _ in one), median(t for _, t in one)) for name, one in found.items()}


if __name__ == "__main__":
    commits, rows = (int(text) for text in (*sys.argv[1:], "1000", "200000")[:2])
    with TemporaryDirectory() as folder, og.init(f"{folder}/g", SCHEMA, durability="os") as graph:
        fill(graph, commits, rows)
        before, start = measured(graph.uri, "b"), perf_counter()
        print(f"{graph.optimize().types[0].to_json()}, {perf_counter() - start:.2f} s")
        for name, (requests, ms) in measured(graph.uri, "a").items():
            print(f"{name}: {before[name][0]} to {requests} requests, {before[name][1]:.1f} to {ms:.1f} ms")
