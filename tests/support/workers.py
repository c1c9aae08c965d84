"""What the processes of these tests do: each function here is the whole life of one process.

Room    tests. Spawned children import this module by name, so it stays light: no pytest, no fixtures.
Given   an address, its storage options, and plain values.
Gives   plain values that travel back: ids, counts, codes of errors that were expected.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.errors import (
    GraphError,
    PreconditionFailed,
    StaleVersion,
)
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Upsert
from omnigraph.storage.transaction import PublishPlan, WriteTxn
from tests.support.graphs import KNOWS, PERSON, knows, make_graph, people, upsert_person, write

Options = Mapping[str, str]
MEETING_S = 60.0  # how long a process waits for another one before it gives up


@dataclass(frozen=True)
class Done:
    """One acknowledged write."""

    commit_id: str
    attempts: int


@dataclass(frozen=True)
class Increment:
    """Read a person's age and write it back, one older: a strict update that must not be lost."""

    person: str

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Compute the new row from the base."""
        found = txn.table(PERSON).scanner(filter=pc.field("id") == self.person, columns=["age"]).to_table()
        rows = people([self.person], age=found["age"][0].as_py() + 1)
        return PublishPlan(
            CommitKind.MUTATION, effects={PERSON: Upsert(rows)}, decided_by=frozenset({PERSON})
        )

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Accept."""


@contextmanager
def opened(address: str, options: Options, **how: Any) -> Iterator[GraphStore]:
    """Open a graph for the length of a block."""
    with GraphStore.open(address, storage_options=options, **how) as store:
        yield store


# -- meeting other processes -----------------------------------------------------------------------


def meet(directory: str, me: str, number: int) -> None:
    """Wait until `number` processes have come to a directory that only they know."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    Path(directory, me).touch()
    wait_until(lambda: len(list(Path(directory).iterdir())) >= number, f"{number} in {directory}")


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + MEETING_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody came: {what}")
        time.sleep(0.002)


def once(action: Callable[[], object]) -> Callable[[], None]:
    """Return an action for a failpoint that acts at the first passage only."""
    left = [action]

    def act() -> None:
        if left:
            left.pop()()

    return act


# -- writing ---------------------------------------------------------------------------------------


def commit_people(
    address: str, options: Options, table: str, prefix: str, count: int
) -> tuple[list[Done], int]:
    """Commit `count` rows one by one; return the acknowledgements and how often rows were staged."""
    staged: list[None] = []
    with opened(address, options) as store, armed({"table_data.before": lambda: staged.append(None)}):
        done = [
            _done(write(store, {table: Upsert(people([f"{prefix}-{number}"]))})) for number in range(count)
        ]
    return done, len(staged)


def commit_from_threads(address: str, options: Options, prefix: str, threads: int, count: int) -> list[str]:
    """Commit rows from several threads that share one store."""

    def work(thread: int) -> list[str]:
        rows = (f"{prefix}-{thread}-{number}" for number in range(count))
        return [_done(upsert_person(store, row)).commit_id for row in rows]

    with opened(address, options) as store, ThreadPoolExecutor(threads) as pool:
        return [commit for commits in pool.map(work, range(threads)) for commit in commits]


def commit_for_ever(address: str, log: str) -> None:
    """Commit row after row; note each acknowledged id, safe from any crash, before the next one begins."""
    with GraphStore.open(address) as store, Path(log).open("a") as acknowledged:
        while True:
            commit_id = upsert_person(store, f"row {os.getpid()} {acknowledged.tell()}").commit_id
            acknowledged.write(f"{commit_id}\n")
            acknowledged.flush()
            os.fsync(acknowledged.fileno())


def upsert_same(address: str, options: Options, person: str, ages: list[int]) -> dict[str, int]:
    """Upsert one id again and again; return the age that each commit wrote."""
    with opened(address, options) as store:
        return {_done(upsert_person(store, person, age)).commit_id: age for age in ages}


def increment(address: str, options: Options, person: str, calls: int) -> tuple[int, int]:
    """Try strict updates; return how many committed and how many were told of a conflict."""
    committed = conflicts = 0
    with opened(address, options) as store:
        for _ in range(calls):
            try:
                _done(store.publish("main", Increment(person)))
                committed += 1
            except StaleVersion:
                conflicts += 1
    return committed, conflicts


def delete_people(address: str, options: Options, ids: list[str]) -> tuple[int, int]:
    """Delete ids one by one until all calls went through; return commits made and rows deleted."""
    commits = rows = 0
    with opened(address, options) as store:
        for one in ids:
            receipt = None
            while receipt is None:
                try:
                    receipt = write(store, {PERSON: DeleteIds(pa.array([one]))})
                except StaleVersion:
                    continue
            commits += receipt.commit is not None
            rows += sum(change.deleted for change in receipt.tables)
    return commits, rows


def swap_once(address: str, options: Options, directory: str, person: str, number: int) -> str:
    """Stage on the same base as the others, then swap exactly once, all together."""
    policy = RetryPolicy(attempts=1)
    together = {"publish.before": once(lambda: meet(directory, person, number))}
    with opened(address, options, retry=policy) as store, armed(together):
        return _done(upsert_person(store, person)).commit_id


def commit_if(address: str, options: Options, directory: str, person: str, expected: str) -> tuple[str, str]:
    """Write on condition, both holders swapping together; return what happened and the id it names."""
    together = {"publish.before": once(lambda: meet(directory, person, 2))}
    with opened(address, options) as store, armed(together):
        try:
            receipt = write(store, {PERSON: Upsert(people([person]))}, expected_head=expected)
        except PreconditionFailed as refused:
            return refused.code, str(refused.fields["actual"])
    return "ok", _done(receipt).commit_id


def commit_when_told(address: str, options: Options, directory: str, person: str) -> int:
    """Stage a row, say so, and publish only when told; return the number of attempts it took."""

    def park() -> None:
        Path(directory, "parked").touch()
        wait_until(Path(directory, "go").exists, "the word to go on")

    with opened(address, options) as store, armed({"publish.before": once(park)}):
        return upsert_person(store, person).attempts


# -- reading ---------------------------------------------------------------------------------------


def count_in_both(address: str, options: Options, last: int) -> None:
    """Commit one number to two tables at once, again and again."""
    with opened(address, options) as store:
        for number in range(1, last + 1):
            edge = knows({"counter": (str(number), "both")})
            write(store, {PERSON: Upsert(people(["counter"], number)), KNOWS: Upsert(edge)})


def watch_both(address: str, options: Options, last: int, at_least: int) -> list[tuple[int, int]]:
    """Read both tables in a loop until the last number shows; return every pair seen, in order."""
    seen: list[tuple[int, int]] = []
    with opened(address, options) as store:
        while len(seen) < at_least or seen[-1] != (last, last):
            snapshot = store.snapshot()
            person = store.table(snapshot, PERSON).to_table(columns=["age"])["age"].to_pylist()
            edge = store.table(snapshot, KNOWS).to_table(columns=["src"])["src"].to_pylist()
            assert (len(person), len(edge)) == (1, 1)
            seen.append((person[0], int(edge[0])))
    return seen


def read_or_write(
    role: str, address: str, options: Options, last: int, at_least: int
) -> list[tuple[int, int]]:
    """Play the writer or a reader."""
    if role == "writer":
        count_in_both(address, options, last)
        return []
    return watch_both(address, options, last, at_least)


# -- branches and graphs ---------------------------------------------------------------------------


def create_branch(address: str, options: Options, name: str, source: str = "main") -> str:
    """Create a branch; return "ok" or the code of the error."""
    return _code(address, options, lambda store: store.branches.create(name, source))


def delete_branch(address: str, options: Options, name: str) -> str:
    """Delete a branch; return "ok" or the code of the error."""
    return _code(address, options, lambda store: store.branches.delete(name))


def branch_race(role: str, address: str, options: Options, name: str) -> str:
    """Play one part in a race about a branch: delete it, fork `child` from it, or recreate it."""
    if role == "delete":
        return delete_branch(address, options, name)
    if role == "fork":
        return create_branch(address, options, f"child of {name}", name)
    return create_branch(address, options, name)


def write_until_gone(address: str, options: Options, branch: str) -> tuple[list[str], str]:
    """Write to a branch until somebody deletes it; return the acknowledged rows and the final error."""
    acknowledged: list[str] = []
    with opened(address, options) as store:
        deadline = time.monotonic() + MEETING_S
        while time.monotonic() < deadline:
            row = f"w{len(acknowledged)}"
            try:
                upsert_person(store, row, branch=branch)
            except GraphError as error:
                return acknowledged, error.code
            acknowledged.append(row)
    raise TimeoutError("the branch was never deleted")


def live_and_die(role: str, address: str, options: Options, branch: str) -> Any:
    """Play the writer, or the one who deletes the branch under it and at once makes it anew."""
    if role == "writer":
        return write_until_gone(address, options, branch)
    with opened(address, options) as store:
        while store.snapshot(branch).state.version < 4:  # let some writes land first
            time.sleep(0.005)
        store.branches.delete(branch)
        return store.branches.create(branch, "main").incarnation


def init_graph(address: str, options: Options, name: str) -> str:
    """Make a graph; return "ok" or the code of the error."""
    try:
        make_graph(address, storage_options=options, actor=name).close()
    except GraphError as error:
        return error.code
    return "ok"


def _code(address: str, options: Options, act: Callable[[GraphStore], object]) -> str:
    with opened(address, options) as store:
        try:
            act(store)
        except GraphError as error:
            return error.code
    return "ok"


def _done(receipt: Any) -> Done:
    assert receipt.commit_id is not None
    return Done(receipt.commit_id, receipt.attempts)


def each_thread_once(action: Callable[[], object]) -> Callable[[], None]:
    """Return an action for a failpoint that acts at each thread's first passage only."""
    mine = threading.local()

    def act() -> None:
        if not getattr(mine, "passed", False):
            mine.passed = True
            action()

    return act
