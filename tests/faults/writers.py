"""The writers of the fault matrix, the graph that they start from, and the durable steps that each passes.

Room    tests. Spawned children import this module by name; no pytest here.
Table   one row of `WRITERS` for each writer; whoever adds one gets every cell of it (`cells.py`).
Base    made so that writers pass every step there is: people in a settled fragment, whose key hashes lie
        beside it, and a tail of small ones; `side` and main changed the same types; `v0` names an old commit,
        which a cleanup must keep, `v1` a newer one.
Repeat  writers that can take an idempotency key use one, so that whoever comes after a fault can repeat them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.ids import new_id
from omnigraph.engine.export.files import MANIFEST
from omnigraph.storage.durability import Step
from omnigraph.storage.location import Location
from omnigraph.storage.publish import Intent, RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PublishPlan, PublishReceipt, Write, WriteTxn
from omnigraph.storage.turns import Precedences

Options = Mapping[str, str]
SETTLED = 4_200  # rows past the first tier
TAIL = 1  # commits of one row each after that
KEY = "the one write"
UNDONE = "the commit to undo"
RACER, NEXT, LATER = "racer", "next", "later"  # others who write, and leave a company of their name

SCHEMA = """
node Person {
  name: String @key
  age: I32? @index
  note: String?
  @range(age, 0..120)
}
node Company { name: String @key }
node Gone { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
CHANGED = (
    SCHEMA.replace("note: String?\n  @range", 'note: String?\n  mood: String @default("calm")\n  @range')
    + "node City { name: String @key }\n"
)
NOTES = SCHEMA + 'node Note { text: String @key  vec: Vector(4)? @embed("text") }\n'
WITHOUT = SCHEMA.replace("node Gone { name: String @key }\n", "")


def person(name: str, **data: Any) -> dict[str, Any]:
    """Return a person as a data file writes it."""
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, edge: str) -> dict[str, Any]:
    """Return an edge between people, with an id that every run gives it."""
    return {"edge": "Knows", "from": source, "to": target, "data": {"id": edge}}


def make_base(address: str, options: Options) -> None:
    """Make the graph that all writers start from."""
    with og.init(address, SCHEMA, storage_options=options, durability="os") as graph:
        gone = [{"type": "Gone", "data": {"name": f"g{n}"}} for n in range(3)]
        rows = [person(f"p{n}", age=n % 100) for n in range(SETTLED)]
        graph.load([*rows, knows("p1", "p2", "e"), *gone], mode="append")
        graph.tags.create("v0")
        graph.mutate(_q("delete Person where age = 99"))
        graph.branches.create("side")
        graph.load([person("p3", age=1), knows("p3", "p4", "f")], mode="merge", branch="side")
        graph.load([person("p5", age=1)], mode="merge", message=UNDONE)
        for n in range(TAIL):
            graph.load([person(f"tail{n}", age=7), knows("p5", f"tail{n}", f"g{n}")], mode="merge")
        graph.tags.create("v1")


def _q(body: str) -> str:
    return f"query q() {{ {body} }}"


def beside(graph: Graph) -> str:
    """Return the address of what a writer makes beside its graph."""
    return f"{graph.uri.removeprefix('file://').rpartition('/')[0]}/other"


def options_of(graph: Graph) -> Options:
    """Return the options that reach the graph, and what is beside it."""
    return dict(graph.store.location.options)


# -- what they do ------------------------------------------------------------------------------------


def mutation(graph: Graph) -> object:
    """Update people of the settled fragment and of the tail."""
    return graph.mutate(_q('update Person set { note: "x" } where age = 7'), idempotency_key=KEY)


def outrun(graph: Graph) -> object:
    """The same, by a write that loses its first race, and asks to go first from then on."""
    place = graph.uri.removeprefix("file://")
    policy = RetryPolicy(asks_after=1)
    store = GraphStore.open(place, storage_options=options_of(graph), durability="os", retry=policy)
    publish = store.publisher.publish

    def losing(branch: str, write: Write, intent: Intent | None = None) -> PublishReceipt:
        chain, _ = store.branches.writable(branch)
        rival = partial(Precedences(store.clock).ask, chain, new_id(), 0.0)  # moves the head, and no row
        return publish(branch, _LosesOnce(write, rival), intent)

    store.publisher.publish = losing  # type: ignore[method-assign]
    with og.Graph(store) as other:
        return mutation(other)


class _LosesOnce:
    """A write that somebody overtakes while it is prepared for the first time."""

    def __init__(self, write: Write, overtake: Callable[[], None]) -> None:
        self._write = write
        self._overtakes = iter([overtake])

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Prepare."""
        for overtake in self._overtakes:
            overtake()
        return self._write.prepare(txn)

    def validate(self, txn: WriteTxn, plan: PublishPlan) -> None:
        """Validate."""
        self._write.validate(txn, plan)


def two_types(graph: Graph) -> object:
    """Update people, and insert into another table."""
    body = 'update Person set { note: "y" } where age = 8 insert Company { name: "firm" }'
    return graph.mutate(_q(body), idempotency_key=KEY)


def load(graph: Graph) -> object:
    """Replace some people, add enough for a new settled fragment, and add edges."""
    return graph.load(_loaded(), mode="merge", idempotency_key=KEY)


def _loaded() -> list[dict[str, Any]]:
    rows = [person(f"p{n}", note="new") for n in range(SETTLED - 50, 2 * SETTLED)]
    return [*rows, knows("p0", "p5000", "i")]


def spark_load(graph: Graph) -> object:
    """The same, by the executors of Spark."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_text("\n".join(json.dumps(row) for row in _loaded()))
        return graph.load(str(file), mode="merge", engine="spark", idempotency_key=KEY)


def merge(graph: Graph) -> object:
    """Merge a branch that changed the same types."""
    return graph.merge("side", message="once")


def take_over(graph: Graph) -> object:
    """Merge a branch that is only ahead."""
    return graph.merge("ahead", message="once")


def revert(graph: Graph) -> object:
    """Undo a commit, unless that was done."""
    commits = graph.commits.list(limit=TAIL + 3)
    if any(commit.message == "once" for commit in commits):
        return None
    undone = next(commit for commit in commits if commit.message == UNDONE)
    return graph.revert(undone.id, message="once")


def schema_apply(graph: Graph) -> object:
    """Add a type, and a property that every row gets."""
    return graph.schema.apply(CHANGED)


def hard_drop(graph: Graph) -> object:
    """Drop a type for good: a commit, and then the history of its table goes."""
    return graph.schema.apply(WITHOUT, allow_data_loss=True)


def index_build(graph: Graph) -> object:
    """Build the index that the schema asks for."""
    return graph.ensure_indexes()


def optimize(graph: Graph) -> object:
    """Rewrite files with deleted rows and small ones, and build indexes."""
    return graph.optimize(policy=og.OptimizePolicy(deleted_share=0.001, concurrency=1))


def cleanup(graph: Graph) -> object:
    """Give up all history but the newest commit of each branch, and delete what nothing needs."""
    return graph.cleanup(keep=1, grace="0s", dry_run=False)


def embed(graph: Graph) -> object:
    """Make the vectors that notes lack."""
    address, options = graph.uri.removeprefix("file://"), options_of(graph)
    with (
        TemporaryDirectory() as spool,
        og.connect(address, storage_options=options or None, embedding="mock", durability="os") as other,
    ):
        return other.embed(spool=spool)


def branch_create(graph: Graph) -> object:
    """Fork a branch."""
    return graph.branches.create("fresh", "side")


def branch_delete(graph: Graph) -> object:
    """Delete a branch."""
    return graph.branches.delete("side")


def branch_rename(graph: Graph) -> object:
    """Give a branch another name."""
    return graph.branches.rename("side", "renamed")


def tag(graph: Graph) -> object:
    """Name the head of main."""
    return graph.tags.create("v2")


def tag_delete(graph: Graph) -> object:
    """Take a name of a commit away."""
    return graph.tags.delete("v1")


def backup(graph: Graph) -> object:
    """Copy the graph, or bring its copy up to date."""
    return graph.backup(beside(graph), storage_options=options_of(graph), durability="os")


def restore(graph: Graph) -> object:
    """Copy the graph as a backup to an address where nothing is."""
    options = options_of(graph)
    to = beside(graph)
    return og.restore(graph.uri, to, storage_options=options, source_options=options, durability="os")


def clone(graph: Graph) -> object:
    """Make a graph of the newest commit; what one that failed has left is cleared."""
    return graph.clone(beside(graph), storage_options=options_of(graph), durability="os", force=True)


def round_trip(graph: Graph) -> object:
    """Export the commit of a tag into a folder and load that into a graph that has the schema only."""
    address, options = beside(graph), options_of(graph)
    with TemporaryDirectory() as folder, og.connect(address, storage_options=options) as other:
        graph.export(Path(folder, "out"), format="jsonl", at="v1")
        return other.load(Path(folder, "out"), mode="append", idempotency_key=KEY)


def export(graph: Graph) -> object:
    """Export the commit of a tag into a folder; what one that failed has left is cleared, as people do."""
    place = Location.parse(beside(graph), options_of(graph))
    left = [key for key, _ in place.objects.list()]
    if MANIFEST not in left:
        for key in left:
            place.objects.delete(key)
        if place.is_local:
            shutil.rmtree(place.uri, ignore_errors=True)
    return graph.export(beside(graph), format="jsonl", at="v1")


def init(graph: Graph) -> object:
    """Make a graph; what one that failed has left is cleared."""
    options = options_of(graph)
    og.init(beside(graph), SCHEMA, storage_options=options, durability="os", force=True).close()
    return None


# -- rivals: others who change what a writer is about to change ----------------------------------------


def write_rows(graph: Graph) -> None:
    """Change people on main: of the rows that writers update, that a load replaces, and that stay."""
    changed = ("p107", "p108", "p4198")
    graph.mutate(_q(" ".join(f'update Person set {{ age: 9 }} where name = "{name}"' for name in changed)))


def write_doomed(graph: Graph) -> None:
    """Insert a row of the type that is being dropped."""
    graph.mutate(_q('insert Gone { name: "g9" }'))


def write_side(graph: Graph) -> None:
    """Write on the branch that is being forked from, deleted or renamed."""
    graph.mutate(_q('update Person set { age: 9 } where name = "p107"'), branch="side")


def take_tag(graph: Graph) -> None:
    """Delete the same tag."""
    graph.tags.delete("v1")


def sweep(graph: Graph) -> None:
    """Delete what nothing names, however young it is; no commit is given up."""
    report = graph.cleanup(keep=10, grace="0s", dry_run=False)
    assert report.ok, f"the rival cleanup failed: {report}"


# -- what some of them start from ---------------------------------------------------------------------


def with_notes(graph: Graph) -> None:
    """Have texts without vectors."""
    graph.schema.apply(NOTES)
    graph.load([{"type": "Note", "data": {"text": f"note {n}"}} for n in range(20)], mode="append")


def with_branch_ahead(graph: Graph) -> None:
    """Fork a branch that goes on while main does not."""
    graph.branches.create("ahead")
    graph.load([person("p7", age=1), knows("p7", "p8", "h")], mode="merge", branch="ahead")


def with_older_backup(graph: Graph) -> None:
    """Back up, and go on."""
    backup(graph)
    graph.load([person("later")], mode="merge")
    graph.branches.create("fresh", "side")
    graph.load([person("later")], mode="merge", branch="side")
    graph.tags.create("v2")


def with_empty_graph_beside(graph: Graph) -> None:
    """Make the graph that an export is loaded into."""
    og.init(beside(graph), SCHEMA, storage_options=options_of(graph), durability="os").close()


# -- the table ----------------------------------------------------------------------------------------


Promise = Literal["changes", "sweeps", "copies", "makes"]


@dataclass(frozen=True)
class Writer:
    """One row of the matrix.

    `changes`: all of it is there once `visible` is passed, and nothing before. `sweeps`: what branches and
    tags hold never changes. `copies`: what is beside is no graph, or one at exact commits of the first.
    `makes`: what is beside is no graph, or no export, before `visible` is passed, and whole after that.
    """

    name: str
    run: Callable[[Graph], object]
    steps: tuple[Step, ...]
    visible: Step = Step.PUBLISH
    promise: Promise = "changes"
    prepare: Callable[[Graph], object] | None = None
    beside: Literal["graph", "export"] | None = None  # what it writes to the address beside its graph
    done: str = ""  # the code of the answer to whoever repeats it although it was done
    spark: bool = False
    # Who comes between: its change and the writer's are both there in one order, or the writer is told. None
    # where the writer changes what is beside its graph alone: tests/concurrency/test_init_races.py has two of
    # those, and what is read while others write is as it was at one moment (`copies`) in every other race.
    rival: Callable[[Graph], object] | None = None

    def __str__(self) -> str:
        return self.name


PUBLISHING = (Step.STAGED_SYNC, Step.PUBLISH, Step.HEAD_SYNC)
STAGING = (Step.TABLE_DATA, Step.TABLE_COMMIT, Step.CHECKSUM, *PUBLISHING)
EDITING = (Step.TABLE_DELETIONS, *STAGING)
KEYED = (Step.CLAIM, *EDITING)
LOADING = (Step.DERIVED, *KEYED)
EXPORTING = (Step.EXPORT_DATA, Step.EXPORT_NAMES, Step.EXPORT_MANIFEST)
IMPORTING = (*EXPORTING, Step.CLAIM, Step.DERIVED, *STAGING)
APPLYING = (Step.TABLE_CREATE, Step.SCHEMA_PUT, *STAGING)
INDEXING = (Step.TABLE_INDEX, Step.TABLE_COMMIT, Step.CHECKSUM, *PUBLISHING)
REWRITING = (Step.TABLE_DATA, Step.DERIVED, *INDEXING)
SWEEPING = (Step.FLOOR, Step.RECLAIM_FENCE, Step.RECLAIM_FILE)
DROPPING = (Step.SCHEMA_PUT, *PUBLISHING, *SWEEPING)
CLEANING = (Step.KEPT, Step.CHECKSUM, Step.HEAD_SYNC, *SWEEPING)
FORKING = (Step.BRANCH_CHAIN, Step.BRANCH_REGISTER, Step.HEAD_SYNC)
DELETING = (Step.BRANCH_MARK, Step.BRANCH_TOMBSTONE, Step.BRANCH_UNREGISTER, Step.HEAD_SYNC)
RENAMING = (Step.BRANCH_NAME, Step.BRANCH_RENAME, Step.HEAD_SYNC)
TAGGING, UNTAGGING = (Step.TAG_CREATE, Step.HEAD_SYNC), (Step.TAG_DELETE, Step.HEAD_SYNC)
COPYING = (Step.COPY_FILE, Step.COPY_VERSION)
MAKING = (Step.SCHEMA_PUT, Step.REFS_CREATE, Step.GENESIS, Step.HEAD_SYNC)
CLONING, FOUNDING = (Step.COPY_FILE, *MAKING), (Step.TABLE_CREATE, Step.CHECKSUM, *MAKING)
THERE, TAKEN = "already_initialized", "destination_not_empty"

WRITERS = (
    Writer("mutation", mutation, KEYED, rival=write_rows),
    Writer("mutation-outrun", outrun, (Step.TURN, *KEYED), rival=write_rows),
    Writer("mutation-of-two-types", two_types, KEYED, rival=write_rows),
    Writer("load", load, LOADING, rival=write_rows),
    Writer("spark-load", spark_load, LOADING, spark=True, rival=write_rows),
    Writer("merge", merge, EDITING, rival=write_rows),
    Writer("merge-ahead", take_over, PUBLISHING, prepare=with_branch_ahead, rival=write_rows),
    Writer("revert", revert, STAGING, rival=write_rows),
    Writer("schema-apply", schema_apply, APPLYING, rival=write_rows),
    Writer("hard-drop", hard_drop, DROPPING, rival=write_doomed),
    Writer("index-build", index_build, INDEXING, rival=write_rows),
    Writer("optimize", optimize, REWRITING, rival=write_rows),
    Writer("embed", embed, STAGING, prepare=with_notes, rival=write_rows),
    Writer("cleanup", cleanup, CLEANING, Step.FLOOR, "sweeps", rival=write_rows),
    Writer(
        "branch-create", branch_create, FORKING, Step.BRANCH_REGISTER, done="branch_exists", rival=write_side
    ),
    Writer(
        "branch-delete",
        branch_delete,
        DELETING,
        Step.BRANCH_TOMBSTONE,
        done="branch_not_found",
        rival=write_side,
    ),
    Writer(
        "branch-rename",
        branch_rename,
        RENAMING,
        Step.BRANCH_RENAME,
        done="branch_not_found",
        rival=write_side,
    ),
    Writer("tag", tag, TAGGING, Step.TAG_CREATE, done="tag_exists", rival=write_rows),
    Writer("tag-delete", tag_delete, UNTAGGING, Step.TAG_DELETE, done="tag_not_found", rival=take_tag),
    Writer("backup", backup, COPYING, Step.COPY_VERSION, "copies", beside="graph"),
    Writer("backup-again", backup, COPYING, Step.COPY_VERSION, "copies", with_older_backup, beside="graph"),
    Writer("restore", restore, COPYING, Step.COPY_VERSION, "copies", beside="graph"),
    Writer("clone", clone, CLONING, Step.GENESIS, "makes", beside="graph", done=THERE),
    Writer("export", export, EXPORTING, Step.EXPORT_MANIFEST, "makes", beside="export", done=TAKEN),
    Writer("export-and-import", round_trip, IMPORTING, prepare=with_empty_graph_beside, beside="graph"),
    Writer("init", init, FOUNDING, Step.GENESIS, "makes", beside="graph", done=THERE),
)
BY_NAME = {writer.name: writer for writer in WRITERS}
