"""What do constraints cost, and how fast does data get in?

    commits   one-row validated mutations over bare detached commit + compare-and-swap, in alternating rounds;
              then eight threads of one process (group commit) over one thread
    load      nodes and edges from Parquet with every check on, over kuzu's COPY of the same files in this run
    jsonl     records a minute from a data file

    .venv/bin/python bench/writes.py [commits] [load] [jsonl] [--nodes N --edges N --records N] [--json]

The comparison needs kuzu (`pip install -c constraints.txt .[bench]`); without it, it is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from write_floor import Bare

import omnigraph as og
from omnigraph.engine.graph import Graph

ROUND = 25
SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  @range(age, 0..120) }
edge Knows: Person -> Person { since: I32? }
"""
LOAD_SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person { since: I32? }
"""
INSERT = "query add($n: String, $e: String) { insert Person { name: $n, age: 30, email: $e } }"
LINK = "query link($a: String, $b: String) { insert Knows { from: $a, to: $b, since: 2020 } }"


def timed(action: Callable[[str], None], label: str) -> float:
    """Return the rate of one round."""
    started = time.perf_counter()
    for number in range(ROUND):
        action(f"{label}-{number}")
    return ROUND / (time.perf_counter() - started)


def commits(folder: Path, rounds: int) -> dict[str, Any]:
    """Compare validated one-row mutations with the floor, then eight threads with one."""
    bare = Bare(str(folder / "bare"), "sync")
    found: dict[str, list[float]] = {"bare": [], "node": [], "edge": []}
    with og.init(folder / "nodes.og", SCHEMA) as nodes, og.init(folder / "edges.og", SCHEMA) as edges:
        edges.mutate(INSERT, n="a", e="a@x")
        edges.mutate(INSERT, n="b", e="b@x")
        actions: dict[str, Callable[[str], None]] = {
            "bare": bare.commit,
            "node": lambda n: _ignore(nodes.mutate(INSERT, n=n, e=f"{n}@x")),
            "edge": lambda n: _ignore(edges.mutate(LINK, a="a", b="b")),
        }
        for number in range(rounds + 1):
            for name, action in actions.items():
                rate = timed(action, f"{name}-{number}")
                if number:  # the first round warms up
                    found[name].append(rate)
    rates = {name: median(one) for name, one in found.items()}
    # Of each round, not of the medians: a disk that is slow for a while is slow for all three.
    against = {
        name: median(mine / floor for mine, floor in zip(found[name], found["bare"], strict=True))
        for name in ("node", "edge")
    }
    one, eight = threads(folder / "one.og", 1, 200), threads(folder / "eight.og", 8, 50)
    return {
        "bare commits/s": round(rates["bare"], 1),
        "validated node insert/s": round(rates["node"], 1),
        "validated edge insert/s": round(rates["edge"], 1),
        "node / bare": round(against["node"], 3),
        "edge / bare": round(against["edge"], 3),
        "1 thread commits/s": round(one, 1),
        "8 threads writes/s": round(eight, 1),
        "8 threads / 1 thread": round(eight / one, 2),
    }


def _ignore(_: object) -> None:
    """Take a receipt and do nothing with it."""


def threads(root: Path, number: int, each: int) -> float:
    """Return the rate of writers that share one handle and one branch."""
    with og.init(root, SCHEMA) as graph:
        graph.mutate(INSERT, n="first", e="first@x")

        def work(label: str) -> None:
            for n in range(each):
                graph.mutate(INSERT, n=f"{label}-{n}", e=f"{label}-{n}@x")

        workers = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(number)]
        started = time.perf_counter()
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        elapsed = time.perf_counter() - started
        assert len(graph.nodes("Person")) == number * each + 1
    return number * each / elapsed


# -- bulk --------------------------------------------------------------------------------------------


def make_parquet(folder: Path, nodes: int, edges: int) -> dict[str, str]:
    """Write a random graph with text keys."""
    random = np.random.default_rng(7)
    keys = pa.array([f"person-{n:08d}" for n in range(nodes)])
    people = {
        "name": keys,
        "age": pa.array(random.integers(0, 100, nodes), pa.int32()),
        "city": pa.array([f"city-{n}" for n in random.integers(0, 500, nodes)]),
    }
    pq.write_table(pa.table(people), folder / "Person.parquet")
    ends = {
        "from": keys.take(pa.array(random.integers(0, nodes, edges))),
        "to": keys.take(pa.array(random.integers(0, nodes, edges))),
        "since": pa.array(random.integers(1990, 2026, edges), pa.int32()),
    }
    pq.write_table(pa.table(ends), folder / "Knows.parquet")
    return {"Person": str(folder / "Person.parquet"), "Knows": str(folder / "Knows.parquet")}


class PeakMemory:
    """The most memory that the process held while a block ran, as the system counts it."""

    def __enter__(self) -> PeakMemory:
        Path("/proc/self/clear_refs").write_text("5")  # from now on
        self.before = self._mib("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.mib = self._mib("VmHWM")

    def _mib(self, name: str) -> int:
        status = Path("/proc/self/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) // 1024


def load(folder: Path, nodes: int, edges: int) -> dict[str, Any]:
    """Load nodes and edges with every check; compare with kuzu."""
    files = make_parquet(folder, nodes, edges)
    with og.init(folder / "load.og", LOAD_SCHEMA) as graph:
        started = time.perf_counter()
        with PeakMemory() as memory:
            receipt = graph.load(files, mode="append")
        mine = time.perf_counter() - started
        assert [count.inserted for count in receipt.types] == [nodes, edges]
    report: dict[str, Any] = {
        "nodes": nodes,
        "edges": edges,
        "load seconds": round(mine, 2),
        "rows/s": round((nodes + edges) / mine),
        "peak RSS MiB": memory.mib,
    }
    if importlib.util.find_spec("kuzu") is None:
        return {**report, "kuzu": "not installed"}
    theirs = kuzu_copy(folder, files)
    return {**report, "kuzu COPY seconds": round(theirs, 2), "load / kuzu": round(mine / theirs, 3)}


def kuzu_copy(folder: Path, files: dict[str, str]) -> float:
    """Return the seconds that kuzu takes for the same files."""
    import kuzu

    return kuzu_load(kuzu.Connection(kuzu.Database(str(folder / "kuzu.db"))), files)


def kuzu_load(connection: Any, files: dict[str, str]) -> float:
    """Make the tables and copy the files; return the seconds of copying."""
    connection.execute("CREATE NODE TABLE Person(name STRING, age INT32, city STRING, PRIMARY KEY(name))")
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
    started = time.perf_counter()
    connection.execute(f"COPY Person FROM '{files['Person']}'")
    connection.execute(f"COPY Knows FROM '{files['Knows']}'")
    return time.perf_counter() - started


def jsonl(folder: Path, records: int) -> dict[str, Any]:
    """Load a data file of nodes and edges, half each."""
    path = folder / "data.jsonl"
    with path.open("w") as out:
        for n in range(records // 2):
            out.write(json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n % 100}}) + "\n")
            edge = {"edge": "Knows", "from": f"p{n}", "to": f"p{n * 7919 % (records // 2)}"}
            out.write(json.dumps({**edge, "data": {"since": 2020}}) + "\n")
    with og.init(folder / "jsonl.og", LOAD_SCHEMA) as graph:
        started = time.perf_counter()
        with PeakMemory() as memory:
            _loaded(graph, path)
        elapsed = time.perf_counter() - started
    return {
        "records": records,
        "seconds": round(elapsed, 2),
        "records/minute": round(records / elapsed * 60),
        "peak RSS MiB": memory.mib,
    }


def _loaded(graph: Graph, path: Path) -> None:
    graph.load(path, mode="merge")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", help="commits, load, jsonl; all of them when left out")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {
        "commits": lambda folder: commits(folder, options.rounds),
        "load": lambda folder: load(folder, options.nodes, options.edges),
        "jsonl": lambda folder: jsonl(folder, options.records),
    }
    report = {}
    for name in options.parts or parts:
        with tempfile.TemporaryDirectory() as folder:
            report[name] = parts[name](Path(folder))
        if not options.json:
            print(name)
            for key, value in report[name].items():
                print(f"  {key:26} {value}")
    if options.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
