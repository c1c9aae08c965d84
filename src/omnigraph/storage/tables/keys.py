"""Keys: where in a table the rows with given ids or endpoints are, and the indexes that make that cheap.

Small fragments are scanned (their files stay in the session's cache); those past the first tier are covered
by a BTREE on each of the `INDEXED` columns, kept as a few segments.

An index never decides a result: a scan over uncovered fragments completes every lookup.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import Index, LanceOperation
from lance.dataset import ScannerBuilder
from pyarrow.substrait import serialize_expressions

from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import ID
from omnigraph.storage.tables.layout import ADDRESS, FragmentSize, Layout
from omnigraph.storage.tables.predicate import find, is_in

INDEXED = (ID, "src", "dst")  # what rows are looked up by on every write: their id, and the ends of edges
PROBE_LIMIT = 5_000  # beyond this many keys one scan beats index lookups (measured: lance-facts 5.3)
BATCH_ROWS, LARGEST_BATCH = 8_192, 1 << 20
MAX_SEGMENTS = 4
INLINE_ROWS = 2_000_000  # a write indexes at most so many rows itself (a second or two); maintenance the rest
Addresses = dict[int, "np.ndarray[Any, np.dtype[np.int64]]"]  # fragment id -> sorted row offsets


def addresses(handle: Handle, ids: pa.Array, fragments: Sequence[int]) -> Addresses:
    """Return the offsets of the rows with these ids in some of the fragments."""
    if len(ids) == 0 or not fragments:
        return {}
    scanned = [handle.get_fragment(fragment) for fragment in fragments]
    if len(ids) <= PROBE_LIMIT:
        scan: Any = ScannerBuilder(handle).columns([]).with_fragments(scanned).with_row_address(True)
        scan._substrait_filter = _membership(handle.schema, ID, ids)
        return by_fragment(scan.to_scanner().to_table()[ADDRESS])
    # Each batch hashes the ids anew: so batches are as large as the set of ids, within reason.
    rows = min(max(len(ids), BATCH_ROWS), LARGEST_BATCH)
    scan = handle.scanner(columns=[ID], fragments=scanned, with_row_address=True, batch_size=rows)
    hits = [batch[ADDRESS].filter(pc.is_in(batch[ID], value_set=ids)) for batch in scan.to_batches()]
    return by_fragment(pa.chunked_array(hits, pa.uint64()))


def scan_where_in(
    handle: Handle, column: str, values: pa.Array, fragments: Sequence[int], columns: Sequence[str]
) -> pa.Table:
    """Return some columns (the address may be among them) of the rows whose `column` is one of the values."""
    scanned = [handle.get_fragment(fragment) for fragment in fragments]
    stored = [name for name in columns if name != ADDRESS]
    if len(values) <= PROBE_LIMIT and not _has_word(values.type):
        rows = find(handle, is_in(column, values), tuple(stored))
        inside = pc.is_in(pc.shift_right(rows[ADDRESS], 32), value_set=pa.array(fragments, pa.uint64()))
        return rows.filter(inside).select(columns)
    if len(values) <= PROBE_LIMIT:
        scan: Any = ScannerBuilder(handle).columns(stored).with_fragments(scanned)
        scan = scan.with_row_address(ADDRESS in columns)
        scan._substrait_filter = _membership(handle.schema, column, values)
        return scan.to_scanner().to_table().select(columns)
    read = list(dict.fromkeys([*stored, column]))
    scanner = handle.scanner(columns=read, fragments=scanned, with_row_address=ADDRESS in columns)
    hits = [
        batch.filter(pc.is_in(batch[column], value_set=values)).select(columns)
        for batch in scanner.to_batches()
    ]
    return pa.Table.from_batches(hits, pa.schema([_field(handle.schema, name) for name in columns]))


def _field(schema: pa.Schema, name: str) -> pa.Field:
    return pa.field(ADDRESS, pa.uint64()) if name == ADDRESS else schema.field(name)


def _has_word(values: pa.DataType) -> bool:
    """Say whether Substrait has a word for values of a type (lance-facts B13)."""
    return not (pa.types.is_unsigned_integer(values) or pa.types.is_temporal(values))


def _membership(schema: pa.Schema, column: str, values: pa.Array) -> bytes:
    """Return `column in values` as a Substrait expression.

    Lance's own serialisation describes every column to Substrait, which has no word for some types
    (lists of unsigned integers, times): one such column would fail a filter on another (lance-facts B13).
    Only positions matter, so the other columns are described as something that always has a word.
    """
    shape = [
        field if field.name == column else pa.field(f"_{n}", pa.int8()) for n, field in enumerate(schema)
    ]
    return bytes(serialize_expressions([pc.field(column).isin(values)], ["matching"], pa.schema(shape)))


def by_fragment(row_addresses: pa.ChunkedArray) -> Addresses:
    """Split row addresses (fragment id in the upper half, offset in the lower) by fragment."""
    values = np.sort(row_addresses.to_numpy().astype(np.int64))
    fragments = values >> 32
    starts = np.flatnonzero(np.diff(fragments, prepend=-1))
    return {int(part[0] >> 32): part & 0xFFFFFFFF for part in np.split(values, starts[1:]) if len(part)}


def index_change(handle: Handle, layout: Layout) -> LanceOperation.CreateIndex | None:
    """Build what the indexes lack, and merge segments when there are too many; None if nothing to do."""
    if not layout.settled:
        return None
    sizes = {fragment: part.size for fragment, part in layout.parts.items()}
    stored: dict[str, dict[str, frozenset[int]]] = {}
    for index in handle.describe_indices():
        for segment in index.segments:
            stored.setdefault(index.name, {})[segment.uuid] = frozenset(segment.fragment_ids) & sizes.keys()
    new: list[Index] = []
    gone: list[Index] = []
    for column in INDEXED:
        if column in layout.schema.names:
            segment, replaced = _extend(
                handle, column, stored.get(index_name(column), {}), layout.settled, sizes
            )
            new += [] if segment is None else [segment]
            gone += [stub(uuid, column) for uuid in replaced]
    return LanceOperation.CreateIndex(new, gone) if new else None


def _extend(
    handle: Handle,
    column: str,
    segments: Mapping[str, frozenset[int]],
    big: frozenset[int],
    sizes: Mapping[int, FragmentSize],
) -> tuple[Index | None, list[str]]:
    """Cover what one index lacks by a new segment; return it and the segments that it replaces."""
    uncovered = _affordable(big - frozenset().union(*segments.values()), sizes)
    if not uncovered:
        return None, []
    gone = {uuid for uuid, fragments in segments.items() if not fragments}
    live = sorted((u for u in segments if u not in gone), key=lambda u: (_rows(segments[u], sizes), u))
    if len(live) + 1 > MAX_SEGMENTS:
        # Rebuild the smaller ones into the new segment; the largest stays, so the cost is amortised.
        for uuid in live[:-1]:
            uncovered = uncovered | segments[uuid]
            gone.add(uuid)
    segment = handle.create_index_uncommitted(
        column, "BTREE", name=f"tmp_{uuid4().hex}", fragment_ids=sorted(uncovered)
    )
    # Lance compares this number with detached versions, which are random: 1 keeps segments mergeable.
    segment = dataclasses.replace(segment, name=index_name(column), dataset_version=1)
    return segment, sorted(gone)


def index_name(column: str) -> str:
    """Return the name of a column's key index."""
    return f"{column}_idx"


def _affordable(fragments: Set[int], sizes: Mapping[int, FragmentSize]) -> Set[int]:
    """Return the smallest fragments, up to what a write may index in passing."""
    chosen, rows = set(), 0
    for fragment in sorted(fragments, key=lambda f: (sizes[f].rows, f)):
        rows += sizes[fragment].rows
        if rows > INLINE_ROWS:
            break
        chosen.add(fragment)
    return chosen


def _rows(fragments: Iterable[int], sizes: Mapping[int, FragmentSize]) -> int:
    return sum(sizes[fragment].rows for fragment in fragments)


def stub(uuid: str, column: str) -> Index:
    """Name an index segment to remove: Lance matches by uuid alone."""
    unread: Any = set()
    return Index(
        uuid=uuid,
        name=index_name(column),
        fields=[],
        dataset_version=0,
        fragment_ids=unread,
        index_version=0,
    )
