"""Guards, tables: what Lance does with detached versions, indexes and columns, and the rules we keep for it.

Each trap of the substrate (B1 to B14) has a test that shows it, so that a release that changes it turns
red here first, and a test that our code keeps the rule that avoids it. Manifests: test_lance_guards_map.py.
"""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance import LanceDataset, LanceOperation
from lance.query import MatchQuery
from lance.schema import LanceSchema

from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables import layout, predicate
from omnigraph.storage.tables.effects import AddColumn, Append, DeleteIds, RenameColumn, Upsert
from omnigraph.storage.transaction import PinnedSnapshot
from tests.storage.bare import ROWS, add_segment, append, detached, fragment_ids, new_table, rows, uncovered
from tests.storage.docs import DOC, doc, ids, make_docs, table
from tests.support.graphs import PERSON, make_graph, people, persons, upsert_person, write
from tests.support.places import Place
from tests.support.processes import run_processes
from tests.support.proxy import S3Proxy
from tests.support.stores import Once

LITERAL: dict[str, Any] = {
    "with_position": True,
    "stem": False,
    "remove_stop_words": False,
    "ascii_folding": False,
    "max_token_length": None,
}


# -- detached versions (what everything rests on)


def test_a_detached_commit_moves_no_head_and_opens_by_its_number(tmp_path: Path) -> None:
    base = new_table(tmp_path / "t")

    staged = append(base, rows(["a"]))

    assert staged.version >= 2**63
    assert lance.dataset(base.uri).version == 1
    assert lance.dataset(base.uri).count_rows() == 0
    assert lance.dataset(base.uri, version=staged.version).count_rows() == 1


@pytest.mark.s3
def test_a_detached_commit_lists_nothing_and_reads_nothing(counted_place: Place, proxy: S3Proxy) -> None:
    uri = f"{counted_place.address}/t"
    operation = LanceOperation.Overwrite(ROWS, [])
    base = LanceDataset.commit(uri, operation, max_retries=0, storage_options=counted_place.options)
    proxy.reset()

    LanceDataset.commit(base, LanceOperation.Append([]), read_version=1, detached=True, max_retries=5)

    assert proxy.by_method() == {"PUT": 2}


@pytest.mark.s3
def test_a_detached_version_opens_with_two_requests_and_no_listing(
    counted_place: Place, proxy: S3Proxy
) -> None:
    store = make_graph(counted_place.address, **counted_place.kwargs)
    for number in range(12):
        upsert_person(store, f"p{number}")
    version = store.snapshot().pin(PERSON).version
    proxy.reset()

    lance.dataset(f"{counted_place.address}/tables/{PERSON}", version, storage_options=counted_place.options)

    assert proxy.by_method() == {"HEAD": 1, "GET": 1}


# -- B2: stock cleanup deletes what only detached versions name


def test_b2_stock_cleanup_destroys_detached_versions(tmp_path: Path) -> None:
    staged = append(new_table(tmp_path / "t"), rows(["a"]))

    lance.dataset(staged.uri).cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)

    with pytest.raises((OSError, pa.ArrowInvalid), match="Not found"):
        lance.dataset(staged.uri, version=staged.version).to_table()


def test_b2_no_table_or_manifest_of_ours_ever_asks_for_automatic_cleanup(local_place: Place) -> None:
    with make_graph(local_place.address) as store:
        upsert_person(store, "a")
        store.branches.create("dev", "main")
        for path in Path(local_place.address).rglob("_versions"):
            config = lance.dataset(str(path.parent)).config()
            assert not [key for key in config if key.startswith("lance.")], path


# -- B3: a detached commit checks no conflicts


def test_b3_a_transaction_staged_on_one_version_commits_on_another_and_duplicates_a_key(
    tmp_path: Path,
) -> None:
    base = append(new_table(tmp_path / "t"), rows(["a"]))
    builder = base.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    transaction, _ = builder.write_mode("rewrite_rows").execute_uncommitted(rows(["z"], n=1))
    moved = append(base, rows(["z"], n=2))

    merged = LanceDataset.commit(moved, transaction, detached=True, max_retries=5)

    assert merged.to_table()["id"].to_pylist() == ["a", "z", "z"]


def test_b3_racing_upserts_of_one_new_key_neither_duplicate_it_nor_lose_a_row(
    store: GraphStore, rival: GraphStore
) -> None:
    """What we stage is committed on the version it was staged from; the publisher is the fence."""

    def race() -> None:
        write(rival, {PERSON: Upsert(people(["both", "theirs"], age=2))})

    with armed({"publish.before": Once(race)}):
        write(store, {PERSON: Upsert(people(["both", "mine"], age=3))})

    found = store.table(store.snapshot(), PERSON).to_table().sort_by("id")
    assert found["id"].to_pylist() == ["a", "b", "both", "mine", "theirs"]
    assert found["age"].to_pylist() == [1, 1, 3, 3, 2]


# -- B4, B5: patched columns and stable row ids make index segments lie


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP"])
def test_b4_a_patched_column_and_one_more_segment_give_stale_hits(tmp_path: Path, kind: str) -> None:
    base = append(append(new_table(tmp_path / "t"), rows(["a", "b"])), rows(["c", "d"]))
    base = add_segment(base, "id", "BTREE", uncovered(base, "id"))
    base = add_segment(base, "n", kind, uncovered(base, "n"))
    patch = pa.table({"id": ["b"], "n": pa.array([7], pa.int64())})
    transaction, _ = base.merge_insert("id").when_matched_update_all().execute_uncommitted(patch)
    assert transaction.operation.update_mode == "rewrite_columns", "chosen silently for partial rows"
    patched = LanceDataset.commit(base, transaction, detached=True, max_retries=5)
    assert sorted(patched.to_table(filter="n = 1")["id"].to_pylist()) == ["a", "c", "d"]

    indexed = add_segment(patched, "n", kind, uncovered(patched, "n"))

    assert sorted(indexed.to_table(filter="n = 1")["id"].to_pylist()) == ["a", "b", "c", "d"]


def test_b4_no_write_of_ours_patches_columns(local_place: Place) -> None:
    """After any mix of writes a fragment's rows lie in one file, which has all its columns."""
    with make_docs(local_place.address) as store:
        for number in range(30):
            write(store, {DOC: Upsert(table([doc(f"k{number % 7}", number), doc(f"n{number}")]))})
            if number % 5 == 0:
                write(store, {DOC: DeleteIds(ids(f"n{number}"))})
        handle = store.table(store.snapshot(), DOC)

        for fragment in handle.get_fragments():
            assert len(fragment.metadata.files) == 1
            assert -2 not in fragment.metadata.files[0].fields  # Lance's mark of a superseded column


def test_b5_stable_row_ids_make_an_updated_row_answer_to_its_old_value(tmp_path: Path) -> None:
    base: Any = lance.write_dataset(rows(["a", "b"]), str(tmp_path / "t"), enable_stable_row_ids=True)
    base = add_segment(base, "n", "BITMAP", fragment_ids(base))
    builder = base.merge_insert("id").when_matched_update_all().write_mode("rewrite_rows")
    transaction, _ = builder.execute_uncommitted(rows(["b"], n=7))
    updated = LanceDataset.commit(base, transaction, detached=True, max_retries=5)

    indexed = add_segment(updated, "n", "BITMAP", uncovered(updated, "n"))

    assert sorted(indexed.to_table(filter="n = 1")["n"].to_pylist()) == [1, 7]


def test_b5_our_tables_have_no_stable_row_ids_and_an_index_over_them_stays_right(local_place: Place) -> None:
    with make_graph(local_place.address) as store:
        write(store, {PERSON: Upsert(people(["a", "b"], age=1))})
        handle = store.table(store.snapshot(), PERSON)
        assert not handle.has_stable_row_ids
        indexed = add_segment(handle, "age", "BITMAP", fragment_ids(handle))
        updated = detached(indexed, LanceOperation.Update(removed_fragment_ids=fragment_ids(indexed)))
        again = add_segment(append(updated, people(["a", "b"], age=7)), "age", "BITMAP", [1])

        assert again.to_table(filter="age = 1").num_rows == 0
        assert again.to_table(filter="age = 7").num_rows == 2


# -- B6: fuzzy search skips what the index does not cover


def test_b6_fuzzy_search_skips_uncovered_fragments_and_exact_search_does_not(tmp_path: Path) -> None:
    def find(handle: Any, text: str, fuzziness: int) -> list[str]:
        query = MatchQuery(text, "word", fuzziness=fuzziness)
        found = handle.to_table(columns=["id", "_score"], full_text_query=query)["id"].to_pylist()
        return sorted(found)

    base = append(new_table(tmp_path / "t"), rows(["a"]))
    base = add_segment(base, "word", "INVERTED", [0], **LITERAL)
    partly = append(base, rows(["b"]))
    fully = add_segment(partly, "word", "INVERTED", uncovered(partly, "word"), **LITERAL)

    assert find(partly, "hello", 0) == ["a", "b"]
    assert find(partly, "hallo", 1) == ["a"]
    assert find(fully, "hallo", 1) == ["a", "b"]


# -- B11: renumbered field ids return another column's values


TWO = pa.schema([pa.field("id", pa.string(), nullable=False), ("x", pa.int64()), ("y", pa.int64())])


def test_b11_a_projection_with_renumbered_ids_returns_another_column(tmp_path: Path) -> None:
    base = append(new_table(tmp_path / "t", TWO), pa.table([["a"], [1], [2]], schema=TWO))
    renumbered = LanceSchema.from_pyarrow(pa.schema([TWO.field("id"), TWO.field("y")]))

    projected = detached(base, LanceOperation.Project(renumbered))

    assert projected.to_table().to_pydict() == {"id": ["a"], "y": [1]}


def test_b11_our_edits_keep_field_ids_and_values(tmp_path: Path) -> None:
    base = append(new_table(tmp_path / "t", TWO), pa.table([["a"], [1], [2]], schema=TWO))

    dropped = detached(base, LanceOperation.Project(layout.without_column(base, "x")))
    renamed = detached(dropped, LanceOperation.Project(layout.with_name(dropped, "y", "z")))
    nested = pa.field("w", pa.struct([pa.field("p", pa.int8()), pa.field("q", pa.list_(pa.string()))]))
    added = detached(
        renamed,
        LanceOperation.Merge(
            [f.metadata for f in renamed.get_fragments()], layout.with_column(renamed, nested)
        ),
    )

    assert dropped.to_table().to_pydict() == {"id": ["a"], "y": [2]}
    assert renamed.to_table().to_pydict() == {"id": ["a"], "z": [2]}
    assert added.to_table().to_pydict() == {"id": ["a"], "z": [2], "w": [None]}
    more = append(
        added, pa.Table.from_pylist([{"id": "b", "z": 5, "w": {"p": 1, "q": ["s"]}}], schema=added.schema)
    )
    assert more.to_table().to_pylist()[1] == {"id": "b", "z": 5, "w": {"p": 1, "q": ["s"]}}


def test_b11_the_private_form_of_a_schema_can_be_taken_apart_and_put_together(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            *TWO,
            pa.field("s", pa.struct([("p", pa.int8())]), metadata={"k": "v"}),
            ("v", pa.list_(pa.float32(), 3)),
        ],
        metadata={"m": "1"},
    )
    base = new_table(tmp_path / "t", schema)

    metadata, fields = layout._parts(base.lance_schema)

    assert layout._schema(metadata, fields) == base.lance_schema


# -- B12: no fork


def test_b12_lance_warns_of_a_fork() -> None:
    """In a process of its own: the warning would be an error here."""
    code = (
        "import os, warnings, lance\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print([str(one.message) for one in caught])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "not fork-safe" in done.stdout


def use_in_child(address: str, options: dict[str, Any], snapshot: PinnedSnapshot) -> tuple[int, int, str]:
    """Read by a snapshot that was pickled over, write, and read again."""
    with GraphStore.open(address, durability="os", **options) as store:
        before = store.table(snapshot, PERSON).count_rows()
        commit = upsert_person(store, f"child{os.getpid()}").commit_id
        return before, len(persons(store)), str(commit)


def test_b12_spawned_processes_work_while_the_parent_is_busy(local_place: Place) -> None:
    store = make_graph(local_place.address, durability="os")
    write(store, {PERSON: Upsert(people(["a", "b"]))})
    snapshot = store.snapshot()

    def busy(_: list[int]) -> None:
        for number in range(10):
            upsert_person(store, f"parent{number}")

    arguments = [(local_place.address, local_place.kwargs, snapshot)] * 2
    outcomes = run_processes(use_in_child, arguments, meanwhile=busy)

    assert [outcome.error_text for outcome in outcomes] == [None, None]
    assert [outcome.value[0] for outcome in outcomes if outcome.value] == [2, 2]
    assert len(persons(store)) == 2 + 10 + 2


# -- B13: pyarrow expressions


SPOILT: dict[str, tuple[pa.DataType, list[Any]]] = {
    "uint64": (pa.uint64(), [1, 2**64 - 1]),
    "date64": (pa.date64(), [0, 86_400_000]),
    "timestamp[ns]": (pa.timestamp("ns"), [0, 1]),
    "time64": (pa.time64("us"), [0, 1]),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_b13_pyarrow_expressions_fail_where_our_predicates_work(tmp_path: Path, kind: str) -> None:
    data_type, found = SPOILT[kind]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", data_type)])
    values = pa.array(found, data_type)
    handle = append(new_table(tmp_path / "t", schema), pa.table([["a", "b"], values], schema=schema))

    with pytest.raises((ValueError, pa.ArrowNotImplementedError)):
        handle.to_table(filter=pc.field("v") == values[1])

    ours = predicate.find(handle, predicate.compares("v", "=", values[1]), ("id",))
    assert ours["id"].to_pylist() == ["b"]


@pytest.mark.parametrize("data_type", [pa.time64("us"), pa.list_(pa.uint64()), pa.duration("us")], ids=str)
def test_b13_one_odd_column_spoils_every_expression_on_its_table(
    tmp_path: Path, data_type: pa.DataType
) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", data_type)])
    handle = append(
        new_table(tmp_path / "t", schema), pa.table([["a"], pa.array([None], data_type)], schema=schema)
    )

    with pytest.raises((ValueError, pa.ArrowNotImplementedError)):
        handle.to_table(filter=pc.field("id") == "a")

    assert predicate.find(handle, predicate.compares("id", "=", pa.scalar("a"))).num_rows == 1


# -- what a filled column does to the rows under it


def test_a_filled_column_is_a_second_file_and_a_later_write_makes_it_one_again(local_place: Place) -> None:
    """The one place where a fragment has two files: added columns, never patched ones."""
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(table([doc("a", 1)]))})
        write(store, {DOC: AddColumn(pa.field("r", pa.int8()), pa.scalar(1, pa.int8()))})
        write(store, {DOC: RenameColumn("r", "s")})
        files = [f.metadata.files for f in store.table(store.snapshot(), DOC).get_fragments()]

        assert [len(one) for one in files] == [2]
        assert all(-2 not in file.fields for one in files for file in one)
