"""Compaction: rows of many small fragments, or of fragments with many deleted rows, written anew in few.

    layout -> **which fragments are worth it** -> rows streamed into new files -> `Compact` (stage.py)

Writes fold small fragments as they go (layout.py); what they leave is for maintenance: a tail of some, files
past the last tier, rows that are deleted but still stored. Large healthy fragments are left alone.

Rows are read at one version and published on a later one. A data file never changes, so what became of a row
meanwhile can be told from its file alone: it is still there, or deleted, or its file is gone, and then it
lives elsewhere or not at all. Whatever is not there any more is deleted from the new fragments (`rebased`).
So a writer that publishes first costs two small files, not another rewrite.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from lance.blob import blob_array
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import ROWS_PER_FILE, Compact, Rewritten, Source, Written
from omnigraph.storage.tables.layout import (
    ROW_WEIGHT,
    Layout,
    Offsets,
    is_blob,
)
from omnigraph.storage.tables.row_runs import BATCH_ROWS, MIB, Deleted, RowRuns, blob_sizes

# -- which fragments ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FragmentFacts:
    """What decides whether a fragment is worth rewriting."""

    rows: int  # deleted ones too
    deleted: int
    bytes: int  # of its files, blobs among them

    @property
    def weight(self) -> int:
        """One number for how large it is, as for folding."""
        return self.bytes + ROW_WEIGHT * self.rows

    @property
    def living_weight(self) -> float:
        """About the weight of its rows that are not deleted."""
        return self.weight * (self.rows - self.deleted) / max(self.rows, 1)


@dataclass(frozen=True, slots=True)
class IndexState:
    """One declared index, and the rows that it does not cover."""

    property: str
    kind: str
    unindexed_rows: int


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The fragments of one table, and how many of its rows some declared index does not cover."""

    type: str
    kind: str
    fragments: tuple[FragmentFacts, ...]
    unindexed_rows: int
    indexes: tuple[IndexState, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        return sum(fragment.rows - fragment.deleted for fragment in self.fragments)


def coverage(rows: int, unindexed: int) -> float:
    """Return the share of rows that an index covers; all of none."""
    return 1 - min(unindexed, rows) / rows if rows else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizePolicy:
    """When `optimize` rewrites fragments, and how it goes about it.

    A fragment is small below `small_bytes` (64 bytes are added for each row), unless it has as many rows as
    a file may have. Small ones are merged when there are `small_fragments` of them. A fragment of whose rows
    more than `deleted_share` are deleted is rewritten, and the small ones with it. A file that is written
    ends at `file_bytes`. `unindexed_share` is for `is_due` alone: `optimize` always completes indexes.
    """

    small_fragments: int = 2
    small_bytes: int = 32 * MIB
    deleted_share: float = 0.1
    unindexed_share: float = 0.1
    file_bytes: int = 512 * MIB
    concurrency: int = 2  # tables that are rewritten at the same time
    replans: int = 3  # how often work starts over when writers took most of it away

    def __post_init__(self) -> None:
        for name, least in (("small_fragments", 2), ("small_bytes", 1), ("concurrency", 1), ("replans", 0)):
            _check_whole(name, getattr(self, name), least)
        _check_whole("file_bytes", self.file_bytes, self.small_bytes)
        for name in ("deleted_share", "unindexed_share"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
                raise _wrong(name, share, "a number from 0 up to, not including, 1")

    @checked
    def is_due(self, tables: Iterable[Fragmentation]) -> bool:
        """Say whether `optimize` would be worth it, given `graph.fragmentation()`."""
        return any(
            worth_rewriting(self, dict(enumerate(table.fragments)))
            or table.unindexed_rows > self.unindexed_share * table.rows
            for table in tables
        )


def worth_rewriting(policy: OptimizePolicy, fragments: Mapping[int, FragmentFacts]) -> tuple[int, ...]:
    """Return the numbers of the fragments to rewrite, ascending.

    >>> tiny, large = FragmentFacts(1, 0, 900), FragmentFacts(1 << 20, 0, 1 << 28)
    >>> worth_rewriting(OptimizePolicy(), {0: large, 1: tiny, 2: tiny})
    (1, 2)
    >>> worth_rewriting(OptimizePolicy(), {0: large, 1: tiny})
    ()
    """
    heavy = {n for n, facts in fragments.items() if facts.deleted > policy.deleted_share * facts.rows}
    small = {n for n, facts in fragments.items() if _is_small(policy, facts)}
    if heavy or len(small) >= policy.small_fragments:
        # With a heavy one all small ones go along: what is left of it may be small too, and the next run
        # would find two.
        return tuple(sorted(heavy | small))
    return ()


def _is_small(policy: OptimizePolicy, facts: FragmentFacts) -> bool:
    return facts.weight < policy.small_bytes and facts.rows < ROWS_PER_FILE


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _wrong(name, value, f"a whole number, {least} or more")


def _wrong(name: str, value: Any, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"OptimizePolicy: {name} is {value!r}", remedy=f"Give {name} {expected}", parameter=name
    )


def fragment_facts(handle: Handle, layout: Layout) -> dict[int, FragmentFacts]:
    """Return the facts of all fragments of a version; opens nothing, unless there are blobs."""
    return {
        number: FragmentFacts(
            int(part.metadata.physical_rows),
            int(part.metadata.physical_rows) - part.size.rows,
            part.stored_bytes + (int(blob_sizes(handle, number).sum()) if layout.has_blobs else 0),
        )
        for number, part in layout.parts.items()
    }


# -- rewriting ---------------------------------------------------------------------------------------


READ_AHEAD = {"batch_readahead": 2, "fragment_readahead": 1, "io_buffer_size": 32 * MIB}


NewFragments = tuple[FragmentMetadata, ...]


def write_anew(
    runs: RowRuns,
    handle: Handle,
    layout: Layout,
    file_bytes: int,
    chosen: Sequence[int],
    advanced: Callable[[int], None] = lambda rows: None,
) -> NewFragments:
    """Write the living rows of some fragments as new files, batch by batch; nothing names them yet.

    `runs` says how many rows to read at a time, so that memory stays within some batches whatever the table
    holds. `advanced` is told of rows as they pass, and may raise.
    """

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in _read(runs, handle, layout, chosen):
            yield _storable(batch, layout.schema)
            advanced(batch.num_rows)

    with durable(Step.TABLE_DATA):
        new = write_fragments(
            pa.RecordBatchReader.from_batches(layout.schema, batches()),
            handle,
            schema=layout.schema,
            mode="append",
            max_rows_per_file=ROWS_PER_FILE,
            max_bytes_per_file=file_bytes,
        )
    return tuple(new)


def _read(runs: RowRuns, handle: Handle, layout: Layout, chosen: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """Yield the living rows of fragments: small ones in one scan, of others each run in one of its own."""

    def scan(numbers: Sequence[int], batch: int, **part: int) -> Iterator[pa.RecordBatch]:
        fragments = [handle.get_fragment(number) for number in numbers]
        blobs = "all_binary" if layout.has_blobs else None
        options = {"batch_size": batch, "blob_handling": blobs, "scan_in_order": True, **READ_AHEAD}
        yield from scanner(handle, fragments=fragments, **options, **part).to_batches()

    for of_run, numbers in groupby(chosen, key=lambda number: runs.of(handle, layout, number)):
        if not of_run:
            yield from scan(list(numbers), BATCH_ROWS)
            continue
        for number in numbers:
            for run in of_run:
                yield from scan([number], run.batch, offset=run.start, limit=run.rows)


# Whoever does what `write_anew` does, once it knows how to read.
Rewriter = Callable[[Handle, Layout, int, Sequence[int], Callable[[int], None]], NewFragments]


def rewrite(
    handle: Handle,
    layout: Layout,
    deleted: Deleted,
    policy: OptimizePolicy,
    chosen: Sequence[int],
    since: int,
    rewriter: Rewriter,
    advanced: Callable[[int], None] = lambda rows: None,
) -> Rewritten:
    """Have the living rows of some fragments written anew; `since` is the version of the branch before."""
    parts = ((number, layout.parts[number]) for number in chosen)
    sources = tuple(
        Source(part.key[1], int(part.metadata.physical_rows), deleted(handle, number, part))
        for number, part in parts
    )
    new = rewriter(handle, layout, policy.file_bytes, chosen, advanced)
    return Rewritten(layout.columns, sources, Written(new, since))


def in_groups(
    fragments: Mapping[int, FragmentFacts], chosen: Sequence[int], group_bytes: int
) -> list[tuple[int, ...]]:
    """Cut fragments into neighbours that are rewritten apart, each group of about so much that is alive.

    What is left over at the end goes with the last group: two small files would be merged by the next run.

    >>> facts = {0: FragmentFacts(9, 0, 424), 1: FragmentFacts(9, 0, 424), 2: FragmentFacts(9, 0, 24)}
    >>> in_groups(facts, (0, 1, 2), 1000), in_groups(facts, (0, 1, 2), 1700)
    ([(0,), (1, 2)], [(0, 1, 2)])
    """
    groups: list[list[int]] = [[]]
    held = 0.0
    for number in chosen:
        if held >= group_bytes:
            groups.append([])
            held = 0.0
        groups[-1].append(number)
        held += fragments[number].living_weight
    if len(groups) > 1 and held < group_bytes:
        last = groups.pop()
        groups[-1] += last
    return [tuple(group) for group in groups]


def _storable(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as they can be written: what was read as bytes becomes a blob again."""
    columns = [
        blob_array(batch[field.name].to_pylist()) if _needs_wrapping(field) else batch[field.name]
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _needs_wrapping(field: pa.Field) -> bool:
    """Say whether a column takes blobs as a type of their own, and not as bytes, as tables once did."""
    return is_blob(field) and isinstance(field.type, pa.ExtensionType)


# -- on a later version ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exchange:
    """What a version loses to new fragments: fragments, and rows of the new ones, in their order."""

    gone: frozenset[int]
    lost: tuple[Offsets, ...]  # for each new fragment; empty if nothing was lost


def rebased(handle: Handle, layout: Layout, deleted: Deleted, effect: Compact) -> Exchange | None:
    """Return what to exchange on a version; None where the new fragments are of no use to it."""
    rewritten = effect.rewritten
    if layout.columns != rewritten.columns:
        return None
    there = {part.key[1]: (number, part) for number, part in layout.parts.items()}
    gone: set[int] = set()
    lost: list[Offsets] = []
    start = 0
    for source in rewritten.sources:
        here = there.get(source.files)
        if here is None:
            lost.append(np.arange(start, start + source.kept, dtype=np.int64))
        else:
            number, part = here
            places = _lost_places(source, deleted(handle, number, part))
            if places is None:
                return None
            gone.add(number)
            lost.append(places + start)
        start += source.kept
    places = np.concatenate(lost)
    if not gone or len(places) > effect.most_lost * start:
        return None
    return Exchange(frozenset(gone), _by_fragment(places, rewritten.written.fragments))


def _lost_places(source: Source, deleted: Offsets) -> Offsets | None:
    """Return which of a fragment's kept rows are deleted by now; None if one is back that was not kept."""
    if len(np.setdiff1d(source.deleted, deleted)):
        return None
    lost = np.setdiff1d(deleted, source.deleted)
    return (lost - np.searchsorted(source.deleted, lost)).astype(np.int64)


def _by_fragment(places: Offsets, fragments: Sequence[FragmentMetadata]) -> tuple[Offsets, ...]:
    if not len(places):
        return ()
    ends = np.cumsum([fragment.physical_rows for fragment in fragments])
    starts = ends - [fragment.physical_rows for fragment in fragments]
    return tuple(
        places[(places >= start) & (places < end)] - start for start, end in zip(starts, ends, strict=True)
    )


GAP = 4_096  # fragments that writers may add before the numbers of ours are taken


def with_numbers(handle: Handle, layout: Layout, effect: Compact) -> list[FragmentMetadata]:
    """Return the new fragments with numbers that a version has not seen, the same ones as long as they last.

    Lance keeps a number that is given. Index segments name fragments by number: with the same numbers on a
    later version, what was built for an earlier one is still good.
    """
    work, fragments = effect.work, effect.rewritten.written.fragments
    covered = (max(s.fragment_ids, default=0) for i in handle.describe_indices() for s in i.segments)
    seen = max((*layout.parts, *covered), default=0)
    if not work.numbers or min(work.numbers) <= seen:
        work.numbers = tuple(range(seen + GAP, seen + GAP + len(fragments)))
    return [
        FragmentMetadata.from_json(_numbered(fragment, number))
        for fragment, number in zip(fragments, work.numbers, strict=True)
    ]


def _numbered(fragment: FragmentMetadata, number: int) -> str:
    return json.dumps(fragment.to_json() | {"id": number})
