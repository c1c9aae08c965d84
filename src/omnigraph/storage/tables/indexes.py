"""Indexes: what a table's indexes lack, built as new segments.

Room    storage.tables. Maintenance only: writes keep just the key indexes up (keys.py). An index is a few
        segments, each over some fragments; it never decides a result, so it may lag, and one that cannot be
        built is noted and left for later without disturbing the others.
Races   segments stay good as long as their fragments are there. A writer that publishes first costs another
        detached commit, not another build: what was built is remembered and only what is new is added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from lance import Index, LanceOperation

from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.index_specs import NO_VECTORS, Built, IndexKind, IndexSpec, IndexWork
from omnigraph.storage.tables.keys import MAX_SEGMENTS, stub
from omnigraph.storage.tables.layout import Layout, data_files

PARTITION_ROWS = 1_024
MOST_PARTITIONS = 4_096


# All segments of an index must agree on these. Stop words and long words are kept, so that what the index
# finds is never less than what search means (docs/decisions/0012-search-is-exact.md).
TEXT = {
    "with_position": False,
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": None,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": False,
    "ascii_folding": True,
}


@dataclass(frozen=True)
class Coverage:
    """One index of one version: the fragments of each segment that are still there."""

    segments: Mapping[str, frozenset[int]]

    @property
    def fragments(self) -> frozenset[int]:
        """The fragments that some segment covers."""
        return frozenset().union(*self.segments.values())


def coverage(handle: Handle, layout: Layout) -> dict[str, Coverage]:
    """Return the indexes of a version by name."""
    return {
        index.name: Coverage(
            {s.uuid: frozenset(s.fragment_ids) & layout.parts.keys() for s in index.segments}
        )
        for index in handle.describe_indices()
    }


def complete(
    handle: Handle, layout: Layout, specs: Iterable[IndexSpec], work: IndexWork
) -> LanceOperation.CreateIndex | None:
    """Build what the indexes lack; None when there is nothing to add. `work` says what came of it."""
    stored = coverage(handle, layout)
    found = {spec: stored.get(spec.name, Coverage({})) for spec in specs}
    lacking = {spec: now for spec, now in found.items() if layout.parts.keys() - now.fragments}
    work.created, work.extended, work.pending = set(), set(), {}
    if not lacking:
        return None
    own = handle.checkout_version(handle.version)  # a handle is locked for all others while it builds
    new: list[Index] = []
    gone: list[Index] = []
    for spec, now in lacking.items():
        try:
            built = _build(own, layout, spec, now, work)
        except (OSError, RuntimeError, ValueError, pa.ArrowInvalid) as error:  # what Lance raises in a build
            work.pending[spec] = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if built is None:
            if not now.fragments:
                work.pending[spec] = NO_VECTORS
            continue
        work.built[spec] = built
        (work.extended if now.segments else work.created).add(spec)
        new.append(built.segment)
        gone += [stub(uuid, spec.column) for uuid in sorted(built.replaces)]
    return LanceOperation.CreateIndex(new, gone) if new else None


def _build(handle: Handle, layout: Layout, spec: IndexSpec, now: Coverage, work: IndexWork) -> Built | None:
    """Return a segment that covers what an index lacks; None when there is nothing to train it with."""
    before = work.built.get(spec)
    if before is not None and before.fits(layout, now.segments):
        return before
    fragments, replaces = _chosen(layout, now)
    options: dict[str, Any] = {}
    match spec.kind:
        case IndexKind.BTREE:
            pass
        case IndexKind.INVERTED:
            options = dict(TEXT)
        case IndexKind.VECTOR:
            if not _any(handle, spec.column, fragments):
                return None
            options = {"metric": "l2", "num_partitions": partitions_for(_rows(layout, fragments))}
    segment = _segment(handle, spec, fragments, options)
    return Built(segment, {n: data_files(layout.parts[n].metadata) for n in fragments}, replaces)


def _segment(handle: Handle, spec: IndexSpec, fragments: list[int], options: Mapping[str, Any]) -> Index:
    name = f"tmp_{uuid4().hex}"  # a stored name would be refused
    with durable(Step.TABLE_INDEX):
        segment = handle.create_index_uncommitted(
            spec.column, spec.kind.value, name=name, fragment_ids=fragments, **options
        )
        if spec.kind is IndexKind.INVERTED:  # cannot be read otherwise
            segment = handle.merge_existing_index_segments([segment])
    # Lance compares this number with detached versions, which are random: 1 keeps segments mergeable.
    named: Index = dataclasses.replace(segment, name=spec.name, dataset_version=1)
    return named


def _chosen(layout: Layout, now: Coverage) -> tuple[list[int], frozenset[str]]:
    """Return the fragments of the next segment, and the segments that it replaces."""
    uncovered = set(layout.parts.keys() - now.fragments)
    gone = {uuid for uuid, fragments in now.segments.items() if not fragments}
    live = sorted(now.segments.keys() - gone, key=lambda u: (_rows(layout, now.segments[u]), u))
    if len(live) + 1 > MAX_SEGMENTS:
        # The smaller ones are rebuilt into the new segment; the largest stays, so the cost is amortised.
        for uuid in live[:-1]:
            uncovered |= now.segments[uuid]
            gone.add(uuid)
    return sorted(uncovered), frozenset(gone)


def partitions_for(rows: int) -> int:
    """Return how many partitions a segment of a vector index has."""
    return min(rows // PARTITION_ROWS + 1, MOST_PARTITIONS)


def _any(handle: Handle, column: str, fragments: Iterable[int]) -> bool:
    """Say whether any row of some fragments has a value; stops at the first that does."""
    scanner = handle.scanner(columns=[column], fragments=[handle.get_fragment(n) for n in fragments])
    return any(batch[column].null_count < batch.num_rows for batch in scanner.to_batches())


def _rows(layout: Layout, fragments: Iterable[int]) -> int:
    return sum(layout.parts[fragment].size.rows for fragment in fragments)
