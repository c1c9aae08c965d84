"""Ranking: search functions as columns, and the order that a ranking gives.

Room    execution. Between the match and the search room: what is ranked is what the match kept, so a filter
        never starves the limit, whether the variable was bound directly or reached by an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import Bm25, Nearest, Ranking, Rrf, TextMatch
from omnigraph.catalog.query.operands import Operand, operand_value
from omnigraph.execution.context import Context
from omnigraph.execution.entities import EntityTable, Ordinals
from omnigraph.execution.order import Key
from omnigraph.execution.rows import Rows
from omnigraph.execution.search.corpus import EDITS
from omnigraph.execution.search.fusion import Fused, K, fuse, ranked

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The rows that a ranking keeps, what orders them, and what breaks ties after further sort keys."""

    rows: Rows
    keys: tuple[Key, ...]
    ties: tuple[Key, ...] = ()


class Ranker:
    """Evaluates search functions over rows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fused: dict[Rrf, Fused] = {}

    def column(self, value: TextMatch | Nearest | Bm25 | Rrf, rows: Rows) -> pa.Array:
        """Return a match, distance or score for each row."""
        match value:
            case TextMatch():
                return pa.array(self._matching(value, rows))
            case Nearest():
                found = self._distances(value, rows.bound[value.variable])
                return pa.array(found, mask=np.isnan(found))
            case Bm25():
                return pa.array(self._scores(value, rows.bound[value.variable]))
            case Rrf():
                return pa.array(self._fusion(value, rows, None).of(rows.bound[value.first.variable]))
            case _:
                assert_never(value)

    def rank(self, ranking: Ranking, rows: Rows, wanted: int | None) -> Ranked:
        """Order rows by a ranking; `wanted` rows will be returned, all if it is None."""
        match ranking:
            case Nearest(variable):
                at, distances = self._nearest(ranking, rows.bound[variable], wanted)
                return Ranked(rows.take(at), (Key(pa.array(distances)),))
            case Bm25(variable):
                at, scores = self._matching_best(ranking, rows.bound[variable], wanted)
                return Ranked(rows.take(at), (Key(pa.array(scores), descending=True),))
            case Rrf(first):
                fused = self._fusion(ranking, rows, wanted)
                places = fused.positions(rows.bound[first.variable])
                kept = rows.keep(places >= 0)
                scores = fused.of(kept.bound[first.variable])
                position = Key(pa.array(places[places >= 0]))
                return Ranked(kept, (Key(pa.array(scores), descending=True),), (position,))
            case _:
                assert_never(ranking)

    # -- the functions -----------------------------------------------------------------------------

    def _table(self, value: TextMatch | Nearest | Bm25) -> EntityTable:
        return self._context.table(value.variable.type.id)

    def _operand(self, operand: Operand) -> object:
        return operand_value(operand, self._context.values, self._context.now_ms)

    def _matching(self, value: TextMatch, rows: Rows) -> NDArray[np.bool_]:
        query = self._operand(value.query)
        if not isinstance(query, str):
            return np.zeros(rows.count, dtype=bool)
        corpus = self._context.caches.search.text(self._table(value), value.member.column)
        if value.function == "fuzzy":
            edits = EDITS if value.edits is None else self._operand(value.edits)
            if not isinstance(edits, int) or edits < 0:
                raise InvalidRequest(f"fuzzy takes a number of edits from 0, not {edits!r}")
            found = corpus.fuzzy(query, edits)
        else:
            found = corpus.matches(query)
        return np.isin(rows.bound[value.variable], found)

    def _matching_best(self, value: Bm25, ordinals: Ordinals, wanted: int | None) -> tuple[Ordinals, Floats]:
        """Return the rows that match, and their scores; those that cannot be wanted may be missing."""
        query = self._operand(value.query)
        if wanted is None or not isinstance(query, str):
            scores = self._scores(value, ordinals)
            at = np.flatnonzero(scores > 0)
            return at, scores[at]
        corpus = self._context.caches.search.text(self._table(value), value.member.column)
        return corpus.best(query, ordinals, wanted)

    def _scores(self, value: Bm25, ordinals: Ordinals) -> Floats:
        query = self._operand(value.query)
        scores = np.zeros(len(ordinals))
        there = ordinals >= 0
        if isinstance(query, str) and there.any():
            corpus = self._context.caches.search.text(self._table(value), value.member.column)
            scores[there] = corpus.scores(query, ordinals[there])
        return scores

    def _nearest(self, value: Nearest, ordinals: Ordinals, wanted: int | None) -> tuple[Ordinals, Floats]:
        """Return the rows with a vector, and their distances; those that cannot be wanted may be missing."""
        query = self._vector(value)
        if wanted is None or query is None:
            distances = self._distances(value, ordinals)
            at = np.flatnonzero(~np.isnan(distances))
            return at, distances[at]
        vectors = self._context.caches.search.vectors(self._table(value), value.member.column)
        return vectors.best(query, ordinals, wanted)

    def _vector(self, value: Nearest) -> list[float] | None:
        """Return the vector that is asked for, embedding a text; None for null."""
        query = self._operand(value.query)
        if isinstance(query, str):
            declared = value.member
            model = None if declared.embed is None else declared.embed.model
            size = declared.type.dimension
            assert size is not None
            return [float(part) for part in self._context.embeddings.vector(query, size, model)]
        return [float(part) for part in query] if isinstance(query, tuple) else None

    def _distances(self, value: Nearest, ordinals: Ordinals) -> Floats:
        """Return distances; not a number where there is no vector."""
        distances = np.full(len(ordinals), np.nan)
        query, there = self._vector(value), ordinals >= 0
        if query is not None and there.any():
            vectors = self._context.caches.search.vectors(self._table(value), value.member.column)
            distances[there] = vectors.distances(query, ordinals[there])
        return distances

    def _fusion(self, value: Rrf, rows: Rows, wanted: int | None) -> Fused:
        """Fuse the rankings of two arms over the entities at hand; the same for order and output."""
        if value not in self._fused:
            k = K if value.k is None else self._operand(value.k)
            if not isinstance(k, int) or k <= 0:
                raise InvalidRequest(f"rrf takes a k above 0, not {k!r}")
            entities = np.unique(rows.bound[value.first.variable])
            entities = entities[entities >= 0]
            arms = [self._arm(arm, entities, wanted) for arm in (value.first, value.second)]
            self._fused[value] = fuse(arms[0], arms[1], k)
        return self._fused[value]

    def _arm(self, arm: Nearest | Bm25, entities: Ordinals, wanted: int | None) -> Ordinals:
        nearest = isinstance(arm, Nearest)
        values = self._distances(arm, entities) if isinstance(arm, Nearest) else self._scores(arm, entities)
        there = ~np.isnan(values) if nearest else values > 0
        ids = self._table(arm).take(ID, entities[there])
        limit = wanted if nearest else None
        return ranked(entities[there], values[there], ids, descending=not nearest, limit=limit)
