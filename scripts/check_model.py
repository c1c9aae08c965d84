"""Checks the models of docs/model: each holds within its bound, and fails without any one of its guards.

    scripts/check_model.py            the whole bound: minutes
    scripts/check_model.py --small    a bound of seconds, and some of the guards

Needs `spin` and a C compiler. Exit code: 0 if all is as expected, 1 if not, 2 if something is missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).parents[1] / "docs" / "model"
PUBLISH, BRANCHES = "publish.pml", "branches.pml"
AT_ONCE = 2  # searches side by side
DEEPEST = 1_000_000  # steps; reaching it is a failure
MEMORY_MB = 8_000  # reaching it is a failure, too


# -- what is run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One search: a model within a bound, perhaps without one of its guards."""

    model: str
    bound: str
    without: str | None = None
    liveness: bool = False

    @property
    def name(self) -> str:
        """What the table calls it."""
        what = "without " + self.without if self.without else "liveness" if self.liveness else "sound"
        return f"{self.model.removesuffix('.pml')}: {what}"

    @property
    def defines(self) -> list[str]:
        """The options for Spin."""
        words = [*self.bound.split(), *(["LIVENESS"] if self.liveness else [])]
        return [f"-D{word}" for word in [*words, *([f"NO_{self.without}"] if self.without else [])]]


ONE_TABLE = "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=0 ATTEMPTS=2"
DOUBTS = "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=1 WRITERS=1 OTHERS=2 ATTEMPTS=2"
STALLS = "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=0 WRITERS=1 OTHERS=3 ATTEMPTS=2 HANDLE"

TURNS = "KIND=0 ROUNDS=1 DOUBTS=0 TURNS"
PATIENT = f"{TURNS} PATIENT TABLES=1 CLEANERS=0 WRITERS=3 ATTEMPTS=2"

SMALL = (
    Run(PUBLISH, ONE_TABLE),
    Run(PUBLISH, DOUBTS),
    Run(PUBLISH, PATIENT),
    Run(BRANCHES, "DELETE RECREATE FORK DOUBTS=1"),
    Run(BRANCHES, "CLEAN HARD MERGE"),
    Run(PUBLISH, ONE_TABLE, "SWAP"),
    Run(PUBLISH, ONE_TABLE, "SWEPT"),
    Run(PUBLISH, DOUBTS, "FORGOTTEN"),
    Run(PUBLISH, PATIENT, "TURN"),
    Run(BRANCHES, "DELETE RECREATE", "LIFETIMES"),
    Run(BRANCHES, "DELETE", "TOMBSTONE_WRITE"),
)
WHOLE = (
    Run(PUBLISH, "ROUNDS=1 DOUBTS=0 ATTEMPTS=2"),
    Run(PUBLISH, "KIND=0 ROUNDS=1 DOUBTS=1 ATTEMPTS=2"),
    Run(PUBLISH, "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=1"),
    Run(PUBLISH, "KIND=0 TABLES=1 ROUNDS=2 DOUBTS=0"),
    Run(PUBLISH, "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=0 CLEANERS=2"),
    Run(PUBLISH, "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=0 ATTEMPTS=2 WRITERS=3"),
    Run(PUBLISH, DOUBTS.replace("DOUBTS=1", "DOUBTS=2")),
    Run(PUBLISH, STALLS),
    Run(PUBLISH, f"{TURNS} ATTEMPTS=2"),
    Run(PUBLISH, f"{TURNS} TABLES=1"),
    Run(PUBLISH, f"{TURNS.replace('DOUBTS=0', 'DOUBTS=1')} TABLES=1 ATTEMPTS=2"),
    Run(PUBLISH, PATIENT),
    Run(PUBLISH, f"{TURNS} PATIENT TABLES=1"),
    Run(PUBLISH, "KIND=0 TABLES=1 ROUNDS=1 DOUBTS=0", liveness=True),
    Run(PUBLISH, f"{TURNS} TABLES=1 ATTEMPTS=2", liveness=True),
    Run(BRANCHES, "DELETE RECREATE FORK DOUBTS=1 WRITERS=2"),
    Run(BRANCHES, "CLEAN FORK"),
    Run(BRANCHES, "CLEAN HARD MERGE"),
    Run(BRANCHES, "DELETE RECREATE CLEAN ATTEMPTS=2"),
    Run(BRANCHES, "DELETE FORK CLEAN ATTEMPTS=2"),
    *(Run(PUBLISH, ONE_TABLE, guard) for guard in ("SWAP", "MOVED", "SWEPT", "LIST_FIRST", "HISTORY")),
    Run(PUBLISH, ONE_TABLE.replace("ROUNDS=1", "ROUNDS=2"), "ALWAYS_WRITTEN"),
    Run(PUBLISH, ONE_TABLE.replace("KIND=0", "KIND=1"), "STALE"),
    Run(PUBLISH, "KIND=2 ROUNDS=1 DOUBTS=0 ATTEMPTS=2", "VALIDATE"),
    Run(PUBLISH, PATIENT, "TURN"),
    *(Run(PUBLISH, DOUBTS, guard) for guard in ("RECOGNISE", "FORGOTTEN")),
    *(Run(PUBLISH, STALLS.removesuffix(" HANDLE"), guard) for guard in ("READ_BACK", "STALL_AGE")),
    Run(PUBLISH, STALLS, "PROBE_AGE"),
    *(Run(BRANCHES, "DELETE", guard) for guard in ("TOMBSTONE", "TOMBSTONE_WRITE")),
    *(Run(BRANCHES, "DELETE RECREATE", guard) for guard in ("LIFETIMES", "SAME_LINE")),
    Run(BRANCHES, "DELETE FORK", "MARK"),
    Run(BRANCHES, "DELETE DOUBTS=1", "OWN_LINE"),
    *(Run(BRANCHES, "CLEAN FORK", guard) for guard in ("FENCE", "FENCE_LOOK")),
    Run(BRANCHES, "CLEAN HARD MERGE", "TWICE"),
)


# -- one search --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What a search said."""

    run: Run
    complete: bool
    error: str | None  # the promise that broke
    states: int
    depth: int
    seconds: float
    marks: int  # interesting steps that were taken
    trail: tuple[str, ...] = ()

    @property
    def is_expected(self) -> bool:
        """Say whether the sound model held everywhere, or the missing guard was missed."""
        if self.run.without:
            return self.error is not None and "assertion violated" in self.error
        return self.complete and self.error is None


def check(run: Run) -> Found:
    """Run one search; without a guard the shortest way to a broken promise is looked for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(MODELS / run.model, folder)
        _call(folder, "spin", "-a", *run.defines, run.model)
        _call(folder, _compiler(), *_compiled(run), f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c")
        search = ["-a", "-f"] if run.liveness else []
        said = _call(folder, "./pan", f"-m{DEEPEST}", *search)
        found = read(run, said)
        if found.error is None or not run.without:
            return found
        trail = _call(folder, "spin", "-t", "-T", *run.defines, run.model)
        steps = tuple(line.strip() for line in trail.splitlines() if _STEP.match(line))
        return Found(**{**vars(found), "trail": steps})


def read(run: Run, said: str) -> Found:
    """Read what the verifier printed. Whatever says that the search was cut short counts as a failure."""

    def number(pattern: str) -> float:
        match = re.search(pattern, said)
        return float(match[1]) if match else 0

    errors = re.search(r"errors: (\d+)", said)
    broken = re.search(r"pan:\d+: (.*)", said)
    cut = ("max search depth too small", "out of memory", "Search not completed", "memory limit")
    error = None
    if errors is None or int(errors[1]):
        error = broken[1] if broken else "the verifier failed: " + said[-300:]
    marks = re.search(r"marks reached: ([0-9a-f]+)", said)
    return Found(
        run,
        complete=errors is not None and not any(sign in said for sign in cut),
        error=error,
        states=int(number(r"(\d+) states, stored")),
        depth=int(number(r"depth reached (\d+)")),
        seconds=number(r"elapsed time ([\d.e+]+) seconds"),
        marks=int(marks[1], 16) if marks else 0,
    )


_STEP = re.compile(r" *(writer|the (cleanup|handle)|somebody|delete:|create:|merge:|cleanup:)")


def _compiled(run: Run) -> list[str]:
    if run.liveness:
        return ["-O1", "-w", "-DCOLLAPSE"]
    return ["-O1", "-w", "-DSAFETY", "-DNOFAIR", "-DBFS" if run.without else "-DCOLLAPSE"]


def _compiler() -> str:
    return next((name for name in ("gcc", "cc", "clang") if shutil.which(name)), "cc")


def _call(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and command[0] != "./pan":
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


# -- all of them -------------------------------------------------------------------------------------


def missing_tools() -> list[str]:
    """Say what must be installed first."""
    wanted = [] if shutil.which("spin") else ["spin (Debian: apt-get install spin)"]
    return wanted + ([] if shutil.which(_compiler()) else ["a C compiler (Debian: apt-get install gcc)"])


def not_reached(found: Iterable[Found]) -> list[str]:
    """Name the interesting steps that no sound search took: what was proven of them says nothing."""
    taken: dict[str, int] = {}
    for one in found:
        if one.run.without is None:
            taken[one.run.model] = taken.get(one.run.model, 0) | one.marks
    return [
        f"{model}: {name}"
        for model, marks in sorted(taken.items())
        for name, bit in marks_of((MODELS / model).read_text()).items()
        if not marks >> bit & 1
    ]


def marks_of(text: str) -> dict[str, int]:
    """Return the steps that a model marks, with their numbers: the lines that follow the macro."""
    after = text.partition("#define MARK(n)")[2].split("\n\n", 1)[0]
    return {name: int(bit) for name, bit in re.findall(r"^#define (\w+) (\d+)$", after, re.MULTILINE)}


def row(found: Found) -> str:
    """Return the line of the table for one search."""
    outcome = "holds" if found.error is None else f"breaks: {' '.join(found.error.split())[:60]}"
    if not found.complete:
        outcome += ", NOT COMPLETE" if not found.run.without else ""
    verdict = "as expected" if found.is_expected else "UNEXPECTED"
    return (
        f"{found.run.name:34} {found.states:>10,} states {found.depth:>5} deep {found.seconds:>7.1f} s  "
        f"{verdict}: {outcome}\n    {found.run.bound}" + "".join(f"\n      {step}" for step in found.trail)
    )


def main(arguments: Sequence[str]) -> int:
    """Run everything and print the table."""
    unknown = [argument for argument in arguments if argument != "--small"]
    if unknown:
        print(__doc__)
        return 2
    if missing := missing_tools():
        print("to check the models, install " + " and ".join(missing), file=sys.stderr)
        return 2
    found = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for one in pool.map(check, SMALL if "--small" in arguments else WHOLE):
            print(row(one), flush=True)
            found.append(one)
    wrong = [one.run.name for one in found if not one.is_expected]
    unmet = [] if "--small" in arguments else not_reached(found)
    for what in unmet:
        print(f"never reached: {what}")
    print(f"{len(found)} searches, {len(wrong)} not as expected")
    return 1 if wrong or unmet else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
