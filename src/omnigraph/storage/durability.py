"""Durability: on local disk, acknowledged means synced.

Lance never calls fsync, so we do: staged files and their directories before the compare-and-swap, the new
manifest and its directory after it, both before the receipt.

- Modes: "sync" (default) and "os" (leave it to the operating system: throwaway graphs and tests).
- Note: object stores are durable by their own contract; there this is a no-op.
- Why: docs/decisions/0004-durability-on-local-disk.md
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from omnigraph.base.errors import StorageError

Durability = Literal["sync", "os"]


class NotDurable(StorageError):
    """The disk refused to make files durable."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"the disk failed to make files durable: {error}",
            remedy="Check the disk; nothing is acknowledged that may be lost",
            storage_kind="permanent",
        )


class Syncer:
    """Syncs files, and the directory entries that lead to them, on the local disk."""

    def __init__(self, *, enabled: bool, fsync: Callable[[int], None] = os.fsync) -> None:
        self.enabled = enabled
        self._fsync = fsync
        self._known: set[Path] = set()  # directories whose own entry is durable already
        self._lock = threading.Lock()

    def files(self, paths: Iterable[str]) -> None:
        """Make files durable: content first, then each directory that names them."""
        if not self.enabled:
            return
        try:
            self._sync_all(paths)
        except OSError as error:
            raise NotDurable(error) from error

    def early(self, path: str) -> None:
        """Begin with one file and its directory while others are still being written.

        Only a hint, so that `files` waits the less: it syncs both again, in order, and reports failures.
        """
        with suppress(OSError):
            self._sync(Path(path))
            self._sync(Path(path).parent)

    def _sync_all(self, paths: Iterable[str]) -> None:
        directories: dict[Path, None] = {}
        for path in _expanded(paths):
            self._sync(path)
            directories[path.parent] = None
        for directory in directories:
            self._sync(directory)
            self._ancestors(directory)

    def _ancestors(self, directory: Path) -> None:
        """Sync the parents of a directory seen for the first time: any of them may have been made with it."""
        while directory not in self._known and directory != directory.parent:
            with self._lock:
                self._known.add(directory)
            directory = directory.parent
            try:
                self._sync(directory)
            except PermissionError:
                return  # above the graph, and not ours: it was there before

    def _sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self._fsync(handle)
        finally:
            os.close(handle)


def _expanded(paths: Iterable[str]) -> Iterator[Path]:
    """Yield files; a path that ends in "/" stands for whatever is below it, if anything."""
    for text in paths:
        if not text.endswith("/"):
            yield Path(text)
            continue
        for directory, _, names in os.walk(text):
            yield from (Path(directory, name) for name in sorted(names))
