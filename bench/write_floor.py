"""How much of the substrate's commit rate does the publisher keep?

Bare: write one row, one detached commit, one compare-and-swap on a metadata dataset, and the same
syncs, with nothing around them. Publisher: the same through `GraphStore.publish`, which adds the
freshness probe, the plan, the look-up of the key, folding, the commit record and the cost counters.
The two alternate in small rounds in one process, so that they share whatever the machine is doing;
the figure is the ratio of their rates. They do so on several sets of fresh folders: on the
ext4 of one machine, making a file took 50 or 900 microseconds, depending on its folder.

    .venv/bin/python bench/write_floor.py [--folders 6] [--rounds 6] [--durability sync|os] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from omnigraph.storage.durability import Durability, Syncer
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import manifest_file
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, Effect, Upsert
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan

ROUND = 25
TABLE = "t-person"
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string()), pa.field("age", pa.int32())]
)
RECORD = "x" * 2000  # about what a commit record and its pins take


def row(number: str) -> pa.Table:
    """Return one row."""
    return pa.table({"id": [number], "name": [f"name {number}"], "age": [30]}, schema=SCHEMA)


class Bare:
    """The least that a durable, atomic one-row commit can be on this substrate."""

    def __init__(self, root: str, durability: Durability) -> None:
        self._root = root
        self._syncer = Syncer(enabled=durability == "sync")
        head = pa.schema([pa.field("unused", pa.int8())], metadata={"head": "0"})
        self._manifest = LanceDataset.commit(f"{root}/m", LanceOperation.Overwrite(head, []))
        self._table = LanceDataset.commit(f"{root}/t", LanceOperation.Overwrite(SCHEMA, []))

    def commit(self, number: str) -> None:
        """Commit one row; always on the same small base, so that the floor does not grow."""
        new = write_fragments(row(number), self._table, schema=SCHEMA, mode="append")
        done = LanceDataset.commit(
            self._table, LanceOperation.Append(new), read_version=self._table.version, detached=True
        )
        self._syncer.files(
            [
                f"{self._root}/t/data/{new[0].files[0].path}",
                f"{self._root}/t/_versions/d{done.version}.manifest",
            ]
        )
        change = LanceOperation.UpdateMap({"head": number, "record": RECORD})
        self._manifest = LanceDataset.commit(
            self._manifest,
            LanceOperation.UpdateConfig(schema_metadata_updates=change),
            read_version=self._manifest.version,
            max_retries=0,
        )
        self._syncer.files([f"{self._root}/m/_versions/{manifest_file(self._manifest.version)}"])


def publish(store: GraphStore, effect: Effect) -> None:
    """Commit one effect through the publisher."""
    store.publish("main", PlannedWrite(PublishPlan(CommitKind.MUTATION, effects={TABLE: effect})))


def make(root: str, durability: Durability) -> GraphStore:
    """Make a graph with one table."""
    tables = {TABLE: NewTable("Person", "node", SCHEMA)}
    return GraphStore.create(root, schema=b"{}", tables=tables, durability=durability)


@dataclass(frozen=True)
class Rates:
    """Commits per second of each round."""

    bare: list[float]
    append: list[float]
    upsert: list[float]

    def against_bare(self, mine: list[float]) -> float:
        """Return the median ratio of a round: a disk that is slow for a while is slow for all three."""
        return round(median(one / floor for one, floor in zip(mine, self.bare, strict=True)), 3)


def timed(action: Callable[[str], None], label: str) -> float:
    """Return the rate of one round."""
    started = time.perf_counter()
    for number in range(ROUND):
        action(f"{label}-{number}")
    return ROUND / (time.perf_counter() - started)


def alternate(folder: Path, durability: Durability, folders: int, rounds: int) -> Rates:
    """Run bare and publisher rounds in turn, on several sets of folders."""
    found: dict[str, list[float]] = {"bare": [], "append": [], "upsert": []}
    for number in range(folders):
        for name, rates in alternate_in(folder / f"{durability}-{number}", durability, rounds).items():
            found[name] += rates
    return Rates(**found)


def alternate_in(folder: Path, durability: Durability, rounds: int) -> dict[str, list[float]]:
    """Run bare and publisher rounds in turn, on one set of folders."""
    bare = Bare(str(folder / "bare"), durability)
    found: dict[str, list[float]] = {"bare": [], "append": [], "upsert": []}
    # A graph for each: all three histories are equally long, and so is what Lance lists at a commit.
    with (
        make(str(folder / "append.og"), durability) as appended,
        make(str(folder / "upsert.og"), durability) as upserted,
    ):
        actions: dict[str, Callable[[str], None]] = {
            "bare": bare.commit,
            "append": lambda number: publish(appended, Append(row(number))),
            "upsert": lambda number: publish(upserted, Upsert(row(number))),
        }
        for number in range(rounds + 1):
            for name, action in actions.items():
                rate = timed(action, f"{name}-{number}")
                if number:  # the first round warms up
                    found[name].append(rate)
    return found


def writer(root: str, durability: Durability, label: str, commits: int, ready: Barrier) -> None:
    """Commit rows from one process, when all are ready to."""
    with GraphStore.open(root, durability=durability) as store:
        ready.wait()
        for number in range(commits):
            publish(store, Upsert(row(f"{label}-{number}")))


def threads(folder: Path, durability: Durability, number: int, commits: int) -> float:
    """Return the rate of several threads that share one handle, one table and one branch."""
    with make(str(folder / f"threads-{durability}.og"), durability) as store:

        def work(label: str) -> None:
            for n in range(commits):
                publish(store, Upsert(row(f"{label}-{n}")))

        workers = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(number)]
        started = time.perf_counter()
        for one in workers:
            one.start()
        for one in workers:
            one.join()
        elapsed = time.perf_counter() - started
        assert store.snapshot().pin(TABLE).rows == number * commits
    return number * commits / elapsed


def processes(folder: Path, durability: Durability, number: int, commits: int) -> float:
    """Return the rate of several processes on one table and one branch."""
    root = str(folder / f"processes-{durability}.og")
    make(root, durability).close()
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(number + 1)
    workers = [
        context.Process(target=writer, args=(root, durability, f"p{n}", commits, ready))
        for n in range(number)
    ]
    for one in workers:
        one.start()
    ready.wait()
    started = time.perf_counter()
    for one in workers:
        one.join()
    elapsed = time.perf_counter() - started
    with GraphStore.open(root) as store:
        assert store.snapshot().pin(TABLE).rows == number * commits
    return number * commits / elapsed


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folders", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=6, help="rounds on each set of folders")
    parser.add_argument("--durability", choices=["sync", "os"], action="append")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--commits", type=int, default=25, help="commits of each worker")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = []
    with tempfile.TemporaryDirectory() as name:
        for durability in options.durability or ["sync", "os"]:
            rates = alternate(Path(name), durability, options.folders, options.rounds)
            report.append(
                {
                    "durability": durability,
                    "bare commits/s": round(median(rates.bare), 1),
                    "append commits/s": round(median(rates.append), 1),
                    "upsert commits/s": round(median(rates.upsert), 1),
                    "append / bare": rates.against_bare(rates.append),
                    "upsert / bare": rates.against_bare(rates.upsert),
                    f"{options.workers} threads commits/s": round(
                        threads(Path(name), durability, options.workers, options.commits), 1
                    ),
                    f"{options.workers} processes commits/s": round(
                        processes(Path(name), durability, options.workers, options.commits), 1
                    ),
                }
            )
    if options.json:
        print(json.dumps(report))
        return
    print(f"one-row commits on local disk, {os.cpu_count()} cores")
    for one in report:
        print()
        for key, value in one.items():
            print(f"  {key:24} {value}")


if __name__ == "__main__":
    main()
