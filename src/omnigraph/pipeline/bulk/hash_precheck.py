"""Hash precheck: whether a question could have an answer at all, found out with hashes instead of texts.

    relation -> narrowed -> **DataFrames of numbers** -> "surely nothing", or "ask with the texts"

Nearly every check of a load finds nothing, and most of its cost is texts on their way through joins: here a
text is two numbers, and only the columns that decide are read.

Rule    may report too much, never too little, so that "surely nothing" is an answer. Joins and repetitions
        go by the first hash alone: equal texts have equal hashes. What takes rows away (anti joins) needs
        both hashes to agree before it takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from omnigraph.base.dataclass import dataclass
from omnigraph.base.ids import random_bits
from omnigraph.engine.validate.relation import (
    Anti,
    Join,
    Outside,
    Pick,
    Read,
    Relation,
    Semi,
    Shared,
    Union,
)

BROADCAST_ROWS = 4_000_000  # of two numbers each: about 130 MB in a process of Spark's
ROWS_SORTED_AT_ONCE = 2_000_000
SECOND = "_2"  # ends the name of a second hash

Scan = Callable[[Read], DataFrame]  # rows with texts as hashes
Rows = Callable[[Read], int]


def narrowed(relation: Relation, needed: frozenset[str] = frozenset()) -> Relation:
    """Return a relation that has rows if and only if the given one has, reading only what decides."""
    match relation:
        case Read():
            kept = tuple(column for column in relation.columns if column[0] in needed)
            columns = relation.columns if relation.complete else kept or relation.columns[:1]
            return replace(relation, columns=columns, label=())
        case Join(left, right, on):
            every = needed | set(on)
            return Join(narrowed(left, every), narrowed(right, every), on)
        case Semi(left, right, on):
            return Semi(narrowed(left, needed | set(on)), narrowed(right, frozenset(on)), on)
        case Anti(left, right, on):
            return Anti(narrowed(left, needed | set(on)), narrowed(right, frozenset(on)), on)
        case Union(parts):
            return Union(tuple(narrowed(part, needed) for part in parts))
        case Pick(of, columns):
            return Pick(narrowed(of, frozenset(columns)), columns)
        case Shared(of, by, _):
            return Shared(narrowed(of, frozenset(by)), by, by[0])
        case Outside():
            return relation  # counts what is there: nothing can be left out
        case _:
            assert_never(relation)


def decidable(relation: Relation) -> bool:
    """Say whether hashes can answer: not where rows are counted."""
    match relation:
        case Outside():
            return False
        case Read():
            return True
        case Join(left, right) | Semi(left, right) | Anti(left, right):
            return decidable(left) and decidable(right)
        case Union(parts):
            return all(map(decidable, parts))
        case Pick(of) | Shared(of):
            return decidable(of)
        case _:
            assert_never(relation)


class HashPrecheck:
    """Evaluates relations over hashes."""

    def __init__(self, scan: Scan, rows: Rows) -> None:
        self._scan = scan
        self._rows = rows

    def surely_nothing(self, relation: Relation) -> bool:
        """Say whether a relation is empty; False when it may not be."""
        small = narrowed(relation)
        if isinstance(small, Shared):
            return self._all_different(small)
        return not self._of(small).count()  # `head` would cut workers off, which they complain about

    def _of(self, relation: Relation) -> DataFrame:
        match relation:
            case Read():
                return self._scan(relation)
            case Join(left, right, on):
                return self._of(left).join(_only_first(self._light(right), on), list(on))
            case Semi(left, right, on):
                return self._of(left).join(self._light(right).select(*on), list(on), "left_semi")
            case Anti(left, right, on):
                return self._anti(left, right, on)
            case Union(parts):
                frames = [self._of(part) for part in parts]
                return reduce(DataFrame.union, [frame.select(*frames[0].columns) for frame in frames])
            case Pick(of, columns):
                frame = self._of(of)
                return frame.select(*_with_seconds(frame, columns)).distinct()
            case Shared(of, by, _):
                return self._of(of).groupBy(*by).agg(f.count(f.lit(1)).alias("n")).where("n > 1")
            case Outside():
                raise AssertionError("not decidable by hashes")
            case _:
                assert_never(relation)

    def _anti(self, left: Relation, right: Relation, on: tuple[str, ...]) -> DataFrame:
        """Take away a row only when both hashes of every column agree with a partner's."""
        mine, other = self._of(left), self._light(right)
        seconds = [name for name in _with_seconds(mine, on) if name not in on]
        marked = other.select(*on, *(f.col(name).alias(f"{name}_there") for name in seconds)).withColumn(
            "_there", f.lit(True)
        )
        both = mine.join(marked, list(on), "left")
        alike = reduce(
            lambda so_far, name: so_far & (f.col(name) == f.col(f"{name}_there")),
            seconds,
            f.col("_there").isNotNull(),
        )
        return both.where(~f.coalesce(alike, f.lit(False))).select(*mine.columns)

    def _light(self, relation: Relation) -> DataFrame:
        """Return a side of a join, sent to every executor when it is small: Spark cannot know that it is."""
        frame = self._of(relation)
        return f.broadcast(frame) if self._most(relation) <= BROADCAST_ROWS else frame

    def _most(self, relation: Relation) -> int:
        """Return how many rows a relation can have at most."""
        match relation:
            case Read():
                return self._rows(relation)
            case Union(parts):
                return sum(map(self._most, parts))
            case Semi(left) | Anti(left):
                return self._most(left)
            case Pick(of) | Shared(of) | Outside(of):
                return self._most(of)
            case Join(left, right):
                return self._most(left) + self._most(right)  # a guess: keys are mostly unique
            case _:
                assert_never(relation)

    def _all_different(self, relation: Shared) -> bool:
        """Look for equal hashes: each task sorts its share and compares neighbours."""
        frame = self._of(relation.of)
        if len(relation.by) > 1:
            return not self._of(relation).count()
        column = relation.by[0]
        parts = 1 + self._most(relation.of) // ROWS_SORTED_AT_ONCE
        shares = frame.select(column).where(f.col(column).isNotNull()).repartition(parts, column)
        return not shares.mapInArrow(_repeated, "n long").count()


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = [batch.column(0).to_numpy(zero_copy_only=False) for batch in batches]
    numbers = np.sort(np.concatenate(held)) if held else np.empty(0, np.int64)
    if len(numbers) > 1 and bool((numbers[1:] == numbers[:-1]).any()):
        yield pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int64())})


def _with_seconds(frame: DataFrame, columns: tuple[str, ...]) -> list[str]:
    names = [*columns, *(f"{name}{SECOND}" for name in columns)]
    return [name for name in names if name in frame.columns]


def _only_first(frame: DataFrame, on: tuple[str, ...]) -> DataFrame:
    """Leave out the second hashes of the columns that are joined: the left has them already."""
    return frame.drop(*(f"{name}{SECOND}" for name in on))


# -- hashes ------------------------------------------------------------------------------------------
#
# Texts as two numbers of 64 bits, for questions whose answer is nearly always "nothing". Joins of
# numbers are several times faster than joins of texts, and less travels. Different hashes prove different
# texts. Equal ones only suggest equal texts: whoever finds something asks again with the texts themselves.
# Where equal hashes are taken for equal texts (an end of an edge that is there) both must agree: 128 bits,
# with seeds drawn anew for each check, so that the chance to miss anything among 10^9 edges and 10^9 nodes
# is below 10^-19, whoever chose the texts.


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
        return cls(random_bits(64), random_bits(64))


def hash_texts(texts: pa.Array, seeds: Seeds) -> tuple[pa.Array, pa.Array]:
    """Return two hashes of each text; null where it is null."""
    mask = texts.is_null().to_numpy(zero_copy_only=False) if texts.null_count else None
    _, offset_bytes, content = texts.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content, np.uint8) if content is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashes = np.empty((2, len(texts)), np.uint64)
    for length in np.unique(lengths):  # texts of one length are a block
        rows = np.flatnonzero(lengths == length)
        words = _words(letters, starts[rows], int(length))
        for column, seed in enumerate((seeds.first, seeds.second)):
            hashes[column, rows] = _hashed(words, seed ^ (int(length) << 32))
    first, second = hashes.view(np.int64)
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
        hashes = np.full(len(words), _mixed(np.array([now]))[0])
        for column in range(words.shape[1]):
            now = now + _STEP
            hashes = _mixed(hashes ^ words[:, column] ^ now)
    return hashes


def _mixed(words: Words) -> Words:
    """Spread each bit over all others; different words stay different."""
    for factor in _FACTORS:
        words = (words ^ (words >> _SHIFT)) * factor
    return words ^ (words >> _SHIFT)
