"""Optimize: files are rewritten, and nothing else changes: no row, no answer, no past, no other branch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.indexes import IndexReport, TypeIndexes
from omnigraph.engine.optimize import OptimizeProgress
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, DeleteIds, Effect, Overwrite, Upsert
from omnigraph.storage.tables.layout import TIERS, Layout
from tests.support.contents import change, stored_rows
from tests.support.contents import state as state_of
from tests.support.graphs import chain_of
from tests.support.places import Place

pytestmark = pytest.mark.slow

SCHEMA = """
node Doc {
    title: String @key
    text: String? @index
    kind: enum(note, report)? @index
    size: I64? @index
    code: String?
    tags: [String]?
    data: Blob?
    embedding: Vector(4)? @index
    @unique(code)
}
node Plain { name: String @key }
edge Cites: Doc -> Doc { weight: F64? }
"""
INSERT = """query add($t: String, $x: String, $s: I64, $c: String) {
    insert Doc { title: $t, text: $x, size: $s, kind: "note", code: $c }
}"""
RESIZE = "query set($t: String, $s: I64) { update Doc set { size: $s } where title = $t }"
DELETE = "query gone($t: String) { delete Doc where title = $t }"
QUERIES = (
    "query all() { match { $d: Doc } return { $d.title as t, $d.size as s, $d.tags as g, $d.code as c } }",
    "query ordered() { match { $d: Doc } return { $d.title as t } order { $d.size desc } limit 7 }",
    'query text() { match { $d: Doc  search($d.text, "subject3") } return { $d.title as t } }',
    "query near() { match { $d: Doc } return { $d.title as t } "
    "order { nearest($d.embedding, [1,2,3,4]) } limit 5 }",
    'query kinds() { match { $d: Doc  $d.kind = "note"  $d.size < 40 } return { $d.title as t } }',
    "query hop() { match { $d: Doc  $d cites $e } return { $d.title as a, $e.title as b } }",
)


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that has key hashes counts as large: it is worth an adjacency of its own."""
    for module in ("omnigraph.storage.tables.layout", "omnigraph.execution.entities"):
        monkeypatch.setattr(f"{module}.TIERS", (TIERS[0], TIERS[0] + 1))


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        yield made


def doc(number: int) -> dict[str, Any]:
    data = {
        "title": f"doc {number:04}",
        "text": f"words about subject{number % 7} and item{number}",
        "kind": "note" if number % 2 else "report",
        "size": number,
        "code": f"c{number}",
        "tags": [f"t{number % 3}", ""] if number % 4 else [],
        "data": None if number % 5 == 0 else "base64:" if number % 5 == 1 else "base64:aGVsbG8=",
        "embedding": [float(number % 11), 2.0, 3.0, 4.0],
    }
    return {"type": "Doc", "data": data}


def cites(one: int, other: int) -> dict[str, Any]:
    return {"edge": "Cites", "from": f"doc {one:04}", "to": f"doc {other:04}", "data": {"weight": 0.5}}


def filled(graph: Graph, commits: int = 20) -> Graph:
    """Write some commits of a few rows each, and take rows away again."""
    for start in range(0, commits * 5, 5):
        numbers = range(start, start + 5)
        edges = [cites(n, n - 1) for n in numbers if n]
        graph.load([*map(doc, numbers), *edges], mode="append")
    for number in range(0, commits * 5, 6):
        graph.mutate(DELETE, t=f"doc {number:04}")
    return graph


def layout(graph: Graph, name: str = "Doc", branch: str = "main") -> Layout:
    declared = graph.schema.catalog(branch).named(name)
    return graph.store.reads.layout(graph.store.table(graph.store.snapshot(branch), declared.id))


def row(report: IndexReport, name: str = "Doc") -> TypeIndexes:
    (found,) = [one for one in report.types if one.type == name]
    return found


def answers(graph: Graph, **where: Any) -> list[Any]:
    return [graph.query(text, **where).to_arrow().to_pylist() for text in QUERIES]


# -- one run, and the next


def test_small_fragments_become_one_in_one_maintenance_commit_by_the_system(graph: Graph) -> None:
    filled(graph)
    before, fragments = graph.store.snapshot(), len(layout(graph).parts)
    stored = layout(graph).rows

    report = graph.optimize()

    head = graph.store.snapshot().state.commit
    assert (head.id, head.parent) == (report.commit_id, before.commit_id)
    assert (head.kind, head.actor) == (CommitKind.MAINTENANCE, "system:optimize")
    assert [change.name for change in head.tables] == ["Cites", "Doc"]
    assert all((c.inserted, c.updated, c.deleted) == (0, 0, 0) for c in head.tables)
    files = row(report).files
    assert fragments > 1
    assert files is not None
    assert (files.fragments_before, files.fragments_after, files.rows) == (fragments, 1, stored)
    assert files.bytes_after < files.bytes_before
    assert row(report).committed
    assert row(report).to_json()["fragments"] == {"before": fragments, "after": 1}


def test_a_second_run_publishes_nothing(graph: Graph) -> None:
    filled(graph).optimize()
    head = graph.store.snapshot().commit_id

    report = graph.optimize()

    assert (report.commit_id, graph.store.snapshot().commit_id) == (None, head)
    assert not any(one.committed or one.derived or one.skipped or one.error for one in report.types)


def test_an_empty_graph_has_nothing_to_optimize(graph: Graph) -> None:
    report = graph.optimize()

    assert (report.commit_id, {one.error for one in report.types}) == (None, {None})


def test_a_fragment_with_many_deleted_rows_is_rewritten_and_a_healthy_one_is_left_alone(graph: Graph) -> None:
    declared = graph.schema.catalog().node("Plain")
    policy = og.OptimizePolicy(small_bytes=1)  # nothing is small
    for start in (0, 2_000):
        rows = stored_rows(declared, [{"name": f"p{n:05}"} for n in range(start, start + 2_000)])
        change(graph, "Plain", Append(rows))
    kept = sorted(layout(graph, "Plain").parts)[1]
    ids = stored_rows(declared, [{"name": f"p{n:05}"} for n in range(2_000)])["id"].combine_chunks()
    change(graph, "Plain", DeleteIds(ids.slice(0, 200)))
    graph.ensure_indexes()
    assert graph.optimize(policy=policy).commit_id is None  # a tenth, and no more

    change(graph, "Plain", DeleteIds(ids.slice(200, 1)))
    report = graph.optimize(policy=policy)

    parts = layout(graph, "Plain").parts
    assert row(report, "Plain").committed
    assert kept in parts
    assert [part.metadata.deletion_file for part in parts.values()] == [None, None]
    assert layout(graph, "Plain").rows == 3_799
    assert graph.optimize(policy=policy).commit_id is None


def test_only_the_types_that_are_named_are_optimized(graph: Graph) -> None:
    filled(graph)
    fragments = len(layout(graph, "Cites").parts)

    report = graph.optimize(types=["Doc"])

    assert [one.type for one in report.types] == ["Doc"]
    assert (len(layout(graph).parts), len(layout(graph, "Cites").parts)) == (1, fragments)
    with pytest.raises(og.TypeNotFound, match="Dok"):
        graph.optimize(types=["Dok"])


def test_a_caller_may_name_itself_but_not_as_the_system(graph: Graph) -> None:
    filled(graph, 3).optimize(actor="ada")

    assert graph.store.snapshot().state.commit.actor == "ada"
    with pytest.raises(og.InvalidRequest, match="reserved"):
        graph.optimize(actor="system:ada")


# -- nothing else changes


def test_answers_searches_past_reads_and_other_branches_are_the_same(graph: Graph) -> None:
    filled(graph, 8)
    graph.branches.create("side")
    graph.branch("side").mutate(RESIZE, t="doc 0003", s=77)
    filled_at = graph.store.snapshot().commit_id
    states = [entry.id for entry in graph.commits.list(limit=100).commits]
    before = [answers(graph, at=at) for at in states]
    side, head, contents = answers(graph, branch="side"), answers(graph), state_of(graph).rows

    assert graph.optimize().commit_id is not None

    assert answers(graph) == head
    assert state_of(graph).rows == contents
    assert [answers(graph, at=at) for at in states] == before
    assert answers(graph, branch="side") == side
    assert answers(graph, at=filled_at) == head
    with og.connect(graph.uri) as cold:
        assert answers(cold) == head
        assert [answers(cold, at=at) for at in states] == before
    assert graph.verify(history=True).ok


def test_a_reader_of_an_older_state_goes_on_reading_it(graph: Graph) -> None:
    rows = filled(graph, 6).nodes("Doc")
    batches = rows.to_batches() if hasattr(rows, "to_batches") else iter(())
    expected = rows.to_arrow()

    graph.optimize()

    assert rows.to_arrow().equals(expected)
    assert sum(batch.num_rows for batch in batches) in (0, expected.num_rows)


def test_blobs_lists_and_nulls_are_the_same(graph: Graph) -> None:
    filled(graph, 8)
    before = graph.nodes("Doc").to_arrow()

    graph.optimize()

    after = graph.nodes("Doc").to_arrow()
    assert after.equals(before)
    assert {None, b"", b"hello"} == set(after["data"].to_pylist())


def test_unique_and_keys_are_still_enforced(graph: Graph) -> None:
    filled(graph, 4).optimize()

    with pytest.raises(og.ConstraintViolation):
        graph.mutate(INSERT, t="another", x="", s=1, c="c7")
    with pytest.raises(og.GraphError):
        graph.load([doc(7)], mode="append")
    graph.mutate(INSERT, t="another", x="", s=1, c="c6")  # its owner was deleted


def test_a_diff_across_it_is_empty_and_the_feed_shows_no_change(graph: Graph) -> None:
    filled(graph, 6)
    before = graph.store.snapshot().commit_id
    feed = graph.changes.poll(start="now")

    report = graph.optimize()
    after = str(report.commit_id)

    assert list(graph.diff(before, after)) == []
    assert list(graph.diff(after, before)) == []
    (block,) = graph.changes.poll(cursor=feed.cursor).blocks
    assert (block.cause.kind, block.changes) == ("maintenance", ())
    graph.mutate(RESIZE, t="doc 0003", s=99)
    assert [(c.op.value, c.id) for c in graph.diff(before, "main")] == [("update", "doc 0003")]


def test_a_branch_forked_before_it_merges_as_without_it(local_copies: Any) -> None:
    outcomes = []
    for optimizes in (False, True):
        place = local_copies.empty()
        with og.init(place.address, SCHEMA, durability="os") as graph:
            filled(graph, 6)
            for name in ("clean", "clash"):
                graph.branches.create(name)
            graph.branch("clean").mutate(RESIZE, t="doc 0008", s=800)
            graph.branch("clean").mutate(DELETE, t="doc 0009")
            graph.branch("clash").mutate(RESIZE, t="doc 0010", s=1)
            graph.mutate(RESIZE, t="doc 0010", s=2)
            if optimizes:
                assert graph.optimize().commit_id is not None
                assert graph.optimize(branch="clash").commit_id is not None
            merged = graph.merge("clean")
            with pytest.raises(og.MergeConflict) as refused:
                graph.merge("clash")
            conflicts = [(one.kind.value, one.entity_id) for one in refused.value.conflicts]
            outcomes.append((merged.outcome.value, conflicts, answers(graph)))
    assert outcomes[0] == outcomes[1]


def test_a_write_that_expects_the_head_before_it_commits(graph: Graph) -> None:
    filled(graph, 4)
    expected = graph.store.snapshot().commit_id
    graph.optimize()

    assert graph.mutate(RESIZE, t="doc 0003", s=5, if_commit=expected).commit is not None


# -- indexes and derived files


def test_indexes_cover_the_new_files(graph: Graph) -> None:
    filled(graph, 6).ensure_indexes()
    for start in (500, 520):
        graph.load([doc(n) for n in range(start, start + 20)], mode="append")
    before = answers(graph)

    files = row(graph.optimize()).files

    assert files is not None
    assert (files.fragments_before, files.fragments_after) == (2, 1)
    assert answers(graph) == before

    for name in ("Doc", "Cites"):
        declared = graph.schema.catalog().named(name)
        handle = graph.store.table(graph.store.snapshot(), declared.id)
        living = set(layout(graph, name).parts)
        assert all(
            living <= {f for s in index.segments for f in s.fragment_ids}
            for index in handle.describe_indices()
        )
    assert graph.ensure_indexes().commit_id is None
    assert row(graph.optimize()).pending == ()


def test_key_hashes_lie_beside_the_new_files_when_they_are_published(graph: Graph) -> None:
    declared = graph.schema.catalog().node("Plain")
    for start in range(0, 24_000, 6_000):
        rows = stored_rows(declared, [{"name": f"p{n:05}"} for n in range(start, start + 6_000)])
        change(graph, "Plain", Append(rows))

    report = graph.optimize()

    (part,) = layout(graph, "Plain").parts.values()
    handle = graph.store.table(graph.store.snapshot(), declared.id)
    assert part.settled
    assert row(report, "Plain").derived == ()  # there was nothing left to complete
    assert graph.store.finder.lacking(handle, [part], declared.looked_up) == []
    assert graph.entity("Plain", "p23999").get() is not None


@pytest.mark.usefixtures("all_large")
def test_adjacency_is_made_for_the_new_files_of_edges_and_of_their_nodes(graph: Graph) -> None:
    hop = 'query hop() { match { $d: Doc  $d cites $e  $e.title = "doc 0700" } return { $d.title as t } }'
    count = "query all() { match { $d: Doc  $d cites $e  $e cites $f } return { count($f) as n } }"
    for start in range(0, 12_000, 6_000):
        numbers = range(start, start + 6_000)
        edges = [cites(n, max(n - 1, 0)) for n in numbers]
        graph.load([*map(doc, numbers), *edges], mode="append")
    before = [graph.query(text).to_arrow() for text in (hop, count)]
    bases = set(Path(graph.uri).glob("tables/*/_derived/adjacency/*"))

    report = graph.optimize()

    assert "adjacency" in row(report, "Cites").derived
    assert set(Path(graph.uri).glob("tables/*/_derived/adjacency/*")) - bases
    with og.connect(graph.uri) as cold:
        for reader in (graph, cold):
            assert [reader.query(text).to_arrow() for text in (hop, count)] == before
    assert graph.optimize(types=["Doc"]).commit_id is None


def test_with_nothing_to_do_it_asks_little_of_storage(graph: Graph) -> None:
    filled(graph, 4).optimize()
    with og.connect(graph.uri) as cold:
        report = cold.optimize()

    assert report.commit_id is None
    assert report.cost.requests <= 2 + 4 * len(report.types)


# -- writers


def between(graph: Graph, point: str, act: Callable[[], object]) -> dict[str, Callable[[], None]]:
    """Run something once at a durable step of another's work."""
    acted: list[bool] = []

    def action() -> None:
        if not acted:
            acted.append(True)
            act()

    return {point: action}


@pytest.mark.parametrize("write", ["insert", "update", "delete", "overwrite", "fold"])
def test_a_writer_that_publishes_first_loses_nothing_and_no_work_is_lost(graph: Graph, write: str) -> None:
    declared = graph.schema.catalog().node("Plain")
    names = [{"name": f"p{n:05}"} for n in range(4_000)]
    for start in range(0, 4_000, 1_000):
        change(graph, "Plain", Append(stored_rows(declared, names[start : start + 1_000])))
    filled(graph, 4)
    some = stored_rows(declared, names[1_500:1_510])
    effects: dict[str, Effect] = {
        "insert": Append(stored_rows(declared, [{"name": "new"}])),
        "update": Upsert(some),
        "delete": DeleteIds(some["id"].combine_chunks()),
        "overwrite": Overwrite(some),
    }

    def act() -> None:
        with GraphStore.open(graph.uri, durability="os") as other:
            writer = Graph(other)
            if write == "fold":
                for number in range(8):
                    change(writer, "Plain", Append(stored_rows(declared, [{"name": f"f{number}"}])))
            else:
                change(writer, "Plain", effects[write])

    with armed(between(graph, "publish.before", act)):
        report = graph.optimize()

    expected = {one["name"] for one in names}
    if write == "insert":
        expected |= {"new"}
    elif write == "delete":
        expected -= set(some["id"].to_pylist())  # a key of one text is the id
    elif write == "overwrite":
        expected = {f"p{n:05}" for n in range(1_500, 1_510)}
    elif write == "fold":
        expected |= {f"f{n}" for n in range(8)}
    found = graph.nodes("Plain").to_arrow()["name"].to_pylist()
    assert (len(found), set(found)) == (len(expected), expected)
    assert report.commit_id is not None
    assert row(report).committed  # whatever became of the other table
    if write in ("insert", "update", "delete"):
        assert row(report, "Plain").committed
        assert len(layout(graph, "Plain").parts) <= 3
    assert graph.verify().ok


def test_what_was_indexed_is_kept_when_a_writer_publishes_first(graph: Graph) -> None:
    for start in range(0, 900, 300):
        graph.load([doc(n) for n in range(start, start + 300)], mode="append")
    built: list[int] = []

    with armed(
        {
            **between(graph, "publish.before", lambda: graph.mutate(INSERT, t="z", x="a b", s=1, c="z")),
            "table_index.before": lambda: built.append(1),
        }
    ):
        report = graph.optimize()

    assert row(report).committed
    assert len(built) == 5  # text, title, kind, size and embedding, once each
    assert graph.query(QUERIES[2]).to_arrow().num_rows > 0
    graph.optimize()
    assert graph.ensure_indexes().commit_id is None


def test_rows_that_were_deleted_while_files_were_written_stay_deleted(graph: Graph) -> None:
    filled(graph, 6)
    expected = answers(graph)

    with armed(between(graph, "table_data.after", lambda: graph.mutate(DELETE, t="doc 0013"))):
        report = graph.optimize(policy=og.OptimizePolicy(deleted_share=0.5))

    assert row(report).committed
    assert [one["t"] for one in answers(graph)[0]] == [
        one["t"] for one in expected[0] if one["t"] != "doc 0013"
    ]


def test_a_table_whose_rows_all_change_is_rewritten_again_and_then_skipped(graph: Graph) -> None:
    filled(graph, 4)
    declared = graph.schema.catalog().node("Plain")
    numbers = iter(range(100))

    def overwrite() -> None:
        rows = [{"name": f"n{next(numbers)}"} for _ in range(2)]
        change(graph, "Plain", Overwrite(stored_rows(declared, rows[:1])))
        change(graph, "Plain", Append(stored_rows(declared, rows[1:])))

    def before_publishing(now: OptimizeProgress) -> None:
        if now.stage == "indexing" and not now.tables:
            rounds.append(now.stage)
            overwrite()

    overwrite()
    rounds: list[str] = []
    report = graph.optimize(policy=og.OptimizePolicy(replans=2), progress=before_publishing)

    assert len(rounds) == 3
    skipped, others = row(report, "Plain"), row(report)
    assert (skipped.skipped, skipped.files and skipped.files.changed) == ("files contended", False)
    assert (others.skipped, others.files and others.files.changed) == (None, True)
    assert len(graph.nodes("Plain")) == 2
    assert len([c for c in graph.commits.list(limit=99).commits if c.kind is CommitKind.MAINTENANCE]) == 1


def test_of_a_table_of_which_only_indexes_landed_files_are_said_to_be_skipped(graph: Graph) -> None:
    filled(graph, 4)
    declared = graph.schema.catalog().node("Doc")

    def overwrite(now: OptimizeProgress) -> None:
        if now.stage == "indexing" and not now.tables:
            rows = [{"title": f"n{n}", "text": "new words", "size": n} for n in range(3)]
            change(graph, "Doc", Overwrite(stored_rows(declared, rows)))

    report = graph.optimize(types=["Doc"], policy=og.OptimizePolicy(replans=0), progress=overwrite)

    assert row(report).committed
    assert "size" in row(report).created
    assert row(report).skipped == "files contended"
    assert row(report).files is not None
    assert not row(report).files.changed  # type: ignore[union-attr]


@pytest.mark.parametrize("event", ["a sweep", "the branch made anew"])
def test_files_that_may_be_gone_are_written_again(graph: Graph, event: str) -> None:
    filled(graph, 4)
    graph.branches.create("side")
    expected = answers(graph)
    rounds: list[str] = []

    def before_publishing(now: OptimizeProgress) -> None:
        if now.stage != "indexing" or now.tables:
            return
        rounds.append(now.stage)
        if len(rounds) == 1 and event == "a sweep":
            graph.store.raise_floor("side", 1)
        elif len(rounds) == 1:
            graph.branches.delete("side")
            graph.branches.create("side")

    report = graph.optimize(branch="side", progress=before_publishing)

    assert len(rounds) == 2
    assert row(report).files is not None
    assert len(layout(graph, branch="side").parts) == 1
    assert answers(graph, branch="side") == expected


def test_on_a_branch_that_never_rests_it_ends_and_says_that_it_was_contended(local_place: Place) -> None:
    og.init(local_place.address, SCHEMA, durability="os").close()
    with GraphStore.open(local_place.address, durability="os", retry=RetryPolicy(attempts=2)) as store:
        graph = filled(Graph(store), 3)
        with GraphStore.open(local_place.address, durability="os") as other:
            writer, numbers = Graph(other), iter(range(1_000))
            busy = threading.local()

            def act() -> None:
                if not getattr(busy, "writing", False):
                    busy.writing = True
                    writer.mutate("query q($n: String) { insert Plain { name: $n } }", n=f"w{next(numbers)}")
                    busy.writing = False

            with armed({"publish.before": act}):
                report = graph.optimize(policy=og.OptimizePolicy(replans=1))

        assert {one.skipped for one in report.types} == {"contended"}
        assert report.commit_id is None
        assert len(graph.nodes("Plain")) == next(numbers)


def test_writers_and_readers_beside_it_neither_fail_nor_lose_anything(graph: Graph) -> None:
    filled(graph, 10)
    stop = threading.Event()

    def write() -> list[str]:
        written = []
        for number in takewhile(lambda _: not stop.is_set(), range(10_000)):
            title = f"w{number:05}"
            graph.mutate(INSERT, t=title, x="word", s=number, c=title)
            if number % 3 == 0:
                graph.mutate(DELETE, t=title)
                continue
            written.append(title)
            if number % 3 == 1:
                graph.mutate(RESIZE, t=title, s=-number)
        return written

    def read() -> None:
        while not stop.is_set():
            rows = graph.query(QUERIES[0]).to_arrow()["t"].to_pylist()
            assert len(rows) == len(set(rows))

    base = {one["t"] for one in answers(graph)[0]}
    with ThreadPoolExecutor(2) as pool:
        writing, reading = pool.submit(write), pool.submit(read)
        reports = [graph.optimize() for _ in range(6)]
        stop.set()
    reading.result()

    assert sum(report.commit_id is not None for report in reports) >= 1
    assert {one["t"] for one in answers(graph)[0]} == base | set(writing.result())
    assert len(chain_of(graph.store)) == graph.store.snapshot().state.version


# -- failures


def test_a_table_that_cannot_be_rewritten_is_reported_and_the_others_are_published(graph: Graph) -> None:
    filled(graph, 4)
    seen = iter(range(100))

    def fail() -> None:
        if next(seen) == 0:
            raise OSError("the disk is full")

    with armed({"table_data.before": fail}):
        report = graph.optimize(policy=og.OptimizePolicy(concurrency=1))

    failed = [one for one in report.types if one.error]
    assert len(failed) == 1
    assert "the disk is full" in str(failed[0].error)
    assert failed[0].files is not None
    assert failed[0].files.fragments_before == failed[0].files.fragments_after
    assert {one.committed for one in report.types if one.files and one.files.changed} == {True}
    assert not any(one.error for one in graph.optimize().types)
    assert max(len(layout(graph, name).parts) for name in ("Doc", "Cites")) == 1


def test_ctrl_c_ends_it_and_publishes_nothing(graph: Graph) -> None:
    filled(graph, 4)
    head = graph.store.snapshot().commit_id

    def interrupt(now: OptimizeProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph.optimize(progress=interrupt)

    assert graph.store.snapshot().commit_id == head
    assert graph.optimize().commit_id is not None


# -- progress and policy


def test_progress_counts_the_rows_that_are_rewritten(graph: Graph) -> None:
    filled(graph, 4)
    rows = layout(graph).rows + layout(graph, "Cites").rows
    told: list[OptimizeProgress] = []

    graph.optimize(progress=told.append)

    compacting = [now for now in told if now.stage == "compacting"]
    assert [now.rows for now in compacting] == sorted(now.rows for now in compacting)
    assert (compacting[-1].rows, compacting[-1].rows_total) == (rows, rows)
    after = [now.stage for now in told[len(compacting) :]]
    assert list(dict.fromkeys(after)) == ["indexing", "deriving", "done"]
    assert after == sorted(after, key=["indexing", "deriving", "done"].index)


@pytest.mark.parametrize("stage", ["indexing", "deriving"])
def test_progress_counts_the_tables_that_are_indexed_and_derived(graph: Graph, stage: str) -> None:
    filled(graph, 4)
    told: list[OptimizeProgress] = []

    graph.optimize(progress=told.append)

    counted = [now for now in told if now.stage == stage and now.tables]
    total = counted[0].tables
    assert [(now.tables_done, now.tables) for now in counted] == [(n, total) for n in range(1, total + 1)]
    assert total >= 2


def test_a_policy_says_cheaply_whether_anything_is_due(graph: Graph) -> None:
    policy = og.OptimizePolicy()
    assert not policy.is_due(graph.fragmentation())
    filled(graph, 4)
    assert policy.is_due(graph.fragmentation())
    graph.optimize()
    assert not policy.is_due(graph.fragmentation())

    graph.load([doc(900)], mode="append")
    patient = og.OptimizePolicy(small_fragments=8)
    assert (policy.is_due(graph.fragmentation()), patient.is_due(graph.fragmentation())) == (True, False)
    (docs,) = [table for table in graph.fragmentation() if table.type == "Doc"]
    assert (docs.unindexed_rows, docs.rows) == (1, layout(graph).rows)
    eager = og.OptimizePolicy(small_fragments=8, unindexed_share=0.0)
    assert eager.is_due(graph.fragmentation())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small_fragments", 1),
        ("small_bytes", 0),
        ("deleted_share", 1.0),
        ("deleted_share", "much"),
        ("unindexed_share", -0.1),
        ("file_bytes", 5),
        ("concurrency", 0),
        ("replans", -1),
        ("concurrency", True),
    ],
)
def test_a_policy_refuses_what_cannot_be_meant(name: str, value: Any) -> None:
    with pytest.raises(og.InvalidRequest, match=name) as refused:
        og.OptimizePolicy(**{name: value})
    assert refused.value.fields["parameter"] == name


def test_it_works_on_an_object_store(place: Place) -> None:
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        filled(graph, 3)
        before = answers(graph)

        assert graph.optimize().commit_id is not None

        assert answers(graph) == before
        assert graph.optimize().commit_id is None


def test_random_vectors_are_found_exactly_after_it(graph: Graph) -> None:
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(60, 4))
    for start in range(0, 60, 6):
        batch = [doc(n) for n in range(start, start + 6)]
        for record, vector in zip(batch, vectors[start:], strict=False):
            record["data"]["embedding"] = vector.tolist()
        graph.load(batch, mode="append")
    graph.optimize()

    text = QUERIES[3].replace("[1,2,3,4]", "[0.1,0.2,0.3,0.4]")
    found = [one["t"] for one in graph.query(text).to_arrow().to_pylist()]

    distances = np.linalg.norm(vectors - [0.1, 0.2, 0.3, 0.4], axis=1)
    assert found == [f"doc {n:04}" for n in np.argsort(distances)[:5]]
