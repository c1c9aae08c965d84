"""Rows: the one way to find rows by value.

Key look-ups, checks of endpoints and unique values, cascades, single entities and the ends of edges all ask
here. A value is hashed and looked for among the key hashes of each data file; what may match is read and
compared, so a hash never decides. A value that no file has costs no read at all.

Key hashes lie beside the data files (files.py). Where they do not (an older graph, a store that cannot be
written, a damaged file), those of the columns that every write looks up by are computed here and kept in
memory; for other columns the caller scans. So are those of small files, which have none (tables with blobs).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StorageError
from omnigraph.base.ids import Clock
from omnigraph.storage.derived.blocks import Unreadable, Unusable
from omnigraph.storage.derived.files import DerivedFiles, keys_name, spans_name
from omnigraph.storage.derived.key_hashes import (
    ARRAY,
    FEW,
    KIND,
    SPANS_KIND,
    IdSpans,
    KeyHashes,
    covers_of,
    entries_of,
    hashable,
    hashes_of,
)
from omnigraph.storage.lance_reads import scanner, take_rows
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import OFFSET_MASK, FragmentLayout, Layout, Layouts

KEYED_COLUMNS = (
    "id",
    "src",
    "dst",
)  # what every write looks up by: ids, and the ends of edges
KEPT_BYTES = 256 << 20  # of key hashes that were computed here; a mapped file counts as a few of them
MISSING_KEPT, MISSING_SECONDS = 4_096, 30.0
FAILURES = (Unusable, OSError, StorageError, pa.ArrowException)  # of writing what can be computed again
Addresses = NDArray[np.int64]
Opened = TypeVar("Opened", KeyHashes, IdSpans)


@dataclass(frozen=True, eq=False)
class Matches:
    """Rows that hold one of some values: their addresses, ascending, and some columns of them."""

    addresses: Addresses
    rows: pa.Table


class RecentlyMissing:
    """Keys that were looked for in vain; after a while they are looked for again: others may write them."""

    def __init__(self, clock: Clock, most: int = MISSING_KEPT, seconds: float = MISSING_SECONDS) -> None:
        self._since = BoundedCache[Hashable, float](most)
        self._seconds = seconds
        self._clock = clock

    def add(self, key: Hashable) -> None:
        """Note that there is nothing under a key."""
        self._since.drop(key)
        self._since.put(key, self._clock.monotonic())

    def drop(self, key: Hashable) -> None:
        """Forget that there was nothing."""
        self._since.drop(key)

    def __contains__(self, key: Hashable) -> bool:
        since = self._since.get(key)
        return since is not None and self._clock.monotonic() - since < self._seconds


class RowFinder:
    """Finds rows of one graph's tables by value."""

    def __init__(self, files: DerivedFiles, layouts: Layouts, clock: Clock) -> None:
        self.files = files
        self._layouts = layouts
        self._hashes = BoundedCache[tuple[bytes, str, str], KeyHashes | IdSpans](
            KEPT_BYTES, lambda keys: keys.nbytes + 256
        )
        self._missing = RecentlyMissing(clock)

    def can_find(self, handle: Handle, layout: Layout, column: str) -> bool:
        """Say whether rows past the tail can be found by a column without a scan."""
        keyed = hashable(layout.schema.field(column).type)
        return keyed and all(self._keys_for(handle, part, column) is not None for part in layout.big.values())

    def find(
        self, handle: Handle, layout: Layout, column: str, values: pa.Array, columns: Sequence[str] = ()
    ) -> Matches:
        """Return the rows past the tail whose column is one of the values, with some of their columns.

        The values are distinct, and `can_find` said yes.
        """
        wanted = list(dict.fromkeys([column, *columns]))
        which, addresses = self.candidates(handle, layout.big, column, values)
        if not len(addresses):
            schema = pa.schema([layout.schema.field(name) for name in wanted])
            return Matches(addresses, schema.empty_table())
        rows = self._picked(handle, layout.big, addresses, wanted)
        same = np.asarray(pc.fill_null(pc.equal(rows[column], values.take(pa.array(which))), False))
        if same.all():
            return Matches(addresses, rows)
        return Matches(addresses[same], rows.filter(pa.array(same)))

    def _picked(
        self, handle: Handle, parts: Mapping[int, FragmentLayout], addresses: Addresses, columns: list[str]
    ) -> pa.Table:
        """Return some columns of rows; a few of one local file are read without a plan."""
        number = int(addresses[0]) >> 32
        if self.files.is_local and int(addresses[-1]) >> 32 == number and len(addresses) <= FEW:
            part = parts[number]
            if all(holder(handle, part, name) == holder(handle, part, columns[0]) for name in columns[1:]):
                with suppress(Unusable):
                    return self.physical_rows(handle, part, addresses & OFFSET_MASK, columns)
        return take_rows(handle, addresses.tolist(), columns)

    def derive(
        self,
        handle: Handle,
        part: FragmentLayout,
        pool: Executor,
        columns: Iterable[str] = (),
        rows: pa.Table | None = None,
    ) -> list[Future[bool]]:
        """Begin to write the key hashes of a new fragment: of ids, ends and some more columns.

        `rows` are those of the fragment, where they are in memory; otherwise its file is read.
        """
        return [
            pool.submit(
                self._derive_if_possible, handle, part, column, None if rows is None else rows[column]
            )
            for column in _keyed(handle, columns)
        ]

    def _derive_if_possible(
        self, handle: Handle, part: FragmentLayout, column: str, values: pa.ChunkedArray | None = None
    ) -> bool:
        try:
            return self._derive(handle, part, column, values)
        except FAILURES:
            return False

    def complete(
        self, handle: Handle, parts: Sequence[FragmentLayout], pool: Executor, columns: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Write the key hashes that fragments lack; return the columns."""
        lacking = self.lacking(handle, parts, columns)
        written = pool.map(lambda work: self._derive_if_possible(handle, *work), lacking)
        done = [work for work, stored in zip(lacking, written, strict=True) if stored]
        for part, column in done:
            self._missing.drop((*part.key[:2], column))
        return tuple(sorted({column for _, column in done}))

    def lacking(
        self, handle: Handle, parts: Iterable[FragmentLayout], columns: Iterable[str] = ()
    ) -> list[tuple[FragmentLayout, str]]:
        """Return the fragments and columns whose key hashes are not stored, or damaged."""
        keyed = _keyed(handle, columns)
        return [
            (part, column)
            for part in parts
            for column in keyed
            if holder(handle, part, column) is not None and not self._is_whole(handle, part, column)
        ]

    def _is_whole(self, handle: Handle, part: FragmentLayout, column: str) -> bool:
        try:
            keys = self._open(handle, part, column)
            if isinstance(keys, IdSpans):  # checked when it was opened
                return True
            return keys is not None and len(keys.whole()) <= keys.rows
        except Unusable:
            return False

    def _derive(
        self, handle: Handle, part: FragmentLayout, column: str, values: pa.ChunkedArray | None = None
    ) -> bool:
        """Write the key hashes of a column of a fragment; say whether that could be done."""
        table_id, data_file = table_of(handle), holder(handle, part, column)
        if _may_ascend(handle, column) and self._derive_spans(handle, data_file, values):
            return True
        keys = self._build(handle, part, column, values)
        if keys is None or data_file is None:
            return False
        number = field_id(handle, column)
        covers = covers_of(data_file, number, keys.rows)
        arrays = {ARRAY: keys.entries}
        stored = self.files.write(table_id, keys_name(data_file, number), KIND, covers, arrays)
        if not stored:
            self._hashes.put((*part.key[:2], column), keys)
        return stored

    def _derive_spans(
        self, handle: Handle, data_file: str | None, ids: pa.ChunkedArray | None = None
    ) -> bool:
        """Write the spans of ids of edges, if they ascend: they are made so."""
        if data_file is None:
            return False
        table_id, number = table_of(handle), field_id(handle, "id")
        spans = IdSpans.of(self.files.column(table_id, data_file, "id") if ids is None else ids)
        if spans is None:
            return False
        covers = covers_of(data_file, number, spans.rows)
        return self.files.write(table_id, spans_name(data_file, number), SPANS_KIND, covers, spans.arrays)

    def stored_hashes(self, handle: Handle, data_file: str, column: str, rows: int) -> KeyHashes | None:
        """Return the key hashes that lie beside a data file, if they do."""
        number = field_id(handle, column)
        return _opened(
            lambda: KeyHashes.open(
                self.files.open(table_of(handle), keys_name(data_file, number)),
                covers_of(data_file, number, rows),
            )
        )

    def physical(self, handle: Handle, parts: Sequence[FragmentLayout], column: str) -> Iterator[pa.Array]:
        """Yield a column of some fragments with all their rows, whatever the version has deleted of them."""
        if parts and all(part.metadata.deletion_file is None for part in parts):
            fragments = [handle.get_fragment(part.metadata.id) for part in parts]
            scan = scanner(handle, columns=[column], fragments=fragments, scan_in_order=True)
            yield from (batch[column] for batch in scan.to_batches())
            return
        for part in parts:
            data_file = holder(handle, part, column)
            if data_file is None:  # a column that came later
                yield pa.nulls(part.metadata.physical_rows, handle.schema.field(column).type)
            else:
                yield from self.files.column(table_of(handle), data_file, column).chunks

    def physical_rows(
        self, handle: Handle, part: FragmentLayout, offsets: NDArray[np.int64], columns: Sequence[str]
    ) -> pa.Table:
        """Return some columns of rows of a fragment, deleted or not, in the order of their offsets."""
        if not self.files.is_local and part.metadata.deletion_file is None:
            # The version fetches rows that lie close together by one request; a file's own reader does not.
            return take_rows(handle, (offsets | (part.metadata.id << 32)).tolist(), columns)
        data_file = holder(handle, part, columns[0])
        if data_file is None:
            raise Unreadable(f"no file holds column {columns[0]}")
        return self.files.rows(table_of(handle), data_file, offsets, columns)

    def first_rows(
        self, handle: Handle, parts: Sequence[FragmentLayout], column: str, values: pa.Array
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (place among the parts, offset) of the first row that has each value, deleted or not.

        Both are -1 for a value that no row has; of parts, the first one counts.
        """
        at = np.full(len(values), -1, dtype=np.int64)
        offsets = np.full(len(values), -1, dtype=np.int64)
        hashes = hashes_of(values)
        for place, part in enumerate(parts):
            open_values = np.flatnonzero(at < 0)
            if not len(open_values):
                break
            keys = self._keys_for(handle, part, column)
            if keys is None:
                raise Unreadable(f"column {column} of {holder(handle, part, column)} cannot be read now")
            wanted = values.take(pa.array(open_values))
            which, rows = self._probe(keys, wanted, hashes[open_values], handle, part, column)
            if not len(rows):
                continue
            order = np.argsort(rows, kind="stable")
            which, rows = open_values[which[order]], rows[order]
            new = np.diff(rows, prepend=-1) > 0  # values with one hash may lead to the same row
            stored = self.physical_rows(handle, part, rows[new], [column])[column]
            stored = stored.take(pa.array(np.cumsum(new) - 1))
            same = np.asarray(pc.fill_null(pc.equal(stored, values.take(pa.array(which))), False))
            which, rows = which[same][::-1], rows[same][::-1]  # backwards: the first row is written last
            at[which], offsets[which] = place, rows
        return at, offsets

    # -- candidates ----------------------------------------------------------------------------------

    def candidates(
        self, handle: Handle, parts: Mapping[int, FragmentLayout], column: str, values: pa.Array
    ) -> tuple[NDArray[np.int64], Addresses]:
        """Return (which value, address) of the living rows that may hold a value, by address."""
        hashes = hashes_of(values)
        hits_by_part: list[tuple[NDArray[np.int64], Addresses]] = []
        for number, part in parts.items():
            keys = self._keys_for(handle, part, column)
            if keys is None:
                raise Unreadable(f"column {column} of {holder(handle, part, column)} cannot be read now")
            which, offsets = self._probe(keys, values, hashes, handle, part, column)
            if len(offsets) and part.metadata.deletion_file is not None:
                deleted = self._layouts.deleted(handle, number, part)
                alive = ~np.isin(offsets, deleted)
                which, offsets = which[alive], offsets[alive]
            if len(offsets):
                hits_by_part.append((which, (number << 32) | offsets))
        if not hits_by_part:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        which, addresses = (np.concatenate(side) for side in zip(*hits_by_part, strict=True))
        order = np.argsort(addresses)
        return which[order], addresses[order]

    def _probe(
        self,
        keys: KeyHashes | IdSpans,
        values: pa.Array,
        hashes: NDArray[np.uint64],
        handle: Handle,
        part: FragmentLayout,
        column: str,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        try:
            if isinstance(keys, KeyHashes):
                return keys.find(hashes)
            table_id, data_file = table_of(handle), holder(handle, part, column)
            return keys.find(
                values, lambda start, rows: self.files.stretch(table_id, str(data_file), column, start, rows)
            )
        except Unusable:  # damaged: work it out again
            built = self._build(handle, part, column)
            if built is None:
                raise
            self._hashes.drop((*part.key[:2], column))
            self._hashes.put((*part.key[:2], column), built)
            return built.find(hashes)

    def _keys_for(self, handle: Handle, part: FragmentLayout, column: str) -> KeyHashes | IdSpans | None:
        """Return what tells the rows of a fragment by a column, if it is there or can be worked out."""
        key = (*part.key[:2], column)
        known = self._hashes.get(key)
        if known is not None or key in self._missing:
            return known
        unreadable = False
        try:
            keys = self._open(handle, part, column) if part.was_settled else None
        except Unreadable:  # perhaps for a moment: that is not remembered
            keys, unreadable = None, True
        if keys is None and (column in KEYED_COLUMNS or not part.was_settled):
            try:
                keys = self._build(handle, part, column)
            except Unreadable:
                return None
        if keys is None:
            if not unreadable:
                self._missing.add(key)
            return None
        return self._hashes.put(key, keys)

    def _open(self, handle: Handle, part: FragmentLayout, column: str) -> KeyHashes | IdSpans | None:
        """Return what lies beside a data file; None if there is nothing of use."""
        data_file = holder(handle, part, column)
        if data_file is None:
            return None
        rows, number = part.metadata.physical_rows, field_id(handle, column)
        if _may_ascend(handle, column):
            spans = _opened(
                lambda: IdSpans.open(
                    self.files.open(table_of(handle), spans_name(data_file, number)),
                    covers_of(data_file, number, rows),
                )
            )
            if spans is not None:
                return spans
        return self.stored_hashes(handle, data_file, column, rows)

    def _build(
        self, handle: Handle, part: FragmentLayout, column: str, values: pa.ChunkedArray | None = None
    ) -> KeyHashes | None:
        table_id, data_file = table_of(handle), holder(handle, part, column)
        if data_file is None:
            return None
        if values is None:
            values = self.files.column(table_id, data_file, column)
        return KeyHashes(entries_of(values), len(values))


def _opened(open_file: Callable[[], Opened]) -> Opened | None:
    """Open a derived file; None if there is none of use. One that cannot be read raises `Unreadable`."""
    try:
        return open_file()
    except Unreadable:
        raise
    except Unusable:
        return None


def _may_ascend(handle: Handle, column: str) -> bool:
    """Say whether a column holds ids that are made ascending: those of edges."""
    return column == "id" and "src" in handle.schema.names


def _keyed(handle: Handle, columns: Iterable[str]) -> list[str]:
    """Return the columns of a table that have key hashes."""
    types = {field.name: field.type for field in handle.schema}
    names = dict.fromkeys([*KEYED_COLUMNS, *columns])
    return [name for name in names if hashable(types.get(name, pa.null()))]


def table_of(handle: Handle) -> str:
    """Return the id of an open table."""
    return str(handle.uri).rstrip("/").rpartition("/")[2]


def field_id(handle: Handle, column: str) -> int:
    """Return the number under which files hold a column."""
    return int(handle.lance_schema.field(column).id())


def holder(handle: Handle, part: FragmentLayout, column: str) -> str | None:
    """Return the data file of a fragment that holds a column, if one does."""
    wanted = _leaf_ids(handle.lance_schema.field(column))
    return next((str(file._path) for file in part.metadata.files if wanted.intersection(file.fields)), None)


def _leaf_ids(field: Any) -> set[int]:
    """Return the numbers under which files hold a field: of a list or an object, those of what is in it."""
    children = field.children()
    return {int(field.id())} if not children else set().union(*map(_leaf_ids, children))


def by_fragment(addresses: Addresses) -> dict[int, NDArray[np.int64]]:
    """Split ascending row addresses (fragment above, offset below) by fragment."""
    if not len(addresses):
        return {}
    starts = np.flatnonzero(np.diff(addresses >> 32, prepend=-1))
    return {int(part[0] >> 32): part & OFFSET_MASK for part in np.split(addresses, starts[1:])}
