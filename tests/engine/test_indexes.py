"""Ensuring indexes: full coverage, one commit, nothing twice, no writer that fails for it (G-01 to G-09)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.change import Catalogs
from omnigraph.engine.indexes import IndexReport, TypeIndexes, declared_indexes, ensure_indexes
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables import layout
from omnigraph.storage.tables.effects import Append, DeleteIds, IndexSpec, Overwrite, StoredIndexKind, Upsert
from omnigraph.storage.tables.indexes import MAX_SEGMENTS
from tests.support.contents import change, read, stored_rows
from tests.support.graphs import chain_of
from tests.support.places import Place

SCHEMA = """
node Doc {
    title: String @key
    text: String? @index
    kind: enum(note, report)? @index
    size: I64? @index
    born: DateTime? @index
    tags: [String]?
    plain: String?
    embedding: Vector(4)? @index
}
edge Cites: Doc -> Doc { weight: F64? @index }
"""
DECLARED = ["born", "embedding", "kind", "size", "text", "title"]


@pytest.fixture
def graph(local_place: Place) -> Iterator[Graph]:
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        yield made


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that has key hashes counts as large: it is worth an adjacency of its own."""
    tiers = (layout.TIERS[0], layout.TIERS[0] + 1)
    for module in ("omnigraph.storage.tables.layout", "omnigraph.execution.entities"):
        monkeypatch.setattr(f"{module}.TIERS", tiers)


def ensure(graph: Graph, branch: str = "main") -> IndexReport:
    return ensure_indexes(graph.store, Catalogs(graph.store.schemas), branch)


def row(report: IndexReport, name: str = "Doc") -> TypeIndexes:
    (found,) = [one for one in report.types if one.type == name]
    return found


def docs(graph: Graph, numbers: Sequence[int], *, vectors: bool = True) -> pa.Table:
    rng = np.random.default_rng(len(numbers))
    declared = graph.schema.catalog().node("Doc")
    records = [
        {
            "title": f"doc {n}",
            "text": f"words about subject{n % 7} and item{n}",
            "kind": "note" if n % 2 else "report",
            "size": n,
            "embedding": rng.normal(size=4).tolist() if vectors else None,
        }
        for n in numbers
    ]
    return stored_rows(declared, records)


def put(graph: Graph, numbers: Sequence[int], branch: str = "main", *, vectors: bool = True) -> None:
    change(graph, "Doc", Upsert(docs(graph, numbers, vectors=vectors)), branch)


def uncovered(graph: Graph, name: str = "Doc", branch: str = "main") -> dict[str, set[int]]:
    """Return, for each index that a type should have, the fragments without it."""
    catalog = graph.schema.catalog(branch)
    declared = catalog.find_node(name) or catalog.edge(name)
    handle = graph.store.table(graph.store.snapshot(branch), declared.id)
    known = {i.name: {f for s in i.segments for f in s.fragment_ids} for i in handle.describe_indices()}
    living = {fragment.fragment_id for fragment in handle.get_fragments()}
    return {spec.column: living - known.get(spec.name, set()) for spec in declared_indexes(declared)}


def segments(graph: Graph) -> dict[str, int]:
    handle = graph.store.table(graph.store.snapshot(), graph.schema.catalog().node("Doc").id)
    return {index.name: len(index.segments) for index in handle.describe_indices()}


def covers_all(graph: Graph, name: str = "Doc", branch: str = "main") -> bool:
    return not any(uncovered(graph, name, branch).values())


# -- which index for which property


def test_the_kind_of_an_index_follows_the_type_of_its_property(graph: Graph) -> None:
    catalog = graph.schema.catalog()

    found = {spec.column: spec.kind for spec in declared_indexes(catalog.node("Doc"))}

    assert found == {
        "born": StoredIndexKind.BTREE,
        "kind": StoredIndexKind.BTREE,
        "size": StoredIndexKind.BTREE,
        "text": StoredIndexKind.INVERTED,
        "title": StoredIndexKind.INVERTED,
        "embedding": StoredIndexKind.VECTOR,
    }


def test_ids_and_the_ends_of_edges_need_no_index(graph: Graph) -> None:
    """They are found by the key hashes beside the data files."""
    edge = graph.schema.catalog().edge("Cites")

    assert [(spec.column, spec.kind) for spec in declared_indexes(edge)] == [
        ("weight", StoredIndexKind.BTREE)
    ]


# -- one run, and the next


def test_everything_declared_is_built_in_one_maintenance_commit(graph: Graph) -> None:
    put(graph, range(300))
    before = graph.store.snapshot()

    report = ensure(graph)

    assert row(report).created == tuple(DECLARED)
    assert row(report).committed
    assert row(report).pending == ()
    assert covers_all(graph)
    head = graph.store.snapshot().state.commit
    assert (head.id, head.kind, head.parent) == (report.commit_id, CommitKind.MAINTENANCE, before.commit_id)
    assert [t.name for t in head.tables] == ["Doc"]  # the empty table of edges did not move


def test_a_second_run_publishes_nothing(graph: Graph) -> None:
    put(graph, range(300))
    ensure(graph)
    head = graph.store.snapshot().commit_id

    report = ensure(graph)

    assert report.commit_id is None
    assert graph.store.snapshot().commit_id == head
    assert row(report) == TypeIndexes("Doc", "node")


def test_rows_and_answers_stay_as_they_were(graph: Graph) -> None:
    put(graph, range(100))
    before = read(graph, "Doc")

    ensure(graph)

    assert read(graph, "Doc") == before


@pytest.mark.parametrize("write", ["append", "upsert", "delete", "overwrite"])
def test_indexes_are_extended_after_any_write(graph: Graph, write: str) -> None:
    put(graph, range(300))
    ensure(graph)
    table = docs(graph, range(280, 320))
    effects: dict[str, Any] = {
        "append": Append(docs(graph, range(400, 420))),
        "upsert": Upsert(table),
        "delete": DeleteIds(table["id"].combine_chunks().slice(0, 10)),
        "overwrite": Overwrite(table),
    }
    change(graph, "Doc", effects[write])

    report = ensure(graph)

    assert covers_all(graph)
    assert row(report).created == ()
    assert ensure(graph).commit_id is None


def test_many_runs_leave_few_segments(graph: Graph) -> None:
    put(graph, range(3_000))
    for number in range(3 * MAX_SEGMENTS):
        put(graph, range(10_000 + number * 400, 10_400 + number * 400))
        ensure(graph)

    assert covers_all(graph)
    assert max(segments(graph).values()) <= MAX_SEGMENTS


# -- what is derived from data files


def settled(graph: Graph) -> None:
    """Put documents and edges into files that are large enough for key hashes and adjacency."""
    put(graph, range(12_000), vectors=False)
    declared = graph.schema.catalog().edge("Cites")
    ids = docs(graph, range(12_000), vectors=False)["id"].to_pylist()
    edges = [{"id": f"e{n}", "src": ids[n], "dst": ids[n + 1]} for n in range(11_000)]
    change(graph, "Cites", Append(stored_rows(declared, edges)))


def derived_files(graph: Graph) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(graph.uri).glob("tables/*/_derived/*/*")}


@pytest.mark.usefixtures("all_large")
def test_what_is_missing_beside_data_files_is_written_without_a_commit(graph: Graph) -> None:
    settled(graph)
    first = ensure(graph)
    head = graph.store.snapshot().commit_id
    written = derived_files(graph)
    for path in written:
        path.unlink()

    report = ensure(graph)

    assert row(first, "Cites").derived == ("adjacency",)  # key hashes were written with the files
    assert row(report).derived == ("born", "id", "kind", "size", "text")
    assert row(report, "Cites").derived == ("dst", "id", "src", "adjacency")
    assert (report.commit_id, graph.store.snapshot().commit_id) == (None, head)
    assert derived_files(graph) == written
    assert row(report, "Cites").to_json()["derived"] == ["dst", "id", "src", "adjacency"]


@pytest.mark.usefixtures("all_large")
def test_nothing_is_written_where_nothing_is_missing(graph: Graph) -> None:
    settled(graph)
    ensure(graph)
    written = {path: path.stat().st_mtime_ns for path in derived_files(graph)}

    report = ensure(graph)

    assert not any(one.derived for one in report.types)
    assert written == {path: path.stat().st_mtime_ns for path in derived_files(graph)}


@pytest.mark.usefixtures("all_large")
def test_damaged_files_are_written_anew(graph: Graph) -> None:
    settled(graph)
    ensure(graph)
    written = derived_files(graph)
    for path, content in written.items():
        replacement = path.with_name("damaged")
        replacement.write_bytes(content[:-70] + bytes([content[-70] ^ 1]) + content[-69:])
        replacement.replace(path)

    report = ensure(graph)

    assert "adjacency" in row(report, "Cites").derived
    assert derived_files(graph) == written


@pytest.mark.usefixtures("all_large")
def test_a_store_that_cannot_be_written_reports_nothing_and_fails_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(graph)
    ensure(graph)
    for path in derived_files(graph):
        path.unlink()

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(DerivedFiles, "_write_local", refuse)
    report = ensure(graph)

    assert report.commit_id is None
    assert not any(one.derived or one.error for one in report.types)
    assert not derived_files(graph)


def test_each_branch_has_its_own_coverage(graph: Graph) -> None:
    put(graph, range(100))
    graph.store.branches.create("review", "main")
    put(graph, range(100, 150), "review")

    report = ensure(graph, "review")

    assert report.branch == "review"
    assert covers_all(graph, branch="review")
    assert not covers_all(graph)
    assert ensure(graph).commit_id is not None
    assert covers_all(graph)


def test_it_works_on_an_object_store(place: Place) -> None:
    with og.init(place.address, SCHEMA, **place.kwargs) as graph:
        put(graph, range(50))

        ensure(graph)

        assert covers_all(graph)
        assert ensure(graph).commit_id is None


def test_a_renamed_property_is_reported_by_its_new_name_and_keeps_its_index(graph: Graph) -> None:
    put(graph, range(50))
    ensure(graph)
    graph.schema.apply(SCHEMA.replace("size: I64?", 'bulk: I64? @rename_from("size")'))
    put(graph, range(50, 60))

    report = ensure(graph)

    assert "bulk" in row(report).extended
    assert row(report).created == ()


def test_an_index_declared_later_is_built_then(graph: Graph) -> None:
    put(graph, range(50))
    ensure(graph)
    graph.schema.apply(SCHEMA.replace("plain: String?", "plain: String? @index"))

    assert row(ensure(graph)).created == ("plain",)


# -- what cannot be built


def test_an_index_without_vectors_is_pending_and_its_siblings_are_built(graph: Graph) -> None:
    put(graph, range(100), vectors=False)

    report = ensure(graph)

    assert [(one.property, one.reason) for one in row(report).pending] == [("embedding", "no vectors yet")]
    assert row(report).created == ("born", "kind", "size", "text", "title")
    again = ensure(graph)
    assert again.commit_id is None
    assert row(again).pending == row(report).pending


def test_a_vector_index_comes_with_the_first_vectors(graph: Graph) -> None:
    put(graph, range(100), vectors=False)
    ensure(graph)
    put(graph, range(100, 110))

    report = ensure(graph)

    assert "embedding" in row(report).created
    assert row(report).pending == ()
    assert covers_all(graph)


def test_rows_without_vectors_do_not_keep_a_vector_index_from_being_complete(graph: Graph) -> None:
    put(graph, range(100))
    ensure(graph)
    put(graph, range(100, 110), vectors=False)
    ensure(graph)

    report = ensure(graph)

    assert report.commit_id is None
    assert row(report).pending == ()


def test_an_empty_table_has_nothing_but_pending_indexes(graph: Graph) -> None:
    report = ensure(graph)

    assert report.commit_id is None
    reasons = {one.property: one.reason for one in row(report).pending}
    assert reasons == dict.fromkeys(DECLARED, "no rows yet") | {"embedding": "no vectors yet"}


def failing_at(number: int) -> Callable[[], None]:
    """Return a failpoint action that fails once, at the n-th index that is built."""
    seen = iter(range(1_000))

    def act() -> None:
        if next(seen) == number:
            raise OSError("the disk is full\nand more detail")

    return act


def test_an_index_that_fails_is_pending_with_the_reason_and_the_others_are_published(graph: Graph) -> None:
    put(graph, range(50))

    with armed({"table_index.before": failing_at(0)}):
        report = ensure(graph)

    assert [(one.property, one.reason) for one in row(report).pending] == [("born", "the disk is full")]
    assert set(row(report).created) == {*DECLARED} - {"born"}
    assert row(ensure(graph)).created == ("born",)


def test_a_table_that_cannot_be_read_is_reported_and_the_others_are_published(
    local_place: Place, graph: Graph
) -> None:
    put(graph, range(50))
    ids = docs(graph, range(2))["id"].to_pylist()
    declared = graph.schema.catalog().edge("Cites")
    change(graph, "Cites", Append(stored_rows(declared, [{"id": "e", "src": ids[0], "dst": ids[1]}])))
    for file in (Path(local_place.address) / "tables" / declared.id / "_versions").glob("d*.manifest"):
        file.unlink()

    with og.connect(local_place.address) as fresh:
        report = ensure(fresh)

    assert row(report).committed
    assert "not stored" in str(row(report, "Cites").error)


# -- beside writers


def meeting(graph: Graph, write: Callable[[], object]) -> IndexReport:
    """Ensure indexes, with a write published just before the first attempt to publish them."""
    pending = [write]

    def act() -> None:
        if pending:
            pending.pop()()

    with armed({"publish.before": act}):
        return ensure(graph)


def test_a_writer_that_publishes_first_costs_no_second_build(graph: Graph) -> None:
    put(graph, range(5_000))
    built: list[None] = []

    with armed({"table_index.after": lambda: built.append(None)}):
        report = meeting(graph, lambda: put(graph, range(5_000, 5_010)))

    assert row(report).committed
    specs = len(declared_indexes(graph.schema.catalog().node("Doc")))
    assert len(built) == specs
    assert len(read(graph, "Doc")) == 5_010
    ensure(graph)
    assert covers_all(graph)


def test_a_writer_that_rewrites_the_rows_first_wins_and_the_indexes_follow(graph: Graph) -> None:
    put(graph, range(300))

    report = meeting(graph, lambda: change(graph, "Doc", Overwrite(docs(graph, range(40)))))

    assert row(report).committed
    assert covers_all(graph)
    assert [one["size"] for one in read(graph, "Doc")] == sorted(range(40), key=lambda n: f"doc {n}")


def test_no_writer_fails_while_indexes_are_built_again_and_again(graph: Graph) -> None:
    put(graph, range(500))

    def writer() -> None:
        for number in range(25):
            put(graph, range(1_000 + number * 5, 1_005 + number * 5))
            change(graph, "Doc", DeleteIds(docs(graph, [number])["id"].combine_chunks()))

    reports = []
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(writer)
        while not writing.done():
            reports.append(ensure(graph))
        writing.result()
    ensure(graph)

    assert any(report.commit_id for report in reports)
    assert len(read(graph, "Doc")) == 500 + 25 * 5 - 25
    assert covers_all(graph)
    commits = [graph.store.snapshot(at=commit).state.commit for commit in chain_of(graph.store)]
    assert [commit.kind for commit in commits].count(CommitKind.MUTATION) == 1 + 50


def test_specs_are_values() -> None:
    assert IndexSpec("a", StoredIndexKind.BTREE) == IndexSpec("a", StoredIndexKind.BTREE)
    assert IndexSpec("a", StoredIndexKind.BTREE).name == "a_idx"
