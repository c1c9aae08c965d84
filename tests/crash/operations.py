"""The operations that are killed half way, the graph they start from, and what they are expected to pass.

Room    tests. Spawned children import this module by name; no pytest here.
Base    made so that one write passes every step a write can pass: Person has one settled fragment, whose key
        hashes lie beside it and whose rows are deleted by a deletion file; and a tail so full that the next
        write folds it into a fragment that gets key hashes. `review` has a commit of its own, `v1` is a tag,
        and `v0` one of an old commit.
Path    each operation names the durable steps it passes, and the one that makes it visible: a process killed
        before that step is over leaves the graph as it was, one killed later as it is to be. A step that only
        adds a version to a branch, which nobody can tell by what it holds, is named as `noted`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from omnigraph.engine.backup import back_up
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.durability import Step
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.retention import Retention
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import BuildIndexes, IndexSpec, StoredIndexKind, Upsert
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan
from tests.support.death import dying_at, noting_points
from tests.support.graphs import KNOWS, PERSON, PERSON_SCHEMA, knows, make_graph, people, upsert_person, write

Options = Mapping[str, str]
SETTLED_ROWS = 5_000  # past the first tier
TAIL, TAIL_ROWS = 6, 800  # as many small fragments as a tier holds, together past the first tier

OLD = 3  # the version that a tag keeps below the floor
AT_ONCE = RetryPolicy(confirm_after_s=0)  # a cleanup waits for no commit that stalled

LOCAL_ONLY = frozenset({Step.STAGED_SYNC, Step.CHECKSUM})  # object stores see to both by themselves


@dataclass(frozen=True)
class Operation:
    """One thing a process does, and the durable steps on its way."""

    name: str
    run: Callable[[str, Options], None]
    steps: tuple[Step, ...]
    visible: Step
    needs_base: bool = True
    noted: tuple[Step, str] | None = None  # a control write before the visible step, and its branch

    def __str__(self) -> str:
        return self.name


def make_base(address: str, options: Options) -> None:
    """Make the graph that all operations start from."""
    with make_graph(address, storage_options=options) as store:
        edges = knows({f"e{n}": (f"big{n}", f"big{n + 1}") for n in range(SETTLED_ROWS)})
        write(store, {PERSON: Upsert(people(f"big{n}" for n in range(SETTLED_ROWS))), KNOWS: Upsert(edges)})
        for part in range(TAIL):
            rows = people(f"tail{part}-{n}" for n in range(TAIL_ROWS))
            write(store, {PERSON: Upsert(rows)})
        store.branches.create("review", "main")
        upsert_person(store, "reviewed", branch="review")
        store.tags.create("v1", store.snapshot().state)
        store.tags.create("v0", store.snapshot(at=OLD).state)


# -- the operations --------------------------------------------------------------------------------


def do_write(address: str, options: Options) -> None:
    """Insert, update and delete in two tables: deletion files, a fold and its key hashes, in one commit."""
    persons = Upsert(people(["new", "big7", "tail3-5"], age=99), remove=pa.array(["big8", "tail2-2"]))
    edges = Upsert(knows({"new": ("new", "big7"), "e7": ("big7", "new")}), remove=pa.array(["e8"]))
    with GraphStore.open(address, storage_options=options) as store:
        write(store, {PERSON: persons, KNOWS: edges})


def do_branch_write(address: str, options: Options) -> None:
    """Write one row to a branch."""
    with GraphStore.open(address, storage_options=options) as store:
        upsert_person(store, "second", branch="review")


def do_build_indexes(address: str, options: Options) -> None:
    """Build an index of one table."""
    effect = BuildIndexes((IndexSpec("age", StoredIndexKind.BTREE),))
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={PERSON: effect})
    with GraphStore.open(address, storage_options=options) as store:
        store.publish("main", PlannedWrite(plan))


def do_claimed_write(address: str, options: Options) -> None:
    """Write one row to a branch under the commit id of an idempotency key."""
    with GraphStore.open(address, storage_options=options) as store:
        claim = Claim("key", store.snapshot("review"), None, b"one row")
        commit_id = Claims(store.location, store.syncer).take(claim)
        write(store, {PERSON: Upsert(people(["claimed"]))}, "review", commit_id=commit_id)


def do_add_table(address: str, options: Options) -> None:
    """Accept a new schema, with one more table that has rows from the start."""
    effects = {"t-city": Upsert(people(["delft"])), PERSON: Upsert(people(["big9"], age=50))}
    create = {"t-city": NewTable("City", "node", PERSON_SCHEMA)}
    plan = PublishPlan(CommitKind.SCHEMA, effects=effects, create=create, schema=b'{"schema": "second"}')
    with GraphStore.open(address, storage_options=options) as store:
        store.publish("main", PlannedWrite(plan))


def do_create_branch(address: str, options: Options) -> None:
    """Fork a branch from another one."""
    with GraphStore.open(address, storage_options=options) as store:
        store.branches.create("fresh", "review")


def do_delete_branch(address: str, options: Options) -> None:
    """Delete a branch."""
    with GraphStore.open(address, storage_options=options) as store:
        store.branches.delete("review")


def do_rename_branch(address: str, options: Options) -> None:
    """Give a branch another name."""
    with GraphStore.open(address, storage_options=options) as store:
        store.branches.rename("review", "renamed")


def do_create_tag(address: str, options: Options) -> None:
    """Name the head of main."""
    with GraphStore.open(address, storage_options=options) as store:
        store.tags.create("v2", store.snapshot().state)


def do_delete_tag(address: str, options: Options) -> None:
    """Take a name of a commit away."""
    with GraphStore.open(address, storage_options=options) as store:
        store.tags.delete("v1")


def do_raise_floor(address: str, options: Options) -> None:
    """Let history before the fourth version go."""
    with GraphStore.open(address, storage_options=options) as store:
        store.raise_floor("main", 4)


def do_reclaim(address: str, options: Options) -> None:
    """Take away what no head needs of a table."""
    with GraphStore.open(address, storage_options=options) as store:
        store.reclaim([PERSON])


def do_cleanup(address: str, options: Options) -> None:
    """Give up all history but the newest commit of each branch, and delete what nothing needs."""
    with GraphStore.open(address, storage_options=options, retry=AT_ONCE) as store:
        store.cleanup(Retention(1, grace_us=0), dry_run=False)


def copy_of(address: str) -> str:
    """Return where a graph is copied to."""
    return f"{address}-copy"


def do_back_up(address: str, options: Options) -> None:
    """Copy the graph, or bring its copy up to date."""
    with GraphStore.open(address, storage_options=options) as store:
        back_up(store, copy_of(address), storage_options=options)


def do_init(address: str, options: Options) -> None:
    """Make a graph."""
    make_graph(address, storage_options=options).close()


WRITE_STEPS = (
    Step.TABLE_DATA,
    Step.TABLE_DELETIONS,
    Step.TABLE_COMMIT,
    Step.DERIVED,
    Step.STAGED_SYNC,
    Step.CHECKSUM,
    Step.PUBLISH,
    Step.HEAD_SYNC,
)
INDEX_STEPS = (
    Step.TABLE_INDEX,
    Step.TABLE_COMMIT,
    Step.STAGED_SYNC,
    Step.CHECKSUM,
    Step.PUBLISH,
    Step.HEAD_SYNC,
)
SMALL_WRITE_STEPS = tuple(step for step in WRITE_STEPS if step not in (Step.TABLE_DELETIONS, Step.DERIVED))
OPERATIONS = (
    Operation("write", do_write, WRITE_STEPS, Step.PUBLISH),
    Operation("build-indexes", do_build_indexes, INDEX_STEPS, Step.PUBLISH),
    Operation("write-on-branch", do_branch_write, SMALL_WRITE_STEPS, Step.PUBLISH),
    Operation("claimed-write", do_claimed_write, (Step.CLAIM, *SMALL_WRITE_STEPS), Step.PUBLISH),
    Operation("add-table", do_add_table, (Step.TABLE_CREATE, Step.SCHEMA_PUT, *WRITE_STEPS), Step.PUBLISH),
    Operation(
        "create-branch",
        do_create_branch,
        (Step.BRANCH_CHAIN, Step.BRANCH_REGISTER, Step.HEAD_SYNC),
        Step.BRANCH_REGISTER,
    ),
    Operation(
        "delete-branch",
        do_delete_branch,
        (Step.BRANCH_MARK, Step.BRANCH_TOMBSTONE, Step.BRANCH_UNREGISTER, Step.HEAD_SYNC),
        Step.BRANCH_TOMBSTONE,
    ),
    Operation(
        "rename-branch",
        do_rename_branch,
        (Step.BRANCH_NAME, Step.BRANCH_RENAME, Step.HEAD_SYNC),
        Step.BRANCH_RENAME,
        noted=(Step.BRANCH_NAME, "review"),
    ),
    Operation("create-tag", do_create_tag, (Step.TAG_CREATE, Step.HEAD_SYNC), Step.TAG_CREATE),
    Operation("delete-tag", do_delete_tag, (Step.TAG_DELETE, Step.HEAD_SYNC), Step.TAG_DELETE),
    Operation("raise-floor", do_raise_floor, (Step.FLOOR, Step.HEAD_SYNC), Step.FLOOR),
    Operation(
        "init",
        do_init,
        (Step.TABLE_CREATE, Step.CHECKSUM, Step.SCHEMA_PUT, Step.REFS_CREATE, Step.GENESIS, Step.HEAD_SYNC),
        Step.GENESIS,
        needs_base=False,
    ),
)
# These move one branch after the other and show nothing new, so they are killed in a way of their own.
RECLAIM = Operation(
    "reclaim",
    do_reclaim,
    (Step.FLOOR, Step.RECLAIM_FENCE, Step.RECLAIM_FILE, Step.HEAD_SYNC),
    Step.FLOOR,
)
CLEANUP = Operation(
    "cleanup",
    do_cleanup,
    (Step.KEPT, Step.FLOOR, Step.RECLAIM_FENCE, Step.CHECKSUM, Step.RECLAIM_FILE, Step.HEAD_SYNC),
    Step.FLOOR,
)
SWEEPS = (RECLAIM, CLEANUP)
# It changes another address, which is looked at in a way of its own.
BACKUP = Operation("backup", do_back_up, (Step.COPY_FILE, Step.COPY_VERSION), Step.COPY_VERSION)
UNLIKE_OTHERS = (*SWEEPS, BACKUP)
BY_NAME = {operation.name: operation for operation in (*OPERATIONS, *UNLIKE_OTHERS)}


# -- what a child does -----------------------------------------------------------------------------


def perform_until(name: str, address: str, options: Options, point: str, passage: int) -> None:
    """Run an operation and die at the n-th passage of a point."""
    with dying_at(point, passage):
        BY_NAME[name].run(address, options)


def commit_for_ever(address: str, log: str) -> None:
    """Commit row after row; note each acknowledged id, safe from any crash, before the next one begins."""
    with GraphStore.open(address) as store, Path(log).open("a") as acknowledged:
        while True:
            commit_id = upsert_person(store, f"row {os.getpid()} {acknowledged.tell()}").commit_id
            acknowledged.write(f"{commit_id}\n")
            acknowledged.flush()
            os.fsync(acknowledged.fileno())


def trace(operation: Operation, address: str, options: Options) -> list[str]:
    """Run an operation in this process and return the points it passed, in order."""
    with noting_points() as passed:
        operation.run(address, options)
    return passed
