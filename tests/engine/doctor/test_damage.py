"""Files of a graph are deleted, cut, flipped or written by others: exactly that is found, and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.doctor import lineage
from omnigraph.engine.doctor.report import DoctorFinding, DoctorReport
from omnigraph.storage.derived.blocks import BlockFile, encoded
from omnigraph.storage.manifest.chain import MANIFEST, kept_path
from omnigraph.storage.manifest.formats import FORMAT_KEY
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import manifest_file
from tests.engine.doctor.damaged import (
    claim_more,
    flip,
    folder,
    foreign_commit,
    foreign_map,
    newest_data_file,
    table_id,
)
from tests.support.derived import derived_files, put, small_tiers
from tests.support.places import LocalCopies, Place

SCHEMA = """
node Person {
  name: String @key
  age: I64? @index
  bio: String? @index
  face: Vector(2)? @index
  photo: Blob?
}
edge Knows: Person -> Person
"""


def people(first: int, last: int) -> list[dict[str, Any]]:
    return [
        {
            "type": "Person",
            "data": {
                "name": f"p{n:04}",
                "age": n % 7,
                "bio": f"likes number {n}",
                "face": [n, n % 3],
                "photo": "base64:AAEC" if n % 100 == 0 else None,
            },
        }
        for n in range(first, last)
    ]


@pytest.fixture(scope="module")
def template(local_copies: LocalCopies) -> Place:
    """A graph with indexes, derived files, a deletion file, a branch, a tag and some history."""
    place = local_copies.empty()
    with pytest.MonkeyPatch.context() as patch:
        small_tiers(patch)
        with og.init(place.address, SCHEMA, durability="os") as graph:
            graph.load(people(0, 300), mode="append")
            edges = [{"edge": "Knows", "from": f"p{n:04}", "to": f"p{n // 2:04}"} for n in range(300)]
            graph.load(edges, mode="append")
            graph.ensure_indexes()
            graph.tags.create("v1")
            graph.mutate('query q() { delete Person where name = "p0299" }')
            graph.branches.create("b")
            graph.mutate('query q() { update Person set { age: 3 } where name = "p0009" }', branch="b")
            graph.ensure_indexes()
    return place


@pytest.fixture
def graph(template: Place, local_copies: LocalCopies, monkeypatch: pytest.MonkeyPatch) -> Graph:
    small_tiers(monkeypatch)
    return og.connect(local_copies.copy(template).address, durability="os")


def grave(report: DoctorReport) -> list[DoctorFinding]:
    return [finding for finding in report.findings if finding.severity != "info"]


def codes(report: DoctorReport) -> set[str]:
    return {finding.code for finding in grave(report)}


def named(report: DoctorReport) -> set[str | None]:
    return {finding.where.file for finding in grave(report)}


def below(graph: Graph, path: Path) -> str:
    return path.relative_to(graph.uri).as_posix()


@pytest.mark.parametrize("deep", [False, True])
def test_the_graph_is_clean_before(graph: Graph, deep: bool) -> None:
    assert grave(graph.doctor(deep=deep)) == []


# -- data --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True])
def test_a_data_file_that_is_gone(graph: Graph, deep: bool) -> None:
    lost = newest_data_file(graph, "Knows")
    lost.unlink()
    report = graph.doctor(deep=deep)
    assert named(report) == {below(graph, lost)}
    assert codes(report) == {"file_missing"}


@pytest.mark.parametrize("deep", [False, True])
def test_a_data_file_that_is_cut_short(graph: Graph, deep: bool) -> None:
    file = newest_data_file(graph, "Person")
    file.write_bytes(file.read_bytes()[:-100])
    report = graph.doctor(deep=deep)
    assert (codes(report), named(report)) == ({"file_size"}, {below(graph, file)})


def test_a_flipped_byte_is_found_by_a_deep_look(graph: Graph) -> None:
    file = newest_data_file(graph, "Knows")
    flip(file)
    report = graph.doctor(deep=True)
    assert (codes(report), named(report)) == ({"checksum"}, {below(graph, file)})


def test_a_page_that_cannot_be_read_is_found_where_there_are_no_checksums(graph: Graph) -> None:
    for log in Path(graph.uri, "__checksums").rglob("*"):
        if log.is_file():
            log.unlink()
    file = newest_data_file(graph, "Knows")
    file.write_bytes(bytes(len(file.read_bytes())))
    report = graph.doctor(deep=True)
    assert codes(report) == {"unreadable"}
    assert {finding.where.type for finding in grave(report)} == {"Knows"}


def test_a_deletion_file_that_is_gone(graph: Graph) -> None:
    file = next(folder(graph, "Person").glob("_deletions/*"))
    file.unlink()
    report = graph.doctor()
    assert "file_missing" in codes(report)
    assert below(graph, file) in named(report)


def test_a_pinned_version_that_is_gone_and_the_commit_that_is_whole(graph: Graph) -> None:
    before = graph.commits.list()[1].id
    graph.mutate('query q() { update Person set { age: 5 } where name = "p0001" }')
    whole = graph.commits.list()[1].id
    pin = graph.store.snapshot().state.pins[table_id(graph, "Person")]
    file = folder(graph, "Person") / "_versions" / manifest_file(pin.version)
    file.unlink()
    (finding,) = grave(graph.doctor(branch="main"))
    assert (finding.code, finding.where.file) == ("pin_broken", below(graph, file))
    assert whole in finding.remedy
    assert before != whole


def test_a_row_count_that_is_not_that_of_the_pin(graph: Graph) -> None:
    table = table_id(graph, "Knows")
    pin = graph.store.snapshot().state.pins[table]
    text = json.dumps(
        {"name": pin.name, "kind": pin.kind, "version": str(pin.version), "rows": 7, "content": pin.content}
    )
    foreign_map(graph, {f"table/{table}": text})
    assert codes(graph.doctor(branch="main")) == {"row_count"}


def test_an_older_version_that_is_gone(graph: Graph) -> None:
    table = table_id(graph, "Person")
    now = {graph.store.snapshot(b).state.pins[table].version for b in ("main", "b")}
    now.add(graph.store.snapshot(at=graph.tags.get("v1").commit_id).state.pins[table].version)
    old = graph.store.snapshot(at=2).state.pins[table].version
    assert old not in now
    file = folder(graph, "Person") / "_versions" / manifest_file(old)
    file.unlink()
    report = graph.doctor()
    assert (codes(report), named(report)) == ({"history_broken"}, {below(graph, file)})


# -- manifests ---------------------------------------------------------------------------------------


def versions_of(graph: Graph, path: str = MANIFEST) -> Path:
    return Path(graph.uri, path, "_versions")


def test_a_version_of_the_history_that_is_gone(graph: Graph) -> None:
    file = versions_of(graph) / manifest_file(3)
    file.unlink()
    report = graph.doctor()
    assert (codes(report), named(report)) == ({"lineage"}, {below(graph, file)})


def test_a_version_of_the_history_that_cannot_be_read(graph: Graph) -> None:
    file = versions_of(graph) / manifest_file(3)
    file.write_bytes(file.read_bytes()[:50])
    report = graph.doctor()
    assert (codes(report), named(report)) == ({"lineage"}, {below(graph, file)})


def test_a_commit_that_does_not_follow_from_the_one_before(graph: Graph) -> None:
    state = graph.store.snapshot().state
    content = lance.dataset(f"{graph.uri}/{MANIFEST}").schema.metadata[b"graph_commit"]
    commit = json.loads(content) | {
        "parent": "0" * 26,
        "id": "7" + state.head[1:],
        "manifest_version": state.version + 1,
    }
    foreign_map(
        graph, {"graph_commit": json.dumps(commit), "graph_head": commit["id"], "newest_id": commit["id"]}
    )
    report = graph.doctor(branch="main")
    assert codes(report) == {"lineage"}
    assert "does not follow" in grave(report)[0].what


@pytest.mark.parametrize("gone", [False, True])
def test_a_long_history_is_walked_in_strides_and_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    for n in range(80):
        graph.mutate('query q($a: I64) { update Person set { age: $a } where name = "p0001" }', a=n)
    monkeypatch.setattr(lineage, "FEW_VERSIONS", 40)
    if gone:
        (versions_of(graph) / manifest_file(50)).unlink()
    report = graph.doctor()
    (check,) = [check for check in report.checks if check.name == "lineage"]
    assert "one in 31" in check.limits[0]
    assert codes(report) == ({"lineage"} if gone else set())
    assert not gone or len(grave(report)) == 1


@pytest.mark.parametrize(("stamp", "code"), [("99", "format"), ("0", "format"), ("?", "format")])
def test_a_branch_in_another_format(graph: Graph, stamp: str, code: str) -> None:
    incarnation = graph.store.snapshot("b").state.line.incarnation
    foreign_map(graph, {FORMAT_KEY: stamp}, f"{MANIFEST}/tree/{incarnation}")
    report = graph.doctor()
    assert codes(report) == {code}
    assert grave(report)[0].where.branch == "b"


def test_a_head_that_is_cut_off_hides_no_other_branch(graph: Graph) -> None:
    newest = versions_of(graph) / manifest_file(graph.store.snapshot().state.version)
    newest.write_bytes(newest.read_bytes()[:20])
    newest_data_file_of_b = newest_data_file_on(graph, "b")
    newest_data_file_of_b.unlink()
    report = og.Graph.doctor(graph)
    assert {"head_unreadable", "file_missing"} <= codes(report)
    assert "Delete" in next(f for f in report.findings if f.code == "head_unreadable").remedy


def newest_data_file_on(graph: Graph, branch: str) -> Path:
    table = table_id(graph, "Person", branch)
    handle = graph.store.table(graph.store.snapshot(branch), table)
    last = handle.get_fragments()[-1].metadata.files[0]
    return Path(graph.uri, "tables", table, "data", last._path)


def test_a_registry_that_is_gone_leaves_main_to_be_looked_at(graph: Graph) -> None:
    for file in versions_of(graph, "__refs").iterdir():
        file.unlink()
    report = graph.doctor()
    assert codes(report) == {"registry_unreadable"}


# -- schemas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_schema_object_that_is_gone_or_changed(graph: Graph, damage: str) -> None:
    assert len(graph.nodes("Person")) == 299  # what this process remembers of it does not count
    file = Path(graph.uri, "__schema", f"{graph.store.snapshot().schema}.json")
    file.unlink() if damage == "gone" else file.write_bytes(file.read_bytes() + b" ")
    report = graph.doctor()
    assert (codes(report), named(report)) == ({"schema_unreadable"}, {below(graph, file)})


def test_a_schema_of_the_past_that_is_gone(graph: Graph) -> None:
    old = graph.store.snapshot().schema
    graph.schema.apply(SCHEMA.replace("photo: Blob?", "photo: Blob?  extra: I64?"))
    graph.schema.apply(SCHEMA.replace("photo: Blob?", "photo: Blob?  extra: I64?"), branch="b")
    graph.tags.delete("v1")
    Path(graph.uri, "__schema", f"{old}.json").unlink()
    report = graph.doctor()
    assert codes(report) == {"schema_unreadable"}
    assert named(report) == {f"__schema/{old}.json"}


def test_a_table_without_a_type_and_a_type_without_a_table(graph: Graph) -> None:
    table = table_id(graph, "Knows")
    content = lance.dataset(f"{graph.uri}/{MANIFEST}").schema.metadata[f"table/{table}".encode()].decode()
    foreign_map(graph, {f"table/{table}": None, "table/other": content})
    report = graph.doctor(branch="main")
    assert "schema_mismatch" in codes(report)
    assert {"type 'Knows' has no table"} < {finding.what for finding in grave(report)}


def test_a_column_that_is_not_there(graph: Graph) -> None:
    other = og.init(None, SCHEMA.replace("age: I64?", "age: I32?").replace("bio: String? @index", ""))
    renamed = {t.name: t.id for t in other.schema.catalog().tables}
    content = json.loads(other.schema.catalog().to_json())
    text = json.dumps(content)
    for name, theirs in renamed.items():
        text = text.replace(theirs, table_id(graph, name))
    digest = graph.store.schemas.put(text.encode())
    commit = lance.dataset(f"{graph.uri}/{MANIFEST}").schema.metadata[b"graph_commit"]
    foreign_map(
        graph, {"schema": digest, "graph_commit": json.dumps(json.loads(commit) | {"schema": digest})}
    )
    report = graph.doctor(branch="main")
    assert codes(report) == {"column_mismatch"}


# -- other programs ----------------------------------------------------------------------------------


def test_a_commit_of_another_program_is_told_and_harmless(graph: Graph) -> None:
    before = graph.nodes("Person").to_arrow()
    foreign_commit(graph, "Person")
    report = graph.doctor(deep=True)
    assert grave(report) == []
    (finding,) = [f for f in report.findings if f.code == "foreign_commit"]
    assert finding.where.type == "Person"
    with og.connect(graph.uri) as fresh:
        assert fresh.nodes("Person").to_arrow() == before


def test_automatic_cleanup_is_warned_of_and_stripped(graph: Graph) -> None:
    dataset = lance.dataset(str(folder(graph, "Person")))
    dataset.update_config({"lance.auto_cleanup.interval": "20", "lance.auto_cleanup.older_than": "14d"})
    (finding,) = grave(graph.doctor())
    assert (finding.code, finding.severity, finding.where.type) == ("auto_cleanup", "warning", "Person")
    fixed = graph.doctor(fix=True)
    assert grave(fixed) == []
    assert any("automatic cleanup" in repair.what and repair.done for repair in fixed.repairs)
    assert lance.dataset(str(folder(graph, "Person"))).config() == {}


@pytest.mark.parametrize("path", [MANIFEST, REFS])
def test_automatic_cleanup_of_a_manifest_or_of_names_is_warned_of_and_stripped(
    graph: Graph, path: str
) -> None:
    before = graph.store.snapshot().commit_id
    graph.branches.create("beside")
    lance.dataset(f"{graph.uri}/{path}").update_config({"lance.auto_cleanup.interval": "20"})
    (finding,) = grave(graph.doctor())
    assert (finding.code, finding.where.file) == ("auto_cleanup", path)

    fixed = graph.doctor(fix=True)

    assert grave(fixed) == []
    assert any(path in repair.what and repair.done for repair in fixed.repairs)
    assert lance.dataset(f"{graph.uri}/{path}").config() == {}
    graph.mutate('query add() { insert Person { name: "Zoe" } }')  # by a writer that had seen neither
    assert [commit.id for commit in graph.commits.list(limit=2)][1] == before
    assert "beside" in {branch.name for branch in graph.branches.list()}
    assert grave(graph.doctor(deep=True)) == []


def test_leftovers_are_told(graph: Graph) -> None:
    assert "leftover_files" not in {f.code for f in graph.doctor().findings}
    (folder(graph, "Knows") / "data" / "left.lance").write_bytes(b"x" * 10)
    Path(graph.uri, "__schema", "0.json").write_text("{}")
    Path(graph.uri, "tables", "nobody", "data").mkdir(parents=True)
    Path(graph.uri, "tables", "nobody", "data", "x.lance").write_bytes(b"x")
    graph.branches.create("gone")
    graph.branches.delete("gone")
    report = graph.doctor()
    assert grave(report) == []
    told = {f.code: f for f in report.findings}
    assert {"leftover_files", "leftover_schema", "leftover_table", "unnamed_chain"} <= told.keys()
    assert "1 file, 10 bytes" in told["leftover_files"].what


# -- indexes -----------------------------------------------------------------------------------------


def index_files(graph: Graph, column: str) -> list[Path]:
    handle = graph.store.table(graph.store.snapshot(), table_id(graph, "Person"))
    index = next(i for i in handle.describe_indices() if column in i.field_names)
    return sorted((folder(graph, "Person") / "_indices" / index.segments[0].uuid).rglob("*.*"))


@pytest.mark.parametrize("column", ["age", "bio", "face"])
@pytest.mark.parametrize("checksums", [True, False])
def test_an_index_whose_file_is_gone_is_found_and_built_anew(
    graph: Graph, column: str, checksums: bool
) -> None:
    graph.tags.delete("v1")
    graph.branches.delete("b")
    if not checksums:
        for log in Path(graph.uri, "__checksums").rglob("*"):
            log.unlink() if log.is_file() else None
    for file in index_files(graph, column):
        file.unlink()
    report = graph.doctor()
    assert codes(report) == {"index_file"}
    fixed = graph.doctor(fix=True)
    assert grave(fixed) == []
    assert any(repair.done and column in repair.what for repair in fixed.repairs)
    assert grave(graph.doctor(deep=True)) == []


def test_an_index_that_is_damaged_inside(graph: Graph) -> None:
    file = max(index_files(graph, "age"), key=lambda path: path.stat().st_size)
    flip(file)
    report = graph.doctor(deep=True, branch="main")
    assert codes(report) == {"checksum"}
    assert grave(report)[0].where.file == below(graph, file)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("column", ["age", "bio", "face"])
def test_an_index_that_claims_rows_it_does_not_have(graph: Graph, column: str, deep: bool) -> None:
    graph.load(people(300, 420), mode="append")
    claim_more(graph, "Person", column)
    report = graph.doctor(deep=deep, branch="main")
    assert codes(report) == {"index_wrong"}
    assert f"Person.{column}" in grave(report)[0].what
    fixed = graph.doctor(fix=True, deep=deep, branch="main")
    assert grave(fixed) == []


def test_rows_that_no_index_covers_are_told_and_covered_by_a_fix(graph: Graph) -> None:
    graph.load(people(300, 420), mode="append")
    (finding,) = [f for f in graph.doctor(branch="main").findings if f.code == "index_behind"]
    assert finding.severity == "info"
    fixed = graph.doctor(fix=True, branch="main")
    assert "index_behind" not in {f.code for f in fixed.findings}
    assert fixed.repairs
    assert graph.doctor(fix=True, branch="main").repairs == ()


# -- derived files -----------------------------------------------------------------------------------


def some_derived(graph: Graph, adjacency: bool) -> Path:
    return next(path for path in derived_files(graph.uri) if ("adjacency" in path.parts) is adjacency)


@pytest.mark.parametrize("adjacency", [False, True])
@pytest.mark.parametrize("deep", [False, True])
def test_a_derived_file_that_is_damaged_is_written_anew(graph: Graph, adjacency: bool, deep: bool) -> None:
    file = some_derived(graph, adjacency)
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 0xFF
    put(file, bytes(damaged))
    report = graph.doctor(deep=deep)
    assert (codes(report), named(report)) == ({"derived_damaged"}, {below(graph, file)})
    assert report.ok
    fixed = graph.doctor(deep=deep, fix=True)
    assert grave(fixed) == []
    assert file.read_bytes() == whole
    assert any(repair.what.startswith("derived") for repair in fixed.repairs)


@pytest.mark.parametrize("adjacency", [False, True])
def test_a_derived_file_that_is_whole_and_wrong_is_found(graph: Graph, adjacency: bool) -> None:
    file = some_derived(graph, adjacency)
    known = BlockFile.mapped(file)
    arrays = {name: known.whole(name).copy() for name in known.arrays}
    largest = max(arrays, key=lambda name: arrays[name].nbytes)
    arrays[largest][-1] += 1
    put(file, b"".join(map(bytes, encoded(known.header.kind, known.header.covers, arrays))))
    report = graph.doctor()
    assert (codes(report), named(report)) == ({"derived_wrong"}, {below(graph, file)})
    assert grave(graph.doctor(fix=True)) == []


def test_derived_files_that_are_missing_are_told_and_written(graph: Graph) -> None:
    for file in derived_files(graph.uri):
        file.unlink()
    report = graph.doctor()
    assert grave(report) == []
    assert "derived_missing" in {f.code for f in report.findings}
    assert "derived_missing" not in {f.code for f in graph.doctor(fix=True).findings}


# -- repairs -----------------------------------------------------------------------------------------


def test_a_fix_mends_nothing_that_holds_data(graph: Graph) -> None:
    lost = newest_data_file(graph, "Knows")
    lost.unlink()
    report = graph.doctor(fix=True)
    assert "file_missing" in codes(report)
    assert not lost.exists()


def test_a_first_version_of_a_table_that_is_cut_short_is_named(graph: Graph) -> None:
    first = folder(graph, "Person") / "_versions" / manifest_file(1)
    first.write_bytes(first.read_bytes()[:-30])

    assert below(graph, first) in named(graph.doctor())


# -- what a cleanup kept -------------------------------------------------------------------------------


def test_a_state_that_was_kept_below_the_floor_and_is_gone(graph: Graph) -> None:
    graph.cleanup(keep=0, grace="0s", dry_run=False)  # main's tag and fork are below the floor now
    assert grave(graph.doctor()) == []
    head = graph.store.snapshot().state
    lost = [Path(graph.uri, kept_path("main", version)) for version in head.kept]
    for version, path in zip(head.kept, lost, strict=True):
        path.unlink()
        Path(graph.uri, MANIFEST, "_versions", manifest_file(version)).unlink(missing_ok=True)

    report = graph.doctor()

    assert not report.ok
    found = [finding for finding in grave(report) if finding.code == "kept_unreadable"]
    assert {finding.where.file for finding in found} == {below(graph, path) for path in lost} != set()
