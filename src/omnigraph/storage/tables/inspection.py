"""Inspection: what a version of a table says of its own files, and all of its rows read once.

For whoever examines a graph (engine/doctor). Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import is_blob

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
