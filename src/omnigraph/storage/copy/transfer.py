"""Transfer: files from one location to another, side by side, in bounded memory.

Stored files never change, so one that is there with its size is the same. The exceptions are logs of
checksums, which only grow: a longer one replaces a shorter one. A file appears under its name when it is
whole and, on local disk, synced.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, wait
from itertools import islice
from typing import TypeVar

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location
from omnigraph.storage.store import GraphStore

Progress = Callable[[int, int], None]  # bytes done, of how many
T = TypeVar("T")
AT_ONCE = 1024  # files that are handed to the threads together


@dataclass(slots=True, eq=False)
class Tally:
    """What was transferred so far; shown to whoever watches."""

    progress: Progress | None = None
    files: int = 0
    bytes: int = 0
    expected: int = 0

    def expect(self, size: int) -> None:
        """Say how many more bytes are to come."""
        self.expected += size
        self._show()

    def add(self, size: int) -> None:
        """Count one file."""
        self.files += 1
        self.bytes += size
        self._show()

    def _show(self) -> None:
        if self.progress is not None:
            self.progress(self.bytes, max(self.expected, self.bytes))


class Transfer:
    """Copies files below one root to the same keys below another."""

    def __init__(
        self, source: Location, target: Location, syncer: Syncer, pool: Executor, tally: Tally
    ) -> None:
        self._source = source
        self._target = target
        self._syncer = syncer
        self._pool = pool
        self._tally = tally
        self._lock = threading.Lock()

    @classmethod
    def between(cls, source: GraphStore, target: GraphStore, tally: Tally) -> Transfer:
        """Copy between two graphs, on the threads of the one that is read."""
        return cls(source.location, target.location, target.syncer, source.threads, tally)

    def copy(self, sizes: dict[str, int]) -> dict[str, int]:
        """Copy files, given with the sizes that were listed; return what was written. Some may be gone."""
        self._tally.expect(sum(sizes.values()))
        written: dict[str, int] = {}
        for keys in _batches(sizes, AT_ONCE):
            futures = {key: self._pool.submit(self._copy_one, key) for key in keys}
            wait(futures.values())  # no straggler goes on writing after an error was told
            for key, future in futures.items():
                size = future.result()
                if size is not None:
                    written[key] = size
        return written

    def _copy_one(self, key: str) -> int | None:
        with durable(Step.COPY_FILE):
            chunks = self._source.objects.chunks(key)
            if chunks is None:
                return None
            size = self._target.objects.write(key, chunks, sync=self._syncer.enabled)
        assert size is not None
        with self._lock:
            self._tally.add(size)
        return size

    def sync(self, keys: Iterable[str]) -> None:
        """Make the names of files durable, those included that an earlier copy had written."""
        if not self._syncer.enabled:
            return
        folders = {os.path.dirname(key): key for key in keys}
        self._syncer.files(self._target.join(key) for key in folders.values())

    # -- versions ----------------------------------------------------------------------------------

    def read(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield small files of the source in order; they are read ahead."""
        for some in _batches(keys, AT_ONCE // 8):
            yield from zip(some, self._pool.map(self._source.objects.read, some), strict=True)

    def versions(self, keys: Sequence[str], *, in_order: bool) -> Iterator[tuple[str, bool | None]]:
        """Create files as `create` does, one after the other or side by side; None if one is gone."""
        if in_order:
            for key, content in self.read(keys):
                yield key, None if content is None else self.create(key, content)
            return
        for some in _batches(keys, AT_ONCE):
            futures = {key: self._pool.submit(self._create_from_source, key) for key in some}
            wait(futures.values())  # no straggler goes on writing after an error was told
            for key, future in futures.items():
                yield key, future.result()

    def _create_from_source(self, key: str) -> bool | None:
        content = self._source.objects.read(key)
        return None if content is None else self.create(key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Create a file that says what it will always say; False if another is there under its name."""
        with durable(Step.COPY_VERSION):
            size = self._target.objects.write(key, [content], new=True, sync=self._syncer.enabled)
        if size is None:
            return self._target.objects.read(key) == content
        if self._target.is_local:
            self._syncer.files([self._target.join(key)])
        with self._lock:
            self._tally.add(size)
        return True


def _batches(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    remaining = iter(items)
    while batch := tuple(islice(remaining, size)):
        yield batch
