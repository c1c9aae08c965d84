"""Text index: texts as tokens, the rows that have them, and a first search by Lance's index.

Four parts: analysis turns a text into tokens; distance tells which tokens are within some edits of one;
`Postings` are the texts of one fragment, inverted (parts.py keeps them); and `matches_by_index` searches
a column whose texts are not in memory yet.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.query import MatchQuery
from numpy.typing import NDArray
from Stemmer import Stemmer

from omnigraph.base.dataclass import dataclass
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.entities import EntityTable
from omnigraph.storage.lance_reads import scanner
from omnigraph.storage.tables.effects import IndexSpec, StoredIndexKind
from omnigraph.storage.tables.indexes import TEXT
from omnigraph.storage.tables.layout import ADDRESS

# -- analysis --------------------------------------------------------------------------------------
#
# From text to the tokens that search compares. Documents and queries go through the same steps, in this
# order: words are runs of letters and digits; words over 40 characters are dropped; lower case; accents
# folded to ASCII; English stop words dropped; stems by Snowball's English stemmer (Porter2).
#
# Folding comes before stemming, so that "résumé" and "resume" meet; stop words go before stemming, so
# that "owned" and "willing" stay although their stems "own" and "will" are stop words.
# docs/decisions/0012-search-is-exact.md tells where Lance's analyser differs.


LONGEST = 40
_STOPS = """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can did do does doing down during each few for from further had has have having he her here
    hers herself him himself his how i if in into is it its itself just me more most my myself now of off on
    once only or other our ours ourselves out over own re same she should so some such than that the their
    theirs them themselves then there these they this those through to too under until up very was we were
    what when where which while who whom why will with you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOPS.split())  # the list of Lance's English analyser
# Latin letters that Unicode does not take apart.
_LATIN = {
    "æ": "ae",
    "ð": "d",
    "ø": "o",
    "þ": "th",
    "ß": "ss",
    "đ": "d",
    "ħ": "h",
    "ı": "i",
    "ĸ": "k",
    "ł": "l",
    "ŋ": "n",
    "œ": "oe",
    "ŧ": "t",
}


def analyse(text: str) -> list[str]:
    """Return the tokens of a text, in order and with repetitions.

    >>> analyse("The Crème-Brûlée was RUNNING!")
    ['creme', 'brule', 'run']
    """
    return [token for token in stems(words(text)) if token is not None]


def words(text: str) -> list[str]:
    """Split at everything that is not a letter or a digit; an accent written apart belongs to its letter."""
    composed = text if text.isascii() else unicodedata.normalize("NFC", text)
    return "".join(c if c.isalnum() else " " for c in composed).split()


def stems(word_list: Sequence[str]) -> list[str | None]:
    """Return the token of each word; None where the word is dropped."""
    plain = [plain_word(word) for word in word_list]
    kept = [word for word in plain if word is not None]
    stemmed = iter(Stemmer("english", 0).stemWords(kept))  # a stemmer serves one thread; making one is cheap
    return [None if word is None else next(stemmed) for word in plain]


def plain_word(word: str) -> str | None:
    """Return a word as it is before stemming; None where it is dropped."""
    if not word or len(word) > LONGEST:
        return None
    lower = word.lower() if word.isascii() else "".join(map(fold, word))
    return None if not lower or lower in STOP_WORDS else lower


@lru_cache(maxsize=8_192)
def fold(letter: str) -> str:
    """Return a letter in lower case without its accents; letters outside the Latin script keep theirs.

    >>> fold("É"), fold("ß"), fold("ﬁ"), fold("й")
    ('e', 'ss', 'fi', 'й')
    """
    lower = letter.lower()
    apart = unicodedata.normalize("NFKD", lower)
    latin = "".join(_LATIN.get(part, part) for part in apart).lower()
    return "".join(c for c in latin if c.isascii() and c.isalnum()) or lower


# -- distance --------------------------------------------------------------------------------------
#
# Which of many tokens are within some edits of one: Levenshtein's table, one cell of all tokens at a
# time, and only the cells that can still stay within the edits.


def within(token: str, letters: NDArray[np.uint32], edits: int) -> NDArray[np.bool_]:
    """Say which rows of a matrix of code points, tokens of one length, are within so many edits.

    >>> rows = np.frombuffer("catcowdog".encode("utf-32-le"), dtype=np.uint32).reshape(3, 3)
    >>> within("cot", rows, 1).tolist()
    [True, True, False]
    """
    count, length = letters.shape
    far = edits + 1
    if abs(len(token) - length) > edits:
        return np.zeros(count, dtype=bool)
    start: NDArray[np.int16] = np.full(count, far, dtype=np.int16)
    before = {j: np.full(count, j, dtype=np.int16) for j in range(min(length, edits) + 1)}
    for i, letter in enumerate(token, start=1):
        row: dict[int, NDArray[np.int16]] = {}
        if i <= edits:
            row[0] = np.full(count, i, dtype=np.int16)
        for j in range(max(1, i - edits), min(length, i + edits) + 1):
            changed = before.get(j - 1, start) + (letters[:, j - 1] != ord(letter))
            row[j] = np.minimum(changed, np.minimum(before.get(j, start), row.get(j - 1, start)) + 1)
        before = row
    near: NDArray[np.bool_] = before[length] <= edits
    return near


# -- postings --------------------------------------------------------------------------------------
#
# Tokens are sorted by bytes; the rows of token t, ascending, are `rows[starts[t]:starts[t + 1]]`, and
# `counts` beside them says how often; `lengths` has the number of tokens of each row. Bytes are cut at
# ASCII separators with array operations, and each distinct piece is analysed once: a piece with other
# letters may hold several words.


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
        return int(self.tokens.nbytes + sum(array.nbytes for array in arrays))

    def find(self, token: str) -> slice | None:
        """Return where a token's postings are."""
        encoded = token.encode()
        ends, text = self._text

        def at(number: int) -> bytes:
            return text[ends[number] : ends[number + 1]]

        number = bisect_left(range(len(self.tokens)), encoded, key=at)
        return self.span(number) if number < len(self.tokens) and at(number) == encoded else None

    def span(self, number: int) -> slice:
        """Return where the postings of a token number are."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def similar(self, token: str, edits: int) -> list[int]:
        """Return the numbers of the tokens within so many edits of a token."""
        similar_tokens: list[int] = []
        for length, (numbers, letters) in self._by_length.items():
            if abs(length - len(token)) <= edits:
                similar_tokens += numbers[within(token, letters, edits)].tolist()
        return sorted(similar_tokens)

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
        matrices = {}
        for length in np.unique(lengths).tolist():
            numbers = np.flatnonzero(lengths == length).astype(np.int32)
            joined = "".join(self.tokens.take(pa.array(numbers)).to_pylist())
            letters = np.frombuffer(joined.encode("utf-32-le"), dtype=np.uint32)
            matrices[length] = (numbers, letters.reshape(len(numbers), length))
        return matrices


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
        token_rows = rows[at]
        keys.append((number << 32) | token_rows)
        lengths[rows[0] : rows[-1] + 1] += np.bincount(
            token_rows - rows[0], minlength=rows[-1] + 1 - rows[0]
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
    stemmed = stems([word for piece_words in split for word in piece_words])
    tokens = sorted({token for token in stemmed if token is not None})
    number = {token: n for n, token in enumerate(tokens)}
    numbers = np.array([-1 if token is None else number[token] for token in stemmed], dtype=np.int64)
    owner = np.repeat(np.arange(len(pieces)), [len(piece_words) for piece_words in split])
    kept = numbers >= 0
    starts = np.searchsorted(owner[kept], np.arange(len(pieces) + 1))
    return tokens, _Vocabulary(starts.astype(np.int64), numbers[kept])


# -- search by the stored index --------------------------------------------------------------------
#
# A first search by Lance's full-text index, before the texts are in memory. The index names candidates
# and the analysis above decides. Lance's analyser takes the same steps in another order, which makes no
# difference to words in ASCII when stop words and long words are kept (storage.tables.indexes.TEXT): so
# every match in ASCII is among what the index finds, and texts with other letters are always candidates.
# They are found by a scan, which is much cheaper than analysis.


MOST = 8  # one row in so many: with more candidates, analysing all texts once and for all is worth it


def matches_by_index(table: EntityTable, column: str, query: str) -> Ordinals | None:
    """Return the entities whose text has some token of the query; None where the index does not help."""
    tokens = set(analyse(query))
    if not tokens:
        return np.zeros(0, np.int64)
    if not _complete(table, column):
        return None
    hits = _index_hits(table, column, query)
    if len(hits) * MOST > table.rows:
        return None
    candidates = np.union1d(hits, _foreign(table, column))
    if len(candidates) * MOST > table.rows:
        return None
    texts = invert(pa.chunked_array([table.take(column, candidates)]))
    spans = (texts.find(token) for token in tokens)
    rows = [texts.rows[span] for span in spans if span is not None]
    matching: Ordinals = candidates[np.unique(np.concatenate([np.zeros(0, np.int32), *rows]))]
    return matching


def _complete(table: EntityTable, column: str) -> bool:
    """Say whether a full-text index with the right analysis covers all rows."""
    name = IndexSpec(column, StoredIndexKind.INVERTED).name
    for index in table.handle.describe_indices():
        if index.name == name:
            covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
            living = {fragment.fragment_id for fragment in table.handle.get_fragments()}
            details = index.details
            return living <= covered and all(details.get(key) == value for key, value in TEXT.items())
    return False


def _index_hits(table: EntityTable, column: str, query: str) -> Ordinals:
    """Ask the index for the words of the query; it stems them as it stemmed those of the texts."""
    plain = [plain_word(word) for word in words(query)]
    plain_query = " ".join(word for word in plain if word is not None and word.isascii())
    if not plain_query:
        return np.zeros(0, np.int64)
    scan = scanner(
        table.handle, full_text_query=MatchQuery(plain_query, column), columns=["_score"], with_row_id=True
    )
    return table.ordinals(scan.to_table()["_rowid"].to_numpy())


def _foreign(table: EntityTable, column: str) -> Ordinals:
    """Return the entities whose text has letters beyond ASCII."""
    addresses = [np.zeros(0, np.uint64)]
    for batch in scanner(table.handle, columns=[column], with_row_address=True).to_batches():
        plain = pc.fill_null(pc.string_is_ascii(batch[column]), True)
        addresses.append(batch[ADDRESS].filter(pc.invert(plain)).to_numpy())
    return table.ordinals(np.concatenate(addresses))
