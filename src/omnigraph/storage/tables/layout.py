"""Layout: what a version of a table is made of, and two things that follow from it.

- `Layout`, `Layouts`: fragments, sizes and schema of a version, worked out once. Asking Lance converts them
  anew each time, which costs more than the rest of a small write; a version never changes, and the version
  that a write makes is its base with a few fragments changed.
- Columns: editing a table's schema with field ids kept.
- Folding: which small fragments a write rewrites along, so that there are never many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.opener import Handle

# -- columns ---------------------------------------------------------------------------------------
#
# Lance's own conversion from Arrow renumbers field ids, and a projection with renumbered ids silently returns
# another column's values (lance-facts B11). So the stored field messages are edited directly: protobuf
# message lance.file.Field, of which 2 is the name, 3 the id, 4 the parent id (-1 at top level), 6 nullable. A
# schema is its fields, depth first. Only the members edited are decoded.


NAME, FIELD_ID, PARENT_ID = 2, 3, 4
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
TOP_LEVEL = -1
Message = list[tuple[int, int, Any]]  # (field number, wire type, value)


def with_column(handle: Handle, column: pa.Field) -> Any:
    """Return the schema plus one column, whose ids start past every id ever used here."""
    metadata, fields = _parts(handle.lance_schema)
    _, added = _parts(LanceSchema.from_pyarrow(pa.schema([column])))
    shift = handle.max_field_id + 1
    for message in added:
        _set(message, FIELD_ID, VARINT, _signed(message, FIELD_ID) + shift)
        if (parent := _signed(message, PARENT_ID)) != TOP_LEVEL:
            _set(message, PARENT_ID, VARINT, parent + shift)
    return _schema(metadata, fields + added)


def without_column(handle: Handle, name: str) -> Any:
    """Return the schema less one top-level column and everything inside it."""
    metadata, fields = _parts(handle.lance_schema)
    gone: set[int] = set()
    kept = []
    for message in fields:  # depth first: a parent comes before its children
        parent = _signed(message, PARENT_ID)
        if parent in gone or (parent == TOP_LEVEL and _text(message, NAME) == name):
            gone.add(_signed(message, FIELD_ID))
        else:
            kept.append(message)
    return _schema(metadata, kept)


def with_name(handle: Handle, name: str, to: str) -> Any:
    """Return the schema with one top-level column renamed."""
    metadata, fields = _parts(handle.lance_schema)
    for message in fields:
        if _signed(message, PARENT_ID) == TOP_LEVEL and _text(message, NAME) == name:
            _set(message, NAME, LENGTH, to.encode())
    return _schema(metadata, fields)


def fingerprint(handle: Handle) -> bytes:
    """Name the exact columns of a version, by id and name: the same files read differently after a change."""
    _, (_, *messages) = handle.lance_schema.__reduce__()
    return hashlib.sha256(b"\0".join(bytes(raw) for raw in messages)).digest()


def _parts(schema: Any) -> tuple[Any, list[Message]]:
    # The pickled form of a LanceSchema is (rebuild, (metadata, *field messages)).
    _, (metadata, *messages) = schema.__reduce__()
    return metadata, [list(decoded(bytes(raw))) for raw in messages]


def _schema(metadata: Any, fields: list[Message]) -> Any:
    return LanceSchema._from_protos(metadata, *(_encode(message) for message in fields))


def _get(message: Message, number: int) -> Any:
    return next((value for field, _, value in message if field == number), None)


def _text(message: Message, number: int) -> str:
    return bytes(_get(message, number) or b"").decode()


def _signed(message: Message, number: int) -> int:
    """Return an int32 member; absent means 0, and negatives are stored as 64-bit two's complement."""
    value = int(_get(message, number) or 0)
    return value - (1 << 64) if value >= 1 << 63 else value


def _set(message: Message, number: int, wire: int, value: Any) -> None:
    if wire == VARINT:
        value &= (1 << 64) - 1
    for position, (field, _, _) in enumerate(message):
        if field == number:
            message[position] = (number, wire, value)
            return
    message.append((number, wire, value))


def decoded(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield the members of a protobuf message: field number, wire type, value."""
    position = 0
    while position < len(raw):
        tag, position = _read_varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, position = _read_varint(raw, position)
            yield number, wire, value
            continue
        if wire == LENGTH:
            size, position = _read_varint(raw, position)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise ValueError(f"unexpected wire type {wire} in a stored field")
        yield number, wire, raw[position : position + size]
        position += size


def varints(packed: bytes) -> Iterator[int]:
    """Yield numbers that are stored one after the other."""
    position = 0
    while position < len(packed):
        value, position = _read_varint(packed, position)
        yield value


def _encode(message: Message) -> bytes:
    out = bytearray()
    for number, wire, value in message:
        out += _varint(number << 3 | wire)
        if wire == VARINT:
            out += _varint(value)
        else:
            if wire == LENGTH:
                out += _varint(len(value))
            out += value
    return bytes(out)


def _read_varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# -- folding ---------------------------------------------------------------------------------------
#
# Every small commit adds a fragment, and each fragment costs a request to whoever looks for a key or scans.
# So a writer that finds too many small ones rewrites them with its own rows in the same commit (tiers, as in
# an LSM tree): at most PER_TIER fragments in each tier. Fragments past the last tier are large, and only
# maintenance rewrites them. Tiny rows are rewritten once for every few writes while the first tier fills (26
# times a byte for rows of 900 bytes, measured); it does not grow with history.


KIB = 1024
TIERS = (256 * KIB, 2048 * KIB)  # ceilings by weight
PER_TIER = 6
REWRITE_BELOW = 64 * KIB  # a fragment this small that loses rows is rewritten: cheaper than a deletion file
FOLD_AT_ONCE = 8  # bounds the requests of a single write after a mass delete shrank many fragments
ROW_WEIGHT = 64  # well-compressed rows still cost memory and time to rewrite


@dataclass(frozen=True, slots=True)
class FragmentSize:
    """What is left alive of a fragment."""

    rows: int
    bytes: int

    @property
    def weight(self) -> int:
        """One number for "how much is it to rewrite"."""
        return self.bytes + ROW_WEIGHT * self.rows


def plan_fold(sizes: Mapping[int, FragmentSize], incoming: FragmentSize) -> frozenset[int]:
    """Choose the fragments that a write of this size should take up.

    >>> tiny = FragmentSize(rows=1, bytes=900)
    >>> sorted(plan_fold({i: tiny for i in range(5)}, tiny))
    []
    >>> sorted(plan_fold({i: tiny for i in range(6)}, tiny))
    [0, 1, 2, 3, 4, 5]
    """
    chosen: set[int] = set()
    weight, floor = incoming.weight, 0
    for ceiling in TIERS:
        members = sorted((s.weight, i) for i, s in sizes.items() if floor <= s.weight < ceiling)
        if weight < ceiling:
            if len(members) < PER_TIER:
                break
            allowed = FOLD_AT_ONCE - len(chosen)
            taken = members[: max(allowed, 0)]
            chosen.update(i for _, i in taken)
            weight += sum(w for w, _ in taken)
        floor = ceiling
    return frozenset(chosen)


# -- layout --------------------------------------------------------------------------------------


KEPT = 512
DELETED_BYTES = 32 << 20
OFFSET_MASK = 0xFFFFFFFF
ADDRESS = "_rowaddr"
Offsets = NDArray[np.int64]
NOTHING: Offsets = np.empty(0, np.int64)
FragmentKey = tuple[bytes, str, str]  # a fragment's exact content: columns as read, files, deletions


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """One fragment."""

    metadata: FragmentMetadata
    size: FragmentSize
    key: FragmentKey
    settled: bool  # past the first tier: has key hashes
    stored_bytes: int  # of its files, whatever is alive of them

    @classmethod
    def of(cls, metadata: FragmentMetadata, columns: bytes) -> FragmentLayout:
        """Describe a fragment as it is read with these columns."""
        size, deletions = size_of(metadata), metadata.deletion_file
        deleted = "" if deletions is None else f"{deletions.read_version}-{deletions.id}"
        key = columns, ",".join(data_files(metadata)), deleted
        stored = sum([file.file_size_bytes or 0 for file in metadata.files])
        return cls(metadata, size, key, size.weight >= TIERS[0], stored)

    @property
    def was_settled(self) -> bool:
        """Whether it was past the first tier when it was written, whatever it has lost since."""
        return self.stored_bytes + ROW_WEIGHT * self.metadata.physical_rows >= TIERS[0]


@dataclass(frozen=True)
class Layout:
    """One version: its columns and its fragments by id."""

    schema: pa.Schema
    columns: bytes
    parts: Mapping[int, FragmentLayout]
    small: Mapping[int, FragmentLayout]  # the small fragments at the end, which the tail cache holds
    big: Mapping[int, FragmentLayout]  # the others, which have key hashes
    rows: int
    has_blobs: bool  # payloads would be copied by every fold (lance-facts 11): only maintenance rewrites them

    @classmethod
    def of(cls, handle: Handle) -> Layout:
        """Read the layout of a version."""
        columns, schema = fingerprint(handle), handle.schema
        parts = {f.fragment_id: FragmentLayout.of(f.metadata, columns) for f in handle.get_fragments()}
        return _layout(schema, columns, parts, any(is_blob(field) for field in schema))

    def after(self, done: Handle, changed: frozenset[int]) -> Layout:
        """Return the layout of a version made from this one with its columns kept, looking only at
        fragments that are new or changed.
        """
        parts = {}
        for fragment in done.get_fragments():
            number = fragment.fragment_id
            kept = None if number in changed else self.parts.get(number)
            parts[number] = kept or FragmentLayout.of(fragment.metadata, self.columns)
        return _layout(self.schema, self.columns, parts, self.has_blobs)


def _layout(
    schema: pa.Schema, columns: bytes, parts: Mapping[int, FragmentLayout], has_blobs: bool
) -> Layout:
    """Make a layout; a table with blobs has no small fragments, since their rows cannot be held."""
    big = parts if has_blobs else {n: part for n, part in parts.items() if part.settled}
    small = {} if has_blobs else {n: part for n, part in parts.items() if not part.settled}
    rows = sum([part.size.rows for part in parts.values()])
    return Layout(schema, columns, parts, small, big, rows, has_blobs)


class Layouts:
    """The layouts of the versions used last, for all tables, and which of their rows are deleted."""

    def __init__(self) -> None:
        self._known = BoundedCache[tuple[str, int], Layout](KEPT)
        self._deleted = BoundedCache[FragmentKey, Offsets](DELETED_BYTES, lambda offsets: offsets.nbytes)

    def get(self, handle: Handle) -> Layout:
        """Return the layout of a version."""
        key = (handle.uri, handle.version)
        known = self._known.get(key)
        return self._known.put(key, Layout.of(handle)) if known is None else known

    def put(self, handle: Handle, layout: Layout) -> None:
        """Remember the layout of a version that was just made."""
        self._known.put((handle.uri, handle.version), layout)

    def deleted(self, handle: Handle, number: int, part: FragmentLayout) -> Offsets:
        """Return the offsets of the deleted rows of a fragment, ascending; reads one small file, once."""
        if part.metadata.deletion_file is None:
            return NOTHING
        known = self._deleted.get(part.key)
        if known is not None:
            return known
        scan = scanner(handle, columns=[], fragments=[handle.get_fragment(number)], with_row_address=True)
        alive = scan.to_table()[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK
        mask = np.ones(part.metadata.physical_rows, dtype=bool)
        mask[alive] = False
        return self._deleted.put(part.key, np.flatnonzero(mask))

    def lose(self, part: FragmentLayout, offsets: Offsets, now: FragmentKey) -> None:
        """Note that a fragment lost rows, if it is known which it had lost before."""
        before = NOTHING if part.metadata.deletion_file is None else self._deleted.get(part.key)
        if before is not None:
            self._deleted.put(now, np.union1d(before, offsets).astype(np.int64))


def is_blob(field: pa.Field) -> bool:
    """Say whether a column holds blobs."""
    old = b"lance-encoding:blob" in (field.metadata or {})
    return old or str(field.type).startswith("extension<lance.blob")


def data_files(metadata: FragmentMetadata) -> list[str]:
    """Return the paths of a fragment's data files, below `data/`."""
    return [file._path for file in metadata.files]  # `file.path` makes a class at each access: 35 us


def size_of(metadata: FragmentMetadata, less: int = 0) -> FragmentSize:
    """Return what is alive of a fragment, deletions taken off in proportion."""
    alive = metadata.num_rows - less
    stored = sum(file.file_size_bytes or 0 for file in metadata.files)
    share = alive / metadata.physical_rows if metadata.physical_rows else 0
    return FragmentSize(rows=alive, bytes=int(stored * share))
