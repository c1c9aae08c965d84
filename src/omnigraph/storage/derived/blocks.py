"""Blocks: the format of derived files, and arrays that are mapped or fetched a block at a time.

A derived file holds arrays that were worked out from data files. Nobody needs it: whoever finds it missing,
damaged or written by a later release works the arrays out again. So a file is written without a sync, and
every block is compared with its checksum when it is first touched.

    0    magic, 8 bytes
    8    length of the header, 4 bytes; CRC-32 of header and checksums, 4 bytes
    16   header: JSON with kind, what it covers, and for each array its type, length and place in the body
         checksums: CRC-32 of each block of the body, 4 bytes each
         padding to a multiple of 64
         body: the arrays, each at a multiple of 64

On local disk the file is mapped, so processes share its pages. On an object store blocks are fetched by range
into a sparse file of the cache folder, or into memory where there is none; a block there that fails its
checksum is one that was not fetched yet.
"""

from __future__ import annotations

import json
import mmap
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass

MAGIC = b"OGDERIV1"
FIXED = 16  # bytes before the header
ALIGNED = 64
BLOCK = 1 << 16
FIRST_READ = 1 << 17  # bytes of an object that are asked for at first: all of a small file
GAP = 8  # blocks that are fetched along rather than asked for in two requests

Array: TypeAlias = NDArray[Any]
Ranges: TypeAlias = Sequence[tuple[int, int]]


class Unusable(Exception):
    """A derived file is missing, damaged or of another format; caught by whoever can do without."""


class Unreadable(Unusable, OSError):
    """A data file cannot be read: whoever cannot do without it has lost data, or met a storage failure."""


class RangeReader(Protocol):
    """Reads parts of one object."""

    def ranges(self, ranges: Ranges) -> list[bytes]:
        """Return the bytes from each start to its stop."""
        ...


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
    """An open derived file: arrays whose blocks are checked before they are read."""

    def __init__(self, header: BlockHeader, buffer: Any, source: RangeReader | None = None) -> None:
        self.header = header
        self._buffer = memoryview(buffer)
        self._source = source
        self._checked = np.zeros(len(header.checksums), dtype=bool)
        self._all_checked = not len(self._checked)
        self._lock = threading.Lock()
        self.arrays = {name: self._array(*place) for name, place in header.arrays.items()}

    @classmethod
    def mapped(cls, path: Path) -> BlockFile:
        """Open a file on local disk."""
        try:
            with path.open("rb") as file:
                buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise Unusable("it cannot be opened") from error
        front = bytes(buffer[:FIRST_READ])
        header = decoded(front, len(buffer))
        if isinstance(header, int):
            header = decoded(bytes(buffer[:header]), len(buffer))
        if isinstance(header, int):
            raise Unusable("it is cut short")
        return cls(header, buffer)

    @classmethod
    def fetched(cls, source: RangeReader, kept_in: Path | None) -> BlockFile:
        """Open an object; blocks are fetched as they are needed, and kept in a file if one is given."""
        front = source.ranges([(0, FIRST_READ)])[0]
        header = decoded(front, None)
        if isinstance(header, int):
            front = source.ranges([(0, header)])[0]
            header = decoded(front, None)
        if isinstance(header, int) or len(front) > header.size:
            raise Unusable("it is cut short, or too long")
        buffer = _sparse(kept_in, header.size) if kept_in is not None else None
        file = cls(header, mmap.mmap(-1, header.size) if buffer is None else buffer, source)
        file._buffer[: len(front)] = front  # the blocks that came along
        return file

    @property
    def nbytes(self) -> int:
        """How large the file is."""
        return self.header.size

    def whole(self, name: str) -> Array:
        """Return an array, all of it checked."""
        values = self.arrays[name]
        self.ensure(name, [(0, len(values))])
        return values

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
        touched = np.zeros(len(self._checked), dtype=bool)
        touched[blocks] = True
        wanted = np.flatnonzero(touched & ~self._checked)
        if len(wanted):
            self._check(wanted.tolist())

    def _array(self, kind: str, length: int, at: int) -> Array:
        return np.frombuffer(self._buffer, dtype=kind, count=length, offset=self.header.body + at)

    def _span(self, block: int) -> tuple[int, int]:
        start = self.header.body + block * BLOCK
        return start, min(start + BLOCK, self.header.size)

    def _check(self, blocks: Sequence[int]) -> None:
        lacking = [block for block in blocks if not self._is_right(block)]
        if lacking:
            if self._source is None:
                raise Unusable("it is damaged")
            self._fetch(self._source, lacking)
            if not all(map(self._is_right, lacking)):
                raise Unusable("it is damaged")
        with self._lock:
            self._checked[list(blocks)] = True
            self._all_checked = bool(self._checked.all())

    def _is_right(self, block: int) -> bool:
        start, stop = self._span(block)
        return zlib.crc32(self._buffer[start:stop]) == int(self.header.checksums[block])

    def _fetch(self, source: RangeReader, blocks: Sequence[int]) -> None:
        runs: list[tuple[int, int]] = []
        for block in blocks:
            if runs and block - runs[-1][1] <= GAP:
                runs[-1] = (runs[-1][0], block)
            else:
                runs.append((block, block))
        spans = [(self._span(first)[0], self._span(last)[1]) for first, last in runs]
        for (start, stop), piece in zip(spans, source.ranges(spans), strict=True):
            if len(piece) != stop - start:
                raise Unusable("it is cut short")
            self._buffer[start:stop] = piece


def _sparse(path: Path, size: int) -> mmap.mmap | None:
    """Map a file of the cache folder, made as long as the object; None if the folder cannot be used."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            length = file.seek(0, 2)
            if length > size:
                return None  # not ours; and one that somebody has mapped must not get shorter
            if length < size:
                file.truncate(size)
            return mmap.mmap(file.fileno(), size)
    except OSError:
        return None
