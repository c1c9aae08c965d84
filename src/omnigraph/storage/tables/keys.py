"""Keys: rows by value where that is a scan: many values at once, or a column without key hashes.

A few values of a column that has key hashes are found by them (derived/rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.substrait import serialize_expressions

from omnigraph.storage.derived.rows import by_fragment
from omnigraph.storage.lance_reads import filtered_scanner, scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.effects import ID
from omnigraph.storage.tables.layout import ADDRESS
from omnigraph.storage.tables.predicate import find, is_in

PROBE_LIMIT = 5_000  # beyond this many values one scan beats look-ups (measured: lance-facts 5.3)
BATCH_ROWS, LARGEST_BATCH = 8_192, 1 << 20
Addresses = dict[int, "np.ndarray[Any, np.dtype[np.int64]]"]  # fragment id -> sorted row offsets


def addresses(handle: Handle, ids: pa.Array, fragments: Sequence[int]) -> Addresses:
    """Return the offsets of the rows with these ids in some of the fragments."""
    if len(ids) == 0 or not fragments:
        return {}
    scanned = [handle.get_fragment(fragment) for fragment in fragments]
    if len(ids) <= PROBE_LIMIT:
        condition = _membership(handle.schema, ID, ids)
        found = filtered_scanner(handle, [], scanned, condition, addresses=True).to_table()
        return _by_fragment(found[ADDRESS])
    # Each batch hashes the ids anew: so batches are as large as the set of ids, within reason.
    rows = min(max(len(ids), BATCH_ROWS), LARGEST_BATCH)
    scan = scanner(handle, columns=[ID], fragments=scanned, with_row_address=True, batch_size=rows)
    hits = [batch[ADDRESS].filter(pc.is_in(batch[ID], value_set=ids)) for batch in scan.to_batches()]
    return _by_fragment(pa.chunked_array(hits, pa.uint64()))


def _by_fragment(row_addresses: pa.ChunkedArray) -> Addresses:
    return by_fragment(np.sort(row_addresses.to_numpy().astype(np.int64)))


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
        condition = _membership(handle.schema, column, values)
        scan = filtered_scanner(handle, stored, scanned, condition, addresses=ADDRESS in columns)
        return scan.to_table().select(columns)
    read = list(dict.fromkeys([*stored, column]))
    scan = scanner(handle, columns=read, fragments=scanned, with_row_address=ADDRESS in columns)
    hits = [
        batch.filter(pc.is_in(batch[column], value_set=values)).select(columns) for batch in scan.to_batches()
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
