"""Hashes: texts as two numbers of 64 bits, for questions whose answer is nearly always "nothing".

Room    pipeline. Pure. Joins of numbers are several times faster than joins of texts, and less travels.
Rule    different hashes prove different texts. Equal ones only suggest equal texts: whoever finds something
        asks again with the texts themselves. Where equal hashes are taken for equal texts (an end of an edge
        that is there) both must agree: 128 bits, with seeds drawn anew for each check, so that the chance to
        miss anything among 10^9 edges and 10^9 nodes is below 10^-19, whoever chose the texts.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Words: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"
Letters: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_WORD = 8
_FACTORS = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Seeds:
    """What makes the hashes of one check unlike those of any other."""

    first: int
    second: int

    @classmethod
    def fresh(cls) -> Seeds:
        """Draw new ones."""
        return cls(secrets.randbits(64), secrets.randbits(64))


def hash_texts(texts: pa.Array, seeds: Seeds) -> tuple[pa.Array, pa.Array]:
    """Return two hashes of each text; null where it is null."""
    mask = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    _, offset_bytes, content = texts.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    found = np.empty((2, len(texts)), np.uint64)
    for length in np.unique(lengths):  # texts of one length are a block
        rows = np.flatnonzero(lengths == length)
        words = _words(letters, starts[rows], int(length))
        for column, seed in enumerate((seeds.first, seeds.second)):
            found[column, rows] = _hashed(words, seed ^ (int(length) << 32))
    first, second = found.view(np.int64)
    return pa.array(first, mask=mask), pa.array(second, mask=mask)


def _words(letters: Letters, starts: Places, length: int) -> Words:
    """Return texts of one length as rows of words, filled up with zeros."""
    count = -(-length // _WORD)
    padded = np.zeros((len(starts), count * _WORD), np.uint8)
    if length and len(starts) and int(starts[-1] - starts[0]) == (len(starts) - 1) * length:
        padded[:, :length] = letters[starts[0] : starts[0] + len(starts) * length].reshape(-1, length)
    elif length:
        padded[:, :length] = letters[starts[:, None] + np.arange(length)]
    return padded.view("<u8")


def _hashed(words: Words, seed: int) -> Words:
    """Hash rows of words, one column after the other."""
    now = np.uint64(seed & (2**64 - 1))
    with np.errstate(over="ignore"):
        found = np.full(len(words), _mixed(np.array([now]))[0])
        for column in range(words.shape[1]):
            now = now + _STEP
            found = _mixed(found ^ words[:, column] ^ now)
    return found


def _mixed(words: Words) -> Words:
    """Spread each bit over all others; different words stay different."""
    for factor in _FACTORS:
        words = (words ^ (words >> _SHIFT)) * factor
    return words ^ (words >> _SHIFT)
