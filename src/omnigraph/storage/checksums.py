"""Checksums: one for each file of a table, recorded when it is written, compared when that is asked for.

Lance keeps no checksum of data pages: a flipped bit may read as another value. So whoever writes a file of a
table records its CRC-32 and size here.

- Where: `__checksums/{table id}/{writer}`: a log that one open store appends to, a line for each file and one
  call for all files of a commit. A line carries a check of its own, so one that is torn or damaged counts for
  nothing. A checksum that was lost, or never written by an older release, makes a file unrecorded, never
  damaged; lines of files that were deleted are harmless.
  A log ends at some size and the writer begins another: a cleanup writes logs anew once nobody appends to
  them, and a process that writes all day must not keep its own from that.
- When: on local disk, while the bytes are in the page cache. On an object store the bytes are gone when Lance
  has written them, and the store guards them itself: there `verify` records on demand.
- Covers: data, blobs, deletion files, index files and versions of tables. Derived files carry checksums of
  their own, and `verify` goes by those. Schema objects have their hash as
  name; the manifests of the graph are read as JSON that is checked.
- Why: docs/decisions/0018-checksums-beside-files.md
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import IntegrityError, InvalidRequest, StorageError
from omnigraph.base.ids import new_id
from omnigraph.storage.derived.adjacency import is_adjacency
from omnigraph.storage.derived.files import DerivedFiles, is_derived, is_unfinished
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import CHUNK_BYTES, Location
from omnigraph.storage.opener import Opener
from omnigraph.storage.tables.files import (
    TABLES,
    UNREAD,
    covers,
    manifest_path,
    matching,
    referenced,
    stored_files,
)

FOLDER = "__checksums"
ENVIRONMENT = "OMNIGRAPH_VERIFY"
Verify = Literal["first-read", "off"]
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
LOG_BYTES = 64 * 1024  # where a log ends
FEW = 4  # files that are done sooner without a pool
WAYS: tuple[Verify, ...] = ("first-read", "off")


@dataclass(frozen=True, slots=True)
class Checksum:
    """What tells the content of a file from any other."""

    crc: int
    size: int

    def __str__(self) -> str:
        return f"{self.crc:08x}-{self.size}"


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file whose content is not what was written."""

    file: str  # below the graph
    recorded: Checksum | None  # None: it cannot be read, and what it was is not known
    stored: Checksum | None  # None: there is no such file

    def __str__(self) -> str:
        if self.stored is None:
            return f"{self.file} is missing"
        if self.recorded is None:
            return f"{self.file} cannot be read"
        return f"{self.file} was written as {self.recorded}, and is {self.stored}"

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        recorded, stored = (
            None if checksum is None else str(checksum) for checksum in (self.recorded, self.stored)
        )
        return {"file": self.file, "recorded": recorded, "stored": stored}


class FileDamaged(IntegrityError):
    """A file is not what was written: what it holds cannot be trusted. Restore it from a copy."""

    def __init__(self, damaged: DamagedFile) -> None:
        super().__init__(
            f"the checksum of a file does not match: {damaged}",
            remedy="Restore the file from a copy of the graph; 'omnigraph verify' lists all that are damaged",
            **damaged.to_json(),
        )


@dataclass(frozen=True, slots=True)
class RewrittenLog:
    """A log of checksums that takes the place of others."""

    key: str
    content: bytes


class Checksums:
    """The checksums of one graph's files."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._writer = new_id()
        self._begun: set[str] = set()  # tables of which it has a log of that name

    def record_written(self, table_id: str, files: Iterable[str], pool: Executor | None = None) -> None:
        """Record files that were just written, where that costs little; "/" at the end: all below.

        A checksum that cannot be recorded stands in nobody's way: the file is one without.
        """
        if not self._location.is_local:
            return
        root = f"{self._location.uri}/{TABLES}/{table_id}/"
        names: list[str] = []
        for file in dict.fromkeys(files):
            if not file.endswith("/"):
                names.append(file)
            elif os.path.isdir(root + file):
                for folder, _, below in os.walk((root + file).rstrip("/")):
                    names += [f"{folder}/{name}".removeprefix(root) for name in below]
        run = map if pool is None or len(names) < FEW else pool.map
        with suppress(OSError):
            self._append(table_id, b"".join(run(partial(_written_line, root), names)))

    def record(self, table_id: str, files: Sequence[str], pool: Executor) -> None:
        """Record files as they are now."""
        pairs = zip(files, pool.map(partial(self.measure, table_id), files), strict=True)
        text = b"".join(_line(file, known.crc, known.size) for file, known in pairs if known is not None)
        if self._location.is_local:
            self._append(table_id, text)
        elif text:
            with durable(Step.CHECKSUM):
                self._location.objects.create(f"{FOLDER}/{table_id}/{new_id()}", text)

    def _append(self, table_id: str, text: bytes) -> None:
        if not text:
            return
        with durable(Step.CHECKSUM):
            handle = self._opened(table_id)
            try:
                os.write(handle, text)  # one call: a line is never mixed with another's
                if os.fstat(handle).st_size >= LOG_BYTES:
                    self._writer = new_id()
                    self._begun.clear()
            finally:
                os.close(handle)

    def _opened(self, table_id: str) -> int:
        """Open this writer's log of a table to append to it.

        One that a cleanup took is not begun again under its name: a log only grows, and copies rely on that.
        """
        folder = f"{self._location.uri}/{FOLDER}/{table_id}"
        if table_id in self._begun:
            try:
                return os.open(f"{folder}/{self._writer}", APPEND & ~os.O_CREAT)
            except FileNotFoundError:
                self._writer = new_id()
                self._begun.clear()
        self._begun.add(table_id)
        try:
            return os.open(f"{folder}/{self._writer}", APPEND, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            return os.open(f"{folder}/{self._writer}", APPEND, 0o644)

    def recorded(self, table_id: str) -> dict[str, Checksum]:
        """Return what is recorded of a table, by path inside the table."""
        checksums: dict[str, Checksum] = {}
        for key, _ in self._location.objects.list(f"{FOLDER}/{table_id}"):
            for line in (self._location.objects.read(key) or b"").split(b"\n")[:-1]:
                parsed = _parsed(line)
                if parsed is not None:
                    checksums[parsed[0]] = parsed[1]
        return checksums

    def rewritten(self, table_id: str, logs: Iterable[str], stored: Collection[str]) -> RewrittenLog | None:
        """Return one log for several, without lines of files that are not stored; None if all are."""
        lines: dict[str, bytes] = {}
        dead = False
        for key in logs:
            for line in (self._location.objects.read(key) or b"").split(b"\n")[:-1]:
                parsed = _parsed(line)
                if parsed is None or parsed[0] not in stored:
                    dead = True
                else:
                    lines[parsed[0]] = line + b"\n"
        content = b"".join(line for _, line in sorted(lines.items()))
        return RewrittenLog(f"{FOLDER}/{table_id}/{new_id()}", content) if dead else None

    def put(self, log: RewrittenLog) -> None:
        """Store a log that takes the place of others, which may be deleted after that."""
        with durable(Step.CHECKSUM):
            self._location.objects.create(log.key, log.content)

    def measure(self, table_id: str, file: str) -> Checksum | None:
        """Return the checksum of a file as it is stored; None if there is none."""
        crc = size = 0
        chunks = self._location.objects.chunks(f"{TABLES}/{table_id}/{file}")
        if chunks is None:
            return None
        for chunk in chunks:
            crc, size = zlib.crc32(chunk, crc), size + len(chunk)
        return Checksum(crc, size)

    def check(self, table_id: str, file: str, recorded: Checksum) -> DamagedFile | None:
        """Compare a stored file with what is recorded of it."""
        stored = self.measure(table_id, file)
        return None if stored == recorded else DamagedFile(f"{TABLES}/{table_id}/{file}", recorded, stored)


def _written_line(root: str, file: str) -> bytes:
    """Return the line of a file that was just written to the local disk; nothing if there is none."""
    crc = size = 0
    try:
        with open(root + file, "rb", buffering=0) as content:
            while chunk := content.read(CHUNK_BYTES):
                crc, size = zlib.crc32(chunk, crc), size + len(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    return _line(file, crc, size)


def _line(file: str, crc: int, size: int) -> bytes:
    text = f"{file} {crc:08x}-{size}".encode()
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _parsed(line: bytes) -> tuple[str, Checksum] | None:
    """Read a line; None if it is not as it was written."""
    text, _, check = line.rpartition(b" ")
    if check != b"%08x" % zlib.crc32(text):
        return None
    file, _, checksum = text.decode().rpartition(" ")
    crc, _, size = checksum.partition("-")
    return file, Checksum(int(crc, 16), int(size))


# -- reading ------------------------------------------------------------------------------------------


def verify_setting(argument: str | None) -> Verify:
    """Return how reads verify: as given, else as the environment says, else not at all."""
    setting = argument if argument is not None else os.environ.get(ENVIRONMENT) or "off"
    for known in WAYS:
        if setting == known:
            return known
    raise InvalidRequest(f"unknown verify {setting!r}", remedy=f"Use {' or '.join(map(repr, WAYS))}")


class FirstReads:
    """Checks each file once in this process, when a version that needs it is first opened."""

    def __init__(self, checksums: Checksums) -> None:
        self._checksums = checksums
        self._recorded: dict[str, dict[str, Checksum]] = {}
        self._checked: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def opened(self, table_id: str, version: int, open_table: Callable[[], Any]) -> Any:
        """Open a version whose files are what was written: first its own file, then all that it names."""
        self._check(table_id, [manifest_path(version)])
        handle = open_table()
        self._check(table_id, referenced(handle))
        return handle

    def _check(self, table_id: str, needed: Collection[str]) -> None:
        for file, recorded in self._open_checks(table_id, needed).items():
            damaged = self._checksums.check(table_id, file, recorded)
            if damaged is not None:
                raise FileDamaged(damaged)
            with self._lock:
                self._checked.add((table_id, file))

    def _open_checks(self, table_id: str, needed: Collection[str]) -> dict[str, Checksum]:
        with self._lock:
            known = self._recorded.get(table_id)
        if known is None or any(not file.endswith("/") and file not in known for file in needed):
            known = self._checksums.recorded(table_id)  # others may have written since
            with self._lock:
                self._recorded[table_id] = known
        with self._lock:
            return {
                file: known[file] for file in matching(needed, known) if (table_id, file) not in self._checked
            }


# -- all files of some versions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """What a comparison of stored files with their checksums found."""

    files: int = 0
    bytes: int = 0
    damaged: tuple[DamagedFile, ...] = ()
    unrecorded: tuple[str, ...] = ()  # files without a checksum: nothing can be said of them
    added: int = 0  # checksums that were recorded now
    derived: int = 0  # derived files that were checked: they carry checksums of their own
    derived_damaged: tuple[str, ...] = ()  # no data is lost: they are worked out again

    @property
    def ok(self) -> bool:
        """Say whether no file is damaged; derived ones do not count."""
        return not self.damaged

    def __add__(self, other: Verified) -> Verified:
        return Verified(
            self.files + other.files,
            self.bytes + other.bytes,
            self.damaged + other.damaged,
            self.unrecorded + other.unrecorded,
            self.added + other.added,
            self.derived + other.derived,
            self.derived_damaged + other.derived_damaged,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "ok": self.ok,
            "files": self.files,
            "bytes": self.bytes,
            "damaged": [damage.to_json() for damage in self.damaged],
            "unrecorded": list(self.unrecorded),
            "recorded_now": self.added,
            "derived": {"files": self.derived, "damaged": list(self.derived_damaged)},
        }


class Verification:
    """Compares stored files of one graph with their checksums."""

    def __init__(self, location: Location, checksums: Checksums, opener: Opener, pool: Executor) -> None:
        self._location = location
        self._checksums = checksums
        self._opener = opener
        self._pool = pool

    def run(self, versions: Iterable[tuple[str, int]] | None, *, record: bool = False) -> Verified:
        """Check what some versions of tables need; None stands for every file of every table.

        With `record`, files without a checksum get one, of their content as it is now.
        """
        by_table: dict[str, set[int] | None] = {}
        if versions is None:
            keys = (key.split("/") for key, _ in self._location.objects.list(TABLES))
            by_table = dict.fromkeys(parts[1] for parts in keys if len(parts) > 2)
        for table_id, version in versions or ():
            by_table[table_id] = (by_table.get(table_id) or set()) | {version}
        verified = Verified()
        for table_id, numbers in sorted(by_table.items()):
            verified += self._table(table_id, numbers, record)
        return verified

    def _table(self, table_id: str, versions: Collection[int] | None, record: bool) -> Verified:
        checksums, stored = self._checksums, stored_files(self._location, table_id)
        known = checksums.recorded(table_id)
        needed, unreadable = None, Verified()
        if versions is not None:
            needed, unreadable = self._needed(table_id, versions, known)
        every = {**dict.fromkeys(known, 0), **stored}
        files = stored.keys() if needed is None else set(matching(needed, every))
        checked: list[str] = []
        bare: list[str] = []
        for file in sorted(f for f in files if not f.startswith(UNREAD) and not is_derived(f)):
            (checked if file in known else bare).append(file)
        compared = self._pool.map(lambda file: checksums.check(table_id, file, known[file]), checked)
        damaged = [damage for damage in compared if damage is not None]
        if needed is None:  # what was stored a moment ago was deleted, not lost
            damaged = [damage for damage in damaged if damage.stored is not None]
        if record:
            checksums.record(table_id, bare, self._pool)
        return (
            unreadable
            + self._derived(table_id, stored, needed)
            + Verified(
                files=len(checked),
                bytes=sum(stored.get(file, 0) for file in checked),
                damaged=tuple(damaged),
                unrecorded=() if record else tuple(f"{TABLES}/{table_id}/{file}" for file in bare),
                added=len(bare) if record else 0,
            )
        )

    def _derived(self, table_id: str, stored: Iterable[str], needed: Collection[str] | None) -> Verified:
        """Check the derived files of a table by the checksums that they carry."""
        files = [
            file
            for file in stored
            if is_derived(file) and not is_unfinished(file)
            if needed is None or is_adjacency(file) or covers(needed, file)
        ]
        whole = self._pool.map(partial(DerivedFiles(self._location).is_whole, table_id), files)
        damaged = (file for file, is_whole in zip(files, whole, strict=True) if not is_whole)
        return Verified(
            derived=len(files),
            derived_damaged=tuple(f"{TABLES}/{table_id}/{file}" for file in sorted(damaged)),
        )

    def _needed(
        self, table_id: str, versions: Collection[int], known: Mapping[str, Checksum]
    ) -> tuple[set[str], Verified]:
        """Return the files of some versions, and those versions that cannot even be opened."""
        needed: set[str] = set()
        lost: list[DamagedFile] = []
        for version in sorted(versions):
            own = manifest_path(version)
            needed.add(own)
            try:
                needed |= referenced(self._opener.at(f"{TABLES}/{table_id}", version))
            except (StorageError, OSError, ValueError):  # damaged: its checksum says so, if there is one
                stored = self._checksums.measure(table_id, own)
                if own not in known or stored == known[own]:
                    lost.append(DamagedFile(f"{TABLES}/{table_id}/{own}", known.get(own), stored))
        return needed, Verified(damaged=tuple(lost))
