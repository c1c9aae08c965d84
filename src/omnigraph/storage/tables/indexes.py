"""Indexes: what a table's indexes lack, built as new segments.

Maintenance only: what writes look up by are key hashes (derived/rows.py). An index is a few segments, each
over some fragments; it never decides a result, so it may lag, and one that cannot be built is noted and left
for later without disturbing the others. The parts of a large segment may be built in other processes and
merged: pipeline.indexes does so.

Segments stay good as long as their fragments are there. A writer that publishes first costs another
detached commit, not another build: what was built is remembered and only what is new is added.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from lance import Index, LanceOperation

from omnigraph.base.dataclass import dataclass
from omnigraph.base.ids import new_id
from omnigraph.base.panics import panics_caught
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import NO_VECTORS, Built, IndexSpec, IndexWork, Lack, StoredIndexKind
from omnigraph.storage.tables.layout import Layout, data_files

MAX_SEGMENTS = 4
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


def coverage(handle: Handle, layout: Layout, broken: Collection[str] = ()) -> dict[str, Coverage]:
    """Return the indexes of a version by name; a segment that is broken covers nothing."""
    return {
        index.name: Coverage(
            {
                s.uuid: frozenset(() if s.uuid in broken else s.fragment_ids) & layout.parts.keys()
                for s in index.segments
            }
        )
        for index in handle.describe_indices()
    }


def lacks(
    handle: Handle, layout: Layout, specs: Iterable[IndexSpec], broken: Collection[str] = ()
) -> dict[IndexSpec, Lack]:
    """Return what indexes lack; those that cover every row are left out."""
    stored = coverage(handle, layout, broken)
    covered = {spec: stored.get(spec.name, Coverage({})) for spec in specs}
    return {
        spec: Lack(*_chosen(layout, now), now.segments)
        for spec, now in covered.items()
        if layout.parts.keys() - now.fragments
    }


def complete(
    handle: Handle,
    layout: Layout,
    specs: Iterable[IndexSpec],
    work: IndexWork,
    broken: Collection[str] = (),
) -> LanceOperation.CreateIndex | None:
    """Build what the indexes lack; None when there is nothing to add. `work` says what came of it."""
    lacking = lacks(handle, layout, specs, broken)
    work.created, work.extended, work.pending = set(), set(), {}
    if not lacking:
        return None
    own = handle.checkout_version(handle.version)  # a handle is locked for all others while it builds
    new: list[Index] = []
    gone: list[Index] = []
    for spec, lack in lacking.items():
        try:
            with panics_caught():
                built = _build(own, layout, spec, lack, work)
        except (OSError, RuntimeError, ValueError, pa.ArrowInvalid) as error:  # what Lance raises in a build
            work.pending[spec] = str(error).splitlines()[0] if str(error) else type(error).__name__
            continue
        if built is None:
            if not any(lack.stored.values()):
                work.pending[spec] = NO_VECTORS
            continue
        work.built[spec] = built
        (work.extended if lack.stored else work.created).add(spec)
        new.append(built.segment)
        gone += [stub(uuid, spec.column) for uuid in sorted(built.replaces)]
    return LanceOperation.CreateIndex(new, gone) if new else None


def _build(handle: Handle, layout: Layout, spec: IndexSpec, lack: Lack, work: IndexWork) -> Built | None:
    """Return a segment that covers what an index lacks; None when there is nothing to train it with."""
    before = work.built.get(spec)
    if before is not None and before.fits(layout, lack.stored):
        return before
    segment = build_segment(handle, layout, spec, lack.fragments)
    return None if segment is None else built_for(layout, lack, segment)


def built_for(layout: Layout, lack: Lack, segment: Index) -> Built:
    """Return a segment as one that can be published, now or on another version."""
    files = {number: data_files(layout.parts[number].metadata) for number in lack.fragments}
    return Built(segment, files, lack.replaces)


def build_segment(handle: Handle, layout: Layout, spec: IndexSpec, fragments: Sequence[int]) -> Index | None:
    """Index some fragments; None when there is nothing to train the index with."""
    options: dict[str, Any] = {}
    match spec.kind:
        case StoredIndexKind.BTREE:
            pass
        case StoredIndexKind.INVERTED:
            options = dict(TEXT)
        case StoredIndexKind.VECTOR:
            if not _any(handle, spec.column, fragments):
                return None
            options = {"metric": "l2", "num_partitions": partitions_for(_rows(layout, fragments))}
    name = f"tmp_{new_id()}"  # a stored name would be refused
    with durable(Step.TABLE_INDEX):
        segment = handle.create_index_uncommitted(
            spec.column, spec.kind.value, name=name, fragment_ids=list(fragments), **options
        )
        if spec.kind is StoredIndexKind.INVERTED:  # cannot be read otherwise
            segment = handle.merge_existing_index_segments([segment])
    return _named(spec, segment)


def merge_segments(handle: Handle, spec: IndexSpec, segments: Sequence[Index]) -> Index:
    """Make one segment of several that are not stored yet."""
    with durable(Step.TABLE_INDEX):
        return _named(spec, handle.merge_existing_index_segments(list(segments)))


def _named(spec: IndexSpec, segment: Index) -> Index:
    # Lance compares this number with detached versions, which are random: 1 keeps segments mergeable.
    named: Index = dataclasses.replace(segment, name=spec.name, dataset_version=1)
    return named


def _chosen(layout: Layout, now: Coverage) -> tuple[tuple[int, ...], frozenset[str]]:
    """Return the fragments of the next segment, and the segments that it replaces."""
    uncovered = set(layout.parts.keys() - now.fragments)
    gone = {uuid for uuid, fragments in now.segments.items() if not fragments}
    live = sorted(now.segments.keys() - gone, key=lambda u: (_rows(layout, now.segments[u]), u))
    if len(live) + 1 > MAX_SEGMENTS:
        # The smaller ones are rebuilt into the new segment; the largest stays, so the cost is amortised.
        for uuid in live[:-1]:
            uncovered |= now.segments[uuid]
            gone.add(uuid)
    return tuple(sorted(uncovered)), frozenset(gone)


def partitions_for(rows: int) -> int:
    """Return how many partitions a segment of a vector index has."""
    return min(rows // PARTITION_ROWS + 1, MOST_PARTITIONS)


def _any(handle: Handle, column: str, fragments: Iterable[int]) -> bool:
    """Say whether any row of some fragments has a value; stops at the first that does."""
    scan = scanner(handle, columns=[column], fragments=[handle.get_fragment(n) for n in fragments])
    return any(batch[column].null_count < batch.num_rows for batch in scan.to_batches())


def _rows(layout: Layout, fragments: Iterable[int]) -> int:
    return sum(layout.parts[fragment].size.rows for fragment in fragments)


def stub(uuid: str, column: str) -> Index:
    """Name an index segment to remove: Lance matches by uuid alone."""
    unread: Any = set()
    return Index(
        uuid=uuid, name=f"{column}_idx", fields=[], dataset_version=0, fragment_ids=unread, index_version=0
    )
