"""Search cache: the texts and vectors of any column, searched in memory or where they are stored.

`Search` is what queries use: it holds the caches, one for each open graph, used by many threads, and
decides how to answer. Whatever it decides, the answer is the same; only vectors of columns too large to
hold may come from an index that can miss one (`approximate=False` forbids it). `Corpus` is all texts of
one column in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.execution.columns import FEW, Ordinals
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search import stored
from omnigraph.execution.search.parts import CACHE_BYTES, PartsCache, SearchFragment
from omnigraph.execution.search.stored import VectorIndexes
from omnigraph.execution.search.text_index import Numbers, Postings, analyse, invert, matches_by_index
from omnigraph.execution.search.vectors import Distances, Matrix, VectorColumn, as_query, matrix, nearest_of

# -- corpus ----------------------------------------------------------------------------------------
#
# All texts of one property in one version, made of the postings of each fragment. The numbers of BM25
# (how many texts, how long on average, how many have a token) count living rows of this version only. No
# index takes part, so answers are the same whatever an index covers.


K1 = 1.2
B = 0.75
EDITS = 2
Scores = NDArray[np.float64]


class Corpus:
    """The texts of one column of one table version."""

    def __init__(self, span: int, parts: Sequence[SearchFragment[Postings]]) -> None:
        self._parts = tuple(parts)
        self._span = span
        self.texts = sum(int(_living(part).sum()) for part in parts)  # that are not null
        tokens = sum(int(part.derived.lengths[_living(part)].sum(dtype=np.int64)) for part in parts)
        self._last: tuple[str, Scores] | None = None
        average = tokens / self.texts if tokens else 1.0
        self._norms = [K1 * (1 - B + B * part.derived.lengths / average) for part in parts]

    def matches(self, query: str) -> Ordinals:
        """Return the entities whose text has some token of the query, ascending."""
        by_part = [self._with(part, self._exact(part, query)) for part in self._parts]
        return _together(by_part)

    def fuzzy(self, query: str, edits: int = EDITS) -> Ordinals:
        """Return the entities whose text has a token within so many edits of one of the query, ascending."""
        by_part = [self._with(part, self._similar(part, query, edits)) for part in self._parts]
        return _together(by_part)

    def scores(self, query: str, ordinals: Ordinals | None = None) -> Scores:
        """Return the BM25 score of each entity, or of every ordinal; 0 where nothing matches."""
        dense = self._scored(query)
        return dense[:-1] if ordinals is None else dense[ordinals]

    def top(self, query: str, count: int, among: Ordinals | None = None) -> tuple[Ordinals, Scores]:
        """Return the entities with the best scores, all that tie with the last, in no order."""
        dense = self._scored(query)
        matching = np.flatnonzero(dense > 0) if among is None else among[dense[among] > 0]
        scores = dense[matching]
        if count < len(matching):
            least = np.partition(scores, len(scores) - count)[len(scores) - count] if count else np.inf
            kept = scores >= least
            matching, scores = matching[kept], scores[kept]
        return matching, scores

    # -- the parts ---------------------------------------------------------------------------------

    def _scored(self, query: str) -> Scores:
        """Return the score of every ordinal and, at the end, that of a missing entity: 0."""
        last = self._last
        if last is not None and last[0] == query:  # a query ranks by a score, and then returns it
            return last[1]
        total = np.zeros(self._span + 1)
        for token in analyse(query):  # a token that is repeated counts each time
            hits = [_posted(part, token) for part in self._parts]
            having = sum(len(rows) for rows, _ in hits)
            weight = log(1 + (self.texts - having + 0.5) / (having + 0.5)) * (K1 + 1)
            for part, norms, (rows, counts) in zip(self._parts, self._norms, hits, strict=True):
                total[part.start : part.start + len(norms)][rows] += weight * counts / (counts + norms[rows])
        total.setflags(write=False)
        self._last = (query, total)
        return total

    def _exact(self, part: SearchFragment[Postings], query: str) -> Iterable[slice]:
        spans = (part.derived.find(token) for token in set(analyse(query)))
        return (span for span in spans if span is not None)

    def _similar(self, part: SearchFragment[Postings], query: str, edits: int) -> Iterable[slice]:
        numbers = {n for token in set(analyse(query)) for n in part.derived.similar(token, edits)}
        return (part.derived.span(number) for number in numbers)

    def _with(self, part: SearchFragment[Postings], spans: Iterable[slice]) -> Ordinals:
        seen = np.zeros(len(part.derived.lengths), dtype=bool)
        for span in spans:
            seen[part.derived.rows[span]] = True
        if part.alive is not None:
            seen &= part.alive
        return np.flatnonzero(seen) + part.start


def _living(part: SearchFragment[Postings]) -> NDArray[np.bool_]:
    present = part.derived.present
    return present if part.alive is None else present & part.alive


def _posted(part: SearchFragment[Postings], token: str) -> tuple[Numbers, Numbers]:
    """Return the living rows that have a token, and how often."""
    at = part.derived.find(token) or slice(0, 0)
    rows, counts = part.derived.rows[at], part.derived.counts[at]
    if part.alive is None:
        return rows, counts
    kept = part.alive[rows]
    return rows[kept], counts[kept]


def _together(by_part: Sequence[Ordinals]) -> Ordinals:
    return np.concatenate([np.zeros(0, np.int64), *by_part]).astype(np.int64)


# -- texts and vectors by version ------------------------------------------------------------------


COLD_ROWS = 20_000
COLD_SEARCHES = 8
PICK_COST = 20  # rows that are read in a scan in the time of picking one
OVERHEAD = 1.3  # of a matrix over its vectors: lengths and sketches


class Search:
    """Texts and vectors by table version."""

    def __init__(self, limit: int = CACHE_BYTES, *, approximate: bool = True) -> None:
        self._limit = limit
        self._texts: PartsCache[Postings, Corpus] = PartsCache(invert, Corpus, limit)
        self._vectors: PartsCache[Matrix, VectorColumn] = PartsCache(matrix, VectorColumn, limit)
        self._indexes = VectorIndexes() if approximate else None

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self._texts.nbytes + self._vectors.nbytes

    def shrink(self, size: int) -> None:
        """Let go of what was not used for longest, until so much is left."""
        self._vectors.shrink(max(size - self._texts.nbytes, 0))
        self._texts.shrink(max(size - self._vectors.nbytes, 0))

    def text(self, table: EntityTable, column: str) -> Texts:
        """Return the texts of a stored column."""
        return Texts(table, column, self._texts)

    def vectors(self, table: EntityTable, column: str) -> Vectors:
        """Return the vectors of a stored column."""
        size = table.declared.stored_schema.field(column).type.list_size
        fits = table.span * size * 4 * OVERHEAD <= self._limit
        return Vectors(table, column, self._vectors, fits, self._indexes)


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one column of one table version; read when asked for."""

    _table: EntityTable
    _column: str
    _cache: PartsCache[Postings, Corpus]

    @property
    def corpus(self) -> Corpus:
        """All of them, inverted."""
        return self._cache.get(self._table, self._column)

    def matches(self, query: str) -> Ordinals:
        """Return the entities whose text has some token of the query, ascending."""
        if self._cold():
            matching = matches_by_index(self._table, self._column, query)
            if matching is not None:
                return matching
        return self.corpus.matches(query)

    def fuzzy(self, query: str, edits: int = EDITS) -> Ordinals:
        """Return the entities whose text has a token within so many edits of one of the query, ascending."""
        return self.corpus.fuzzy(query, edits)

    def scores(self, query: str, ordinals: Ordinals | None = None) -> Scores:
        """Return the BM25 score of each entity, or of every ordinal; 0 where nothing matches."""
        return self.corpus.scores(query, ordinals)

    def top(self, query: str, count: int, among: Ordinals | None = None) -> tuple[Ordinals, Scores]:
        """Return the entities with the best scores, all that tie with the last, in no order."""
        return self.corpus.top(query, count, among)

    def best(self, query: str, ordinals: Ordinals, count: int) -> tuple[Ordinals, Scores]:
        """Return the rows whose entities match best, and their scores.

        Entities may be repeated or missing; `count` different ones are wanted, and what ties with the last.
        """
        entities, values = self.top(query, count, _among(self._table, ordinals))
        return _rows_of(self._table, entities, values, ordinals)

    def _cold(self) -> bool:
        """Say whether the texts are not in memory, and not asked for often enough to bring them there."""
        if self._column in self._table.absent or self._table.rows < COLD_ROWS:
            return False
        if self._cache.known(self._table, self._column) is not None:
            return False
        return self._cache.count(self._table, self._column, 1) <= COLD_SEARCHES


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of one column of one table version; read when asked for."""

    _table: EntityTable
    _column: str
    _cache: PartsCache[Matrix, VectorColumn]
    _fits: bool
    _indexes: VectorIndexes | None

    def distances(self, query: Sequence[float], ordinals: Ordinals) -> Distances:
        """Return the distance of each entity; NaN where it has no vector, or is missing."""
        held = self._held(len(ordinals))
        if held is not None:
            return held.distances(query, ordinals)
        return stored.distances(self._table, self._column, as_query(query), ordinals)

    def top(
        self, query: Sequence[float], count: int, among: Ordinals | None = None
    ) -> tuple[Ordinals, Distances]:
        """Return the nearest of all entities, or of some distinct ones; all that tie with the last.

        They come in no order, each with its distance.
        """
        vector = as_query(query)
        held = self._held(self._table.rows if among is None else len(among))
        if held is not None:
            return held.top(query, count, among)
        if among is not None and len(among) <= FEW:
            return nearest_of(among, stored.distances(self._table, self._column, vector, among), count)
        if among is None and self._indexes is not None:
            nearest = self._indexes.top(self._table, self._column, vector, count)
            if nearest is not None:
                return nearest
        chosen = None
        if among is not None:
            chosen = np.zeros(self._table.span, dtype=bool)
            chosen[among] = True
        return stored.streamed(self._table, self._column, vector, count, chosen)

    def best(self, query: Sequence[float], ordinals: Ordinals, count: int) -> tuple[Ordinals, Distances]:
        """Return the rows whose entities are nearest, and their distances.

        Entities may be repeated or missing; `count` different ones are wanted, and what ties with the last.
        """
        entities, values = self.top(query, count, _among(self._table, ordinals))
        return _rows_of(self._table, entities, values, ordinals)

    def _held(self, count: int) -> VectorColumn | None:
        """Return the column in memory, if it is there or worth bringing there."""
        held = self._cache.known(self._table, self._column)
        if held is None and self._fits:
            picked = self._cache.count(self._table, self._column, count)
            if picked * PICK_COST > self._table.rows or self._column in self._table.absent:
                held = self._cache.get(self._table, self._column)
        return held


def _among(table: EntityTable, ordinals: Ordinals) -> Ordinals | None:
    """Return the different entities of some rows; None if that is all there are."""
    distinct = ordinals if _ascending(table, ordinals) else np.unique(ordinals)
    distinct = distinct[np.searchsorted(distinct, 0) :]
    return None if len(distinct) == table.rows else distinct


def _rows_of(
    table: EntityTable, entities: Ordinals, values: Scores, ordinals: Ordinals
) -> tuple[Ordinals, Scores]:
    """Return where some entities stand among the rows, and the value of each."""
    if not len(entities) or not len(ordinals):
        return np.zeros(0, np.int64), np.zeros(0)
    order = np.argsort(entities)
    entities, values = entities[order], values[order]
    if _ascending(table, ordinals):  # one row for each entity: a few look-ups instead of a pass over all rows
        at = np.minimum(np.searchsorted(ordinals, entities), len(ordinals) - 1)
        there = ordinals[at] == entities
        return at[there], values[there]
    at = np.minimum(np.searchsorted(entities, ordinals), len(entities) - 1)
    rows = np.flatnonzero(entities[at] == ordinals)
    return rows, values[at[rows]]


def _ascending(table: EntityTable, ordinals: Ordinals) -> bool:
    return table.is_every(ordinals) or bool((ordinals[1:] > ordinals[:-1]).all())
