"""The demo: what OmniGraph can do so far, on a graph made in a temporary directory.

Each part prints what it does and what came of it; everything here is a real operation on real files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

from omnigraph import GraphError, __version__, init
from omnigraph.language.diagnostics import SourceError
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import DeleteIds, Effect, Upsert
from omnigraph.storage.tables.predicate import Compare, find
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan, Receipt

PERSON, KNOWS = "person", "knows"
SCHEMA = {
    PERSON: pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("age", pa.int32()),
        ]
    ),
    KNOWS: pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")]),
}
console = Console(width=100, highlight=False)


def people(*rows: tuple[str, str, int]) -> pa.Table:
    """Return Person rows."""
    return pa.Table.from_pylist(
        [dict(zip(("id", "name", "age"), r, strict=True)) for r in rows], SCHEMA[PERSON]
    )


def edges(*rows: tuple[str, str, str]) -> pa.Table:
    """Return Knows rows."""
    return pa.Table.from_pylist(
        [dict(zip(("id", "src", "dst"), r, strict=True)) for r in rows], SCHEMA[KNOWS]
    )


def commit(store: GraphStore, effects: dict[str, Effect], message: str, branch: str = "main") -> Receipt:
    """Publish effects on several types as one commit."""
    write = PlannedWrite(PublishPlan(CommitKind.MUTATION, effects=effects))
    return store.publish(branch, write, Intent(actor="demo", message=message))


def show(store: GraphStore, snapshot: PinnedSnapshot, title: str) -> None:
    """Print the people of a snapshot."""
    console.print(f"{title}:")
    grid = Grid("id", "name", "age")
    rows = store.table(snapshot, PERSON).to_table().sort_by("id").to_pylist()
    for row in rows:
        grid.add_row(row["id"], row["name"], str(row["age"]))
    console.print(grid)


def part(title: str) -> None:
    """Start a part."""
    console.print(f"\n[bold]{title}[/bold]")


def make(root: Path) -> GraphStore:
    """Make a graph and its first commit."""
    part("1. A graph is made in one atomic step; one commit spans all types")
    tables = {
        PERSON: NewTable("Person", "node", SCHEMA[PERSON]),
        KNOWS: NewTable("Knows", "edge", SCHEMA[KNOWS]),
    }
    store = GraphStore.create(root, schema=b'{"demo": 1}', tables=tables)
    receipt = commit(
        store,
        {
            PERSON: Upsert(people(("ada", "Ada", 36), ("bo", "Bo", 41), ("cy", "Cy", 29))),
            KNOWS: Upsert(edges(("k1", "ada", "bo"), ("k2", "bo", "cy"))),
        },
        "first people",
    )
    console.print(f"commit {receipt.commit_id}")
    for change in receipt.tables:
        console.print(f"  {change.name}: {change.inserted} inserted")
    console.print(f"  cost: {receipt.cost}")
    return store


def branch(store: GraphStore) -> None:
    """Work on a branch, and look back."""
    part("2. Branches cost the same at any size, and writes on them are invisible elsewhere")
    with measured() as meter:
        store.branches.create("review/älter", "main")
    console.print(f"created branch 'review/älter': {meter.cost}")
    before = store.snapshot().commit_id
    commit(store, {PERSON: Upsert(people(("ada", "Ada", 37)))}, "a birthday", "review/älter")
    show(store, store.snapshot("review/älter"), "on the branch")
    show(store, store.snapshot(), "on main, at the same time")

    part("3. Every past state can be read again")
    commit(store, {PERSON: DeleteIds(pa.array(["cy"])), KNOWS: DeleteIds(pa.array(["k2"]))}, "Cy leaves")
    show(store, store.snapshot(), "main now")
    show(store, store.snapshot(at=before), f"main at commit {before}")
    found = find(
        store.table(store.snapshot(), PERSON), Compare("age", ">", pa.scalar(36, pa.int32())), ("id",)
    )
    console.print(f"typed predicate age > 36 on main: {found['id'].to_pylist()}")


def conflicts(store: GraphStore) -> None:
    """Lose a race on purpose."""
    part("4. A writer that expected another head is told so, and nothing is written")
    expected = store.snapshot().commit_id
    commit(store, {PERSON: Upsert(people(("di", "Di", 52)))}, "somebody else was faster")
    write = PlannedWrite(PublishPlan(CommitKind.MUTATION, {PERSON: Upsert(people(("ed", "Ed", 19)))}))
    try:
        store.publish("main", write, Intent(expected_head=expected))
    except GraphError as error:
        console.print(f"{type(error).__name__} ({error.code}): {error}")


def crash(root: Path) -> None:
    """Kill a writer at the worst moment."""
    part("5. A writer killed between staging and publishing leaves nothing to repair")
    environment = {**os.environ, "OMNIGRAPH_FAILPOINTS": "publish.before=kill"}
    command = [sys.executable, __file__, "--write-a-ghost", str(root)]
    done = subprocess.run(command, env=environment, check=False)
    console.print(f"the writer died with signal {-done.returncode}")
    with GraphStore.open(root) as store:
        receipt = commit(store, {PERSON: Upsert(people(("fay", "Fay", 33)))}, "straight on")
        console.print(f"the next write succeeds at once: commit {receipt.commit_id}")
        show(store, store.snapshot(), "main afterwards")


def write_a_ghost(root: Path) -> None:
    """Be the writer that dies."""
    with GraphStore.open(root) as store:
        commit(store, {PERSON: Upsert(people(("zz", "Ghost", 1)))}, "never seen")


def spark(root: Path) -> None:
    """Read a pinned snapshot from Spark executors."""
    part("6. Spark reads one pinned snapshot, whoever writes meanwhile")
    if os.environ.get("OMNIGRAPH_HAS_JAVA") == "0":
        console.print("left out: this needs Java 17 or newer (the set-up lines above say how to get it)")
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable  # executors must find this package
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    with GraphStore.open(root) as store:
        snapshot = store.snapshot()
        fragments = [f.fragment_id for f in store.table(snapshot, PERSON).get_fragments()]
        numbers = session.createDataFrame([(f,) for f in fragments], "fragment int").repartition(
            len(fragments)
        )
        rows = numbers.mapInArrow(reader(str(root), snapshot), "id string, name string, age int")
        console.print(f"{len(fragments)} fragments read by executors at commit {snapshot.commit_id}")
        rows.orderBy("id").show()
    session.stop()


def reader(
    root: str, snapshot: PinnedSnapshot
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that executors run: it opens the table at the version it was given."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with GraphStore.open(root) as store:
            table = store.table(snapshot, PERSON)
            for batch in batches:
                for fragment in batch["fragment"].to_pylist():
                    yield from table.get_fragment(fragment).to_table().to_batches()

    return read


OLD = """
node Person {
    name: String @key
    age: I32?
}
node Company { name: String @key }
edge WorksAt: Person -> Company @card(0..1)
"""
NEW = """
node Human @rename_from("Person") {
    name: String @key
    years: I64? @rename_from("age")
    city: String @default("Oslo")
    @range(years, 0..120)
}
node Company { name: String @key }
edge WorksAt: Human -> Company @card(0..2)
"""


def schema(folder: Path) -> None:
    """Show the schema language."""
    part("0. A schema: its picture, the plan of a change, the change")
    with init(folder / "companies.og", OLD) as graph:
        console.print(graph.schema.diagram())
        console.print("plan:")
        for step in graph.schema.plan(NEW).steps:
            console.print(f"  {step.kind}: {step.to_json()}", soft_wrap=True)
        receipt = graph.schema.apply(NEW, actor="demo")
        console.print(f"applied: {receipt.applied}, cost: {receipt.cost}")
        try:
            graph.schema.apply(NEW.replace("city: String", "city: Strng"))
        except SourceError as error:
            console.print(error.render(), markup=False)


def main() -> None:
    """Run all parts."""
    console.print(f"OmniGraph for Python {__version__}")
    with tempfile.TemporaryDirectory() as folder:
        schema(Path(folder))
        root = Path(folder) / "people.og"
        with make(root) as store:
            branch(store)
            conflicts(store)
        crash(root)
        spark(root)
    console.print("\n[bold]Done.[/bold] The tour is in README.md, the tests run with scripts/test.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write-a-ghost"]:
        write_a_ghost(Path(sys.argv[2]))
    else:
        main()
