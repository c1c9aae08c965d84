"""Run: the package archive of Debian as a graph, from its lists to a merged change.

    python -m examples.debian.run [--graph debian.og] [--lists /var/lib/apt/lists]

Room    the example. Reads from top to bottom: parse and load on Spark, ask, try a change on a branch, look at
        it, merge it.
Given   the snapshot beside this file, or the lists of a machine that has apt; Java, for Spark.
Gives   a graph, kept where `--graph` says so.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Grid

from examples.debian.index import COMPRESSIONS, lists_in
from examples.debian.parse import tables
from omnigraph import Graph, GraphError, InvalidRequest, Receipt, Result, connect, init
from omnigraph.pipeline import load, spark_session

HERE = Path(__file__).parent
SNAPSHOT = HERE / "snapshot"
SCHEMA = HERE / "schema.pg"
QUERIES = HERE / "queries.gq"
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # over before a second compiler has paid off
}
OLD = "libgtk2.0-0"  # the second GTK, which has had no release since 2020
SHOWN = 8
console = Console(width=110, highlight=False)


def job(spark: SparkSession, graph: Graph, files: Sequence[Path], rejects: Path, old: str) -> None:
    """Do everything: load, ask, and take a library out."""
    fill(spark, graph, files, rejects)
    ask(graph, old)
    change(graph, old)


def fill(spark: SparkSession, graph: Graph, files: Sequence[Path], rejects: Path) -> None:
    """Load the lists as one commit; what breaks a rule of the schema goes to the reject table."""
    part(f"The archive as a graph: {len(files)} lists, parsed, checked and loaded by Spark as one commit")
    with timed():
        receipt = load(
            spark,
            graph,
            tables(spark, files),
            mode="overwrite",
            on_violation="reject",
            rejects=rejects,
            message="the archive, from its lists",
            actor="debian",
        )
    told(receipt)


def told(receipt: Receipt) -> None:
    """Print what was loaded, and the first of what was not."""
    for count in receipt.types:
        console.print(f"  {count.kind} {count.name:<13} {count.inserted:>9,}")
    console.print(f"  commit {receipt.commit_id}")
    if receipt.facts["rejects"] is None:
        part("Nothing was rejected: every edge has both its ends")
        return
    part(f"{receipt.facts['rejected']} edges lead nowhere: they are in the reject table, with the reason")
    for row in pq.read_table(receipt.facts["rejects"]).slice(0, SHOWN).to_pylist():
        console.print(f"  {row['code']} {row['message']}", markup=False, soft_wrap=True)


def ask(graph: Graph, old: str) -> None:
    """Ask what a person would ask."""
    show(graph, "The packages that most others cannot do without", "most_depended", top=SHOWN)
    show(graph, "Packages by what they say of themselves", "find", words="modular synthesizer", top=SHOWN)
    show(graph, "Why cowsay needs libc6", "path", start="cowsay", end="libc6")
    show(graph, "What the games team looks after", "maintained", name="Debian Games Team")
    show(graph, f"What depends on {old}", "breaks_at_once", name=old)
    show(graph, f"What breaks without {old}, to three steps", "breaks", name=old)


def change(graph: Graph, old: str) -> None:
    """Remove a library on a branch, look at what that means, and merge it."""
    part(f"A branch without {old}, and without all that cannot be installed then")
    if not len(answer(graph, "versions", name=old)):
        console.print("  these lists have no such package: --without names another")
        return
    branch = f"remove-{old}"
    graph.branches.create(branch)
    names = [old, *(row["p.name"] for row in answer(graph, "goes_along", name=old))]
    graph.mutate(QUERIES, query_name="remove", names=names, branch=branch, actor="release team")
    for name in ("main", branch):
        found = answer(graph, "breaks_at_once", branch=name, name=old)
        console.print(f"  on {name}: {len(found)} packages depend on it")

    part("The same as a diff, for review")
    for one in graph.diff("main", branch).types:
        console.print(
            f"  {one.kind} {one.name:<13} {one.deleted:>6,} gone, {one.inserted} new, {one.updated} changed"
        )

    part("Main moves on meanwhile; the merge is three ways, one commit with two parents")
    graph.mutate(QUERIES, query_name="set_priority", name="nano", priority="standard", actor="archive team")
    done = graph.merge(branch, delete_branch=True, actor="release team", message=f"remove {old}")
    console.print(f"  {done.outcome.value}: commit {done.commit_id}")
    for commit in graph.commits.list(limit=4):
        console.print(f"  {commit.id} {commit.kind.value:<8} {commit.actor or '':<13} {commit.message or ''}")


def answer(graph: Graph, query: str, *, branch: str = "main", **params: Any) -> Result:
    """Run one of the queries by its name."""
    return graph.query(QUERIES, params, query_name=query, branch=branch)


def show(graph: Graph, title: str, query: str, **params: Any) -> None:
    """Run a query and print the first rows of what it answers."""
    part(f"{title} (query {query})")
    with timed():
        result = answer(graph, query, **params)
    grid = Grid(*result.columns, box=None, padding=(0, 2))
    for row in result.rows[:SHOWN]:
        grid.add_row(
            *(" > ".join(v) if isinstance(v, list) else "" if v is None else str(v) for v in row.values())
        )
    console.print(grid)
    if len(result) > SHOWN:
        console.print(f"  and {len(result) - SHOWN:,} more")


def part(title: str) -> None:
    """Start a part."""
    console.print(f"\n[bold]{title}[/bold]")


@contextmanager
def timed() -> Iterator[None]:
    """Print how long something took."""
    began = perf_counter()
    yield
    console.print(f"  [dim]{perf_counter() - began:.2f} s[/dim]")


def lists(folder: Path) -> list[Path]:
    """Return the lists of a folder, which must have some."""
    files = lists_in(folder)
    if not files:
        ends = ", ".join(f"*_Packages{suffix}" for suffix in COMPRESSIONS)
        raise InvalidRequest(
            f"{folder} holds no lists of packages ({ends})",
            remedy="`apt-get update` fetches them on a Debian machine; without --lists the snapshot is used",
        )
    return files


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job on a new graph, or load a graph that exists anew."""
    parser = argparse.ArgumentParser(prog="python -m examples.debian.run", description=__doc__.split("\n")[0])
    parser.add_argument("--graph", type=Path, help="where to keep the graph; a temporary folder if not given")
    parser.add_argument("--lists", type=Path, default=SNAPSHOT, help="lists of apt instead of the snapshot")
    parser.add_argument(
        "--without", default=OLD, metavar="PACKAGE", help="the package to take out on a branch"
    )
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = given.graph or Path(folder) / "debian.og"
        files = lists(given.lists)
        with connect(root) if root.exists() else init(root, SCHEMA) as graph:
            spark = spark_session(config=SETTINGS)
            spark.sparkContext.setLogLevel("ERROR")
            job(spark, graph, files, root.with_suffix(".rejects.parquet"), given.without)


if __name__ == "__main__":
    try:
        main()
    except GraphError as error:
        console.print(f"error [{error.code}]: {error}", markup=False, soft_wrap=True)
        raise SystemExit(1) from None
