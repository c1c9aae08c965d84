"""Fetched: derived files on object stores, a block at a time, and the local folder that keeps the blocks.

Blocks go into a sparse file of the cache folder, which is mapped, or into memory where there is no folder. A
block of the sparse file that fails its checksum was not fetched yet, or is damaged: it is fetched. The file
is written and checked through a descriptor, never through the mapping: on a full disk a write is refused,
where a store to the mapping (on some file systems even a load from a hole) would end the process. When the
folder fails, the file is moved to memory.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.derived.blocks import (
    BLOCK,
    FIRST_READ,
    BlockFile,
    BlockHeader,
    Ranges,
    Unusable,
    decoded,
)

GAP = 8  # blocks that are fetched along rather than asked for in two requests
REQUEST_COST = 1 << 20  # bytes that are fetched in the time that a request takes
WHOLE_BELOW = 64 << 20  # of what is not here yet; more is not fetched at once
DESCRIPTOR_COST = 1 << 19  # of a cache's bytes, that one descriptor counts for: a process may have 1,024
FOLDER_SETTING, SIZE_SETTING = "OMNIGRAPH_CACHE", "OMNIGRAPH_CACHE_BYTES"
OWN_FOLDER = "omnigraph-derived"
KEPT_BYTES = 4 << 30
SWEEP_EVERY = 64 << 20  # bytes that are fetched between two looks at the size of the folder


class RangeReader(Protocol):
    """Reads parts of one object."""

    def ranges(self, ranges: Ranges) -> list[bytes]:
        """Return the bytes from each start to its stop."""
        ...


class FetchedFile(BlockFile):
    """A derived file on an object store."""

    def __init__(self, header: BlockHeader, source: RangeReader, kept: KeptFile | None) -> None:
        self._source = source
        self._kept = kept
        self._requests = 0  # for blocks
        super().__init__(header, _memory(header.size) if kept is None else kept.mapping)

    @classmethod
    def open(cls, source: RangeReader, folder: CacheFolder | None, name: str = "") -> FetchedFile:
        """Open an object; blocks are fetched as they are needed, and kept in a folder if there is one."""
        front = source.ranges([(0, FIRST_READ)])[0]
        header = decoded(front, None)
        if isinstance(header, int):
            front = source.ranges([(0, header)])[0]
            header = decoded(front, None)
        if isinstance(header, int) or len(front) > header.size:
            raise Unusable("it is cut short, or too long")
        file = cls(header, source, None if folder is None else folder.file(name, header.size))
        file._take_front(front)
        return file

    @property
    def held_bytes(self) -> int:
        """What keeping it open costs this process, in bytes of memory; a descriptor counts as some."""
        return self.header.size if self._kept is None else DESCRIPTOR_COST

    def _take_front(self, front: bytes) -> None:
        """Keep the blocks that came with the header."""
        pieces: dict[int, bytes] = {}
        for block in range(len(self._checked)):
            start, stop = self._span(block)
            if stop > len(front):
                break
            if self._is_right(block, front[start:stop]):
                pieces[block] = front[start:stop]
        right = self._right_in(self._kept, [*pieces])
        self._keep({block: pieces[block] for block in pieces if block not in right}, right, self._kept)

    def _check(self, blocks: Sequence[int]) -> None:
        """Fetch the blocks that are not here."""
        kept = self._kept  # it may be left by another thread
        right = self._right_in(kept, blocks)
        lacking = [block for block in blocks if block not in right]
        if lacking and self._worth_fetching_whole():
            unchecked = np.flatnonzero(~self._checked).tolist()
            right = self._right_in(kept, unchecked)
            lacking = [block for block in unchecked if block not in right]
        self._keep(self._fetch(lacking), right, kept)

    def _worth_fetching_whole(self) -> bool:
        """Say whether requests have cost as much as fetching all that is not here."""
        rest = BLOCK * int(np.count_nonzero(~self._checked))
        return rest <= min(self._requests * REQUEST_COST, WHOLE_BELOW)

    def _right_in(self, kept: KeptFile | None, blocks: Sequence[int]) -> frozenset[int]:
        """Return the blocks that a kept file has."""
        if kept is None:
            return frozenset()
        try:
            contents = kept.read([self._span(block) for block in blocks])
            pairs = zip(blocks, contents, strict=True)
            return frozenset(block for block, content in pairs if self._is_right(block, content))
        except OSError:
            return frozenset()

    def _fetch(self, blocks: Sequence[int]) -> dict[int, bytes]:
        runs: list[tuple[int, int]] = []
        for block in blocks:
            if runs and block - runs[-1][1] <= GAP:
                runs[-1] = (runs[-1][0], block)
            else:
                runs.append((block, block))
        spans = [(self._span(first)[0], self._span(last)[1]) for first, last in runs]
        pieces: dict[int, bytes] = {}
        contents = self._source.ranges(spans) if spans else []
        self._requests += len(spans)
        for (first, last), (start, stop), content in zip(runs, spans, contents, strict=True):
            if len(content) != stop - start:
                raise Unusable("it is cut short")
            for block in range(first, last + 1):
                begin, end = self._span(block)
                piece = content[begin - start : end - start]
                if not self._is_right(block, piece):
                    raise Unusable("it is damaged")
                pieces[block] = piece
        return pieces

    def _keep(self, pieces: Mapping[int, bytes], right: Collection[int], kept: KeptFile | None) -> None:
        """Take up blocks that were fetched, and those that a kept file has."""
        with self._lock:
            if self._kept is not None:
                try:
                    self._kept.write([(self._span(block)[0], piece) for block, piece in pieces.items()])
                except OSError:
                    self._move_to_memory()
            if self._kept is None:
                for block, piece in pieces.items():
                    self._buffer[slice(*self._span(block))] = piece
                if kept is not None:
                    for block in right:
                        place = slice(*self._span(block))
                        self._buffer[place] = kept.mapping[place]
            self._mark([*pieces, *right])

    def _move_to_memory(self) -> None:
        """Go on without the folder: what is here is copied, and arrays are read from memory."""
        mapping, memory = self._buffer, _memory(self.header.size)
        for block in np.flatnonzero(self._checked).tolist():
            start, stop = self._span(block)
            memory[start:stop] = mapping[start:stop]
        self._kept = None
        self._use(memory)


def _memory(size: int) -> memoryview:
    """Return zeros; pages that nobody writes take no memory."""
    return memoryview(np.zeros(size, np.uint8))  # type: ignore[arg-type]


# -- the folder ------------------------------------------------------------------------------------


class KeptFile:
    """A sparse file of the cache folder, as long as the object."""

    def __init__(self, path: Path, size: int, wrote: Callable[[int], None]) -> None:
        self._path = path
        self._wrote = wrote
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            status = os.fstat(descriptor)
            if status.st_size > size:  # one that somebody has mapped must not get shorter
                raise OSError("it is not ours")
            if status.st_size < size:
                os.ftruncate(descriptor, size)
            self._identity = (status.st_dev, status.st_ino)
            self.mapping = memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def read(self, spans: Ranges) -> Iterator[bytes]:
        """Yield the bytes from each start to its stop; those of a hole are zeros."""
        with self._opened() as file:
            for start, stop in spans:
                yield os.pread(file.fileno(), stop - start, start)

    def write(self, pieces: Sequence[tuple[int, bytes]]) -> None:
        """Write pieces, each from a place on."""
        if not pieces:
            return
        with self._opened() as file:
            for start, piece in pieces:
                done = 0
                while done < len(piece):  # a call may write less than it was given
                    done += os.pwrite(file.fileno(), piece[done:], start + done)
        self._wrote(sum(len(piece) for _, piece in pieces))

    def _opened(self) -> io.FileIO:
        """Open the very file that is mapped."""
        file = io.FileIO(self._path, "r+")
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) != self._identity:
            file.close()
            raise FileNotFoundError("it was taken away to make room")
        return file


class CacheFolder:
    """A local folder that keeps what was fetched of derived files on object stores, up to a size.

    All graphs share the room; the files that were not used for longest go. One that goes while a process has
    it mapped stays with that process.
    """

    def __init__(self, root: Path, graph: str, limit: int) -> None:
        self._root = root / OWN_FOLDER  # whatever else is in the folder of the user is not ours
        self._folder = self._root / hashlib.sha256(graph.encode()).hexdigest()[:16]
        self._limit = limit
        self._every = max(min(SWEEP_EVERY, limit // 4), 1)
        self._written = self._every  # since the last sweep; the first write of a process makes one
        self._lock = threading.Lock()

    @classmethod
    def of_environment(cls, graph: str) -> CacheFolder | None:
        """Return the folder that the environment names, or the usual one; None if it says off."""
        named = os.environ.get(FOLDER_SETTING, "")
        if named == "off":
            return None
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        try:
            limit = int(os.environ.get(SIZE_SETTING, KEPT_BYTES))
        except ValueError as error:
            raise InvalidRequest(
                f"{SIZE_SETTING} is no number of bytes: {os.environ[SIZE_SETTING]!r}",
                remedy=f"Set it to a number, or {FOLDER_SETTING}=off to keep nothing",
            ) from error
        return cls(Path(named or Path(home, "omnigraph")), graph, limit)

    def file(self, name: str, size: int) -> KeptFile | None:
        """Return the file that keeps blocks of an object, if the folder can be used."""
        try:
            return KeptFile(self._folder / name.replace("/", "-"), size, self._wrote)
        except (OSError, ValueError):
            return None

    def _wrote(self, size: int) -> None:
        with self._lock:
            self._written += size
            due = self._written >= self._every
            if due:
                self._written = 0
        if due:
            self._make_room(self._limit - self._every)

    def _make_room(self, most: int) -> None:
        """Delete the files that were not used for longest, until no more than so many bytes are left."""
        kept = sorted(self._files(), key=lambda entry: entry[0])
        size = sum(taken for _, taken, _ in kept)
        for _, taken, path in kept:
            if size <= most:
                break
            with suppress(OSError):
                os.unlink(path)
            size -= taken

    def _files(self) -> Iterator[tuple[float, int, str]]:
        """Yield (last use, bytes on disk, path) of the files of all graphs."""
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = os.path.join(folder, name)
                with suppress(OSError):  # another process may have taken it away
                    status = os.lstat(path)
                    yield max(status.st_atime, status.st_mtime), status.st_blocks * 512, path
