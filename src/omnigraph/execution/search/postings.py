"""Postings: the tokens of one fragment's texts, and the rows that have them.

Room    execution.search. Built once for each fragment (parts.py keeps it).
Layout  tokens are sorted by bytes; the rows of token t, ascending, are `rows[starts[t]:starts[t + 1]]`, and
        `counts` beside them says how often; `lengths` has the number of tokens of each row.
How     bytes are cut at ASCII separators with array operations and each distinct piece is analysed once.
        Pieces with other letters may hold several words, which analysis.py tells apart.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.execution.search.analysis import stems, words
from omnigraph.execution.search.distance import within

PIECE_ROWS = 1_000  # small arrays are reused by the allocator; large ones cost page faults each time
Numbers = NDArray[np.int32]
_INSIDE = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])  # bytes of a piece
_ROW = (1 << 32) - 1


@dataclass(frozen=True, eq=False)
class Postings:
    """One fragment's texts, inverted."""

    tokens: pa.StringArray
    starts: NDArray[np.int64]
    rows: Numbers
    counts: Numbers
    lengths: Numbers
    present: NDArray[np.bool_]  # rows whose text is not null

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        arrays = (self.starts, self.rows, self.counts, self.lengths, self.present)
        return int(self.tokens.nbytes + sum(one.nbytes for one in arrays))

    def find(self, token: str) -> slice | None:
        """Return where a token's postings are."""
        wanted = token.encode()
        ends, text = self._text

        def at(number: int) -> bytes:
            return text[ends[number] : ends[number + 1]]

        number = bisect_left(range(len(self.tokens)), wanted, key=at)
        return self.span(number) if number < len(self.tokens) and at(number) == wanted else None

    def span(self, number: int) -> slice:
        """Return where the postings of a token number are."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def similar(self, token: str, edits: int) -> list[int]:
        """Return the numbers of the tokens within so many edits of a token."""
        found: list[int] = []
        for length, (numbers, letters) in self._by_length.items():
            if abs(length - len(token)) <= edits:
                found += numbers[within(token, letters, edits)].tolist()
        return sorted(found)

    @cached_property
    def _text(self) -> tuple[memoryview, bytes]:
        """Where each token ends, and the bytes of all: quicker to look at than Arrow's values."""
        if not len(self.tokens):
            return memoryview(b""), b""
        _, ends, text = self.tokens.buffers()
        return memoryview(ends).cast("i"), text.to_pybytes() if text is not None else b""

    @cached_property
    def _by_length(self) -> dict[int, tuple[Numbers, NDArray[np.uint32]]]:
        """The tokens of each length as a matrix of code points."""
        lengths = pc.utf8_length(self.tokens).to_numpy(zero_copy_only=False)
        found = {}
        for length in np.unique(lengths).tolist():
            numbers = np.flatnonzero(lengths == length).astype(np.int32)
            joined = "".join(self.tokens.take(pa.array(numbers)).to_pylist())
            letters = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
            found[length] = (numbers, letters.reshape(len(numbers), length))
        return found


def invert(texts: pa.ChunkedArray) -> Postings:
    """Analyse the texts of a fragment."""
    whole = pc.fill_null(texts, "")
    cut = [_cut(whole, first) for first in range(0, len(whole), PIECE_ROWS)]
    cut = [(pieces, rows) for pieces, rows in cut if len(pieces)]
    encoded = pa.chunked_array([pieces for pieces, _ in cut], pa.string()).dictionary_encode()
    tokens, vocabulary = _analysed(encoded.chunk(0).dictionary.to_pylist() if cut else [])
    lengths = np.zeros(len(texts), dtype=np.int32)
    keys = [np.zeros(0, np.int64)]
    for codes, (_, rows) in zip(encoded.chunks, cut, strict=True):
        at, number = vocabulary.of(codes.indices.to_numpy())
        found = rows[at]
        keys.append((number << 32) | found)
        lengths[rows[0] : rows[-1] + 1] += np.bincount(
            found - rows[0], minlength=rows[-1] + 1 - rows[0]
        ).astype(np.int32)
    starts, posted, counts = _posted(np.concatenate(keys), len(tokens))
    present = texts.is_valid().to_numpy()
    return Postings(pa.array(tokens, pa.string()), starts, posted, counts, lengths, present)


def _posted(keys: NDArray[np.int64], tokens: int) -> tuple[NDArray[np.int64], Numbers, Numbers]:
    """Sort occurrences (token in the upper half, row in the lower) and count equal ones."""
    keys.sort()
    new = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    at = np.flatnonzero(new)
    counts = np.diff(at, append=len(keys)).astype(np.int32)
    distinct = keys[at]
    starts = np.searchsorted(distinct, np.arange(tokens + 1, dtype=np.int64) << 32).astype(np.int64)
    return starts, (distinct & _ROW).astype(np.int32), counts


def _cut(whole: pa.ChunkedArray, row: int) -> tuple[pa.StringArray, NDArray[np.int64]]:
    """Return the pieces of some texts, from a row on, and the row of each."""
    texts = pa.concat_arrays(whole.slice(row, PIECE_ROWS).chunks)
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    text = np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    inside = _INSIDE[text]
    first, last = inside.copy(), inside.copy()
    first[1:] &= ~inside[:-1]
    last[:-1] &= ~inside[1:]
    edges = ends[(ends > 0) & (ends < len(text))]  # texts lie one after the other: none reaches into the next
    first[edges] = inside[edges]
    last[edges - 1] = inside[edges - 1]
    starts = np.flatnonzero(first)
    lengths = np.flatnonzero(last) + 1 - starts
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    pieces = pa.StringArray.from_buffers(len(starts), pa.py_buffer(bounds), pa.py_buffer(text[inside]))
    return pieces, np.searchsorted(ends, starts, side="right") - 1 + row


@dataclass(frozen=True, eq=False)
class _Vocabulary:
    """The token numbers of each distinct piece: most have one or, dropped, none."""

    starts: NDArray[np.int64]
    numbers: NDArray[np.int64]

    def of(self, pieces: Numbers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (position in `pieces`, token number) of every token."""
        first = self.starts[pieces]
        counts = self.starts[pieces + 1] - first
        at = np.repeat(np.arange(len(pieces)), counts)
        within_piece = np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
        return at, self.numbers[first[at] + within_piece]


def _analysed(pieces: list[str]) -> tuple[list[str], _Vocabulary]:
    """Return the distinct tokens in order, and those of each piece."""
    split = [[piece] if piece.isascii() else words(piece) for piece in pieces]
    stemmed = stems([word for one in split for word in one])
    tokens = sorted({token for token in stemmed if token is not None})
    number = {token: n for n, token in enumerate(tokens)}
    numbers = np.array([-1 if token is None else number[token] for token in stemmed], dtype=np.int64)
    owner = np.repeat(np.arange(len(pieces)), [len(one) for one in split])
    kept = numbers >= 0
    starts = np.searchsorted(owner[kept], np.arange(len(pieces) + 1))
    return tokens, _Vocabulary(starts.astype(np.int64), numbers[kept])
