"""Corpus: all texts of one property in one version, ready to be searched.

Room    execution.search. Made of the postings of each fragment; the numbers of BM25 (how many texts, how long
        on average, how many have a token) count living rows of this version only.
Gives   which entities match a query, and their scores.
Rule    no index takes part, so answers are the same whatever an index covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from omnigraph.execution.entities import Ordinals
from omnigraph.execution.search.analysis import analyse
from omnigraph.execution.search.parts import Part
from omnigraph.execution.search.postings import Numbers, Postings

K1 = 1.2
B = 0.75
EDITS = 2
Scores = NDArray[np.float64]


class Corpus:
    """The texts of one column of one table version."""

    def __init__(self, span: int, parts: Sequence[Part[Postings]]) -> None:
        self._parts = tuple(parts)
        self._span = span
        self.texts = sum(int(_living(part).sum()) for part in parts)  # that are not null
        tokens = sum(int(part.derived.lengths[_living(part)].sum(dtype=np.int64)) for part in parts)
        self._last: tuple[str, Scores] | None = None
        average = tokens / self.texts if tokens else 1.0
        self._norms = [K1 * (1 - B + B * part.derived.lengths / average) for part in parts]

    def matches(self, query: str) -> Ordinals:
        """Return the entities whose text has some token of the query, ascending."""
        found = [self._with(part, self._exact(part, query)) for part in self._parts]
        return _together(found)

    def fuzzy(self, query: str, edits: int = EDITS) -> Ordinals:
        """Return the entities whose text has a token within so many edits of one of the query, ascending."""
        found = [self._with(part, self._similar(part, query, edits)) for part in self._parts]
        return _together(found)

    def scores(self, query: str, ordinals: Ordinals | None = None) -> Scores:
        """Return the BM25 score of each entity, or of every ordinal; 0 where nothing matches."""
        dense = self._scored(query)
        return dense[:-1] if ordinals is None else dense[ordinals]

    def top(self, query: str, count: int, among: Ordinals | None = None) -> tuple[Ordinals, Scores]:
        """Return the entities with the best scores, all that tie with the last, in no order."""
        dense = self._scored(query)
        found = np.flatnonzero(dense > 0) if among is None else among[dense[among] > 0]
        scores = dense[found]
        if count < len(found):
            least = np.partition(scores, len(scores) - count)[len(scores) - count] if count else np.inf
            kept = scores >= least
            found, scores = found[kept], scores[kept]
        return found, scores

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

    def _exact(self, part: Part[Postings], query: str) -> Iterable[slice]:
        found = (part.derived.find(token) for token in set(analyse(query)))
        return (one for one in found if one is not None)

    def _similar(self, part: Part[Postings], query: str, edits: int) -> Iterable[slice]:
        numbers = {n for token in set(analyse(query)) for n in part.derived.similar(token, edits)}
        return (part.derived.span(number) for number in numbers)

    def _with(self, part: Part[Postings], spans: Iterable[slice]) -> Ordinals:
        seen = np.zeros(len(part.derived.lengths), dtype=bool)
        for span in spans:
            seen[part.derived.rows[span]] = True
        if part.alive is not None:
            seen &= part.alive
        return np.flatnonzero(seen) + part.start


def _living(part: Part[Postings]) -> NDArray[np.bool_]:
    present = part.derived.present
    return present if part.alive is None else present & part.alive


def _posted(part: Part[Postings], token: str) -> tuple[Numbers, Numbers]:
    """Return the living rows that have a token, and how often."""
    at = part.derived.find(token) or slice(0, 0)
    rows, counts = part.derived.rows[at], part.derived.counts[at]
    if part.alive is None:
        return rows, counts
    kept = part.alive[rows]
    return rows[kept], counts[kept]


def _together(found: Sequence[Ordinals]) -> Ordinals:
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)
