"""Differences: which rows two versions of a table do not share.

Room    storage.tables. A data file never changes, so fragments with the same files hold the same rows, and
        only their deletions can differ; nothing of them is read. Whatever is left is read whole.
Gives   two streams of rows, one for each version. A row that was only moved, by folding or compaction, is in
        both: whoever wants changes compares values (engine/history/delta.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import Layout, Layouts, Part
from omnigraph.storage.tables.predicate import ADDRESS

Offsets = NDArray[np.int64]
OFFSET_MASK = 0xFFFFFFFF
BATCH = 8_192


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of one fragment: all that are alive, or those at some offsets."""

    fragment: int
    rows: int
    offsets: Offsets | None = None


@dataclass(frozen=True, eq=False)
class Side:
    """What one version has and the other has not."""

    handle: Handle | None  # None: there is no such version
    pieces: tuple[Piece, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the version."""
        found: pa.Schema = pa.schema([]) if self.handle is None else self.handle.schema
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Stream some columns of the rows."""
        whole = [piece.fragment for piece in self.pieces if piece.offsets is None]
        if whole and self.handle is not None:
            fragments = [self.handle.get_fragment(number) for number in whole]
            yield from self.handle.scanner(columns=list(columns), fragments=fragments).to_batches()
        for piece in self.pieces:
            if piece.offsets is not None:
                yield from self._picked(piece, columns)

    def _picked(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self.handle is not None
        assert piece.offsets is not None
        for start in range(0, len(piece.offsets), BATCH):
            addresses = (piece.fragment << 32) | piece.offsets[start : start + BATCH]
            table: Any = self.handle._take_rows(addresses.tolist(), columns=list(columns))
            yield from table.to_batches()


def differences(before: Handle | None, after: Handle | None, layouts: Layouts) -> tuple[Side, Side]:
    """Return what only the first version has, and what only the second has."""
    old, new = _parts(before, layouts), _parts(after, layouts)
    gone: list[Piece] = []
    come: list[Piece] = []
    for files in sorted({*old, *new}):
        here, there = old.get(files), new.get(files)
        if here is not None and there is not None and here[1].key == there[1].key:
            continue
        if here is None or there is None:
            (come if here is None else gone).append(_whole(here or there))
            continue
        alive = _alive(before, *here), _alive(after, *there)
        _add(gone, here[0], np.setdiff1d(alive[0], alive[1], assume_unique=True))
        _add(come, there[0], np.setdiff1d(alive[1], alive[0], assume_unique=True))
    return Side(before, tuple(gone)), Side(after, tuple(come))


def _parts(handle: Handle | None, layouts: Layouts) -> dict[tuple[bytes, str], tuple[int, Part]]:
    """Return the fragments of a version by what they hold: fragment numbers mean nothing elsewhere."""
    layout: Layout | None = None if handle is None else layouts.get(handle)
    parts = {} if layout is None else layout.parts
    return {part.key[:2]: (number, part) for number, part in parts.items()}


def _whole(found: tuple[int, Part] | None) -> Piece:
    assert found is not None
    number, part = found
    return Piece(number, part.size.rows)


def _alive(handle: Handle | None, number: int, part: Part) -> Offsets:
    """Return the places of the rows of a fragment that are not deleted; reads no column."""
    if part.metadata.deletion_file is None:
        return np.arange(part.metadata.physical_rows, dtype=np.int64)
    assert handle is not None
    scan = handle.scanner(columns=[], fragments=[handle.get_fragment(number)], with_row_address=True)
    return np.sort(scan.to_table()[ADDRESS].to_numpy().astype(np.int64) & OFFSET_MASK)


def _add(pieces: list[Piece], number: int, offsets: Offsets) -> None:
    if len(offsets):
        pieces.append(Piece(number, len(offsets), offsets))
