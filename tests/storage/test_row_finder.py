"""Finding rows by value: nothing is lost when values repeat, files fail, or others write key hashes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.base.errors import StorageError
from omnigraph.base.ids import SystemClock
from omnigraph.storage.derived import rows as rows_module
from omnigraph.storage.derived.blocks import BlockFile, Unreadable
from omnigraph.storage.derived.files import DerivedFiles
from omnigraph.storage.derived.key_hashes import EVERY, IdSpans
from omnigraph.storage.derived.rows import RowFinder
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, DeleteIds
from omnigraph.storage.tables.layout import Layout
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan

TABLE = "t-1"
MANY = 6_000  # past the first tier
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("number", pa.int64()), pa.field("x", pa.float64())]
)
BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


def some_rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"r{n}" for n in numbers], "number": list(numbers), "x": [n / 2 for n in numbers]},
        schema=SCHEMA,
    )


def publish(store: GraphStore, effect: Any) -> None:
    store.publish("main", PlannedWrite(PublishPlan(CommitKind.MUTATION, effects={TABLE: effect})))


def new_store(path: Path, schema: pa.Schema = SCHEMA) -> GraphStore:
    tables = {TABLE: NewTable("T", "node", schema)}
    return GraphStore.create(path, schema=b"{}", tables=tables, durability="os")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GraphStore]:
    """A table of one settled file."""
    with new_store(tmp_path / "g") as graph_store:
        publish(graph_store, Append(some_rows(0, MANY)))
        yield graph_store


def opened(store: GraphStore) -> tuple[Handle, Layout]:
    handle = store.table(store.snapshot(), TABLE)
    return handle, store.reads.layout(handle)


def complete(store: GraphStore, *columns: str) -> tuple[str, ...]:
    handle, layout = opened(store)
    with ThreadPoolExecutor(1) as pool:
        return store.finder.complete(handle, list(layout.parts.values()), pool, columns)


# -- values that stand twice


def spans(count: int) -> tuple[pa.Array, IdSpans]:
    ids = pa.array([f"{n:08d}" for n in range(count)])
    of_ids = IdSpans.of(pa.chunked_array([ids]))
    assert of_ids is not None
    return ids, of_ids


@pytest.mark.parametrize("distinct", [3, 400], ids=["a few spans", "all ids"])
def test_an_id_that_is_asked_for_twice_is_found_twice(distinct: int) -> None:
    ids, id_spans = spans(300 * EVERY)
    wanted = pa.array([f"{n * 601:08d}" for n in range(distinct)] * 2 + ["nobody"])

    which, at = id_spans.find(wanted, lambda start, count: ids.slice(start, count))

    pairs = sorted(zip(which.tolist(), at.tolist(), strict=True))
    assert pairs == [(n, n % distinct * 601) for n in range(2 * distinct)]


def test_ids_of_several_spans_of_a_long_file_are_found_without_reading_all_of_it() -> None:
    ids, id_spans = spans(600 * EVERY)
    read = 0

    def counted(start: int, count: int) -> pa.Array:
        nonlocal read
        read += count
        return ids.slice(start, count)

    which, _ = id_spans.find(pa.array([f"{n * 10 * EVERY:08d}" for n in range(50)]), counted)

    assert len(which) == 50
    assert read == 50 * EVERY


@pytest.mark.parametrize("column", ["x", "number", "id"], ids=["scanned", "scanned by hash", "hashed"])
def test_candidates_of_a_value_that_stands_twice_are_found_for_both(store: GraphStore, column: str) -> None:
    values = some_rows(10, 3)[column].combine_chunks()
    version = store.snapshot().pin(TABLE).version

    which, addresses = store.reads.candidates(TABLE, version, column, pa.concat_arrays([values, values]))

    pairs = sorted(zip(which.tolist(), (addresses & 0xFFFFFFFF).tolist(), strict=True))
    assert pairs == [(n, 10 + n % 3) for n in range(6)]


# -- key hashes that are not there, or not now


class MovedClock(SystemClock):
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_key_hashes_that_another_process_writes_are_used_after_a_while(
    store: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock()
    monkeypatch.setattr(store.finder, "_missing", rows_module.RecentlyMissing(clock))
    handle, layout = opened(store)
    assert not store.finder.can_find(handle, layout, "number")

    with GraphStore.open(store.location.uri) as other:
        assert complete(other, "number") == ("number",)

    assert not store.finder.can_find(handle, layout, "number"), "it was not looked for again"
    clock.now += rows_module.MISSING_SECONDS
    assert store.finder.can_find(handle, layout, "number")


def test_what_is_remembered_as_missing_is_bounded() -> None:
    missing = rows_module.RecentlyMissing(SystemClock(), most=10)

    for n in range(100):
        missing.add(n)

    assert [n for n in range(100) if n in missing] == list(range(90, 100))


def test_a_file_that_cannot_be_read_for_a_moment_is_not_taken_for_missing(
    store: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete(store, "number")
    real, failures = DerivedFiles.open, [Unreadable("for a moment")]

    def flaky(files: DerivedFiles, table_id: str, name: str) -> BlockFile:
        if failures:
            raise failures.pop()
        return real(files, table_id, name)

    monkeypatch.setattr(DerivedFiles, "open", flaky)
    handle, layout = opened(store)

    assert not store.finder.can_find(handle, layout, "number")
    assert store.finder.can_find(handle, layout, "number")


def test_a_column_that_cannot_be_read_is_a_storage_failure(
    store: GraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, layout = opened(store)
    for path in Path(store.location.uri).glob("tables/*/_derived/*/*"):
        path.unlink()

    def fail(*_: object) -> pa.ChunkedArray:
        raise Unreadable("the disk is gone")

    monkeypatch.setattr(DerivedFiles, "column", fail)

    with pytest.raises(StorageError):
        store.reads.first_rows(handle, list(layout.parts.values()), "id", pa.array(["r1"]))
    monkeypatch.setattr(RowFinder, "can_find", lambda *_: True)  # it could be read a moment ago
    with pytest.raises(StorageError):
        store.reads.candidates(TABLE, store.snapshot().pin(TABLE).version, "id", pa.array(["r1"]))


# -- what fails while key hashes are written


@pytest.mark.parametrize("columns", [(), ("number",)], ids=["one column", "several"])
def test_a_failure_to_write_key_hashes_is_ignored_and_a_lack_of_memory_is_not(
    store: GraphStore, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...]
) -> None:
    handle, layout = opened(store)
    parts = list(layout.parts.values())

    def failing(error: BaseException) -> Callable[..., bool]:
        def derive(*_: object) -> bool:
            raise error

        return derive

    def results(error: BaseException) -> list[bool]:
        monkeypatch.setattr(RowFinder, "_derive", failing(error))
        with ThreadPoolExecutor(2) as pool:
            return [task.result() for task in store.finder.derive(handle, parts[0], pool, columns)]

    for error in (Unreadable("no"), OSError(errno.ENOSPC, "full")):
        assert not any(results(error))
    with pytest.raises(MemoryError):
        results(MemoryError())


# -- tables with blobs


def test_rows_of_small_files_with_blobs_are_found_without_a_scan(tmp_path: Path) -> None:
    """Their rows are never folded, and cannot be held in memory."""
    schema = SCHEMA.append(BLOB)
    with new_store(tmp_path / "g", schema) as store:
        for n in range(3):
            rows = some_rows(10 * n, 10)
            publish(store, Append(rows.append_column(BLOB, pa.array([b"picture"] * 10, pa.large_binary()))))
        publish(store, DeleteIds(pa.array(["r4"])))
        handle, layout = opened(store)
        assert layout.has_blobs

        for column in ("id", "number"):
            assert store.finder.can_find(handle, layout, column)
        matches = store.finder.find(handle, layout, "number", pa.array([3, 4, 25]), ["id"])

    assert matches.rows["id"].to_pylist() == ["r3", "r25"]
