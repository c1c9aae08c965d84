"""What checksums cost: writes with and without recording, first reads with and without checking.

    python bench/checksums.py [--rows 2000000] [--commits 300] [--rounds 5]

Local disk. Both forms take turns in one process, and the ratio of their best rounds is reported.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.storage.checksums import Checksums

SCHEMA = "node P { k: String @key  n: I64  f: F64  t: String }"


@contextmanager
def without_recording() -> Iterator[None]:
    kept = Checksums.record_written
    Checksums.record_written = lambda *_: None  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Checksums.record_written = kept  # type: ignore[method-assign]


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rows(count: int) -> pa.Table:
    numbers = pa.array(range(count))
    keys = pa.array([f"k{i:09d}" for i in range(count)])
    texts = pa.array([f"text number {i * 2654435761 % 2**32:x}" for i in range(count)])
    return pa.table({"k": keys, "n": numbers, "f": numbers.cast(pa.float64()), "t": texts})


def commits(place: Path, count: int, durability: Any) -> Callable[[], None]:
    graph = og.init(place, SCHEMA, durability=durability)

    def work() -> None:
        for number in range(count):
            graph.load(
                [{"type": "P", "data": {"k": f"{time.monotonic_ns()}-{number}", "n": 1, "f": 1.0, "t": ""}}],
                mode="append",
            )

    work()  # warm
    return work


def compare(name: str, plain: Callable[[], float], checked: Callable[[], float], rounds: int) -> None:
    pairs = []
    for number in range(rounds):  # each goes first as often as the other
        if number % 2:
            pairs.append((plain(), checked()))
        else:
            pairs.append(tuple(reversed((checked(), plain()))))
    before, after = (min(side) for side in zip(*pairs, strict=True))  # the least disturbed round
    print(f"{name:<34} {before:8.3f} s without  {after:8.3f} s with  ratio {after / before:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for durability in ("os", "sync"):
            work = commits(root / durability, wanted.commits, durability)

            def bare(work: Callable[[], None] = work) -> float:
                with without_recording():
                    return timed(work)

            compare(
                f"{wanted.commits} one-row commits, {durability}",
                bare,
                lambda work=work: timed(work),
                wanted.rounds,
            )
        table, number = rows(wanted.rows), iter(range(10**6))

        def load() -> float:
            with og.init(root / f"bulk{next(number)}", SCHEMA, durability="os") as graph:
                return timed(lambda: graph.load(table, type="P", mode="append"))

        def load_bare() -> float:
            with without_recording():
                return load()

        compare(f"load of {wanted.rows:,} rows", load_bare, load, wanted.rounds)
        place = root / "read"
        with og.init(place, SCHEMA, durability="os") as graph:
            graph.load(table, type="P", mode="append")
            report = graph.verify()

        def read(verify: Any, gq: str) -> float:
            with og.connect(place, verify=verify) as graph:
                return timed(lambda: graph.query(gq))

        scan = "query q() { match { $p: P } return { sum($p.n) as s, max($p.t) as t } }"
        point = 'query q() { match { $p: P { k: "k000000007" } } return { $p.n } }'
        for name, gq in (("first scan of two columns", scan), ("first look-up of a key", point)):
            compare(name, lambda gq=gq: read("off", gq), lambda gq=gq: read("first-read", gq), wanted.rounds)
        with og.connect(place) as graph:
            spent = timed(graph.verify)
        print(f"verify: {report.files} files, {report.bytes / 1e6:.0f} MB in {spent:.3f} s")


if __name__ == "__main__":
    main()
