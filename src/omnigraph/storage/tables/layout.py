"""Layout: what a version of a table is made of, worked out once.

Room    storage.tables. Asking Lance for fragments and schema converts them anew each time, which costs more
        than the rest of a small write; a version never changes, and the version that a write makes is its
        base with a few fragments changed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata
from numpy.typing import NDArray

from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.columns import fingerprint
from omnigraph.storage.tables.fold import FragmentSize, settled

KEPT = 512
DELETED_BYTES = 32 << 20
OFFSET_MASK = 0xFFFFFFFF
ADDRESS = "_rowaddr"
Offsets = NDArray[np.int64]
NOTHING: Offsets = np.empty(0, np.int64)
FragmentKey = tuple[bytes, str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """One fragment."""

    metadata: FragmentMetadata
    size: FragmentSize
    key: FragmentKey
    settled: bool

    @classmethod
    def of(cls, metadata: FragmentMetadata, columns: bytes) -> Part:
        """Describe a fragment as it is read with these columns."""
        size = size_of(metadata)
        return cls(metadata, size, identity(columns, metadata), settled(size))


@dataclass(frozen=True)
class Layout:
    """One version: its columns and its fragments by id."""

    schema: pa.Schema
    columns: bytes
    parts: Mapping[int, Part]
    has_blobs: bool  # Lance cannot read blob rows back for writing (lance-facts 11): they are never folded
    complete: bool = False  # the key indexes are known to lack nothing that a write would add

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(part.size.rows for part in self.parts.values())

    @cached_property
    def settled(self) -> frozenset[int]:
        """The fragments past the tail."""
        return frozenset(n for n, part in self.parts.items() if part.settled)

    @cached_property
    def small(self) -> Mapping[int, Part]:
        """The small fragments at the end, which the tail cache holds."""
        return {} if self.has_blobs else {n: part for n, part in self.parts.items() if not part.settled}

    @cached_property
    def big(self) -> Mapping[int, Part]:
        """The others, which the key index covers."""
        return self.parts if self.has_blobs else {n: part for n, part in self.parts.items() if part.settled}

    @classmethod
    def of(cls, handle: Handle) -> Layout:
        """Read the layout of a version."""
        columns, schema = fingerprint(handle), handle.schema
        parts = {f.fragment_id: Part.of(f.metadata, columns) for f in handle.get_fragments()}
        return cls(schema, columns, parts, any(_is_blob(field) for field in schema))

    def after(self, done: Handle, changed: frozenset[int]) -> Layout:
        """Return the layout of a version made from this one with its columns kept, looking only at
        fragments that are new or changed.
        """
        parts = {}
        for fragment in done.get_fragments():
            number = fragment.fragment_id
            kept = None if number in changed else self.parts.get(number)
            parts[number] = kept or Part.of(fragment.metadata, self.columns)
        complete = self.complete and all(n in self.settled for n, part in parts.items() if part.settled)
        return Layout(self.schema, self.columns, parts, self.has_blobs, complete)


class Layouts:
    """The layouts of the versions used last, for all tables, and which of their rows are deleted."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], Layout] = OrderedDict()
        self._deleted: OrderedDict[FragmentKey, Offsets] = OrderedDict()
        self._deleted_bytes = 0
        self._lock = threading.Lock()

    def get(self, handle: Handle) -> Layout:
        """Return the layout of a version."""
        key = (handle.uri, handle.version)
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
                return found
        layout = Layout.of(handle)
        self.put(handle, layout)
        return layout

    def put(self, handle: Handle, layout: Layout) -> None:
        """Remember the layout of a version that was just made."""
        with self._lock:
            self._known[(handle.uri, handle.version)] = layout
            while len(self._known) > KEPT:
                self._known.popitem(last=False)

    def deleted(self, handle: Handle, number: int, part: Part) -> Offsets:
        """Return the places of the deleted rows of a fragment, ascending; reads one small file, once."""
        if part.metadata.deletion_file is None:
            return NOTHING
        with self._lock:
            found = self._deleted.get(part.key)
            if found is not None:
                self._deleted.move_to_end(part.key)
                return found
        scan = handle.scanner(columns=[], fragments=[handle.get_fragment(number)], with_row_address=True)
        alive = scan.to_table()[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK
        mask = np.ones(part.metadata.physical_rows, dtype=bool)
        mask[alive] = False
        found = np.flatnonzero(mask)
        self._note(part.key, found)
        return found

    def lose(self, part: Part, offsets: Offsets, now: FragmentKey) -> None:
        """Note that a fragment lost rows, if it is known which it had lost before."""
        with self._lock:
            before = NOTHING if part.metadata.deletion_file is None else self._deleted.get(part.key)
        if before is not None:
            self._note(now, np.union1d(before, offsets).astype(np.int64))

    def _note(self, key: FragmentKey, offsets: Offsets) -> None:
        with self._lock:
            if key not in self._deleted:
                self._deleted[key] = offsets
                self._deleted_bytes += offsets.nbytes
            while self._deleted_bytes > DELETED_BYTES:
                _, oldest = self._deleted.popitem(last=False)
                self._deleted_bytes -= oldest.nbytes


def _is_blob(field: pa.Field) -> bool:
    old = b"lance-encoding:blob" in (field.metadata or {})
    return old or str(field.type).startswith("extension<lance.blob")


def identity(columns: bytes, metadata: FragmentMetadata) -> FragmentKey:
    """Name a fragment's exact content: the columns as read, its files and its deletions."""
    deletions = metadata.deletion_file
    files = ",".join(data_files(metadata))
    return columns, files, "" if deletions is None else f"{deletions.read_version}-{deletions.id}"


def data_files(metadata: FragmentMetadata) -> list[str]:
    """Return the paths of a fragment's data files, below `data/`."""
    return [file._path for file in metadata.files]  # `file.path` makes a class at each access: 35 us


def size_of(metadata: FragmentMetadata, less: int = 0) -> FragmentSize:
    """Return what is alive of a fragment, deletions taken off in proportion."""
    alive = metadata.num_rows - less
    stored = sum(file.file_size_bytes or 0 for file in metadata.files)
    share = alive / metadata.physical_rows if metadata.physical_rows else 0
    return FragmentSize(rows=alive, bytes=int(stored * share))
