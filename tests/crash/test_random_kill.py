"""SIGKILL at a random moment, again and again: what was acknowledged is there, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.storage.store import GraphStore
from tests.support import workers
from tests.support.graphs import chain_of, make_graph, persons, upsert_person
from tests.support.places import Place
from tests.support.processes import run_processes

ROUNDS = 6
SEED = 20_240_229


def end_after(seconds: float, log: Path) -> Callable[[list[int]], None]:
    """Return what kills a process some time after its first acknowledgement of this round."""
    size = log.stat().st_size

    def end(pids: list[int]) -> None:
        deadline = time.monotonic() + 60
        while log.stat().st_size == size and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    return end


@pytest.mark.slow
def test_process_killed_at_random_moments_loses_no_acknowledged_commit(
    local_place: Place, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    log = tmp_path / "acknowledged"
    log.touch()
    make_graph(local_place.address).close()

    for round_number in range(1, ROUNDS + 1):
        job = (local_place.address, str(log))
        after = chance.uniform(0, 0.15)  # a commit takes a few hundredths of a second
        (outcome,) = run_processes(workers.commit_for_ever, [job], meanwhile=end_after(after, log))

        assert outcome.exit_code == -signal.SIGKILL, outcome.error_text
        with GraphStore.open(local_place.address) as store:
            chain = chain_of(store)
            acknowledged = log.read_text().split()
            missing = set(acknowledged) - set(chain)
            assert missing == set(), f"round {round_number}, killed {after:.3f} s after a commit"
            commits = len(chain) - 1
            assert len(persons(store)) == commits, "as many rows as commits"
            assert commits <= len(acknowledged) + 2 * round_number, "at most one unacknowledged in each round"
            assert upsert_person(store, f"round {round_number}").attempts == 1
