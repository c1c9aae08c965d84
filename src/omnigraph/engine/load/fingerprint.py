"""Fingerprint: what tells one input from another, so that an idempotency key stands for one load.

    raw rows -> **fingerprint** -> claim

Fed by the sources with what the caller gave, before any of it is matched with a schema: lines of JSON,
fields of CSV, dictionaries, columns under their own names.

Rule    a function of the rows alone. Neither the schema, nor how the input is cut, nor the order in which its
        parts are read is in it: a row has a hash, and the rows of a type have the sum of theirs.
Note    hashes are of 64 bits: two inputs of one caller are taken for each other once in 2^64, and nothing
        defends against somebody who looks for two that are alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as kinds

from omnigraph.engine.load.arrow import decoded
from omnigraph.storage.claims import spelling

Hashes = NDArray[np.uint64]
_MODULUS = 1 << 64
_WORD = 8
_WORDS = 32  # of a value: what is longer is hashed by itself
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
_NULL = np.uint64(0x9E3779B97F4A7C15)


class Fingerprint:
    """The rows of an input so far, by the type that the caller named; "" where the rows name it."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, int]] = {}  # name -> rows, sum of their hashes

    def add(self, other: Fingerprint) -> None:
        """Take in the rows of another part of the input."""
        for name, (rows, total) in other._sums.items():
            self._add(name, rows, total)

    def text(self, name: str | None, text: str) -> None:
        """Take in a row that is a text."""
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._add(name or "", 1, int.from_bytes(digest, "little"))

    def record(self, name: str | None, record: Any) -> None:
        """Take in a row that is a dictionary, or should be one."""
        self.text(name, spelling(record))

    def columns(self, name: str, names: Sequence[str], columns: Sequence[Any], rows: int) -> None:
        """Take in rows by column: Arrow arrays, or lists of values. A null is as good as no column."""
        hashes = np.zeros(rows, np.uint64)
        for column_name, column in zip(names, columns, strict=True):
            seed = np.frombuffer(hashlib.blake2b(column_name.encode(), digest_size=8).digest(), np.uint64)
            values, valid = _hashed(column)
            hashes += np.where(valid, _mixed(values ^ seed), np.uint64(0))
        self._add(name, rows, int(_mixed(hashes).sum(dtype=np.uint64)))

    def _add(self, name: str, rows: int, total: int) -> None:
        known_rows, known = self._sums.get(name, (0, 0))
        self._sums[name] = (known_rows + rows, (known + total) % _MODULUS)

    def digest(self) -> str:
        """Return the fingerprint so far."""
        parts = sorted((name, *sums) for name, sums in self._sums.items() if sums[0])
        return hashlib.sha256(repr(parts).encode()).hexdigest()


# -- hashes of values, whole columns at a time -------------------------------------------------------


def _mixed(values: Hashes) -> Hashes:
    """Return each number as another one that depends on all of its bits (the finalizer of splitmix64)."""
    mixed = values + _NULL
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _hashed(column: Any) -> tuple[Hashes, NDArray[np.bool_]]:
    """Return the hash of each value, and which of them are not null."""
    if isinstance(column, list):
        return _one_by_one(column), np.array([value is not None for value in column], bool)
    array = decoded(column)
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return _of_array(array), valid


def _of_array(array: pa.Array) -> Hashes:
    kind = array.type
    if kinds.is_null(kind):
        return np.zeros(len(array), np.uint64)
    if kinds.is_boolean(kind):
        return _mixed(pc.fill_null(array, False).to_numpy(zero_copy_only=False).astype(np.uint64))
    if kinds.is_floating(kind):
        return _mixed(_numbers(array.cast(pa.float64()), 0.0).view(np.uint64))
    if kinds.is_unsigned_integer(kind):
        return _mixed(_numbers(array.cast(pa.uint64()), 0))
    if kinds.is_integer(kind):
        return _mixed(_numbers(array.cast(pa.int64()), 0).view(np.uint64))
    if kinds.is_date32(kind) or kinds.is_time32(kind):
        return _of_array(array.cast(pa.int32()))
    if kinds.is_temporal(kind) and not kinds.is_interval(kind):
        return _of_array(array.cast(pa.int64()))
    if kinds.is_string(kind) or kinds.is_binary(kind) or kinds.is_large_string(kind):
        return _of_bytes(array.cast(pa.large_binary()))
    if kinds.is_large_binary(kind):
        return _of_bytes(array)
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return _of_lists(array)
    return _one_by_one(array.to_pylist())


def _numbers(array: pa.Array, filler: float) -> NDArray[Any]:
    filled = pc.fill_null(array, filler) if array.null_count else array
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))


def _of_bytes(array: pa.Array) -> Hashes:
    """Hash byte strings word by word, all rows at once; the few long ones each by itself."""
    rows = len(array)
    _, offset_buffer, content = array.buffers()
    if not rows:
        return np.zeros(0, np.uint64)
    offsets = np.frombuffer(offset_buffer, np.int64)[array.offset : array.offset + rows + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    held = np.zeros(last - first + _WORD, np.uint8)  # with room to read a word from the last byte on
    if last > first:
        held[:-_WORD] = np.frombuffer(content, np.uint8)[first:last]
    words: Hashes = np.ndarray(shape=(last - first + 1,), dtype="<u8", buffer=held.data, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    lengths = np.where(pc.is_valid(array).to_numpy(zero_copy_only=False), lengths, 0)
    hashes = _mixed(lengths.astype(np.uint64))
    active = np.flatnonzero(lengths)
    for done in range(0, _WORD * _WORDS, _WORD):
        if not len(active):
            return hashes
        left = np.minimum(lengths[active] - done, _WORD)
        hashes[active] = _mixed(hashes[active] ^ (words[starts[active] + done] & _MASKS[left]))
        active = active[lengths[active] > done + _WORD]
    for row in active:
        value = held[starts[row] : starts[row] + lengths[row]]
        hashes[row] = np.frombuffer(hashlib.blake2b(value.data, digest_size=8).digest(), np.uint64)[0]
    return hashes


def _of_lists(array: pa.Array) -> Hashes:
    """Hash lists from the hashes of their elements and where these stand."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = np.where(pc.is_valid(array).to_numpy(zero_copy_only=False), lengths, 0)
    elements, valid = _hashed(pc.list_flatten(array))
    ends = np.cumsum(lengths)
    places = np.arange(len(elements), dtype=np.int64) - np.repeat(ends - lengths, lengths)
    placed = _mixed(np.where(valid, elements, _NULL) + _mixed(places.astype(np.uint64)))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    return _mixed(sums[ends] - sums[ends - lengths] + lengths.astype(np.uint64))


def _one_by_one(values: Iterable[Any]) -> Hashes:
    """Hash values of any sort."""
    digests = (hashlib.blake2b(spelling(value).encode(), digest_size=8).digest() for value in values)
    return np.frombuffer(b"".join(digests), np.uint64)
