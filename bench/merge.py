"""What does a merge cost, and does it follow the change or the graph?

time     1 row, and 50 rows over 8 types, merged into 8 types of 1,000 and of 100,000 rows each, warm;
         the target changed every touched type meanwhile, so rows are written, not only pointers moved
memory   200,000 changed rows merged into 2,000,000, in a process of its own

.venv/bin/python bench/merge.py [time] [memory] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.engine.graph import Graph

TYPES = 8
SIZES = (1_000, 100_000)
REFERENCE_MS = {1: 79, 50: 130}  # measured on the system that this one re-imagines, on another machine
SCHEMA = "\n".join(f"node T{n} {{ name: String @key  value: I32?  note: String? }}" for n in range(TYPES))
LARGE, CHANGED = 2_000_000, 200_000


def filled(place: Path, rows: int) -> Graph:
    """Make a graph of eight types with so many rows each."""
    graph = og.init(place, SCHEMA)
    names = pa.array([f"p{n}" for n in range(rows)])
    table = pa.table({"name": names, "value": pa.array([0] * rows, pa.int32())})
    graph.load({f"T{n}": table for n in range(TYPES)}, mode="append")
    graph.ensure_indexes()
    return graph


def merge_once(graph: Graph, number: int, changes: int) -> float:
    """Change both sides, merge, and return the seconds that the merge took."""
    branch, touched = f"b{changes}-{number}", min(changes, TYPES)
    graph.store.branches.create(branch, "main")
    theirs = [
        {
            "type": f"T{n % touched}",
            "data": {"name": f"p{(number * 61 + n // touched) % 900}", "value": number},
        }
        for n in range(changes)
    ]
    graph.load(theirs, mode="merge", branch=branch)
    ours = [{"type": f"T{n}", "data": {"name": f"p{999 - number}", "value": number}} for n in range(touched)]
    graph.load(ours, mode="merge")
    started = time.perf_counter()
    outcome = graph.merge(branch)
    spent = time.perf_counter() - started
    assert outcome.outcome.value == "merged"
    return spent


def times(folder: Path, rounds: int) -> dict[str, Any]:
    """Time merges into a small and a large graph, in turns."""
    graphs = {size: filled(folder / f"{size}.og", size) for size in SIZES}
    found: dict[str, Any] = {}
    for changes in (1, 50):
        spent: dict[int, list[float]] = {size: [] for size in SIZES}
        for number in range(rounds + 2):
            for size, graph in graphs.items():
                spent[size].append(merge_once(graph, number, changes))
        best = {size: median(seconds[2:]) * 1000 for size, seconds in spent.items()}
        found[f"{changes} changes"] = {
            **{f"into {TYPES} x {size} rows, ms": round(ms, 1) for size, ms in best.items()},
            "ratio of large to small": round(best[SIZES[1]] / best[SIZES[0]], 2),
            "reference, ms": REFERENCE_MS[changes],
        }
    for graph in graphs.values():
        graph.close()
    return found


def large(place: str) -> dict[str, Any]:
    """Merge many rows into many more; run in a process of its own."""
    with og.init(place, SCHEMA, durability="os") as graph:
        names = pa.array([f"p{n}" for n in range(LARGE)])
        graph.load(pa.table({"name": names, "note": names}), type="T0", mode="append")
        graph.store.branches.create("side", "main")
        changed = pa.table({"name": names[: CHANGED * 10 : 10], "value": pa.array([1] * CHANGED, pa.int32())})
        graph.load(changed, type="T0", mode="merge", branch="side")
        mine = pa.table(
            {"name": names[5 : CHANGED * 10 : 100], "value": pa.array([2] * (CHANGED // 10), pa.int32())}
        )
        graph.load(mine, type="T0", mode="merge")
    with og.connect(place, durability="os") as graph:
        started = time.perf_counter()
        outcome = graph.merge("side")
        spent = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    return {
        "merged rows": sum(one.updated + one.inserted for one in outcome.types),
        "seconds": round(spent, 2),
        "peak RSS of the process, GiB": round(peak, 2),
    }


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=["time", "memory", []], default=[])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    parts = arguments.parts or ["time", "memory"]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "time" in parts:
            found |= times(Path(folder), arguments.rounds)
        if "memory" in parts:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found["200,000 rows into 2,000,000"] = pool.apply(large, (f"{folder}/large.og",))
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for title, figures in found.items():
        print(title)
        for name, figure in figures.items():
            print(f"  {name:<34} {figure}")


if __name__ == "__main__":
    main()
