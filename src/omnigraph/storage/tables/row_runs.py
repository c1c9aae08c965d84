"""Row runs: how the rows of a fragment are read so that memory stays bounded, however unequal they are.

The average says nothing where a few rows are huge: a batch of usual size may be made of just these. Lance
bounds the number of rows, and decodes a batch whole (its bound in bytes only cuts what it has decoded). So it
is asked for few rows at a time where they may be large, and for many elsewhere.

- Where that is, pages tell. The writer ends a page of a column after PAGE_BYTES, or with the value that goes
  past that: a page of few rows has large ones. How many rows each has is in the footer of the file, which is
  read for fragments of more than a few rows.
- Blobs lie elsewhere; their sizes are in the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.location import Objects
from omnigraph.storage.manifest.chain import MAGIC
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.files import TABLES
from omnigraph.storage.tables.layout import (
    KIB,
    FragmentLayout,
    Layout,
    Offsets,
    decoded,
    is_blob,
    varints,
)

MIB = 1024 * KIB
BATCH_ROWS = 8_192
BATCH_BYTES = 8 * MIB  # of rows that are read at once, as far as can be told
PAGE_BYTES = 8 * MIB  # when Lance's writer ends a page
CHUNK = 64  # rows that are read alike; a fragment of so few is read at once, if it is small, too
SMALL_BYTES = 4 * MIB  # as stored: what is read may be much more
Weights = NDArray[np.float64]  # of each row, in bytes
Deleted = Callable[[Handle, int, FragmentLayout], Offsets]  # which rows of a fragment are, as layouts know it


@dataclass(frozen=True, slots=True)
class RowRun:
    """Neighbouring living rows of a fragment, and how many of them to read at a time."""

    start: int
    rows: int
    batch: int


class RowRuns:
    """Says how fragments are to be read."""

    def __init__(self, objects: Objects, deleted: Deleted) -> None:
        self._objects = objects
        self._deleted = deleted

    def of(self, handle: Handle, layout: Layout, number: int) -> tuple[RowRun, ...]:
        """Return the runs of one fragment; none if it is small and has few rows."""
        part = layout.parts[number]
        blobs = blob_sizes(handle, number) if layout.has_blobs else None
        stored = part.stored_bytes + (0 if blobs is None else blobs.sum())
        if stored < SMALL_BYTES and part.metadata.physical_rows <= CHUNK:
            return ()
        weights = self._weights(handle, part)
        alive = np.ones(len(weights), bool)
        alive[self._deleted(handle, number, part)] = False
        weights = weights[alive]
        return runs(weights if blobs is None else weights + blobs)

    def _weights(self, handle: Handle, part: FragmentLayout) -> Weights:
        rows = int(part.metadata.physical_rows)
        weights = np.zeros(rows)
        table = handle.uri.rstrip("/").rpartition("/")[2]
        for file in part.metadata.files:
            key, size = f"{TABLES}/{table}/data/{file._path}", file.file_size_bytes or 0
            for pages in pages_of(self._objects, key, size):
                start = 0
                for length, stored in pages:
                    weights[start : start + length] += max(stored, PAGE_BYTES) / max(length, 1)
                    start += length
        return weights


def runs(weights: Weights) -> tuple[RowRun, ...]:
    """Cut rows into runs that are read alike: the larger their largest row, the fewer at a time.

    >>> runs(np.array([100.0] * 128 + [float(8 * MIB)] * 2))
    (RowRun(start=0, rows=128, batch=8192), RowRun(start=128, rows=2, batch=1))
    """
    firsts = np.arange(0, len(weights), CHUNK)
    heaviest = np.maximum.reduceat(weights, firsts) if len(firsts) else weights
    fitting = np.clip(BATCH_BYTES / np.maximum(heaviest, 1), 1, BATCH_ROWS)
    batches = 1 << np.floor(np.log2(fitting)).astype(np.int64)  # powers of two: few runs
    begins = [n for n in range(len(batches)) if n == 0 or batches[n] != batches[n - 1]]
    starts = [int(firsts[n]) for n in begins]
    ends = [*starts[1:], len(weights)]
    return tuple(
        RowRun(start, end - start, int(batches[n]))
        for n, start, end in zip(begins, starts, ends, strict=True)
    )


def blob_sizes(handle: Handle, number: int) -> Weights:
    """Return how much the blobs of each living row of a fragment hold, which lie beside its file."""
    columns = [field.name for field in handle.schema if is_blob(field)]
    scan = scanner(
        handle,
        columns=columns,
        fragments=[handle.get_fragment(number)],
        blob_handling="blobs_descriptions",
        scan_in_order=True,
    )
    sizes = [sum(np.nan_to_num(_sizes(batch[name])) for name in columns) for batch in scan.to_batches()]
    return np.concatenate(sizes) if sizes else np.zeros(0)


def _sizes(descriptions: pa.Array) -> Weights:
    sizes = pc.fill_null(pc.struct_field(descriptions, "size"), 0)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), np.float64)


# -- the footer of a file ------------------------------------------------------------------------------
#
# Lance's file format, version 2: the last 40 bytes say where the table of column metadata is, which has the
# place and the size of each. In that protobuf message, field 2 is a page; of a page, field 2 has the sizes of
# its buffers, and field 3 is how many rows it has.


FOOTER = struct.Struct("<QQQIIHH4s")
PLACE = struct.Struct("<QQ")
PAGE, SIZES, ROWS = 2, 2, 3
Page = tuple[int, int]  # its rows, and the bytes that it takes in the file


def pages_of(objects: Objects, key: str, size: int) -> list[list[Page]]:
    """Return the pages of each column of a data file; none of a file that is damaged."""
    (tail,) = objects.ranges(key, [(size - FOOTER.size, size)]) or [b""]
    if len(tail) != FOOTER.size:
        return []
    begin, places, _, _, columns, _, _, magic = FOOTER.unpack(tail)
    if magic != MAGIC or not 0 < begin <= places <= size:
        return []
    (about,) = objects.ranges(key, [(begin, size)]) or [b""]
    found = []
    for column in range(columns):
        position, length = PLACE.unpack_from(about, places - begin + column * PLACE.size)
        message = decoded(about[position - begin : position - begin + length])
        found.append([_page(page) for number, _, page in message if number == PAGE])
    return found


def _page(page: bytes) -> Page:
    members = {number: value for number, _, value in decoded(page)}
    return int(members.get(ROWS, 0)), sum(varints(members.get(SIZES, b"")))
