"""What maintenance is worth, and what it costs whoever writes meanwhile.

worn      a loaded graph, then one-row commits on nodes and edges, then optimize and cleanup: bytes and files
          on local disk, and requests on S3 (moto's, behind a counting proxy) to open, probe, read and write,
          beside a fresh graph with the same rows
beside    writers paced at half of what they can do, with and without optimize and cleanup in another
          process, in alternating phases: failed writes, and the median time of a write

PYTHONPATH=. python bench/maintenance.py [worn] [beside] [--base 100000] [--commits 2000]
    [--rows 200000] [--phases 6]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore

SCHEMA = """
node Person { name: String @key  age: I64? @index  note: String? }
node City { name: String @key  size: I64? }
edge Lives: Person -> City { since: I64? }
"""
NOTE = "a note of some length, as people write them"
PERSON = f'query w($k: String, $n: I64) {{ insert Person {{ name: $k, age: $n, note: "{NOTE}" }} }}'
CITY = "query w($k: String, $n: I64) { insert City { name: $k, size: $n } }"
LIVES = "query w($k: String, $c: String, $n: I64) { insert Lives { from: $k, to: $c, since: $n } }"
OLDER = "query w($k: String, $n: I64) { update Person set { age: $n } where name = $k }"
GONE = "query w($k: String) { delete Person where name = $k }"
MOVED = "query w($k: String) { delete Lives where from = $k }"
LOOK_UP = "query q($k: String) { match { $p: Person { name: $k } } return { $p.age } }"
HOP = "query q() { match { $p: Person  $p lives $c } return { count($p) as n, sum($p.age) as a } }"
AT_ONCE = RetryPolicy(confirm_after_s=0)  # versions of a branch go at once, not after two minutes
BOUNDS = {"requests": 1.1, "bytes": 1.3, "p50": 1.5}
Figures = dict[str, float]


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", default=["worn", "beside"])
    parser.add_argument("--base", type=int, default=100_000, help="rows that are loaded before the commits")
    parser.add_argument("--commits", type=int, default=2_000)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="of the table beside whose rewriting is written"
    )
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument(
        "--nice", type=int, default=10, help="of the process that maintains, as `nice` has it"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "worn" in options.parts:
            worn(Path(folder), options.base, options.commits)
        if "beside" in options.parts:
            beside(f"{folder}/beside.og", options.rows, options.phases, options.nice)


# -- a graph that was written for long -----------------------------------------------------------------


def wear(graph: og.Graph, base: int, commits: int) -> None:
    """Load rows: people, a city for every hundred, and an edge for each; then commits of one row each."""
    random = Random(1)
    people, cities = [f"b{n}" for n in range(base // 2)], [f"c{n}" for n in range(base // 200)]
    if base:
        homes = [random.choice(cities) for _ in people]
        numbers = list(range(len(people)))
        notes = [f"{NOTE}: {random.getrandbits(64)}" for _ in people]
        rows = {
            "Person": pa.table({"name": people, "age": numbers, "note": notes}),
            "City": pa.table({"name": cities, "size": numbers[: len(cities)]}),
            "Lives": pa.table({"from": people, "to": homes, "since": numbers}),
        }
        graph.load(rows, mode="append")
    for n in range(commits):
        key = f"k{n}"
        match n % 10:
            case 0:
                graph.mutate(CITY, k=key, n=n)
                cities.append(key)
            case 1 | 2 | 3 | 4:
                graph.mutate(PERSON, k=key, n=n)
                people.append(key)
            case 5 | 6:
                graph.mutate(LIVES, k=random.choice(people), c=random.choice(cities), n=n)
            case 7:
                graph.mutate(OLDER, k=random.choice(people), n=n)
            case 8:
                graph.mutate(GONE, k=people.pop(random.randrange(len(people))))
            case _:
                graph.mutate(MOVED, k=random.choice(people))


def tables(graph: og.Graph) -> dict[str, pa.Table]:
    """Return all rows, as a load takes them."""
    nodes = {name: graph.nodes(name).to_arrow().drop_columns(["id"]) for name in ("Person", "City")}
    edges = graph.edges("Lives").to_arrow().drop_columns(["id"])
    return {**nodes, "Lives": edges.rename_columns({"src": "from", "dst": "to"})}


def maintain(address: str, options: dict[str, str] | None = None) -> None:
    """Optimize, and give up all history."""
    with og.Graph(GraphStore.open(address, storage_options=options, retry=AT_ONCE)) as graph:
        graph.optimize()
        for _ in range(2):  # the first announces itself: the second finds what that left
            graph.cleanup(keep=0, grace="0s", dry_run=False)


def stored(address: str) -> Figures:
    """Return the bytes and files of a local graph."""
    sizes = [os.stat(f"{where}/{name}").st_size for where, _, names in os.walk(address) for name in names]
    return {"bytes": sum(sizes), "files": len(sizes)}


def worn(folder: Path, base: int, commits: int) -> None:
    """Print what is stored and asked for, before and after maintenance, and of a fresh graph."""
    from tests.support.proxy import S3Proxy
    from tests.support.s3 import S3Server

    os.environ["OMNIGRAPH_CACHE"] = "off"  # every handle begins with nothing
    old, new = (str(folder / name) for name in ("worn.og", "fresh.og"))
    with og.init(old, SCHEMA, durability="os") as graph:
        wear(graph, base, commits)
        rows = tables(graph)
        with S3Server() as server, S3Proxy(server.endpoint) as proxy:
            direct, counted = server.storage_options(), server.storage_options(proxy.endpoint)
            there, fresh_there = server.new_address(), server.new_address()
            graph.backup(there, storage_options=direct)
            with og.init(fresh_there, SCHEMA, storage_options=direct) as fresh:
                fresh.load(rows, mode="append")
                fresh.ensure_indexes()
            asked = {"before": requests(there, "before", counted, proxy.reset, proxy.count)}
            maintain(there, direct)
            asked["after"] = requests(there, "after", counted, proxy.reset, proxy.count)
            asked["fresh"] = requests(fresh_there, "fresh", counted, proxy.reset, proxy.count)
    kept = {"before": stored(old)}
    maintain(old)
    kept["after"] = stored(old)
    with og.init(new, SCHEMA, durability="os") as fresh:
        fresh.load(rows, mode="append")
        kept["fresh"] = stored(new)
        fresh.ensure_indexes()
        kept["fresh, with indexes"] = stored(new)
    report(commits, {name: table.num_rows for name, table in rows.items()}, kept, asked)


def requests(
    address: str, state: str, options: dict[str, str], reset: Callable[[], None], counter: Callable[[], int]
) -> Figures:
    """Return how many requests things take, most of them by a handle that has just been opened.

    Rows that are written are new in each state: to replace one that is there takes more.
    """
    found: dict[str, list[int]] = {}

    @contextmanager
    def counting(name: str) -> Iterator[None]:
        reset()
        yield
        found.setdefault(name, []).append(counter())

    for turn in range(6):
        with counting("open"):
            graph = og.connect(address, storage_options=options)
        with graph:
            with counting("first read"):
                graph.query(HOP)
            with counting("probe"):
                graph.query(HOP)
            with counting("first write"):
                graph.mutate(PERSON, k=f"{state}{turn}", n=1)
            for number in range(3):
                with counting("write"):
                    graph.mutate(PERSON, k=f"{state}{turn}-{number}", n=1)
            with counting("look-up"):
                graph.query(LOOK_UP, k=f"{state}0")
    return {name: mean(each) for name, each in found.items()}


def report(commits: int, rows: dict[str, int], kept: dict[str, Figures], asked: dict[str, Figures]) -> None:
    """Print the tables, and say which bound is missed."""
    print(f"{commits} one-row commits leave {rows}")
    print(f"\n{'':24}{'bytes':>12}{'files':>9}{'a 1,000 commits':>24}")
    for name, figures in kept.items():
        each = 1000 / commits
        shown = f"{figures['bytes'] * each:>14.0f} {figures['files'] * each:>8.0f}"
        print(f"{name:24}{figures['bytes']:>12.0f}{figures['files']:>9.0f}{shown}")
    # Optimize builds the declared indexes, and a load builds none: like is compared with like.
    ratio = kept["after"]["bytes"] / kept["fresh, with indexes"]["bytes"]
    print(f"after over fresh with the same indexes: {ratio:.2f} {verdict(ratio, 'bytes')}")
    print(f"after over fresh without indexes: {kept['after']['bytes'] / kept['fresh']['bytes']:.2f}")
    print(f"\n{'requests':24}" + "".join(f"{state:>9}" for state in asked) + f"{'after/fresh':>14}")
    for name in asked["fresh"]:
        ratio = asked["after"][name] / asked["fresh"][name]
        shown = "".join(f"{state[name]:>9.2f}" for state in asked.values())
        print(f"{name:24}{shown}{ratio:>14.2f} {verdict(ratio, 'requests')}")


def verdict(ratio: float, bound: str) -> str:
    """Say whether a ratio is within its bound."""
    return "" if ratio <= BOUNDS[bound] else f"MISSED: at most {BOUNDS[bound]}"


# -- maintenance beside writers ------------------------------------------------------------------------


def beside(address: str, rows: int, phases: int, niceness: int) -> None:
    """Print the time of a write with and without maintenance."""
    with og.init(address, SCHEMA, durability="os") as graph:
        names = [f"r{n}" for n in range(rows)]
        graph.load(
            {"Person": pa.table({"name": names, "age": list(range(rows)), "note": [NOTE] * rows})},
            mode="append",
        )
        graph.optimize()
    context = get_context("spawn")
    writers = [context.Pipe() for _ in range(2)]
    keeper = context.Pipe()
    processes = [
        context.Process(target=write_paced, args=(address, n, theirs), daemon=True)
        for n, (_, theirs) in enumerate(writers)
    ]
    processes.append(
        context.Process(target=keep, args=(address, rows, phases, niceness, keeper[1]), daemon=True)
    )
    for process in processes:
        process.start()
    ours, kept = [mine for mine, _ in writers], keeper[0]
    for each in (*ours, kept):
        each.recv()  # ready

    def phase(pause: float, work: bool, seconds: float) -> tuple[list[float], list[str], Any]:
        for writer in ours:
            writer.send(pause)
        done = None
        if work:
            kept.send("work")
            done = kept.recv()
        else:
            time.sleep(seconds)
        for writer in ours:
            writer.send(None)
        answers = [writer.recv() for writer in ours]
        return [t for times, _ in answers for t in times], [e for _, errors in answers for e in errors], done

    phase(0.0, False, 3)  # warms up
    times, errors, _ = phase(0.0, False, 8)
    pause = 2 * 8 / (len(times) / 2)  # of each writer, from one begin to the next
    print(f"\n{len(times) / 8:.0f} writes/s by two processes; paced at half of that")
    quiet: list[float] = []
    busy: list[float] = []
    seconds = 8.0
    for number in range(phases):
        for work in (number % 2 == 0, number % 2 == 1):
            kept.send("wear")
            kept.recv()
            times, failed, done = phase(pause, work, seconds)
            errors += failed
            (busy if work else quiet).extend(times)
            p50 = 1000 * median(times)
            print(f"{'with' if work else 'without':8} {len(times):5} writes, p50 {p50:.1f} ms  {done or ''}")
            if done:
                seconds = max(3.0, done["seconds"])
    ratio = median(busy) / median(quiet)
    print(
        f"p50 {1000 * median(quiet):.1f} ms, with maintenance {1000 * median(busy):.1f} ms: ratio {ratio:.2f}"
    )
    print(verdict(ratio, "p50") or "within its bound")
    print(f"failed writes: {len(errors)} {errors[:3]}")
    for each in (*ours, kept):
        each.send("end")
    for process in processes:
        process.join()


def write_paced(address: str, number: int, channel: Any) -> None:
    """Write rows at a pace for as long as asked; tell how long each took, and what failed."""
    with og.connect(address, durability="os") as graph:
        keys = (f"w{number}-{n}" for n in count())
        graph.mutate(PERSON, k=next(keys), n=1)
        channel.send("ready")
        while (pause := channel.recv()) != "end":
            times: list[float] = []
            errors: list[str] = []
            due = time.perf_counter()
            while not channel.poll(max(0.0, due - time.perf_counter())):
                started = time.perf_counter()
                due = max(started, due + pause)
                try:
                    graph.mutate(PERSON, k=next(keys), n=1)
                except og.GraphError as error:
                    errors.append(str(error))
                times.append(time.perf_counter() - started)
            channel.recv()
            channel.send((times, errors))


def keep(address: str, rows: int, phases: int, niceness: int, channel: Any) -> None:
    """Delete some of the rows, or optimize and clean up, whenever asked."""
    os.nice(niceness)
    part = rows // (4 * phases)
    starts = iter(range(0, rows, part))
    with og.connect(address, durability="os") as graph:
        channel.send("ready")
        while (order := channel.recv()) != "end":
            if order == "wear":
                start = next(starts)
                graph.mutate(
                    "query w($a: I64, $b: I64) { delete Person where age >= $a and age < $b }",
                    a=start,
                    b=start + part,
                )
                channel.send("done")
                continue
            began = time.perf_counter()
            optimized = graph.optimize(policy=og.OptimizePolicy(deleted_share=0.01))
            middle = time.perf_counter()
            cleaned = graph.cleanup(keep=10, grace="2s", dry_run=False)
            person = next(row for row in optimized.types if row.type == "Person")
            channel.send(
                {
                    "seconds": round(time.perf_counter() - began, 2),
                    "optimize": round(middle - began, 2),
                    "rewritten": person.committed,
                    "freed": cleaned.bytes,
                }
            )


if __name__ == "__main__":
    main()
