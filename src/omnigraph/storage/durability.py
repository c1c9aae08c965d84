"""Durability: every step that makes something durable, with a point before and after it where a test can
intervene; and on local disk, acknowledged means synced.

- Steps: `with durable(Step.PUBLISH): ...` around each call that makes something durable. Crash safety is only
  proven by dying at every step; a source check in `tests/crash` refuses a durable call outside such a block.
- Failpoints: arm with `OMNIGRAPH_FAILPOINTS="publish.before=kill"` or, in a test, `armed({...})`. Actions:
  `raise` (FailpointHit), `sleep:SECONDS`, `kill` (SIGKILL to this process), or any callable.
- Syncing: Lance never calls fsync, so we do: staged files and their directories before the compare-and-swap,
  the new manifest and its directory after it, both before the receipt. Modes: "sync" (default) and "os"
  (leave it to the operating system: throwaway graphs and tests). Object stores are durable by their own
  contract; there it does nothing.
- Why: docs/decisions/0004-durability-on-local-disk.md
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StorageError
from omnigraph.base.ids import SystemClock

# -- steps and failpoints --------------------------------------------------------------------------
#
# Nothing else in the package decides whether a point is armed.


ENVIRONMENT = "OMNIGRAPH_FAILPOINTS"
Action = str | Callable[[], None]


class Step(Enum):
    """Every durable step there is. Each has a point `<value>.before` and `<value>.after`."""

    TABLE_CREATE = "table_create"
    TABLE_DATA = "table_data"
    TABLE_DELETIONS = "table_deletions"
    TABLE_INDEX = "table_index"
    TABLE_COMMIT = "table_commit"
    DERIVED = "derived"  # nothing waits for it to be durable, but whoever writes it may die there
    SCHEMA_PUT = "schema_put"
    REFS_CREATE = "refs_create"
    GENESIS = "genesis"
    STAGED_SYNC = "staged_sync"
    CHECKSUM = "checksum"
    PUBLISH = "publish"
    HEAD_SYNC = "head_sync"
    TURN = "turn"  # a write that lost often asks to go first
    BRANCH_CHAIN = "branch_chain"
    BRANCH_REGISTER = "branch_register"
    BRANCH_MARK = "branch_mark"
    BRANCH_TOMBSTONE = "branch_tombstone"
    BRANCH_UNREGISTER = "branch_unregister"
    BRANCH_NAME = "branch_name"
    BRANCH_RENAME = "branch_rename"
    TAG_CREATE = "tag_create"
    TAG_DELETE = "tag_delete"
    FLOOR = "floor"
    KEPT = "kept"
    CLAIM = "claim"
    UPGRADE = "upgrade"  # of the registry or of a chain, to the format of this release
    RECLAIM_FENCE = "reclaim_fence"
    RECLAIM_FILE = "reclaim_file"
    COPY_FILE = "copy_file"
    COPY_VERSION = "copy_version"  # of a chain or of the registry, in a copy of the graph
    EXPORT_DATA = "export_data"  # an export is no part of a graph, and is whole or none all the same
    EXPORT_NAMES = "export_names"  # its files get their names
    EXPORT_MANIFEST = "export_manifest"


class FailpointHit(RuntimeError):
    """Raised by the action `raise`; only tests ever see it."""


def names() -> tuple[str, ...]:
    """Return the names of all points, in declaration order."""
    return tuple(f"{step.value}.{side}" for step in Step for side in ("before", "after"))


@dataclass(slots=True, eq=False)
class durable:
    """Mark one durable step. A class, not a generator: it stands around every step of every write."""

    step: Step

    def __enter__(self) -> None:
        if _armed:
            hit(f"{self.step.value}.before")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if _armed and kind is None:
            hit(f"{self.step.value}.after")


@contextmanager
def armed(actions: Mapping[str, Action]) -> Iterator[None]:
    """Arm points for the length of a block (tests only)."""
    for name in actions:
        _check(name)
    before = dict(_armed)
    _armed.update(actions)
    try:
        yield
    finally:
        _armed.clear()
        _armed.update(before)


def hit(name: str) -> None:
    """Run the action armed at this point, if any."""
    if not _armed:
        return
    action = _armed.get(name)
    if action is None:
        return
    if callable(action):
        action()
    elif action == "raise":
        raise FailpointHit(name)
    elif action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.startswith("sleep:"):
        SystemClock().sleep(float(action.removeprefix("sleep:")))
    else:
        raise ValueError(f"failpoint {name!r}: unknown action {action!r}")


def _check(name: str) -> None:
    if name not in names():
        raise ValueError(f"unknown failpoint {name!r}; the points are: {', '.join(names())}")


def _parse(text: str) -> dict[str, Action]:
    armed_points: dict[str, Action] = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        name, _, action = item.partition("=")
        _check(name)
        armed_points[name] = action
    return armed_points


# Process-wide by nature: a child process is armed through its environment before it does anything.
_armed: dict[str, Action] = _parse(os.environ.get(ENVIRONMENT, ""))


# -- syncing ---------------------------------------------------------------------------------------


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
        self._known: set[str] = set()  # directories whose own entry and those above it are durable
        self._lock = threading.Lock()

    def files(self, paths: Iterable[str]) -> None:
        """Make files durable: content first, then each directory that names them.

        A path that ends in "/" stands for whatever is below it, if anything.
        """
        if not self.enabled:
            return
        directories: dict[str, None] = {}
        try:
            for path in paths:
                if path.endswith("/"):
                    for folder, _, names in os.walk(path.rstrip("/")):
                        for name in sorted(names):
                            self._sync(os.path.join(folder, name))
                            directories[folder] = None
                else:
                    self._sync(path)
                    directories[os.path.dirname(path)] = None
            for directory in directories:
                self._sync(directory)
                if directory not in self._known:
                    self._sync_ancestors(directory)
        except OSError as error:
            raise NotDurable(error) from error

    def early(self, path: str) -> None:
        """Begin with one file and its directory while others are still being written.

        Only a hint, so that `files` waits the less: it syncs both again, in order, and reports failures.
        """
        with suppress(OSError):
            self._sync(path)
            self._sync(os.path.dirname(path))

    def _sync_ancestors(self, directory: str) -> None:
        """Sync the parents of a directory seen for the first time: any of them may have been made with it."""
        climbed = []
        while directory not in self._known and directory != os.path.dirname(directory):
            climbed.append(directory)
            directory = os.path.dirname(directory)
            try:
                self._sync(directory)
            except PermissionError:
                break  # above the graph, and not ours: it was there before
        with self._lock:
            self._known.update(climbed)  # not before: another thread goes by it

    def _sync(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self._fsync(handle)
        finally:
            os.close(handle)
