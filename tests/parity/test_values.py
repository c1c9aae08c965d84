"""What a graph gives is the same whether it is opened here or reached through a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from omnigraph.engine.history.diff import steps_json
from tests.parity.ground import (
    ADD,
    ALL,
    BOTH_RANKED,
    BY_AGE,
    DROP,
    GROWN,
    KEYED,
    NEAREST,
    REFUSED,
    ROWS,
    SET,
    knows,
    person,
)
from tests.support.doors import Doors, Plain

Body = Callable[[Any], Iterator[Any]]
BODIES: dict[str, Body] = {}


def body(function: Body) -> Body:
    """Put a body into the table: it yields answers, which must be equal through all doors."""
    BODIES[function.__name__] = function
    return function


@pytest.mark.parametrize("name", BODIES)
def test_answers_are_the_same(name: str, both: Doors) -> None:
    answers = []
    for door in (both.embedded, both.served):
        plain = Plain()
        with door() as graph:
            answers.append([plain(answer) for answer in BODIES[name](graph)])
    assert answers[0]
    for here, there in zip(*answers, strict=True):
        assert there == here


# -- reads -------------------------------------------------------------------------------------------


@body
def rows_of_all_types(g: Any) -> Iterator[Any]:
    result = g.query(ROWS)
    yield result
    yield result.rows
    yield result.schema
    yield result.to_json()
    yield result.to_csv()
    yield len(result)
    yield g.query('query none() { match { $p: Person { name: "nobody" } } return { $p.born } }')


@body
def parameters(g: Any) -> Iterator[Any]:
    yield g.query(BY_AGE, {"n": 10})
    yield g.query(BY_AGE, n=10)
    yield g.query(BY_AGE, n="10")
    text = """query q($d: Date, $t: DateTime) {
      match { $p: Person  $p.born = $d  $p.seen <= $t } return { $p.name }
    }"""
    yield g.query(text, d=date(1815, 12, 10), t=datetime(2026, 5, 1, 12, 0, 1, tzinfo=UTC))
    yield g.query(text, d="1815-12-10", t="2026-05-01T12:00:01Z")


@body
def stored_queries(g: Any) -> Iterator[Any]:
    yield g.queries.list()
    rows = g.run("by", n=30)
    yield rows
    yield rows.rows
    yield g.run("by", {"n": 36}, at="main~1")
    g.branches.create("side")
    receipt = g.run("add", name="Eve", age=9, branch="side", message="hello", idempotency_key="k")
    yield receipt
    again = g.run("add", name="Eve", age=9, branch="side", message="hello", idempotency_key="k")
    yield [again.replayed, again.commit_id == receipt.commit_id]
    side = g.branch("side")
    yield side.run("everybody")
    yield side.run("add", name="Fay", if_commit=receipt.commit_id)
    yield g.at("main~1").run("by", n=36)


@body
def reads_of_branches_and_of_the_past(g: Any) -> Iterator[Any]:
    g.branches.create("side")
    g.mutate(ADD, name="Eve", branch="side")
    yield g.query(ALL, branch="side")
    yield g.query(ALL)
    yield g.query(BY_AGE, n=36, at="v1")
    yield g.query(BY_AGE, n=36, at="main~1")
    yield g.query(BY_AGE, n=36, at=2)
    yield g.branch("side").query(ALL)
    yield g.at("main~1").query(BY_AGE, n=36)
    yield g.at("main~1").view.commit_id
    yield g.branch("new", create=True).query(ALL)
    yield g.branch("side").branches.create("below").parent


@body
def plans(g: Any) -> Iterator[Any]:
    plan = g.explain(BY_AGE, n=10)
    yield plan
    yield str(plan)
    yield g.profile(BY_AGE, n=10)


@body
def rows_of_one_type(g: Any) -> Iterator[Any]:
    yield g.nodes("Person")
    yield g.edges("knows")
    yield g.nodes("Person").select("age", "name")
    yield g.nodes("Person").filter(name=["Ada", "Cy"])
    yield g.nodes("Person").filter(pc.field("age") > 30, mood="calm").select("name").to_arrow().to_pylist()
    yield g.nodes("Person", at="main~1").filter(name="Ada").rows
    yield g.nodes("Person").columns
    yield len(g.nodes("Person"))
    yield g.at("main~1").nodes("Person").select("age")


@body
def rankings(g: Any) -> Iterator[Any]:
    for text in (NEAREST, BOTH_RANKED):
        ranked = g.query(text, t="a dog in the park")
        yield ranked
        yield ranked.rows
        assert len(ranked) == 3
    yield g.query(NEAREST, t="taxes", at="v1")


@body
def entities(g: Any) -> Iterator[Any]:
    entity = g.entity("Person", "Ada")
    yield entity.get()
    yield entity.get(at="main~1")
    yield g.entity("Person", "nobody").get()
    yield g.entity("Knows", "ab").get()
    history = entity.history()
    yield history
    yield [version.fields for version in history]
    yield entity.history(limit=1)


# -- writes ------------------------------------------------------------------------------------------


@body
def mutations(g: Any) -> Iterator[Any]:
    receipt = g.mutate(ADD, name="Eve", age=9, message="hello")
    yield receipt
    yield [receipt.nodes, receipt.edges, receipt.affected_nodes, receipt.parents, repr(receipt)]
    yield g.mutate(SET, name="nobody", age=1)
    yield g.mutate(SET, name="Ada", age=2, dry_run=True)
    yield g.mutate(DROP, name="Bob")
    yield g.query(ROWS)
    head = g.commits.list()[0].id
    yield g.mutate(ADD, name="Fay", if_commit=head)


@body
def repeated_writes(g: Any) -> Iterator[Any]:
    first = g.mutate(ADD, name="Eve", idempotency_key="once")
    again = g.mutate(ADD, name="Eve", idempotency_key="once")
    yield first
    yield again
    yield [again.replayed, again.commit_id == first.commit_id]
    yield g.load([person("Fay")], mode="append", idempotency_key="load")
    yield g.load([person("Fay")], mode="append", idempotency_key="load")


@body
def loads_in_three_modes(g: Any) -> Iterator[Any]:
    yield g.load([person("Eve", age=1), knows("ea", "Eve", "Ada")], mode="append", message="why")
    yield g.load([person("Eve", age=2), person("Fay")], mode="merge")
    yield g.load([{"type": "Company", "data": {"name": "New"}}], mode="merge", dry_run=True)
    yield g.load([person("Only")], mode="overwrite", replace_types=["Knows", "WorksAt"])
    yield g.query(ALL)
    yield g.edges("Knows")


@body
def loads_that_fork(g: Any) -> Iterator[Any]:
    yield g.load([person("Eve")], mode="append", branch="made", from_branch="main")
    yield g.load([person("Fay")], mode="append", branch="made", from_branch="main")
    yield g.query(ALL, branch="made")


@body
def loads_of_tables(g: Any) -> Iterator[Any]:
    table = pa.table({"who": ["Eve", "Fay"], "years": [1, 2]})
    yield g.load(table, mode="append", type="Person", columns={"who": "name", "years": "age"})
    yield g.load(table.rename_columns(["name", "age"]).to_reader(), mode="merge", type="Person")
    yield g.load({"Person": [{"name": "Gus"}], "Company": pa.table({"name": ["New"]})}, mode="merge")
    frame = pa.table({"name": ["Hal"], "age": [None]}, pa.schema({"name": pa.string(), "age": pa.int32()}))
    yield g.load(frame.to_pandas(), mode="merge", type="Person")
    polars = pytest.importorskip("polars")
    yield g.load(polars.DataFrame({"name": ["Ida"]}), mode="merge", type="Person")
    yield g.load((record for record in [person("Jan", born=date(2000, 1, 1))]), mode="merge")
    yield g.load(b'{"type":"Person","data":{"name":"Kim"}}\n', mode="merge")
    yield g.load([], mode="merge")
    yield g.query(ROWS)


@body
def merges(g: Any) -> Iterator[Any]:
    g.branches.create("side")
    yield g.merge("side")
    g.mutate(ADD, name="Eve", branch="side")
    yield g.merge("side", preview=True)
    yield g.merge("side", message="in")
    g.mutate(SET, name="Bob", age=1, branch="side")
    g.mutate(SET, name="Ada", age=1)
    yield g.merge("side", delete_branch=True)
    yield [branch.name for branch in g.branches.list()]


@body
def conflicts(g: Any) -> Iterator[Any]:
    g.branches.create("side")
    g.mutate(SET, name="Ada", age=1, branch="side")
    g.mutate(SET, name="Ada", age=2)
    preview = g.merge("side", preview=True)
    yield preview
    yield [[conflict, conflict.properties] for conflict in preview.conflicts]
    yield g.merge("side", preview=True, strategy="theirs")
    choice = {"type": "Person", "id": "Ada", "property": "age", "value": 9}
    yield g.merge("side", resolutions=[choice])
    yield g.entity("Person", "Ada").get()


@body
def reverts(g: Any) -> Iterator[Any]:
    commit = g.mutate(SET, name="Ada", age=1).commit_id
    yield g.revert(commit, preview=True)
    yield g.revert(commit)
    yield g.entity("Person", "Ada").get()


# -- branches, tags, history ---------------------------------------------------------------------------


@body
def branches(g: Any) -> Iterator[Any]:
    yield g.branches.create("side")
    yield g.branches.create("etl/run-1", at="main~1")
    yield g.branches.create("dry", dry_run=True)
    g.mutate(ADD, name="Eve", branch="side")
    yield g.branches.list()
    yield g.branches.list(counts=True)
    yield g.branches.get("etl/run-1")
    yield g.branches.rename("side", "other", dry_run=True)
    yield g.branches.rename("side", "other")
    yield g.branches.delete("other", dry_run=True)
    yield g.branches.delete("other")
    yield g.branches.list()


@body
def tags(g: Any) -> Iterator[Any]:
    yield g.tags.create("v2", message="two")
    yield g.tags.create("old", "main~1")
    yield g.tags.create("dry", dry_run=True)
    yield g.tags.list()
    yield g.tags.get("old")
    yield g.tags.delete("old", dry_run=True)
    yield g.tags.delete("old")
    yield g.tags.list()


def _commit(commit: Any) -> list[Any]:
    from omnigraph.engine.write import commit_json

    return [commit_json(commit), [[t.name, t.inserted, t.updated, t.deleted] for t in commit.tables]]


@body
def commits(g: Any) -> Iterator[Any]:
    g.branches.create("side")
    g.mutate(ADD, name="Eve", branch="side")
    g.mutate(ADD, name="Fay")
    g.merge("side")
    page = g.commits.list(limit=2)
    yield [_commit(commit) for commit in page]
    yield page.next
    yield [_commit(commit) for commit in g.commits.list(before=page.next)]
    yield [_commit(commit) for commit in g.commits.list(actor="ada")]
    yield [_commit(commit) for commit in g.commits.graph()]
    yield _commit(g.commits.get("v1"))
    yield _commit(g.commits.get(page[0].id[:22]))
    yield [_commit(commit) for commit in g.at("main~1").commits.list(limit=2)]
    yield [_commit(commit) for commit in g.branch("side").commits.list(limit=1)]


@body
def differences(g: Any) -> Iterator[Any]:
    g.branches.create("side")
    g.mutate(SET, name="Ada", age=1, branch="side")
    g.mutate(DROP, name="Cy", branch="side")
    g.load([person("Eve"), knows("ea", "Eve", "Ada")], mode="append", branch="side")
    difference = g.diff("main", "side")
    yield difference
    yield [difference.types, list(difference), bool(difference), repr(difference)]
    yield g.diff("main", "side", kinds="node", ops=["insert", "update"])
    yield g.diff("main", "side", types="Knows")
    yield bool(g.diff("main", "main"))
    yield g.diff("main~1").to_json(1)
    g.schema.apply(GROWN, branch="side")
    yield steps_json(g.diff("main", "side").schema)


@body
def many_changes_come_in_pages(g: Any) -> Iterator[Any]:
    g.load([person(f"p{number:04}") for number in range(1_500)], mode="append")
    yield [change.id for change in g.diff("main~1", "main")]
    yield len(g.diff("main~1").to_json(20)["changes"])


@body
def feed(g: Any) -> Iterator[Any]:
    first = g.changes.poll(start="beginning")
    yield first
    yield [first.caught_up, first.page_token]
    g.mutate(ADD, name="Eve", age=4)
    g.mutate(SET, name="Eve", age=5)
    page = g.changes(first.cursor, limit=1)
    yield page
    yield g.changes.poll(page.cursor)
    yield g.changes.wait(page.cursor, timeout=5.0)
    yield g.changes.wait(g.changes.poll().cursor, timeout=0.05)
    yield g.changes.poll(start="beginning", limit=3, kinds="node").page_token is not None
    commit = g.commits.list()[0].id
    yield g.changes.of(commit)
    yield g.changes.of(g.commits.list()[1].id, ops="insert")


@body
def baselines(g: Any) -> Iterator[Any]:
    baseline = g.changes.baseline(types="Person")
    yield baseline.snapshot_commit_id
    yield list(baseline)
    g.mutate(ADD, name="Eve")
    yield g.changes(baseline.resume_cursor, types="Person")


# -- schema and exports --------------------------------------------------------------------------------


@body
def schemas(g: Any) -> Iterator[Any]:
    yield g.schema.show()
    yield g.schema.catalog().to_json()
    yield g.schema.diagram()
    plan = g.schema.plan(GROWN)
    yield plan
    yield [[step.to_json(), plan.rows(step), plan.takes_history(step)] for step in plan.steps]
    yield g.schema.plan(REFUSED)
    yield [step.message for step in g.schema.plan(REFUSED).steps if hasattr(step, "message")]
    yield g.schema.lint(REFUSED)
    yield g.schema.apply(GROWN, message="more")
    yield g.schema.apply(GROWN)
    yield g.schema.show()
    yield g.schema.show(at="main~1")
    yield g.query(ALL, at="main~1")
    yield g.nodes("Person", at="main~1").select("nick", "age")


@body
def keyed_edges(g: Any) -> Iterator[Any]:
    g.load([knows("ab2", "Ada", "Bob", since=1)], mode="append")
    refused = g.schema.plan(KEYED)
    yield refused
    yield [step.to_json() for step in refused.steps]
    yield g.schema.plan(KEYED, dedupe="latest").to_json()
    yield g.schema.apply(KEYED, dedupe="latest")
    yield g.edges("Knows").to_arrow()
    yield [change.to_json() for change in g.diff("main~1", "main")]
    g.branches.create("side")
    for branch, since in (("side", 2), ("main", 3)):
        record = {"edge": "Knows", "from": "Cy", "to": "Ada", "data": {"since": since}}
        g.load([record], mode="merge", branch=branch)
    yield [(conflict, conflict.ends) for conflict in g.merge("side", preview=True).conflicts]


@body
def exports(g: Any, tmp: Any = None) -> Iterator[Any]:
    import json
    import tempfile
    from pathlib import Path

    for format in ("jsonl", "parquet"):
        with tempfile.TemporaryDirectory() as folder:
            report = g.export(Path(folder, "out"), format=format)
            yield [[t.name, t.kind, t.rows] for t in report.types]
            yield [report.rows, report.branch, report.commit_id, report.schema_digest]
            manifest = json.loads(Path(folder, "out", "_manifest.json").read_text())
            yield manifest["rows"]
            yield Path(folder, "out", "_schema.pg").read_text()
            for file in sorted(Path(folder, "out").rglob("*.*")):  # a folder has no order of rows
                if file.suffix == ".jsonl":
                    yield sorted(file.read_text().splitlines())
                elif file.suffix == ".parquet":
                    yield sorted(map(str, pq.read_table(file).to_pylist()))
            yield g.load(Path(folder, "out"), mode="merge")
            assert report.commit_id in repr(manifest)
    with tempfile.TemporaryDirectory() as folder:
        report = g.export(Path(folder, "one"), types=["Company"], at="v1")
        yield [[t.name, t.rows] for t in report.types]
