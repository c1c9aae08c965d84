"""What does a server cost, and what does it bear? Real `omnigraph serve` processes on loopback.

    overhead  a warm read over HTTP beside the same read embedded, in alternating rounds
    writers   eight clients that insert on one branch, over one client, each write under a key of its own
    load      32 clients, nine reads for each write: no 5xx, and every acknowledged write is there, once
    heavy     look-ups by key alone, and beside heavy queries, for ten seconds each
    killed    two servers on one graph, one of them killed: clients that repeat see every write land once
    sizing    memory, and rates by the number of processes

    .venv/bin/python bench/server.py [PART ...] [--seconds 60] [--place FOLDER] [--json]

Clients are processes of their own on the same machine. Ratios are of one run; exit code 1 if one is not held.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from server_work import ADD, ALL, LOOK_UP, Caller, Task, Told, person, together

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I32? }
node Entry { writer: String  n: I64 }
edge Knows: Person -> Person
"""
PEOPLE = 20_000
# The paths of three edges, by the age at their end. The parameter makes each call another question.
HEAVY = """query heavy($from: I32) {
  match { $a: Person  $a knows $b  $b knows $c  $c knows $d  $a.age >= $from }
  return { $d.age as age, count($a) as paths }
}"""
HEAVY_SECONDS = 10.0
LISTENS = "OMNIGRAPH_LISTEN_ADDR="
Report = dict[str, Any]


# -- servers -------------------------------------------------------------------------------------------


class Server:
    """A server process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.graph = f"http://{address}/graphs/kb"

    def kill(self) -> None:
        """End it as a power cut would."""
        os.kill(self.process.pid, signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """Return how long the process has used cores, which does not depend on who else does."""
        spent = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> int:
        """Return the memory of the process and of those that it started."""
        found = subprocess.run(
            ["ps", "-o", "rss=", "--pid", str(self.process.pid), "--ppid", str(self.process.pid)],
            capture_output=True,
            text=True,
            check=True,
        )
        return sum(map(int, found.stdout.split())) // 1024


@contextmanager
def serving(root: Path, *arguments: str) -> Iterator[Server]:
    """Serve a graph for a block."""
    line = ["serve", str(root), "--id", "kb", "--bind", "127.0.0.1:0", "--unauthenticated", *arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", "omnigraph", *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    errors: list[str] = []
    threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True).start()
    try:
        told = next((one for one in process.stdout if one.startswith(LISTENS)), None)
        if told is None:
            raise SystemExit("".join(errors))
        yield Server(process, told.removeprefix(LISTENS).strip())
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def made(root: Path, people: int = PEOPLE, edges: int = 0) -> Path:
    """Make a graph of people who know each other at random."""
    random = np.random.default_rng(7)
    with og.init(root, SCHEMA) as graph:
        names = pa.array([person(n) for n in range(people)])
        ages = pa.array(random.integers(0, 100, people), pa.int32())
        graph.load({"Person": pa.table({"name": names, "age": ages})}, mode="append")
        if edges:
            ends = {end: names.take(pa.array(random.integers(0, people, edges))) for end in ("from", "to")}
            graph.load({"Knows": pa.table(ends)}, mode="append")
        graph.ensure_indexes()
    return root


def ms(seconds: Sequence[float], percent: float) -> float:
    """Return a percentile in milliseconds."""
    return round(float(np.percentile(seconds, percent)) * 1000, 2)


def missing(server: Server, told: Told) -> Counter[tuple[str, int]]:
    """Return what was acknowledged and is not there once, with how much too little or too often it is."""
    stored = Counter((row["writer"], row["n"]) for row in Caller(server.graph).rows(ALL))
    off = Counter(told.landed)
    off.subtract(stored)
    return Counter({entry: count for entry, count in off.items() if entry in set(told.landed) and count})


# -- parts ---------------------------------------------------------------------------------------------


def overhead(folder: Path, options: argparse.Namespace) -> Report:
    """Compare a warm read over HTTP with the same read embedded."""
    root = made(folder / "overhead.og")
    found: dict[str, list[float]] = {"embedded": [], "http": [], "client": []}
    with serving(root) as server, og.connect(root) as graph, og.connect(server.graph) as remote:
        caller = Caller(server.graph)
        reads: dict[str, Callable[[int], object]] = {
            "embedded": lambda n: graph.query(LOOK_UP, name=person(n)).to_json(),
            "http": caller.look_up,
            "client": lambda n: remote.query(LOOK_UP, name=person(n)).to_json(),
        }
        spent = 0.0
        for number in range(11):
            for name, read in reads.items():
                before = server.cpu_seconds()
                for n in range(50):
                    began = time.perf_counter()
                    read(number * 50 + n)
                    if number:  # the first round warms up
                        found[name].append(time.perf_counter() - began)
                if number and name != "embedded":
                    spent += server.cpu_seconds() - before
    over = ms(found["http"], 50) - ms(found["embedded"], 50)
    return {
        **{f"{name} p50 / p99 ms": f"{ms(t, 50)} / {ms(t, 99)}" for name, t in found.items()},
        "over HTTP, p50 ms (bound 2)": round(over, 2),
        "cores used by the server for a read, ms": round(spent / 1000 * 1000, 2),
        "through our client, p50 ms more": round(ms(found["client"], 50) - ms(found["http"], 50), 2),
        "holds": over <= 2,
    }


def writers(folder: Path, options: argparse.Namespace) -> Report:
    """Compare eight writers with one; each round has a new graph for each."""
    ratios: list[float] = []
    rates, waits, spent = [dict[int, list[float]]({1: [], 8: []}) for _ in range(3)]
    for number in range(options.rounds):
        for clients, times in ((1, 150), (8, 60)):
            root = folder / f"writers-{number}-{clients}.og"
            og.init(root, SCHEMA).close()
            with serving(root) as server:
                for n in range(3):  # warm; from now on it is known that the text only inserts
                    Caller(server.graph).post("/mutate", {"query": ADD, "params": {"writer": "w", "n": n}})
                before = server.cpu_seconds()
                told, seconds = together(Task((server.graph,), times=times, writes=1.0), clients)
                spent[clients].append((server.cpu_seconds() - before) / (clients * times))
                assert told.answers == {200: clients * times}, told.answers
                assert not missing(server, told)
            rates[clients].append(clients * times / seconds)
            waits[clients] += told.writes
        ratios.append(rates[8][-1] / rates[1][-1])
    return {
        **{f"{n} writers/s": round(median(rates[n]), 1) for n in rates},
        **{f"{n} writers p50 / p99 ms": f"{ms(waits[n], 50)} / {ms(waits[n], 99)}" for n in waits},
        **{f"{n} writers: cores used for a write, ms": round(median(spent[n]) * 1000, 2) for n in spent},
        "8 writers / 1 writer (bound 2.5)": round(median(ratios), 2),
        "holds": median(ratios) >= 2.5,
    }


def load(folder: Path, options: argparse.Namespace) -> Report:
    """Let 32 clients read and write for a while."""
    with serving(made(folder / "load.og")) as server:
        task = Task((server.graph,), people=PEOPLE, seconds=options.seconds, writes=0.1, insists=True)
        told, seconds = together(task, 32, 4)
        lost = missing(server, told)
    return {
        "requests/s": round((len(told.reads) + len(told.writes)) / seconds, 1),
        "writes/s": round(len(told.writes) / seconds, 1),
        "reads p50 / p99 ms": f"{ms(told.reads, 50)} / {ms(told.reads, 99)}",
        "writes p50 / p99 ms": f"{ms(told.writes, 50)} / {ms(told.writes, 99)}",
        "answers": dict(told.answers),
        "acknowledged, and not there once": len(lost),
        "holds": not lost and not any(status >= 500 or status == 0 for status in told.answers),
    }


def heavy(folder: Path, options: argparse.Namespace) -> Report:
    """Compare look-ups alone with those beside heavy queries, one after the other."""
    root = made(folder / "heavy.og", edges=options.edges)
    with serving(root) as server:
        task = Task((server.graph,), people=PEOPLE, seconds=HEAVY_SECONDS)
        took: list[float] = []
        enough = threading.Event()

        def run() -> None:
            for turn in itertools.count(len(took)):
                began = time.perf_counter()
                Caller(server.graph).rows(HEAVY, {"from": -turn})
                took.append(time.perf_counter() - began)
                if enough.is_set():
                    return

        enough.set()
        run()  # warm: what follows is the query and not the opening of its edges
        enough.clear()
        alone, _ = together(task, 4)
        thread = threading.Thread(target=run)
        beside, _ = together(task, 4, meanwhile=thread.start)
        enough.set()
        thread.join()
    ratio = ms(beside.reads, 99) / ms(alone.reads, 99)
    return {
        "heavy queries, s": ", ".join(f"{seconds:.1f}" for seconds in took[1:]),
        "look-ups alone, /s": round(len(alone.reads) / HEAVY_SECONDS),
        "look-ups beside them, /s": round(len(beside.reads) / HEAVY_SECONDS),
        "look-ups alone p50 / p99 ms": f"{ms(alone.reads, 50)} / {ms(alone.reads, 99)}",
        "look-ups beside them p50 / p99 ms": f"{ms(beside.reads, 50)} / {ms(beside.reads, 99)}",
        "p99 beside / alone (bound 3)": round(ratio, 2),
        "holds": ratio <= 3,
    }


def killed(folder: Path, options: argparse.Namespace) -> Report:
    """Kill one of two servers while clients write through both."""
    root = made(folder / "killed.og", people=10)
    with serving(root) as one, serving(root) as other:
        task = Task((one.graph, other.graph), seconds=6, writes=1.0, insists=True)
        timer = threading.Timer(2.0, one.kill)
        told, _ = together(task, 8, 2, meanwhile=timer.start)
        wrong = missing(other, told)
    return {
        "writes": len(told.landed),
        "answers, 0 for none": dict(told.answers),
        "not landed once": len(wrong),
        "holds": not wrong and told.answers[0] > 0,
    }


def sizing(folder: Path, options: argparse.Namespace) -> Report:
    """Say how much memory a server takes, and how much it does, by its processes."""
    root = made(folder / "sizing.og")
    report: Report = {}
    for workers in (1, 2):
        with serving(root, "--workers", str(workers)) as server:
            started = server.resident_mib()
            reads, seconds = together(Task((server.graph,), people=PEOPLE, seconds=10), 8, 2)
            writes, spent = together(Task((server.graph,), seconds=10, writes=1.0), 8, 2)
            report |= {
                f"{workers} processes: MiB at start / after": f"{started} / {server.resident_mib()}",
                f"{workers} processes: look-ups/s": round(len(reads.reads) / seconds),
                f"{workers} processes: writes/s of 8": round(len(writes.writes) / spent, 1),
            }
    return report | {"holds": True}


PARTS: dict[str, Callable[[Path, argparse.Namespace], Report]] = {
    "overhead": overhead,
    "writers": writers,
    "load": load,
    "heavy": heavy,
    "killed": killed,
    "sizing": sizing,
}


def main() -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="all of them when left out")
    parser.add_argument("--seconds", type=float, default=60, help="how long the load lasts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--edges", type=int, default=200_000, help="of the graph of the heavy queries")
    parser.add_argument("--place", type=Path, help="where graphs lie; a temporary folder if not given")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = {}
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(dir=options.place) as folder:
            report[name] = PARTS[name](Path(folder), options)
        if not options.json:
            print(name)
            for key, value in report[name].items():
                print(f"  {key:44} {value}", flush=True)
    if options.json:
        print(json.dumps(report))
    return 0 if all(part["holds"] for part in report.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
