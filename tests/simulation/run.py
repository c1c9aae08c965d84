"""Run seeds from the command line: many of them side by side, or one again.

python -m tests.simulation.run --seeds 20000 --jobs 2
python -m tests.simulation.run --seed 17 --steps 30
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.seeds import Ground, report, run_seed, shortest

BATCH = 50  # seeds that a process runs before it answers
ROUND = 20  # batches that it runs before another one takes its place


@dataclass
class Tally:
    """What came of several seeds."""

    seeds: int = 0
    steps: int = 0
    calls: Counter[str] = field(default_factory=Counter)  # by how they ended
    failed: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take in what came of others."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.calls += other.calls
        self.failed += other.failed

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in self.calls.most_common(4))
        total = self.calls.total()
        return f"{self.seeds} seeds, {self.steps} steps, {total} calls ({ends}), {len(self.failed)} failed"


@contextmanager
def ground() -> Iterator[Ground]:
    """Make the graph to start from in a folder that is removed again."""
    folder = Path(tempfile.mkdtemp(prefix="omnigraph-simulation-"))
    try:
        yield Ground(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_batch(seeds: Iterable[int]) -> Tally:
    """Run seeds in this process."""
    tally = Tally()
    with ground() as place:
        for seed in seeds:
            outcome = run_seed(seed, place)
            tally.seeds += 1
            tally.steps += len(outcome.decisions)
            tally.calls.update(call.outcome for call in outcome.calls)
            if outcome.wrong is not None:
                tally.failed.append(seed)
    return tally


def while_time(cpu_s: float, least: int, seeds: Iterable[int]) -> Iterator[int]:
    """Yield seeds until this process has worked for so long, and so many at least."""
    began = time.process_time()
    for done, seed in enumerate(seeds):
        if done >= least and time.process_time() - began >= cpu_s:
            return
        yield seed


def run_many(first: int, seeds: int, jobs: int) -> Tally:
    """Run seeds in several processes, saying how far they are."""
    batches = [
        range(start, min(start + BATCH, first + seeds)) for start in range(first, first + seeds, BATCH)
    ]
    total, began = Tally(), time.perf_counter()
    # A pool for each round, since processes grow: one that replaces them (max_tasks_per_child) was seen to
    # wait for ever when the first was due, in Python 3.11.
    for start in range(0, len(batches), ROUND * jobs):
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            for done in as_completed(
                pool.submit(run_batch, one) for one in batches[start : start + ROUND * jobs]
            ):
                total.add(done.result())
                spent = time.perf_counter() - began
                failed = f": {sorted(total.failed)}" if total.failed else ""
                print(f"{spent:7.0f} s  {total}{failed}", flush=True)
    return total


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="run one seed again, and show what it does")
    parser.add_argument(
        "--steps", type=int, help="of that seed, how many steps before actors run to their ends"
    )
    given = parser.parse_args(arguments)
    if given.seed is not None:
        with ground() as place:
            outcome = run_seed(given.seed, place, given.steps)
        print("\n".join(outcome.log))
        print(outcome.wrong or "nothing is wrong")
        return int(outcome.wrong is not None)
    total = run_many(given.first, given.seeds, given.jobs)
    with ground() as place:
        for seed in sorted(total.failed)[:5]:
            print(report(seed, *shortest(seed, place)), flush=True)
    print(f"simulation: {total}{': ' + str(sorted(total.failed)) if total.failed else ''}")
    return int(bool(total.failed))


if __name__ == "__main__":
    sys.exit(main())
