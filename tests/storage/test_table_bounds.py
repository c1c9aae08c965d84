"""Tables: the tail stays short without maintenance, and keys are found whether or not they have hashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from lance import LanceDataset, blob_array, blob_field

from omnigraph.base.errors import StorageError
from omnigraph.storage.derived.files import is_derived, keys_name
from omnigraph.storage.derived.key_hashes import entries_of
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, DeleteIds, Overwrite, Upsert
from omnigraph.storage.tables.files import stored_files
from omnigraph.storage.tables.keys import PROBE_LIMIT
from omnigraph.storage.tables.layout import PER_TIER, TIERS
from omnigraph.storage.tables.workbench import Workbench
from tests.storage.docs import DOC, SCHEMA, Row, Stream, doc, ids, make_docs, rows, table
from tests.support.graphs import write
from tests.support.places import Place
from tests.support.stores import again

SMALL = PER_TIER * len(TIERS) + 1
MANY = 12_000  # rows enough for a fragment past the first tier


def fragments(store: GraphStore, **at: Any) -> int:
    return len(store.table(store.snapshot(**at), DOC).get_fragments())


def covered(store: GraphStore) -> set[int]:
    """Return the fragments whose ids have key hashes."""
    handle, stored = store.table(store.snapshot(), DOC), stored_files(store.location, DOC)
    return {
        fragment.fragment_id
        for fragment in handle.get_fragments()
        for file in fragment.metadata.files
        if keys_name(file.path, 0) in stored
    }


def big(count: int = MANY, prefix: str = "k", start: int = 0) -> pa.Table:
    return table(doc(f"{prefix}{number:06d}", number) for number in range(start, start + count))


# -- the tail


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("mixed", 300), ("new ids", 100), ("known ids", 100)])
def test_many_small_upserts_leave_few_fragments(local_place: Place, kind: str, count: int) -> None:
    names: dict[str, Callable[[int], str]] = {
        "new ids": lambda n: f"n{n}",
        "known ids": lambda n: f"k{n * 37 % 200:06d}",
        "mixed": lambda n: f"n{n % 70}",
    }
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big(200))})
        expected = {row["id"]: row["size"] for row in rows(store)}
        most = 0
        for number in range(count):
            name = names[kind](number)
            write(store, {DOC: Upsert(table([doc(name, number)]))})
            expected[name] = number
            most = max(most, fragments(store))

        assert most <= SMALL
        assert {row["id"]: row["size"] for row in rows(store)} == expected


@pytest.mark.s3
def test_the_tail_stays_short_on_an_object_store_as_well(s3_place: Place) -> None:
    with make_docs(s3_place.address, **s3_place.kwargs) as store:
        for number in range(40):
            write(store, {DOC: Upsert(table([doc(f"n{number}", number)]))})

        assert fragments(store) <= SMALL
        assert len(rows(store)) == 40


def test_writers_that_take_turns_keep_the_tail_short_together(local_place: Place) -> None:
    with make_docs(local_place.address) as first, again(local_place) as second:
        for number in range(60):
            write((first, second)[number % 2], {DOC: Append(table([doc(f"n{number}", number)]))})

        assert fragments(first) <= SMALL
        assert len(rows(second)) == 60


def test_deletes_and_small_writes_keep_the_tail_short(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        for number in range(120):
            write(store, {DOC: Append(table(doc(f"n{number}-{part}") for part in range(3)))})
            if number % 2:
                write(store, {DOC: DeleteIds(ids(f"n{number - 1}-0", f"n{number}-1"))})
            assert fragments(store) <= SMALL

        assert len(rows(store)) == 240


def test_a_tail_that_a_stream_left_long_is_worked_off(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        for number in range(30):
            write(store, {DOC: Append(Stream(table([doc(f"s{number}")])))})
        for number in range(20):
            write(store, {DOC: Append(table([doc(f"n{number}")]))})

        assert fragments(store) <= SMALL
        assert len(rows(store)) == 50


# -- key hashes


def test_a_large_append_has_key_hashes(place: Place) -> None:
    with make_docs(place.address, **place.kwargs) as store:
        write(store, {DOC: Append(big())})

        assert covered(store) == {0}
        assert not store.table(store.snapshot(), DOC).describe_indices()


def test_a_small_table_has_no_key_hashes(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big(100))})

        assert covered(store) == set()


def test_every_large_fragment_has_key_hashes_of_its_own(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        for number in range(5):
            write(store, {DOC: Append(big(MANY * 3, start=number * MANY * 3))})
            assert len(covered(store)) == fragments(store) == number + 1


def test_a_small_write_neither_asks_for_indexes_nor_writes_key_hashes(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = LanceDataset.describe_indices

    def counted(handle: Any) -> Any:
        asked.append(handle.version)
        return real(handle)

    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big())})
        derived = {file for file in stored_files(store.location, DOC) if is_derived(file)}
        monkeypatch.setattr(LanceDataset, "describe_indices", counted)
        for number in range(2 * PER_TIER):  # folds among them
            write(store, {DOC: Upsert(table([doc(f"n{number % 9}")]))})
        write(store, {DOC: DeleteIds(ids("k000007", "n1"))})

        assert not asked
        assert derived == {file for file in stored_files(store.location, DOC) if is_derived(file)}
        assert len(rows(store)) == MANY + 9 - 2


def coverage(how: str, store: GraphStore) -> None:
    """Bring the table into a state in which none, some or all of its fragments have key hashes."""
    if how == "none":
        for number in range(5):
            write(store, {DOC: Append(big(200, start=number * 200))})
        assert covered(store) == set()
    elif how == "some":
        write(store, {DOC: Append(big(MANY))})
        write(store, {DOC: Append(big(200, start=MANY))})
        assert 0 < len(covered(store)) < fragments(store)
    else:
        write(store, {DOC: Append(big(MANY))})
        assert len(covered(store)) == fragments(store) == 1
    if how == "lost":
        for file in stored_files(store.location, DOC):
            if is_derived(file):
                store.location.objects.delete(f"tables/{DOC}/{file}")
        assert covered(store) == set()


@pytest.mark.parametrize("how", ["none", "some", "all", "lost"])
@pytest.mark.parametrize("fresh", [False, True], ids=["warm", "cold"])
def test_keys_are_found_whatever_has_key_hashes(place: Place, how: str, fresh: bool) -> None:
    with make_docs(place.address, **place.kwargs) as store:
        coverage(how, store)
        if fresh:
            store = again(place)
        everything = rows(store)
        first, last = everything[0]["id"], everything[-1]["id"]

        receipt = write(store, {DOC: Upsert(table([doc(first, -1), doc(last, -2), doc("new", -3)]))})
        assert (receipt.tables[0].updated, receipt.tables[0].inserted) == (2, 1)
        receipt = write(store, {DOC: DeleteIds(ids(everything[1]["id"], everything[-2]["id"], "unknown"))})
        assert receipt.tables[0].deleted == 2

        changed = {first: -1, last: -2, "new": -3}
        gone = {everything[1]["id"], everything[-2]["id"]}
        expected = {row["id"]: row["size"] for row in everything if row["id"] not in gone} | changed
        assert {row["id"]: row["size"] for row in rows(store)} == expected
        assert store.snapshot().pin(DOC).rows == len(expected)


def test_more_keys_than_are_worth_probing_are_found_by_a_scan(local_place: Place) -> None:
    count = PROBE_LIMIT + 500
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big(MANY))})

        receipt = write(store, {DOC: Upsert(big(count, start=MANY - count + 100))})

        assert (receipt.tables[0].updated, receipt.tables[0].inserted) == (count - 100, 100)
        assert len({row["id"] for row in rows(store)}) == len(rows(store)) == MANY + 100


def test_a_key_that_moved_from_a_large_fragment_to_the_tail_is_found_there(local_place: Place) -> None:
    """Key hashes still list the old place; only its deletion vector says that the row is gone."""
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big(MANY))})
        for number in range(20):
            receipt = write(store, {DOC: Upsert(table([doc("k000005", -number)]))})
            assert (receipt.tables[0].updated, receipt.tables[0].inserted) == (1, 0)

        assert [row["size"] for row in rows(store) if row["id"] == "k000005"] == [-19]
        assert write(store, {DOC: DeleteIds(ids("k000005"))}).tables[0].deleted == 1
        assert write(store, {DOC: DeleteIds(ids("k000005"))}).commit is None


def test_an_overwritten_table_forgets_its_old_keys(local_place: Place) -> None:
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big(MANY))})
        write(store, {DOC: Overwrite(big(MANY, prefix="z"))})

        receipt = write(store, {DOC: Upsert(table([doc("k000005", 1), doc("z000005", 2)]))})

        assert (receipt.tables[0].updated, receipt.tables[0].inserted) == (1, 1)


# -- column types beside the key


ODD_TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "uint64": (pa.uint64(), 2**64 - 1),
    "date32": (pa.date32(), dt.date(2024, 2, 29)),
    "date64": (pa.date64(), dt.date(2024, 2, 29)),
    "list<uint32>": (pa.list_(pa.uint32()), [1, 2]),
    "list<uint64>": (pa.list_(pa.uint64()), [2**64 - 1]),
    "list<date64>": (pa.list_(pa.date64()), [dt.date(2024, 2, 29)]),
    "list<bool>": (pa.list_(pa.bool_()), [True, False]),
    "time64": (pa.time64("us"), dt.time(1, 2, 3)),
    "duration": (pa.duration("us"), dt.timedelta(seconds=1)),
    "binary": (pa.binary(), b"\x00\xff"),
    "large_binary": (pa.large_binary(), b"\x00\xff"),
    "vector": (pa.list_(pa.float32(), 2), [1.0, 2.0]),
}


def rows_with(data_type: pa.DataType, value: Any, names: Iterable[str]) -> pa.Table:
    names = list(names)
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", data_type)])
    return pa.table([names, pa.array([value] * len(names), data_type)], schema=schema)


@pytest.mark.parametrize("kind", ODD_TYPES)
@pytest.mark.parametrize("count", [50, MANY], ids=["small", "large"])
def test_keys_are_found_whatever_other_columns_the_table_has(
    local_place: Place, kind: str, count: int
) -> None:
    """One column of an odd type spoils every pyarrow Expression on its table (lance-facts B13)."""
    data_type, value = ODD_TYPES[kind]
    start = rows_with(data_type, value, (f"k{number:06d}" for number in range(count)))
    with make_docs(local_place.address, start.schema) as store:
        write(store, {DOC: Append(start)})

        write(store, {DOC: Upsert(rows_with(data_type, None, ["k000001", "new"]))})
        write(store, {DOC: DeleteIds(ids("k000002"))})

        found: dict[str, Row] = {str(row["id"]): row for row in rows(store)}
        assert len(found) == count
        assert (found["k000001"]["v"], found["new"]["v"], found["k000003"]["v"]) == (None, None, value)


# -- what lies beside new files


def test_key_hashes_of_rows_in_memory_are_those_of_the_files(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.tables.workbench.FILE_ROWS", 5_000)
    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big())})

        handle = store.table(store.snapshot(), DOC)
        assert [fragment.physical_rows for fragment in handle.get_fragments()] == [5_000, 5_000, 2_000]
        assert handle.to_table(columns=["id"]).equals(big().select(["id"]))
        assert covered(store) == {0, 1}  # the last one is small
        for number in covered(store):
            (file,) = handle.get_fragment(number).metadata.files
            values = store.finder.files.column(DOC, file.path, "id")
            keys = store.finder.stored_hashes(handle, file.path, "id", len(values))
            assert keys is not None
            assert keys.whole().tolist() == entries_of(values).tolist()


def test_every_file_of_a_table_with_blobs_has_key_hashes(local_place: Place) -> None:
    schema = pa.schema([SCHEMA.field("id"), blob_field("content")])
    with make_docs(local_place.address, schema) as store:
        content = blob_array([b"x"])
        write(store, {DOC: Append(pa.table([ids("a"), content], schema=schema))})

        assert covered(store) == {0}


def test_an_upsert_that_cannot_write_ends_when_its_deletions_have_ended(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []
    remove = Workbench.remove

    def slow(bench: Workbench, old: Any) -> Any:
        sleep(0.2)
        removed = remove(bench, old)
        ended.append(removed)
        return removed

    def fails(bench: Workbench, rows: Any) -> Any:
        raise OSError("no space left")

    with make_docs(local_place.address) as store:
        write(store, {DOC: Append(big())})
        monkeypatch.setattr(Workbench, "remove", slow)
        monkeypatch.setattr(Workbench, "write", fails)

        with pytest.raises(StorageError):
            write(store, {DOC: Upsert(table([doc("k000001", 5)]))})

        assert ended
