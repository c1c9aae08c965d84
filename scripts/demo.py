"""The demo: what OmniGraph can do so far, on a graph made in a temporary directory.

Each part prints what it does and what came of it; everything here is a real operation on real files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from omnigraph import Graph, GraphError, Receipt, SourceError, __version__, connect, init

ROOT = Path(__file__).parents[1]
SCHEMA = """
node Person {
    name: String @key
    age: I32?
    email: String? @unique
    @range(age, 0..120)
}
edge Knows: Person -> Person @card(0..3)
"""
DATA = """\
{"type": "Person", "data": {"name": "Ada", "age": 36, "email": "ada@example.org"}}
{"type": "Person", "data": {"name": "Bo", "age": 41}}
{"type": "Person", "data": {"name": "Cy", "age": 290}}
{"edge": "Knows", "from": "Ada", "to": "Bo"}
{"edge": "Knows", "from": "Bo", "to": "Cy"}
"""
ADD = """
query add($name: String, $age: I32?, $friend: String) {
    insert Person { name: $name, age: $age }
    insert Knows { from: $name, to: $friend }
}
"""
REVIEW = "review/älter"
BIRTHDAY = "query birthday($name: String, $age: I32) { update Person set { age: $age } where name = $name }"
LEAVE = "query leave($name: String) { delete Person where name = $name }"
REACH = """
query reach($name: String) {
    match {
        $p: Person { name: $name }
        $p <knows>{1,3} $f
        optional { $f knows $g }
    }
    return { $f.name, $f.age, count($g) as knows }
    order { knows desc, $f.name }
}
"""
console = Console(width=100, highlight=False)


def show(graph: Graph, title: str) -> None:
    """Print the people of a branch, now or then."""
    console.print(f"{title}:")
    console.print(str(graph.nodes("Person").select("name", "age", "email")), markup=False)


def told(receipt: Receipt) -> None:
    """Print what a write did and what it cost."""
    what = receipt.query_name or f"load ({receipt.facts['mode']})"
    counts = f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
    console.print(f"{what}: {counts}, commit {receipt.commit_id}")
    for count in receipt.types:
        console.print(f"  {count.name}: {count.inserted} new, {count.updated} changed, {count.deleted} gone")
    console.print(f"  cost: {receipt.cost}")


def part(title: str) -> None:
    """Start a part."""
    console.print(f"\n[bold]{title}[/bold]")


def load(folder: Path) -> Graph:
    """Make a graph and load a file, once with a mistake in it."""
    part("1. A load is one commit: every record of the file, or nothing and the reason")
    graph = init(folder / "people.og", SCHEMA)
    file = folder / "people.jsonl"
    file.write_text(DATA)
    try:
        graph.load(file, mode="append", actor="demo")
    except GraphError as error:
        console.print(f"refused ({error.code}):")
        console.print(str(error), markup=False, soft_wrap=True)
    console.print("the file is mended, and loaded again:")
    file.write_text(DATA.replace("290", "29"))
    told(graph.load(file, mode="append", actor="demo"))
    return graph


def mutate(graph: Graph) -> None:
    """Insert, update, delete."""
    part("2. A mutation is typed, sees its own writes and commits once; deletes take edges along")
    told(graph.mutate(ADD, name="Di", age=52, friend="Ada", actor="demo"))
    told(graph.mutate(BIRTHDAY, name="Ada", age=37, actor="demo"))
    told(graph.mutate(LEAVE, name="Bo", actor="demo"))
    console.print(f"nobody of that name: commit {graph.mutate(LEAVE, name='Zoe').commit}")
    for params in ({"name": "Ed", "age": "old", "friend": "Ada"}, {"name": "Ed", "friend": "Nobody"}):
        try:
            graph.mutate(ADD, params)
        except GraphError as error:
            console.print(f"refused ({error.code}): {error}", markup=False, soft_wrap=True)
    first = graph.mutate(ADD, name="Fay", friend="Ada", idempotency_key="demo-1")
    again = graph.mutate(ADD, name="Fay", friend="Ada", idempotency_key="demo-1")
    console.print(
        f"repeated under one idempotency key: replayed {again.replayed}, "
        f"the same commit {again.commit_id == first.commit_id}"
    )


def query(graph: Graph) -> None:
    """Ask, and see how the answer came about."""
    part("3. A query is checked, follows edges both ways and any number of hops, and says how it ran")
    result = graph.query(REACH, name="Di")
    console.print(str(result), markup=False)
    console.print(f"  cost: {result.cost}")
    console.print(str(graph.profile(REACH, name="Di")), markup=False, soft_wrap=True)
    try:
        graph.query(REACH.replace("$f.age", "$f.aeg"), name="Di")
    except SourceError as error:
        console.print(str(error), markup=False)


def branch(graph: Graph) -> None:
    """Work on a branch, and look back."""
    part("4. Branches cost the same at any size, and writes on them are invisible elsewhere")
    review = graph.branch(REVIEW, create=True)
    console.print(f"created: {review}", soft_wrap=True)
    before = graph.branches.get("main").head
    review.mutate(BIRTHDAY, name="Ada", age=38, actor="ann")
    review.mutate(BIRTHDAY, name="Di", age=53, actor="ann")
    show(review, "on the branch")
    show(graph, "on main, at the same time")

    part("5. Every past state can be read again")
    graph.mutate(LEAVE, name="Cy", actor="demo")
    show(graph, "main now")
    show(graph.at("main~1"), "main one commit ago")
    graph.tags.create("before-cy-left", at=before)
    show(graph.at("before-cy-left"), "main at the tag before-cy-left")


def merge(graph: Graph) -> None:
    """Review a branch, and fold it in."""
    part("6. Review a branch as a diff, and merge it three ways, property by property")
    graph.mutate(BIRTHDAY, name="Ada", age=40, actor="bob")
    for change in graph.diff("main", REVIEW):
        shown = ", ".join(
            f"{name} {_side(change.before, name)} -> {_side(change.after, name)}" for name in change.fields
        )
        console.print(f"  {change.op.value} {change.type_name} {change.id} {shown}", markup=False)
    preview = graph.merge(REVIEW, preview=True)
    console.print(f"preview: {preview.outcome.value}")
    for one in preview.conflicts:
        console.print(f"  {one.message}", markup=False)
        if one.ours is not None and one.theirs is not None:
            console.print(f"    ours by {one.ours.actor}, theirs by {one.theirs.actor}")
    choice = {"type": "Person", "id": "Ada", "property": "age", "take": "theirs"}
    done = graph.merge(REVIEW, resolutions=[choice], delete_branch=True, actor="demo")
    console.print(f"decided for theirs: {done.outcome.value}, cost: {done.cost}")
    show(graph, "main, merged")
    console.print("the versions of Ada:")
    for version in graph.entity("Person", "Ada").history():
        console.print(
            f"  {version.cause.kind:<10} by {version.cause.actor}: {', '.join(version.change.fields)}"
        )


def _side(image: Mapping[str, Any] | None, name: str) -> Any:
    return None if image is None else image[name]


def conflicts(graph: Graph) -> None:
    """Lose a race on purpose."""
    part("7. A writer that expected another head is told so, and nothing is written")
    expected = graph.branches.get("main").head
    graph.mutate(BIRTHDAY, name="Di", age=53, message="somebody else was faster")
    try:
        graph.mutate(BIRTHDAY, name="Di", age=99, if_commit=expected)
    except GraphError as error:
        console.print(f"{type(error).__name__} ({error.code}): {error}")


def crash(root: Path) -> None:
    """Kill a writer at the worst moment."""
    part("8. A writer killed between staging and publishing leaves nothing to repair")
    environment = {**os.environ, "OMNIGRAPH_FAILPOINTS": "publish.before=kill"}
    command = [sys.executable, __file__, "--write-a-ghost", str(root)]
    done = subprocess.run(command, env=environment, check=False)
    console.print(f"the writer died with signal {-done.returncode}")
    with connect(root) as graph:
        receipt = graph.mutate(ADD, name="Gus", age=33, friend="Ada", actor="demo")
        console.print(f"the next write succeeds at once: commit {receipt.commit_id}")
        show(graph, "main afterwards")
        checked = graph.verify()
        console.print(f"{checked.files} files compared with their checksums, {len(checked.damaged)} damaged")


def write_a_ghost(root: Path) -> None:
    """Be the writer that dies."""
    with connect(root) as graph:
        graph.mutate(ADD, name="Ghost", age=1, friend="Ada")


def maintain(root: Path) -> None:
    """Copy, compact, clean and examine."""
    part("9. Maintenance: a copy, files merged, history given up, and a look at everything")
    with connect(root) as graph:
        copied = graph.backup(root.parent / "backup.og")
        console.print(f"backup: {copied.copied} files, {copied.bytes} bytes")
        for row in graph.optimize(actor="demo").types:
            if row.files is not None:
                before, after = row.files.fragments_before, row.files.fragments_after
                console.print(f"optimize: {row.type}: {before} fragments, now {after}")
        freed = graph.cleanup(keep=3, grace="0s", dry_run=False)
        console.print(f"cleanup: {freed.files} files, {freed.bytes} bytes (what the killed writer left, too)")
        report = graph.doctor(deep=True)
        console.print(f"doctor: {len(report.checks)} checks, {report.counts}")
    with connect(root.parent / "backup.og") as copy:
        console.print(f"the copy still has {len(copy.commits.list(limit=100))} commits")


POLICY = """
version: 1
groups: { readers: [ada] }
rules:
  - id: readers-read
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
"""
ASKED = {"query": REACH, "params": {"name": "Ada"}}


def serve(root: Path) -> None:
    """Serve the graph on loopback: with a token it answers, without one it tells nothing."""
    import httpx

    part("10. A server: the same graph over HTTP, for whoever has a token, as the policy says")
    tokens, policy = root.parent / "tokens.json", root.parent / "policy.yaml"
    policy.write_text(POLICY)
    command = [sys.executable, "-m", "omnigraph"]
    made = ["token", "new", "--file", str(tokens), "--actor", "ada", "--quiet"]
    token = subprocess.run([*command, *made], check=True, capture_output=True, text=True).stdout.strip()
    console.print("a token for ada; the file has its digest only:", token not in tokens.read_text())
    told = ["--tokens", str(tokens), "--policy", str(policy), "--bind", "127.0.0.1:0", "--quiet"]
    server = subprocess.Popen(
        [*command, "serve", str(root), *told], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().strip().partition("=")[2]
        with httpx.Client(base_url=f"http://{address}/graphs/people", timeout=60, trust_env=False) as http:
            answer = http.post("/query", json=ASKED)
            console.print(f"without a token: {answer.status_code} {answer.json()['code']}")
            http.headers["Authorization"] = f"Bearer {token}"
            answer = http.post("/query", json=ASKED)
            console.print(
                f"with it: {answer.status_code}, {answer.json()['row_count']} rows, of commit", end=" "
            )
            console.print(answer.headers["Graph-Commit-Id"])
            answer = http.post("/mutate", json={"query": LEAVE, "params": {"name": "Ada"}})
            console.print(f"a delete by ada: {answer.status_code} {answer.json()['message']}")
    finally:
        server.terminate()
        console.print(f"told to end, it ends with {server.wait(60)}")


def spark() -> None:
    """Build the graph of a package archive with Spark, and use it."""
    part("11. The main job: the Debian archive as a graph, built by Spark")
    if os.environ.get("OMNIGRAPH_HAS_JAVA") == "0":
        console.print("left out: this needs Java 17 or newer (the set-up lines above say how to get it)")
        return
    sys.path.insert(0, str(ROOT))  # examples/ is beside the package, not in it
    from examples.debian.run import main as debian

    debian([])


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
            console.print(str(error), markup=False)


def main() -> None:
    """Run all parts."""
    console.print(f"OmniGraph for Python {__version__}")
    with tempfile.TemporaryDirectory() as folder:
        schema(Path(folder))
        root = Path(folder) / "people.og"
        with load(Path(folder)) as graph:
            mutate(graph)
            query(graph)
            branch(graph)
            merge(graph)
            conflicts(graph)
        crash(root)
        maintain(root)
        serve(root)
    spark()
    console.print("\n[bold]Done.[/bold] The tour is in README.md, the tests run with scripts/test.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write-a-ghost"]:
        write_a_ghost(Path(sys.argv[2]))
    else:
        main()
