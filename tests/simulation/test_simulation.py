"""Seeds of the simulation: nothing false is ever said, and a seed does the same whenever it is run."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.simulation.plants import PLANTS
from tests.simulation.run import Tally, ground, run_batch, while_time
from tests.simulation.seeds import Ground, report, run_seed, shortest

pytestmark = pytest.mark.slow
CPU_S, SEEDS = 60, 100  # as many seeds as so much time of a processor allows, and at least so many
PARTS = 3  # so that the workers of a run share them
# The first seed that finds each defect, and what is then said of it; without it they find nothing, as those
# of the first test.
GONE = r"Not found: \S+/tables/|is pinned at version \d+, which is not stored"  # files that are needed
FINDS = {
    "ignored_sweep": (15, GONE),
    "ignored_reads": (25, "landed on a state that refuses it"),
    "ignored_head": (0, "stands on .*, and the head was"),
    "late_listing": (26, GONE),
    "one_announcement": (8, GONE),
    "forgotten_names": (2, "below the retention floor"),
    "stale_cache": (0, "was told .*, and None landed"),
    "mistaken_lifetime": (60, "landed on another lifetime"),
    "unread_tombstone": (2, "was read as"),
    "unmade_branch": (2, r"ok, and of \[.*'made \w+'\] it did"),
    "hasty_floor": (38, "HistoryReclaimed without a reason"),
}


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    with ground() as made:
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_seeds_find_nothing_wrong(
    part: int, place: Ground, record_property: Callable[[str, float], None]
) -> None:
    """`python -m tests.simulation.run` runs more of them; the end of the run says how many these were."""
    began, least = time.process_time(), math.ceil(SEEDS / PARTS)
    tally: Tally = run_batch(while_time(CPU_S / PARTS, least, count(part, PARTS)))
    record_property("seeds", tally.seeds)
    record_property("cpu_s", time.process_time() - began)

    assert tally.seeds >= least
    assert tally.failed == [], report(tally.failed[0], *shortest(tally.failed[0], place))
    assert tally.calls["ok"] > tally.seeds, "the programs do next to nothing"


def test_seeds_end_when_their_time_is_over_and_not_before_there_are_enough() -> None:
    assert list(while_time(0, 7, count())) == list(range(7))
    assert list(while_time(60, 0, range(5))) == list(range(5)), "those that there are"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_does_the_same_whenever_it_is_run(seed: int, place: Ground) -> None:
    first, second = run_seed(seed, place), run_seed(seed, place)

    assert first.log == second.log
    assert len(first.decisions) > 50
    assert len({decision.actor for decision in first.decisions}) == 3


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_defect_is_found(name: str, place: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    first, what = FINDS[name]
    found = (run_seed(seed, place).wrong for seed in range(first, first + 25))

    assert any(wrong is not None and re.search(what, wrong) for wrong in found)


def test_a_failing_seed_is_told_with_its_shortest_beginning(
    place: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS["ignored_head"](monkeypatch)
    first, what = FINDS["ignored_head"]
    outcomes = (run_seed(seed, place) for seed in range(first, first + 25))
    seed = next(one.seed for one in outcomes if one.wrong is not None and re.search(what, one.wrong))

    steps, outcome = shortest(seed, place)

    assert outcome.wrong is not None
    assert 0 < steps < len(outcome.decisions)
    assert run_seed(seed, place, steps - 1).wrong is None
    told = report(seed, steps, outcome)
    assert f"--seed {seed} --steps {steps}" in told
    assert "and the head was" in told


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "import secrets",
        "from uuid import uuid4",
        "from ulid import ULID",
        "from time import monotonic",
        "import time\ntime.sleep(1)",
        "import time\ntime.time()",
        "import os\nos.urandom(8)",
        "import numpy as np\nnp.random.default_rng()",
    ],
)
def test_the_package_takes_time_and_randomness_from_one_place_only(line: str) -> None:
    """Or a simulation could not repeat itself."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "--stdin-filename"]
    checked = {
        file: subprocess.run(
            [*command, file, "-"], input=line + "\n", cwd=root, text=True, capture_output=True
        )
        for file in ("src/omnigraph/storage/any.py", "src/omnigraph/base/ids.py")
    }

    assert "base/ids.py" in checked["src/omnigraph/storage/any.py"].stdout
    assert [done.returncode for done in checked.values()] == [1, 0]
