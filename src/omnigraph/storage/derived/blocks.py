"""Blocks: the format of derived files, and arrays that are mapped or fetched a block at a time.

A derived file holds arrays that were computed from data files. It can always be rebuilt. So a file is written
without a sync, and every block is compared with its checksum when it is first touched.

    0    magic, 8 bytes
    8    length of the header, 4 bytes; CRC-32 of header and checksums, 4 bytes
    16   header: JSON with kind, what it covers, and for each array its type, length and place in the body
         checksums: CRC-32 of each block of the body, 4 bytes each
         padding to a multiple of 64
         body: the arrays, each at a multiple of 64

On local disk the file is mapped, so processes share its pages. On an object store blocks are fetched by range
(fetched.py).
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass

MAGIC = b"OGDERIV1"
FIXED = 16  # bytes before the header
ALIGNED = 64
BLOCK = 1 << 16
FIRST_READ = 1 << 17  # bytes of an object that are asked for at first: all of a small file
MAPPING_COST = 1 << 16  # of a cache's bytes, that one mapping counts for: a process may have some 65,000

Array: TypeAlias = NDArray[Any]
Ranges: TypeAlias = Sequence[tuple[int, int]]


class Unusable(Exception):
    """A derived file is missing, damaged or of another format. The caller computes the arrays instead."""


class Unreadable(Unusable, OSError):
    """A file cannot be read now. A data file cannot be rebuilt: it is lost, or storage failed."""


@dataclass(frozen=True, eq=False)
class BlockHeader:
    """What a file says about itself."""

    kind: str
    covers: Mapping[str, Any]
    arrays: Mapping[str, tuple[str, int, int]]  # name -> (type, length, place in the body)
    body: int  # where it begins
    size: int  # of the file
    checksums: Array


def encoded(kind: str, covers: Mapping[str, Any], arrays: Mapping[str, Array]) -> list[memoryview]:
    """Return the parts of a file, in order."""
    places: dict[str, tuple[str, int, int]] = {}
    parts: list[memoryview] = []
    at = 0
    for name, values in arrays.items():
        whole = np.ascontiguousarray(values)
        places[name] = (whole.dtype.str, len(whole), at)
        padding = -whole.nbytes % ALIGNED
        parts += [memoryview(whole.view(np.uint8)), memoryview(bytes(padding))]  # type: ignore[arg-type]
        at += whole.nbytes + padding
    checksums = _checksums(parts, at)
    header = json.dumps({"kind": kind, "covers": dict(covers), "arrays": places, "size": at}).encode()
    front = header + checksums.tobytes()
    fixed = MAGIC + len(header).to_bytes(4, "little") + zlib.crc32(front).to_bytes(4, "little")
    padding = -(FIXED + len(front)) % ALIGNED
    return [memoryview(fixed + front + bytes(padding)), *parts]


def _checksums(parts: Iterable[memoryview], size: int) -> Array:
    """Return the checksum of each block of the parts put together."""
    checksums = np.zeros(-(-size // BLOCK), dtype="<u4")
    block, room, crc = 0, BLOCK, 0
    for part in parts:
        at = 0
        while at < len(part):
            piece = part[at : at + room]
            crc = zlib.crc32(piece, crc)
            at, room = at + len(piece), room - len(piece)
            if not room:
                checksums[block] = crc
                block, room, crc = block + 1, BLOCK, 0
    if room < BLOCK:
        checksums[block] = crc
    return checksums


def decoded(front: bytes, size: int | None) -> BlockHeader | int:
    """Return the header from the first bytes of a file, or how many bytes that takes."""
    if len(front) < FIXED or front[: len(MAGIC)] != MAGIC:
        raise Unusable("it is no derived file of this format")
    length, crc = (int.from_bytes(front[at : at + 4], "little") for at in (8, 12))
    if len(front) < FIXED + length:
        return FIXED + length + BLOCK
    try:
        header = json.loads(front[FIXED : FIXED + length])
        blocks = -(-int(header["size"]) // BLOCK)
        end = FIXED + length + 4 * blocks
        if len(front) < end:
            return end
        body = end + -end % ALIGNED
        arrays = {name: (str(t), int(n), int(at)) for name, (t, n, at) in header["arrays"].items()}
        kind, covers = str(header["kind"]), header["covers"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise Unusable("its header cannot be read") from error
    if zlib.crc32(front[FIXED:end]) != crc:
        raise Unusable("its header is damaged")
    if size is not None and size != body + header["size"]:
        raise Unusable("it is cut short")
    checksums = np.frombuffer(front, dtype="<u4", offset=FIXED + length, count=blocks)
    return BlockHeader(kind, covers, arrays, body, body + int(header["size"]), checksums)


class BlockFile:
    """An open derived file: arrays whose blocks are checked before they are read.

    Take an array from `arrays` after `ensure`, and not before: a file that was fetched may move its arrays.
    """

    def __init__(self, header: BlockHeader, buffer: Any) -> None:
        self.header = header
        self._checked = np.zeros(len(header.checksums), dtype=bool)
        self._all_checked = not len(self._checked)
        self._lock = threading.Lock()
        self._use(buffer)

    @classmethod
    def mapped(cls, path: Path) -> BlockFile:
        """Open a file on local disk."""
        try:
            with pa.memory_map(str(path)) as file:  # unlike mmap, it keeps no descriptor for the mapping
                buffer = memoryview(file.read_buffer())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Unusable("there is none") from error
        except (OSError, pa.ArrowException) as error:
            raise Unreadable("it cannot be opened") from error
        header = decoded(bytes(buffer[:FIRST_READ]), len(buffer))
        if isinstance(header, int):
            header = decoded(bytes(buffer[:header]), len(buffer))
        if isinstance(header, int):
            raise Unusable("it is cut short")
        return cls(header, buffer)

    @property
    def nbytes(self) -> int:
        """How large the file is."""
        return self.header.size

    @property
    def held_bytes(self) -> int:
        """What keeping it open costs this process, in bytes of memory; a mapping counts as a few."""
        return MAPPING_COST

    def whole(self, name: str) -> Array:
        """Return an array, all of it checked."""
        self.ensure(name, [(0, self.header.arrays[name][1])])
        return self.arrays[name]

    def check(self) -> None:
        """Make sure that the whole file is here and undamaged."""
        if not self._all_checked:
            self._check(range(len(self._checked)))

    def ensure(self, name: str, ranges: Iterable[tuple[int, int]]) -> None:
        """Make sure that parts of an array, from one place to another, are here and undamaged."""
        if self._all_checked:
            return
        kind, _, at = self.header.arrays[name]
        width = np.dtype(kind).itemsize
        wanted: set[int] = set()
        for start, stop in ranges:
            if stop > start:
                first, last = (at + start * width) // BLOCK, (at + stop * width - 1) // BLOCK
                missing = np.flatnonzero(~self._checked[first : last + 1]) + first
                wanted.update(missing.tolist())
        if wanted:
            self._check(sorted(wanted))

    def ensure_at(self, name: str, places: Array) -> None:
        """Make sure that the values at some places of an array are here and undamaged."""
        if self._all_checked or not len(places):
            return
        kind, _, at = self.header.arrays[name]
        blocks = (at + places.astype(np.int64) * np.dtype(kind).itemsize) // BLOCK
        if self._checked[blocks].all():
            return
        touched = np.zeros(len(self._checked), dtype=bool)
        touched[blocks] = True
        wanted = np.flatnonzero(touched & ~self._checked)
        if len(wanted):
            self._check(wanted.tolist())

    def _use(self, buffer: Any) -> None:
        """Read arrays from a buffer as long as the file."""
        self._buffer = memoryview(buffer)
        self.arrays = {
            name: np.frombuffer(self._buffer, dtype=kind, count=length, offset=self.header.body + at)
            for name, (kind, length, at) in self.header.arrays.items()
        }

    def _span(self, block: int) -> tuple[int, int]:
        start = self.header.body + block * BLOCK
        return start, min(start + BLOCK, self.header.size)

    def _is_right(self, block: int, content: bytes | memoryview) -> bool:
        return zlib.crc32(content) == int(self.header.checksums[block])

    def _check(self, blocks: Sequence[int]) -> None:
        """Compare blocks with their checksums."""
        if not all(self._is_right(block, self._buffer[slice(*self._span(block))]) for block in blocks):
            raise Unusable("it is damaged")
        with self._lock:
            self._mark(blocks)

    def _mark(self, blocks: Iterable[int]) -> None:
        self._checked[list(blocks)] = True
        self._all_checked = bool(self._checked.all())
