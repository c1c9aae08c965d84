"""Compaction of one table: what Lance must do for it, blobs, file sizes, memory, and later versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lance import LanceOperation, blob_array, blob_field
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.compaction import (
    GAP,
    FragmentFacts,
    OptimizePolicy,
    fragment_facts,
    rewrite,
    worth_rewriting,
    write_anew,
)
from omnigraph.storage.tables.effects import Append, Compact, DeleteIds, SeveralEffects
from omnigraph.storage.tables.row_runs import MIB, RowRuns
from omnigraph.storage.transaction import PlannedWrite, PublishPlan
from tests.storage.bare import append, detached, new_table, rows
from tests.storage.docs import DOC, SCHEMA, doc, ids, make_docs, table
from tests.support.graphs import write
from tests.support.places import Place

OLD_BLOB = pa.field("content", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
PAYLOADS = [None, b"", b"small", b"x" * 200_000]


@pytest.fixture
def store(local_place: Place) -> Iterator[GraphStore]:
    with make_docs(local_place.address) as made:
        yield made


def rewritten(store: GraphStore, policy: OptimizePolicy | None = None, **options: Any) -> Compact:
    """Rewrite all fragments of the table."""
    policy = policy or OptimizePolicy()
    snapshot = store.snapshot()
    handle = store.table(snapshot, DOC)
    layout = store.reads.layout(handle)
    chosen = sorted(layout.parts)
    rewriter = partial(write_anew, RowRuns(store.location.objects, store.reads.deleted))
    new = rewrite(
        handle, layout, store.reads.deleted, policy, chosen, snapshot.state.version, rewriter, **options
    )
    return Compact(new, policy.deleted_share)


def publish(store: GraphStore, effect: Compact) -> bool:
    """Publish it, and say whether that changed anything."""
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={DOC: effect}, replans=True)
    return store.publish("main", PlannedWrite(plan)).commit is not None


def fragments(store: GraphStore) -> list[int]:
    return sorted(part.fragment_id for part in store.table(store.snapshot(), DOC).get_fragments())


def stored(store: GraphStore) -> list[dict[str, Any]]:
    return list(store.table(store.snapshot(), DOC).to_table().to_pylist())


# -- what we rely on in Lance


def test_lance_keeps_the_number_that_a_new_fragment_is_given(tmp_path: Path) -> None:
    base = append(append(new_table(tmp_path / "t"), rows(["a"])), rows(["b"]))
    (new,) = write_fragments(rows(["a", "b"]), base, schema=base.schema, mode="append")
    numbered = FragmentMetadata.from_json(json.dumps(new.to_json() | {"id": 4_096}))

    done = detached(
        base,
        LanceOperation.Update(
            removed_fragment_ids=[0, 1], new_fragments=[numbered], update_mode="rewrite_rows"
        ),
    )

    assert [part.fragment_id for part in done.get_fragments()] == [4_096]
    after = append(done, rows(["c"]))
    assert [part.fragment_id for part in after.get_fragments()] == [4_096, 4_097]


# -- blobs


@pytest.mark.parametrize("field", [blob_field("content"), OLD_BLOB], ids=["v2", "v1"])
def test_blobs_are_copied_as_they_are(local_place: Place, field: pa.Field) -> None:
    schema = pa.schema([SCHEMA.field("id"), field])
    with make_docs(local_place.address, schema) as store:
        for start in range(0, 12, 4):
            values = PAYLOADS if field is OLD_BLOB else blob_array(PAYLOADS)
            column = pa.array(values, pa.large_binary()) if field is OLD_BLOB else values
            names = ids(*(f"d{n:02}" for n in range(start, start + 4)))
            write(store, {DOC: Append(pa.table([names, column], schema=schema))})
        write(store, {DOC: DeleteIds(ids("d01", "d11"))})
        before = payloads(store)
        handle = store.table(store.snapshot(), DOC)
        facts = fragment_facts(handle, store.reads.layout(handle))

        assert publish(store, rewritten(store))

        assert min(part.bytes for part in list(facts.values())[:2]) > 200_000  # payloads count
        assert len(fragments(store)) == 1
        assert payloads(store) == before
        assert sorted(before) == sorted({f"d{n:02}" for n in range(12)} - {"d01", "d11"})
        assert {before["d00"], before["d05"], before["d02"], before["d03"]} == set(PAYLOADS)


def payloads(store: GraphStore) -> dict[str, bytes | None]:
    scan = store.table(store.snapshot(), DOC).scanner(blob_handling="all_binary").to_table()
    return dict(zip(scan["id"].to_pylist(), scan["content"].to_pylist(), strict=True))


# -- files


def test_files_end_at_a_size_and_at_most_the_last_of_them_is_small(local_place: Place) -> None:
    policy = OptimizePolicy(small_bytes=8 * MIB, file_bytes=8 * MIB)
    schema = pa.schema([SCHEMA.field("id"), pa.field("content", pa.large_binary())])
    random = np.random.default_rng(1)
    with make_docs(local_place.address, schema) as store:
        for start in range(0, 3_000, 500):
            content = pa.array([random.bytes(10_000) for _ in range(500)], pa.large_binary())
            names = ids(*(f"d{n:04}" for n in range(start, start + 500)))
            write(store, {DOC: Append(pa.table([names, content], schema=schema))})
        expected = stored(store)

        assert publish(store, rewritten(store, policy))

        handle = store.table(store.snapshot(), DOC)
        facts = fragment_facts(handle, store.reads.layout(handle))
        assert len(facts) > 2
        assert min(part.bytes for part in list(facts.values())[:-1]) >= policy.file_bytes
        assert worth_rewriting(policy, facts) == ()
        assert stored(store) == expected


def test_wide_rows_are_read_a_few_at_a_time(local_place: Place) -> None:
    schema = pa.schema([SCHEMA.field("id"), pa.field("content", pa.large_binary())])
    random = np.random.default_rng(1)
    with make_docs(local_place.address, schema) as store:
        for start in (0, 40):
            content = pa.array([random.bytes(500_000) for _ in range(40)], pa.large_binary())
            names = ids(*(f"d{n:02}" for n in range(start, start + 40)))
            write(store, {DOC: Append(pa.table([names, content], schema=schema))})
        passed: list[int] = []

        rewritten(store, advanced=passed.append)

        assert (sum(passed), max(passed)) == (80, 8)  # some four megabytes


# -- later versions


def test_what_was_rewritten_keeps_its_numbers_while_others_write(store: GraphStore) -> None:
    for start in range(3):
        write(store, {DOC: Append(table([doc(f"d{start}-{n}", n) for n in range(50)]))})
    effect = rewritten(store)
    write(store, {DOC: Append(table([doc("new")]))})
    plan = PublishPlan(CommitKind.MAINTENANCE, effects={DOC: SeveralEffects((effect,))}, replans=True)

    assert store.publish("main", PlannedWrite(plan)).commit is not None

    assert effect.work.numbers == (3 + GAP,)
    assert fragments(store) == [3, 3 + GAP]
    assert len(stored(store)) == 151
    write(store, {DOC: Append(table([doc("newer")]))})
    assert max(fragments(store)) == 4 + GAP  # nobody gets a number that was used


def test_rows_deleted_since_are_deleted_from_the_new_files(store: GraphStore) -> None:
    for start in range(3):
        write(store, {DOC: Append(table([doc(f"d{start}-{n:02}", n) for n in range(3_000)]))})
    write(store, {DOC: DeleteIds(ids("d0-00", "d1-05"))})
    effect = rewritten(store)
    write(store, {DOC: DeleteIds(ids("d0-10", "d1-06", "d2-2999"))})
    expected = stored(store)

    assert publish(store, effect)

    assert stored(store) == expected
    assert fragments(store) == [2 + GAP]
    assert not publish(store, effect)  # its files are gone: it is of no use any more


def test_too_many_lost_rows_make_it_of_no_use(store: GraphStore) -> None:
    write(store, {DOC: Append(table([doc(f"d{n:04}", n) for n in range(3_000)]))})
    write(store, {DOC: Append(table([doc("tail")]))})
    effect = rewritten(store)
    write(store, {DOC: DeleteIds(ids(*(f"d{n:04}" for n in range(400))))})

    assert not publish(store, effect)

    assert len(stored(store)) == 2_601


# -- which fragments


@pytest.mark.parametrize(
    ("fragments", "chosen"),
    [
        ([], ()),
        ([FragmentFacts(10, 0, 900)], ()),
        ([FragmentFacts(10, 0, 900), FragmentFacts(10, 0, 900)], (0, 1)),
        ([FragmentFacts(10, 1, 900)], ()),
        ([FragmentFacts(10, 2, 900)], (0,)),
        ([FragmentFacts(9, 0, 64 * MIB), FragmentFacts(10, 0, 900)], ()),
        ([FragmentFacts(1 << 20, 1, 9 * MIB), FragmentFacts(1 << 20, 1, 9 * MIB)], ()),
        ([FragmentFacts(1 << 20, 1 << 18, 64 * MIB), FragmentFacts(10, 0, 900)], (0, 1)),
        ([FragmentFacts(1 << 20, 1 << 18, 64 * MIB), FragmentFacts(1 << 20, 0, 64 * MIB)], (0,)),
    ],
)
def test_small_and_heavy_fragments_are_chosen(
    fragments: list[FragmentFacts], chosen: tuple[int, ...]
) -> None:
    assert worth_rewriting(OptimizePolicy(), dict(enumerate(fragments))) == chosen
