"""What checksums cost: the share that recording has of writes, and checking of first reads.

    .venv/bin/python bench/checksums.py [--rows 2000000] [--commits 200] [--rounds 5]

Local disk. The time inside the calls that record or check is taken in the very run whose time it is compared
with, so other work on the machine slows both alike; the median of some rounds is reported.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.storage.checksums import Checksums, FirstReads

SCHEMA = "node P { k: String @key  n: I64  f: F64  t: String }"
SCAN = "query q() { match { $p: P } return { sum($p.n) as s, max($p.t) as t } }"
LOOK_UP = 'query q() { match { $p: P { k: "k000000007" } } return { $p.n } }'


@contextmanager
def time_inside(owner: type, name: str) -> Iterator[list[float]]:
    """Collect the time of every call of a method."""
    method, spent = getattr(owner, name), list[float]()

    def timed(*given: Any) -> Any:
        started = time.perf_counter()
        try:
            return method(*given)
        finally:
            spent.append(time.perf_counter() - started)

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        setattr(owner, name, method)


def report(what: str, owner: type, name: str, work: Callable[[], float], rounds: int) -> None:
    """Run the work and print which share of its time went into a method."""
    totals, inside = [], []
    for _ in range(rounds):
        with time_inside(owner, name) as spent:
            totals.append(work())
        inside.append(sum(spent))
    share = median(part / total for part, total in zip(inside, totals, strict=True))
    print(f"{what:<32} {median(totals):8.4f} s, of which {median(inside):8.4f} s: {share:.1%}")


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rows(count: int) -> pa.Table:
    numbers = pa.array(range(count))
    keys = pa.array([f"k{i:09d}" for i in range(count)])
    texts = pa.array([f"text number {i * 2654435761 % 2**32:x}" for i in range(count)])
    return pa.table({"k": keys, "n": numbers, "f": numbers.cast(pa.float64()), "t": texts})


def commit(graph: og.Graph, count: int) -> float:
    """Return the time of some one-row commits."""
    records = [
        {"type": "P", "data": {"k": f"{time.monotonic_ns()}-{number}", "n": 1, "f": 1.0, "t": ""}}
        for number in range(count)
    ]
    return seconds(lambda: [graph.load([record], mode="append") for record in records])


def load(folder: Path, table: pa.Table) -> float:
    place = folder / f"bulk-{time.monotonic_ns()}"
    with og.init(place, SCHEMA, durability="os") as graph:
        return seconds(lambda: graph.load(table, type="P", mode="append"))


def first_read(place: Path, gq: str) -> float:
    with og.connect(place, verify="first-read") as graph:
        return seconds(lambda: graph.query(gq))


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, table = Path(name), rows(wanted.rows)
        writing = partial(report, owner=Checksums, name="record_written", rounds=wanted.rounds)
        for durability in ("os", "sync"):
            with og.init(folder / durability, SCHEMA, durability=durability) as graph:
                commit(graph, 20)  # warm
                writing(
                    f"{wanted.commits} commits, {durability}", work=partial(commit, graph, wanted.commits)
                )
        writing(f"load of {wanted.rows:,} rows", work=partial(load, folder, table))
        place = folder / "read"
        with og.init(place, SCHEMA, durability="os") as graph:
            graph.load(table, type="P", mode="append")
            whole = graph.verify()
            spent = seconds(graph.verify)
        for what, gq in (("first scan of two columns", SCAN), ("first look-up of a key", LOOK_UP)):
            report(what, FirstReads, "_check", partial(first_read, place, gq), wanted.rounds)
        print(f"verify of {whole.files} files, {whole.bytes / 1e6:.0f} MB: {spent:.4f} s")


if __name__ == "__main__":
    main()
