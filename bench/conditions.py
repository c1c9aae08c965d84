"""How does the time of a query grow with the length of its condition?

    lists as parameters and in the text, chains of `or` and `and`, in reads, updates and look-ups by key; each
    CPU time is divided by that of a condition a tenth as long: 10 is linear, 100 would be quadratic

.venv/bin/python bench/conditions.py [--rows 20000 --runs 3] [--json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph import Graph

SIZES = (1_000, 10_000, 100_000)
LONGEST_CHAIN = 10_000
READ = "query q(%s) { match { $p: P  %s } return { count($p) as n } }"
WRITE = "query u(%s) { update P set { mark: 1 } where %s }"
LIST = "$xs: [String]"


def doors(graph: Graph) -> dict[str, Callable[[list[str]], Any]]:
    """Return what is measured: each takes the values of its condition."""
    return {
        "read: list as parameter": lambda xs: graph.query(READ % (LIST, "$p.c in $xs"), xs=xs),
        "read: not in list": lambda xs: graph.query(READ % (LIST, "not($p.c in $xs)"), xs=xs),
        "read: keys": lambda xs: graph.query(READ % (LIST, "$p.k in $xs"), xs=xs),
        "read: list in the text": lambda xs: graph.query(READ % ("", f"$p.c in {json.dumps(xs)}")),
        "read: chain of or": lambda xs: graph.query(READ % ("", joined(" or ", '$p.c = "{}"', xs))),
        "read: chain of and": lambda xs: graph.query(READ % ("", joined(" and ", '$p.c != "{}"', xs))),
        "read: chain of pairs": lambda xs: graph.query(
            READ % ("", joined(" or ", '($p.c = "{}" and $p.n >= 0)', xs))
        ),
        "update: list as parameter": lambda xs: graph.mutate(WRITE % (LIST, "c in $xs"), xs=xs),
        "update: keys": lambda xs: graph.mutate(WRITE % (LIST, "k in $xs"), xs=xs),
        "update: chain of or": lambda xs: graph.mutate(WRITE % ("", joined(" or ", 'c = "{}"', xs))),
    }


def joined(word: str, part: str, values: list[str]) -> str:
    """Return a chain of one test for each value."""
    return word.join(part.format(value) for value in values)


def best(action: Callable[[], Any], runs: int) -> float:
    """Return the shortest of some runs, in seconds of this process: others on the machine do not count."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def measure(rows: int, runs: int) -> list[dict[str, Any]]:
    """Return the seconds of every door at every length, and their growth."""
    measured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        schema = "node P { k: String @key  c: String?  n: I64?  mark: I64? }"
        with og.init(Path(folder) / "g.og", schema, durability="os") as graph:
            names = [f"c{number}" for number in range(rows)]
            table = pa.table({"k": names, "c": names, "n": list(range(rows))})
            graph.load({"P": table}, mode="append")
            graph.query(READ % (LIST, "$p.c in $xs"), xs=[])  # the first query opens the tables
            for name, door in doors(graph).items():
                seconds: dict[int, float] = {}
                for size in SIZES:
                    if "chain" in name and size > LONGEST_CHAIN:
                        continue
                    fresh = iter(range(runs))  # a text that was compiled before is not compiled again
                    seconds[size] = best(partial(_asked, door, size, fresh), runs)
                growth = {size: seconds[size] / seconds[size // 10] for size in [*seconds][1:]}
                measured.append({"door": name, "seconds": seconds, "growth": growth})
    return measured


def _asked(door: Callable[[list[str]], object], size: int, fresh: Iterator[int]) -> None:
    door(values(size, next(fresh)))


def values(size: int, salt: int) -> list[str]:
    """Return values of which those of even numbers are stored."""
    return [f"c{2 * number}" for number in range(size - 1)] + [f"x{salt}"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = measure(options.rows, options.runs)
    if options.json:
        print(json.dumps(measured))
        return
    print(f"{'':28}" + "".join(f"{size:>12,}" for size in SIZES) + "   growth for ten times the length")
    for line in measured:
        seconds = line["seconds"]
        times = "".join(f"{seconds[size]:>11.3f}s" if size in seconds else f"{'-':>12}" for size in SIZES)
        growth = "  ".join(f"{ratio:.1f}x" for ratio in line["growth"].values())
        print(f"{line['door']:28}{times}   {growth}")


if __name__ == "__main__":
    main()
