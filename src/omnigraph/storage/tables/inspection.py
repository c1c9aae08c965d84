"""Inspection: what a version of a table says of its own files, and all of its rows read once.

For whoever examines a graph (engine/doctor). Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import is_blob
from omnigraph.storage.tables.predicate import find, is_in

Addresses = NDArray[np.int64]

BATCH_ROWS = 8_192
BLOB_ROWS = 16  # that are read at once: a blob may be as large as memory allows


def data_file_sizes(handle: Handle) -> dict[str, int]:
    """Return the size of each data file as it was when it was written, where that is known."""
    return {
        f"data/{file._path}": int(file.file_size_bytes)
        for fragment in handle.get_fragments()
        for file in fragment.metadata.files
        if file.file_size_bytes
    }


def read_all(handle: Handle) -> int:
    """Read every column of every row, blobs too, and return how many rows there were. Nothing is kept."""
    blobs = [field.name for field in handle.schema if is_blob(field)]
    plain = [field.name for field in handle.schema if field.name not in blobs]
    scan = scanner(handle, columns=plain, batch_size=BATCH_ROWS)
    rows: int = sum(batch.num_rows for batch in scan.to_batches())
    for name in blobs:
        scan = scanner(handle, columns=[name], batch_size=BLOB_ROWS, blob_handling="all_binary")
        for _ in scan.to_batches():
            pass
    return rows


def some_rows(handle: Handle, columns: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """Yield some columns of about so many rows: the first ones of each fragment."""
    fragments = handle.get_fragments()
    each = max(most // max(len(fragments), 1), 1)
    for fragment in fragments[:most]:
        yield from scanner(handle, columns=list(columns), fragments=[fragment], limit=each).to_batches()


# -- indexes -----------------------------------------------------------------------------------------
#
# What an index finds, asked of the index alone, to be compared with the rows.


def addressed(
    handle: Handle, column: str, fragment: int, most: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the values of a column of one fragment with the addresses of their rows, by a plain scan."""
    part = handle.get_fragment(fragment)
    scan = scanner(handle, columns=[column], fragments=[part], with_row_address=True, limit=most)
    yield from scan.to_batches()


def rows_with(handle: Handle, column: str, values: pa.Array) -> pa.Table:
    """Return addresses and values of the rows that have one of some values, by the index if there is one."""
    return find(handle, is_in(column, values), (column,))


def rows_with_words(handle: Handle, column: str, words: Sequence[str]) -> Addresses:
    """Return the addresses of the rows whose text has one of some words, by the full-text index alone."""
    query = MatchQuery(" ".join(words), column)
    scan = scanner(handle, full_text_query=query, columns=["_score"], with_row_id=True, fast_search=True)
    return np.sort(scan.to_table()["_rowid"].to_numpy().astype(np.int64))


def nearest(handle: Handle, column: str, vector: Sequence[float], count: int) -> pa.Table:
    """Return `_rowid` and `_distance` of the nearest rows, by the vector index alone, in one partition."""
    query = {"column": column, "q": list(vector), "k": count, "nprobes": 1}
    scan = scanner(handle, nearest=query, columns=["_distance"], with_row_id=True, fast_search=True)
    return scan.to_table()
