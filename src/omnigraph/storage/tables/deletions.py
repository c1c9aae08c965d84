"""Deletion files: looked at before Lance is, which asks for more memory than there is on some damaged ones.

A fragment's deleted rows are a bitmap (Roaring, the portable form) or a column of an Arrow file. Here only
whether a file can be one is judged: its structure, how many rows it has, and that the fragment has these.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.tables.layout import Offsets

PLAIN, WITH_RUNS = 12346, 12347  # the first number of a bitmap, or half of it
MOST_LISTED = 4096  # values of a container that lists them; one with more is bits
BITS = 8192  # bytes of those
ARROW_MAGIC, MESSAGE, MESSAGE_HEAD = b"ARROW1", b"\xff\xff\xff\xff", 8
ARROW_END = struct.Struct("<i6s")
BLOCK = struct.Struct("<qi4xq")  # where a batch begins, and the lengths of its head and its body
ONE_NODE = struct.Struct("<Iqq")  # a list of one column: its rows, and how many of them have no value
TWO_BUFFERS = struct.Struct("<Iqqqq")  # a list of two: where each is in the body
OFFSETS_FROM = 4  # containers; with runs, fewer have no table of offsets


def is_deletions(content: bytes, suffix: str, deleted: int, rows: int) -> bool:
    """Say whether a deletion file can be that of a fragment with so many rows, of which some are deleted."""
    try:
        offsets = _listed(content) if suffix == "arrow" else _bits(content)
    except (ValueError, struct.error, MemoryError, OSError, pa.ArrowException):
        return False
    ascending = len(offsets) < 2 or bool((np.diff(offsets) > 0).all())
    return len(offsets) == deleted and ascending and (deleted == 0 or int(offsets[-1]) < rows)


def _listed(content: bytes) -> Offsets:
    """Return the offsets in an Arrow file."""
    table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
    table.validate(full=True)
    if table.num_columns != 1 or table.column(0).null_count or not pa.types.is_integer(table.schema[0].type):
        raise ValueError("not a column of offsets")
    _check_headers(content)
    return np.sort(pc.cast(table.column(0), pa.int64()).to_numpy())


def _check_headers(content: bytes) -> None:
    """Raise unless the headers agree with each other: Lance believes some that Arrow does not look at."""
    size, magic = ARROW_END.unpack(content[-ARROW_END.size :])
    footer, at = content[-ARROW_END.size - size : -ARROW_END.size], content.index(MESSAGE)
    if magic != ARROW_MAGIC or size <= 0:
        raise ValueError("not an Arrow file")
    schema: pa.Schema | None = None
    for message in pa.ipc.MessageReader.open_stream(content[at:]):
        head, body = message.metadata.to_pybytes(), message.body
        length = len(head) + MESSAGE_HEAD, 0 if body is None else body.size
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif schema is not None and body is not None:
            rows = pa.ipc.read_record_batch(message, schema).num_rows
            is_whole = BLOCK.pack(at, *length) in footer and ONE_NODE.pack(1, rows, 0) in head
            if not is_whole or not _has_buffers(head, body.to_pybytes(), rows):
                raise ValueError("headers contradict each other")
        at += sum(length)


def _has_buffers(head: bytes, body: bytes, rows: int) -> bool:
    """Say whether a header lists the two buffers of a column: whether there are values, and the values."""
    for at in range(len(head) - TWO_BUFFERS.size + 1):
        count, *places = TWO_BUFFERS.unpack_from(head, at)
        buffers = list(zip(places[::2], places[1::2], strict=True))
        if count == 2 and all(
            start >= 0 and size >= 0 and start + size <= len(body) for start, size in buffers
        ):
            packed = [body[start : start + 8] for start, size in buffers if size not in (0, 4 * rows)]
            return all(struct.unpack("<q", begin)[0] <= 8 * rows + 64 for begin in packed)
    return False


def _bits(content: bytes) -> Offsets:
    """Return the offsets in a bitmap."""
    (cookie,) = struct.unpack_from("<I", content)
    runs = np.zeros(0, bool)
    if cookie == PLAIN:
        (count,) = struct.unpack_from("<I", content, 4)
        at = 8
    elif cookie & 0xFFFF == WITH_RUNS:
        count = (cookie >> 16) + 1
        at = 4 + (count + 7) // 8
        runs = np.unpackbits(np.frombuffer(content[4:at], np.uint8), bitorder="little").astype(bool)
    else:
        raise ValueError("not a bitmap")
    if at + 4 * count > len(content):
        raise ValueError("more containers than there is room for")
    heads = np.frombuffer(content, "<u2", 2 * count, at).astype(np.int64).reshape(-1, 2)
    at += 4 * count
    if not len(runs) or count >= OFFSETS_FROM:
        at += 4 * count
    found = []
    for number, (key, last) in enumerate(heads):
        is_run = bool(number < len(runs) and runs[number])
        offsets, at = _container(content, at, int(last) + 1, is_run=is_run)
        if len(offsets) != last + 1:
            raise ValueError("a container does not have what its head says")
        found.append(offsets + (int(key) << 16))
    if at != len(content):
        raise ValueError("there is more than the containers")
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _container(content: bytes, at: int, count: int, *, is_run: bool) -> tuple[Offsets, int]:
    """Return the offsets of one container, and where the next one begins."""
    if is_run:
        (runs,) = struct.unpack_from("<H", content, at)
        pairs = np.frombuffer(content, "<u2", 2 * runs, at + 2).astype(np.int64).reshape(-1, 2)
        if int(pairs[:, 1].sum()) + runs != count:
            raise ValueError("a container does not have what its head says")
        each = [np.arange(start, start + more + 1) for start, more in pairs]
        return np.concatenate(each) if each else np.zeros(0, np.int64), at + 2 + 4 * runs
    if count <= MOST_LISTED:
        return np.frombuffer(content, "<u2", count, at).astype(np.int64), at + 2 * count
    bits = np.frombuffer(content, np.uint8, BITS, at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64), at + BITS
