"""Tables: every effect does to the rows what it says, and says what it did.

The columns are of the kinds a graph schema has: text, numbers, lists of text, vectors.
"""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.base.errors import IntegrityError
from omnigraph.storage.durability import armed
from omnigraph.storage.manifest.records import TableChange
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    AddColumn,
    Append,
    DeleteIds,
    DropColumn,
    Effect,
    FillNulls,
    Overwrite,
    RenameColumn,
    SeveralEffects,
    Upsert,
)
from omnigraph.storage.transaction import PublishReceipt
from tests.storage.docs import DOC, SCHEMA, START, Row, Stream, doc, ids, rows, table
from tests.support.graphs import write
from tests.support.places import Place
from tests.support.stores import Hits, nothing_written


def change(receipt: PublishReceipt) -> TableChange:
    (only,) = receipt.tables
    return only


# -- rows


def test_an_append_adds_rows_and_counts_them(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: Append(table([doc("d", 4, ["y", "ünï"]), doc("e", 5)]))})

    assert rows(docs) == [*START, doc("d", 4, ["y", "ünï"]), doc("e", 5)]
    assert (change(receipt).inserted, change(receipt).updated, change(receipt).deleted) == (2, 0, 0)
    assert docs.snapshot().pin(DOC).rows == 5


def test_an_append_of_a_stream_adds_all_its_batches_in_one_commit(docs: GraphStore) -> None:
    source = Stream(table(doc(f"s{i}", i) for i in range(700)), table(doc(f"t{i}", i) for i in range(300)))

    receipt = write(docs, {DOC: Append(source)})

    assert len(rows(docs)) == 1003
    assert change(receipt).inserted == 1000
    assert docs.snapshot().state.version == 3


def test_an_upsert_of_new_ids_inserts(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: Upsert(table([doc("d", 4)]))})

    assert rows(docs) == [*START, doc("d", 4)]
    assert (change(receipt).inserted, change(receipt).updated) == (1, 0)


def test_an_upsert_of_known_ids_replaces_whole_rows(docs: GraphStore) -> None:
    """Also with null: nothing of the old row is kept."""
    receipt = write(docs, {DOC: Upsert(table([doc("a", None, None), doc("c", 9, ["z"])]))})

    assert rows(docs) == [doc("a", None, None), doc("b", 2, []), doc("c", 9, ["z"])]
    assert (change(receipt).inserted, change(receipt).updated) == (0, 2)


def test_an_upsert_inserts_replaces_and_removes_at_once(docs: GraphStore) -> None:
    new = table([doc("a", 7), doc("d", 8)])

    receipt = write(docs, {DOC: Upsert(new, remove=ids("b", "unknown"))})

    assert rows(docs) == [doc("a", 7), doc("c", None), doc("d", 8)]
    assert (change(receipt).inserted, change(receipt).updated, change(receipt).deleted) == (1, 1, 1)
    assert docs.snapshot().pin(DOC).rows == 3


def test_an_upsert_that_only_removes_removes(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: Upsert(table([]), remove=ids("a", "b", "b"))})

    assert rows(docs) == [doc("c", None)]
    assert change(receipt).deleted == 2


def test_an_id_both_upserted_and_removed_stays_with_its_new_row(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: Upsert(table([doc("a", 7)]), remove=ids("a"))})

    assert rows(docs)[0] == doc("a", 7)
    assert (change(receipt).updated, change(receipt).deleted) == (1, 0)


def test_an_upsert_that_names_an_id_twice_is_refused(docs: GraphStore) -> None:
    with pytest.raises(IntegrityError, match="one id twice"):
        write(docs, {DOC: Upsert(table([doc("d", 1), doc("d", 2)]))})

    assert rows(docs) == START


def test_a_delete_by_ids_removes_those_that_are_there(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: DeleteIds(ids("b", "unknown", "b"))})

    assert rows(docs) == [doc("a", 1, ["x"]), doc("c", None)]
    assert change(receipt).deleted == 1


def test_a_table_emptied_row_by_row_takes_rows_again(docs: GraphStore) -> None:
    write(docs, {DOC: DeleteIds(ids("a", "b", "c"))})
    assert rows(docs) == []

    write(docs, {DOC: Upsert(table([doc("a", 5)]))})

    assert rows(docs) == [doc("a", 5)]


def test_an_overwrite_replaces_everything(docs: GraphStore) -> None:
    receipt = write(docs, {DOC: Overwrite(table([doc("b", 5), doc("z", 6)]))})

    assert rows(docs) == [doc("b", 5), doc("z", 6)]
    assert (change(receipt).inserted, change(receipt).deleted) == (2, 3)


def test_an_overwrite_with_a_stream_replaces_everything(docs: GraphStore) -> None:
    write(docs, {DOC: Overwrite(Stream(table([doc("x", 1)]), table([doc("y", 2)])))})

    assert rows(docs) == [doc("x", 1), doc("y", 2)]


@pytest.mark.parametrize("nothing", [table([]), Stream(table([]))], ids=["table", "stream"])
def test_an_overwrite_with_nothing_empties_the_table(docs: GraphStore, nothing: Any) -> None:
    receipt = write(docs, {DOC: Overwrite(nothing)})

    assert rows(docs) == []
    assert change(receipt).deleted == 3


def test_rows_may_come_in_chunks_and_with_columns_in_any_order(docs: GraphStore) -> None:
    parts = pa.concat_tables([table([doc("d", 4)]), table([doc("a", 7)]), table([])])

    write(docs, {DOC: Upsert(parts.select(["vector", "tags", "size", "id"]))})

    assert rows(docs) == [doc("a", 7), *START[1:], doc("d", 4)]


def test_an_id_is_found_again_whatever_characters_it_has(docs: GraphStore) -> None:
    odd = ["", "it's", 'say "hi"', "back\\slash", "new\nline", "nul\0", "ünïcødé 🜁", "%_"]
    for size in (1, 2):
        write(docs, {DOC: Upsert(table(doc(name, size) for name in odd))})
    assert {row["id"]: row["size"] for row in rows(docs) if row["id"] in odd} == dict.fromkeys(odd, 2)

    for name in odd:
        assert change(write(docs, {DOC: DeleteIds(ids(name))})).deleted == 1, name

    assert rows(docs) == START


# -- nothing to do


NOTHING: dict[str, Effect] = {
    "append": Append(table([])),
    "stream": Append(Stream(table([]))),
    "no batches": Append(Stream()),
    "upsert": Upsert(table([])),
    "remove unknown": Upsert(table([]), remove=ids("unknown")),
    "no ids": DeleteIds(ids()),
    "unknown ids": DeleteIds(ids("unknown")),
    "several": SeveralEffects((DeleteIds(ids("unknown")), Append(table([])))),
}


def test_an_effect_with_nothing_to_do_keeps_the_version_and_writes_nothing(
    place: Place, docs: GraphStore
) -> None:
    before, hits = docs.snapshot(), Hits()

    with nothing_written(place), armed(hits.at("table_deletions.before", "table_commit.before")):
        for name, effect in NOTHING.items():
            assert write(docs, {DOC: effect}).commit is None, name

    assert hits.total == 0
    assert docs.snapshot() == before


def test_overwriting_an_empty_table_with_nothing_does_nothing(place: Place, docs: GraphStore) -> None:
    write(docs, {DOC: DeleteIds(ids("a", "b", "c"))})

    with nothing_written(place):
        assert write(docs, {DOC: Overwrite(table([]))}).commit is None


# -- what is underneath


def every_kind_of_effect() -> list[Effect]:
    return [
        Append(table([doc("p", 1), doc("q", 2)])),
        Append(Stream(table([doc("r", 3)]))),
        Upsert(table([doc("a", 5), doc("s", 6)]), remove=ids("q")),
        DeleteIds(ids("p")),
        AddColumn(pa.field("note", pa.string())),
        AddColumn(pa.field("rank", pa.int32()), fill=pa.scalar(1)),
        FillNulls("size", pa.scalar(0, pa.int64())),
        SeveralEffects((AddColumn(pa.field("copy", pa.int64()), copy_from="size"), DropColumn("copy"))),
        DropColumn("tags"),
        RenameColumn("note", "remark"),
        Overwrite(
            pa.table(
                {"id": ["z"], "size": [1], "vector": [[1, 2, 3]], "remark": ["r"], "rank": [2]},
                schema=pa.schema(
                    [
                        SCHEMA.field("id"),
                        SCHEMA.field("size"),
                        SCHEMA.field("vector"),
                        pa.field("remark", pa.string()),
                        pa.field("rank", pa.int32()),
                    ]
                ),
            )
        ),
    ]


def test_no_effect_ever_moves_the_head_of_a_table(place: Place, docs: GraphStore) -> None:
    """PT-01: the only numbered version of a table is its creation, on main and on branches."""
    docs.branches.create("dev", "main")
    for branch in ("main", "dev"):
        for effect in every_kind_of_effect():
            assert write(docs, {DOC: effect}, branch).commit is not None

    head = lance.dataset(docs.location.join("tables", DOC), storage_options=docs.location.lance_options)
    assert [version["version"] for version in head.versions()] == [1]
    assert head.count_rows() == 0
    assert docs.snapshot().pin(DOC).version >= 2**63


def test_earlier_versions_read_as_they_were_after_every_kind_of_effect(docs: GraphStore) -> None:
    seen: dict[int, list[Row]] = {2: rows(docs)}
    for effect in every_kind_of_effect():
        write(docs, {DOC: effect})
        seen[docs.snapshot().state.version] = rows(docs)

    assert len(seen) == 1 + len(every_kind_of_effect())
    for version, then in seen.items():
        assert rows(docs, at=version) == then


def test_a_foreign_commit_on_the_head_of_a_table_changes_no_result_and_blocks_no_write(
    docs: GraphStore,
) -> None:
    """PT-06: raw writes to a table are unsupported, and harmless."""
    uri, options = docs.location.join("tables", DOC), docs.location.lance_options
    lance.write_dataset(table([doc("intruder", 1)]), uri, mode="append", storage_options=options)
    lance.dataset(uri, storage_options=options).delete("size = 1")
    assert rows(docs) == START

    write(docs, {DOC: Upsert(table([doc("a", 9)]))})

    assert rows(docs) == [doc("a", 9), *START[1:]]


def test_a_table_keeps_no_stable_row_ids(docs: GraphStore) -> None:
    """With them, incremental index segments answer wrongly (lance-facts B5)."""
    assert not docs.table(docs.snapshot(), DOC).has_stable_row_ids
