"""Key hashes: where in a data file a value may stand, without reading the file; and ids that ascend.

For one column of one data file: a 64-bit hash of each value, with the number of its row in the low bits, in
order. So one sorted array of 8 bytes a row tells which rows may hold a value, and that no row does. A hash
never decides: whoever gets rows reads the values and compares. Nulls have no entry.

    hash of the value ....................... | row
    63                                    bits        0

Hashes are spread evenly, so the position of one can be estimated from its value; one window of the file then
finds it.

Ids that a load makes for edges ascend in each file. There every 1,024th of them is enough: it says which rows
to look at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.storage.derived.blocks import BlockFile, Unusable

KIND = "keys"
ARRAY = "hashes"
Hashes = NDArray[np.uint64]
Rows = NDArray[np.int64]

_M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_HALF = np.uint64(32)
_ALL = (1 << 64) - 1
# One for all tables, so that the hashes of ends and of ids can be joined. Whoever chooses ids could make many
# with one hash: that costs look-ups of those ids time, and never an answer.
SEED = 0x6F6D6E6967726170
ONE_BY_ONE = 8
STRETCH = 1 << 15  # values hashed together: what that takes stays in the processor's cache
FEW = 64  # values that are looked up by a window each; beyond, the whole array is searched
WORD = 8


def covers_of(data_file: str, field_id: int, rows: int) -> dict[str, Any]:
    """Return what the key hashes of one column of a data file say they are about."""
    return {"file": data_file, "field": field_id, "rows": rows, "seed": SEED}


def hashable(kind: pa.DataType) -> bool:
    """Say whether values of a stored type can be looked up by hash."""
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def hashes_of(values: pa.Array | pa.ChunkedArray, seed: int = SEED) -> Hashes:
    """Return the hash of each value, none of them null."""
    if len(values) <= ONE_BY_ONE and pa.types.is_string(values.type):
        texts = (text.encode() for text in values.to_pylist())
        return np.array([_one_text(text, seed) for text in texts], dtype=np.uint64)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    hash_chunk = _texts if pa.types.is_string(values.type) else _numbers
    start = np.uint64(seed & 0xFFFFFFFFFFFFFFFF)
    with np.errstate(over="ignore"):
        parts = [
            hash_chunk(chunk.slice(at, STRETCH), start)
            for chunk in chunks
            for at in range(0, len(chunk), STRETCH)
        ]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def _texts(texts: pa.Array, seed: np.uint64) -> Hashes:
    """Hash texts word by word, all texts at once."""
    _, ends, content = texts.buffers()
    offsets = np.frombuffer(ends, np.int32, len(texts) + 1, texts.offset * 4).astype(np.int64)
    raw = b"" if content is None else memoryview(content)[int(offsets[0]) : int(offsets[-1])]
    padded = np.frombuffer(bytes(raw) + bytes(WORD), np.uint8)
    words = np.ndarray((len(padded) - WORD + 1,), "<u8", padded.data, strides=(1,))  # one at every byte
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    hashes = (lengths.astype(np.uint64) ^ seed) * _M1
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    for at in range(0, longest, WORD):
        if at + WORD <= shortest:  # a whole word of every text
            mixed = (hashes ^ words[starts + at]) * _M2
            hashes = mixed ^ (mixed >> _HALF)
            continue
        live = np.flatnonzero(lengths > at)
        left = np.minimum(lengths[live] - at, WORD).astype(np.uint64)
        cut = np.uint64(64) - np.uint64(8) * left
        word = words[starts[live] + at] << cut >> cut
        mixed = (hashes[live] ^ word) * _M2
        hashes[live] = mixed ^ (mixed >> _HALF)
    hashes *= _M1
    return hashes ^ (hashes >> _HALF)


def _one_text(text: bytes, seed: int) -> int:
    """Hash one text, as `_texts` does: for a few of them that takes a fraction of the time."""
    mixed = ((len(text) ^ seed) * int(_M1)) & _ALL
    for at in range(0, len(text), WORD):
        mixed = ((mixed ^ int.from_bytes(text[at : at + WORD], "little")) * int(_M2)) & _ALL
        mixed ^= mixed >> 32
    mixed = (mixed * int(_M1)) & _ALL
    return mixed ^ (mixed >> 32)


def _numbers(numbers: pa.Array, seed: np.uint64) -> Hashes:
    width = numbers.type.bit_width
    plain = (
        numbers
        if pa.types.is_integer(numbers.type)
        else numbers.view(pa.int64() if width == 64 else pa.int32())
    )
    signed = plain.cast(pa.uint64() if pa.types.is_unsigned_integer(plain.type) else pa.int64())
    words: Hashes = signed.to_numpy(zero_copy_only=False).view(np.uint64)
    hashes = (words ^ seed) * _M1
    hashes ^= hashes >> _HALF
    hashes *= _M2
    return hashes ^ (hashes >> _HALF)


def row_bits(rows: int) -> int:
    """Return how many low bits of an entry number the rows of a file."""
    return max(rows - 1, 0).bit_length()


def entries_of(values: pa.Array | pa.ChunkedArray) -> Hashes:
    """Return the entries of a whole column of a file, sorted."""
    bits = np.uint64(row_bits(len(values)))
    rows = np.arange(len(values), dtype=np.uint64)
    if values.null_count:
        present = pc.is_valid(values)
        values, rows = values.filter(present), rows[np.asarray(present)]
    entries = (hashes_of(values) >> bits << bits) | rows
    entries.sort()  # hash above, row below: one sort, and no order to apply
    return entries


def spread(begins: Rows, counts: Rows) -> tuple[Rows, Rows]:
    """Return (which list, place in the array) of all entries of some lists."""
    which = np.repeat(np.arange(len(counts)), counts)
    return which, np.arange(int(counts.sum())) + np.repeat(begins - (np.cumsum(counts) - counts), counts)


@dataclass(frozen=True, eq=False)
class KeyHashes:
    """The entries of one column of one file: those of a derived file, or computed here."""

    computed: Hashes  # none where there is a file
    rows: int  # of the data file, deleted or not
    file: BlockFile | None = None

    @classmethod
    def open(cls, file: BlockFile, covers: Mapping[str, Any]) -> KeyHashes:
        """Return what a file holds, if it is about the very column of the very file that is asked for."""
        if file.header.kind != KIND or file.header.covers != covers or ARRAY not in file.arrays:
            raise Unusable("it is about other rows")
        return cls(np.zeros(0, np.uint64), int(covers["rows"]), file)

    @property
    def entries(self) -> Hashes:
        """The entries; of a file, ask for them after those that are wanted were checked."""
        return self.computed if self.file is None else self.file.arrays[ARRAY]

    @property
    def nbytes(self) -> int:
        """Memory taken by this process alone."""
        return self.file.held_bytes if self.file is not None else int(self.entries.nbytes)

    def find(self, hashes: Hashes) -> tuple[Rows, Rows]:
        """Return (which hash, row) of the rows that may hold the values of some hashes."""
        if len(hashes) <= FEW:
            return self._find_few(hashes.tolist())
        bits = np.uint64(row_bits(self.rows))
        low = hashes >> bits << bits
        high = low | ((np.uint64(1) << bits) - np.uint64(1))
        entries = self.whole()
        begins, ends = np.searchsorted(entries, low, "left"), np.searchsorted(entries, high, "right")
        which, at = spread(begins, ends - begins)
        return which, (entries[at] & (high[which] - low[which])).astype(np.int64)

    def _find_few(self, hashes: list[int]) -> tuple[Rows, Rows]:
        """Do the same in Python's numbers: for a few values arrays cost more than the search."""
        bits = row_bits(self.rows)
        row_mask = (1 << bits) - 1
        lows = [value >> bits << bits for value in hashes]
        if self.file is not None:  # all at once: requests for them go out together
            self.file.ensure(ARRAY, [self._around(low) for low in lows])
        which: list[int] = []
        rows: list[int] = []
        for number, low in enumerate(lows):
            begin, end = self._window(low, low | row_mask)
            if end > begin:
                rows += [entry & row_mask for entry in self.entries[begin:end].tolist()]
                which += [number] * (end - begin)
        return np.array(which, np.int64), np.array(rows, np.int64)

    def whole(self) -> Hashes:
        """Return all entries."""
        return self.entries if self.file is None else self.file.whole(ARRAY)

    def _around(self, low: int) -> tuple[int, int]:
        """Return the part of the array where an entry can be expected."""
        count = len(self.entries)
        estimate, reach = low * count >> 64, 4 * int(count**0.5) + 64
        return max(estimate - reach, 0), min(estimate + reach, count)

    def _window(self, low: int, high: int) -> tuple[int, int]:
        """Return where the entries from one to another stand, looking at one part of the array, checked."""
        count = len(self.entries)
        begin, end = self._around(low)
        window = self.entries[begin:end]
        first = int(np.searchsorted(window, np.uint64(low), "left"))
        last = int(np.searchsorted(window, np.uint64(high), "right"))
        if (first == 0 and begin > 0) or (last == len(window) and end < count):
            # the estimate was off: search the whole array
            entries = self.whole()
            return (
                int(np.searchsorted(entries, np.uint64(low), "left")),
                int(np.searchsorted(entries, np.uint64(high), "right")),
            )
        return begin + first, begin + last


# -- ids that ascend -------------------------------------------------------------------------------

SPANS_KIND = "id spans"
EVERY = 1_024  # one id in so many is kept
ALONE = 6  # a span that is read alone takes the time of so many read in a row (measured, local disk)
TEXT_OVERHEAD = 41  # bytes of a Python text and its place in a list
ReadIds = Callable[[int, int], pa.Array]  # (first row, how many) -> ids


@dataclass(frozen=True, eq=False)
class IdSpans:
    """Ids of one file, which ascend: the first of each span of rows."""

    ends: NDArray[np.int32]  # where each text ends
    content: NDArray[np.uint8]
    rows: int

    @classmethod
    def of(cls, ids: pa.ChunkedArray) -> IdSpans | None:
        """Return the spans of ids, if they ascend."""
        whole = pa.concat_arrays(ids.chunks) if ids.num_chunks else pa.array([], pa.string())
        if whole.null_count or not pc.all(pc.less(whole[:-1], whole[1:])).as_py():
            return None
        chosen = [text.encode() for text in whole.take(pa.array(np.arange(0, len(whole), EVERY))).to_pylist()]
        ends = np.cumsum([len(text) for text in chosen], dtype=np.int32)
        return cls(ends, np.frombuffer(b"".join(chosen), np.uint8), len(whole))

    @classmethod
    def open(cls, file: BlockFile, covers: Mapping[str, Any]) -> IdSpans:
        """Return what a file holds, if it is about the ids of the very file that is asked for."""
        if file.header.kind != SPANS_KIND or file.header.covers != covers:
            raise Unusable("it is about other rows")
        ends, content = file.whole("ends").copy(), file.whole("content").copy()  # small: the file can go
        return cls(ends, content, int(covers["rows"]))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a derived file holds."""
        return {"ends": self.ends, "content": self.content}

    @property
    def nbytes(self) -> int:
        """Memory taken, texts for searching included."""
        return int(2 * self.content.nbytes + (self.ends.itemsize + TEXT_OVERHEAD) * len(self.ends))

    @cached_property
    def _texts(self) -> list[bytes]:
        whole = self.content.tobytes()
        return [whole[begin:end] for begin, end in pairwise([0, *self.ends.tolist()])]

    def find(self, ids: pa.Array, read: ReadIds) -> tuple[Rows, Rows]:
        """Return (which id, row) of ids that the file has; reads the spans where they would be."""
        by_span: dict[int, list[int]] = {}
        for which, text in enumerate(ids.to_pylist()):
            span = bisect_right(self._texts, text.encode()) - 1
            if span >= 0:
                by_span.setdefault(span, []).append(which)
        if len(by_span) * EVERY * ALONE > self.rows:  # one pass over all ids is quicker
            return self._find_in_all(ids, read)
        hits: list[tuple[int, int]] = []
        for span, wanted in sorted(by_span.items()):
            stored = read(span * EVERY, min(EVERY, self.rows - span * EVERY))
            at = pc.index_in(ids.take(pa.array(wanted)), value_set=stored).to_pylist()
            hits += [(w, span * EVERY + row) for w, row in zip(wanted, at, strict=True) if row is not None]
        pairs = np.array(hits, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _find_in_all(self, ids: pa.Array, read: ReadIds) -> tuple[Rows, Rows]:
        stored = read(0, self.rows)
        rows = np.flatnonzero(np.asarray(pc.is_in(stored, value_set=ids)))
        place = pc.index_in(ids, value_set=stored.take(pa.array(rows)))  # an id may be asked for twice
        which = np.flatnonzero(np.asarray(place.is_valid()))
        return which, rows[np.asarray(place.take(pa.array(which)), dtype=np.int64)]
