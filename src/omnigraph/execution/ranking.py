"""Ranking: the order of result rows, by sort keys and by search functions.

Three parts: sorting rows by keys, fusing two rankings into one, and `Ranker`, which evaluates search
functions over the rows of a match. What is ranked is what the match kept, so a filter never starves the
limit, whether the variable was bound directly or reached by an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.model import ID
from omnigraph.catalog.query.expressions import (
    Bm25,
    Nearest,
    Operand,
    Ranking,
    Rrf,
    TextMatch,
    operand_value,
)
from omnigraph.catalog.types import numbers_in
from omnigraph.execution.arrays import distinct, is_member
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.match_rows import MatchRows
from omnigraph.execution.plan.steps import tie_order
from omnigraph.execution.search.search_cache import EDITS

# -- order -----------------------------------------------------------------------------------------
#
# The total order of result rows. Nulls are smallest: first ascending, last descending. What the sort keys
# leave equal is ordered by the ids of the bound entities, so that the same snapshot always answers in the
# same order.


FEW_ROWS = 64  # rows that Python sorts by one text in less time than it takes to call Arrow
TOP_SHARE = 8  # selecting beats sorting while the wanted rows are fewer than one in so many


@dataclass(frozen=True, eq=False)
class Key:
    """One sort key: a value for each row."""

    values: pa.Array
    descending: bool = False


def ties(rows: MatchRows, context: Context) -> list[Key]:
    """Return the keys that break ties: ids of all bound entities, by the names of the variables."""
    if rows.count <= 1:
        return []
    keys = []
    for variable in sorted(rows.bound, key=tie_order):
        ordinals = rows.bound[variable]
        if (ordinals != ordinals[0]).any():  # what is the same in all rows puts none before another
            keys.append(Key(context.table(variable.type.id).take(ID, ordinals)))
    return keys


def sort(keys: Sequence[Key], count: int, first: int | None = None) -> Ordinals:
    """Return the row numbers in order; only the first ones, if that is all that is wanted."""
    if count <= 1 or not keys:
        whole = np.arange(count, dtype=np.int64)
        return whole if first is None else whole[:first]
    if count <= FEW_ROWS and len(keys) == 1 and _is_plain_text(keys[0]):
        texts = keys[0].values.to_pylist()
        return np.array(sorted(range(count), key=texts.__getitem__), dtype=np.int64)[:first]
    columns: dict[str, pa.Array] = {}
    orders: list[tuple[str, str]] = []
    for number, key in enumerate(keys):
        way = "descending" if key.descending else "ascending"
        values = _sortable(key.values)
        if values.null_count:
            columns[f"v{number}"] = pc.is_valid(values).cast(pa.uint8())
            orders.append((f"v{number}", way))
        columns[f"k{number}"] = values
        orders.append((f"k{number}", way))
    table = pa.table(columns)
    if first is not None and first * TOP_SHARE < count:
        return _selected(table, orders, first)
    row_numbers: Ordinals = (
        pc.sort_indices(table, sort_keys=orders).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return row_numbers if first is None else row_numbers[:first]


def _is_plain_text(key: Key) -> bool:
    """Say whether Python sorts a key as Arrow does: texts by code points, the order of their bytes."""
    return pa.types.is_string(key.values.type) and not key.values.null_count and not key.descending


def _sortable(values: pa.Array) -> pa.Array:
    """Return values that Arrow can sort: booleans as numbers, lists by their place among each other."""
    if pa.types.is_boolean(values.type):
        return values.cast(pa.uint8())
    if not pa.types.is_nested(values.type):
        return values
    lists = values.cast(numbers_in(values.type)).to_pylist()
    distinct = sorted({tuple(items) for items in lists if items is not None})
    place = {items: number for number, items in enumerate(distinct)}
    return pa.array([None if items is None else place[tuple(items)] for items in lists], pa.int64())


def _selected(table: pa.Table, orders: list[tuple[str, str]], first: int) -> Ordinals:
    """Cut by the first key alone, then sort what may be among the first."""
    if first == 0:
        return np.zeros(0, np.int64)
    name, way = orders[0]
    rough = pc.select_k_unstable(table.select([name]), k=first, sort_keys=[(name, way)])
    edge = table[name].take(rough.slice(len(rough) - 1, 1))[0]
    if table[name].null_count or edge.as_py() != edge.as_py():  # a null or NaN cannot be compared with
        inside = np.arange(table.num_rows)
    else:
        compare = pc.less_equal if way == "ascending" else pc.greater_equal
        inside = np.flatnonzero(compare(table[name], edge).to_numpy(zero_copy_only=False))
    part = table.take(pa.array(inside))
    order = pc.sort_indices(part, sort_keys=orders).to_numpy(zero_copy_only=False).astype(np.int64)
    chosen: Ordinals = inside[order[:first]]
    return chosen


# -- fusion ----------------------------------------------------------------------------------------
#
# Two rankings of the same entities become one, by reciprocal ranks. A ranking is entities in order, best
# first.


K = 60


@dataclass(frozen=True, eq=False)
class Fused:
    """Entities by fused score, best first."""

    ordinals: Ordinals
    scores: NDArray[np.float64]

    def of(self, ordinals: Ordinals) -> NDArray[np.float64]:
        """Return the score of each entity; 0 where neither ranking has it."""
        places = self._places(ordinals)
        return np.where(places < 0, 0.0, np.append(self.scores, 0.0)[places])

    def positions(self, ordinals: Ordinals) -> NDArray[np.int64]:
        """Return the place of each entity, 0 for the best; -1 where neither ranking has it."""
        return self._places(ordinals)

    def _places(self, ordinals: Ordinals) -> NDArray[np.int64]:
        order = np.argsort(self.ordinals)
        known = self.ordinals[order]
        at = np.minimum(np.searchsorted(known, ordinals), max(len(known) - 1, 0))
        if not len(known):
            return np.full(len(ordinals), -1, dtype=np.int64)
        return np.where(known[at] == ordinals, order[at], -1)


def ranked(
    ordinals: Ordinals,
    values: NDArray[np.float64],
    ids: pa.Array,
    *,
    descending: bool,
    limit: int | None = None,
) -> Ordinals:
    """Return distinct entities by their values, equal ones by their ids; up to a limit, if there is one."""
    way = "descending" if descending else "ascending"
    table = pa.table({"value": values, "id": ids})
    order = pc.sort_indices(table, sort_keys=[("value", way), ("id", "ascending")]).to_numpy()
    best: Ordinals = ordinals[order[:limit]]
    return best


def fuse(first: Ordinals, second: Ordinals, k: int = K) -> Fused:
    """Fuse two rankings: an entity scores 1 / (k + rank + 1) in each that has it, the best rank being 0.

    Equal scores are in the order of the first ranking, then of the rest of the second.

    >>> fuse(np.array([7, 8]), np.array([8, 9]), k=1).ordinals.tolist()
    [8, 7, 9]
    """
    rest = second[~np.isin(second, first)]
    entities = np.concatenate([first, rest]).astype(np.int64)
    scores = np.zeros(len(entities))
    for arm in (first, second):
        order = np.argsort(entities)
        at = order[np.searchsorted(entities[order], arm)]
        scores[at] += 1.0 / (k + np.arange(len(arm)) + 1.0)
    best = np.argsort(-scores, kind="stable")
    return Fused(entities[best], scores[best])


# -- search functions ------------------------------------------------------------------------------


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The rows that a ranking keeps, what orders them, and what breaks ties after further sort keys."""

    rows: MatchRows
    keys: tuple[Key, ...]
    ties: tuple[Key, ...] = ()


class Ranker:
    """Evaluates search functions over rows."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fused: dict[Rrf, Fused] = {}

    def column(self, value: TextMatch | Nearest | Bm25 | Rrf, rows: MatchRows) -> pa.Array:
        """Return a match, distance or score for each row."""
        match value:
            case TextMatch():
                return pa.array(self._matching(value, rows))
            case Nearest():
                distances = self._distances(value, rows.bound[value.variable])
                return pa.array(distances, mask=np.isnan(distances))
            case Bm25():
                return pa.array(self._scores(value, rows.bound[value.variable]))
            case Rrf():
                return pa.array(self._fusion(value, rows, None).of(rows.bound[value.first.variable]))
            case _:
                assert_never(value)

    def rank(self, ranking: Ranking, rows: MatchRows, most_rows: int | None) -> Ranked:
        """Order rows by a ranking; at most `most_rows` will be returned."""
        match ranking:
            case Nearest(variable):
                at, distances = self._nearest(ranking, rows.bound[variable], most_rows)
                return Ranked(rows.take(at), (Key(pa.array(distances)),))
            case Bm25(variable):
                at, scores = self._matching_best(ranking, rows.bound[variable], most_rows)
                return Ranked(rows.take(at), (Key(pa.array(scores), descending=True),))
            case Rrf(first):
                fused = self._fusion(ranking, rows, most_rows)
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

    def _matching(self, value: TextMatch, rows: MatchRows) -> NDArray[np.bool_]:
        query = self._operand(value.query)
        if not isinstance(query, str):
            return np.zeros(rows.count, dtype=bool)
        corpus = self._context.caches.search.text(self._table(value), value.member.column)
        if value.function == "fuzzy":
            edits = EDITS if value.edits is None else self._operand(value.edits)
            if not isinstance(edits, int) or edits < 0:
                raise InvalidRequest(f"fuzzy takes a number of edits from 0, not {edits!r}")
            matching = corpus.fuzzy(query, edits)
        else:
            matching = corpus.matches(query)
        return is_member(rows.bound[value.variable], matching, self._table(value).span)

    def _matching_best(
        self, value: Bm25, ordinals: Ordinals, most_rows: int | None
    ) -> tuple[Ordinals, Floats]:
        """Return the rows that match, and their scores; those that cannot be wanted may be missing."""
        query = self._operand(value.query)
        if most_rows is None or not isinstance(query, str):
            scores = self._scores(value, ordinals)
            at = np.flatnonzero(scores > 0)
            return at, scores[at]
        corpus = self._context.caches.search.text(self._table(value), value.member.column)
        return corpus.best(query, ordinals, most_rows)

    def _scores(self, value: Bm25, ordinals: Ordinals) -> Floats:
        query = self._operand(value.query)
        scores = np.zeros(len(ordinals))
        there = ordinals >= 0
        if isinstance(query, str) and there.any():
            corpus = self._context.caches.search.text(self._table(value), value.member.column)
            scores[there] = corpus.scores(query, ordinals[there])
        return scores

    def _nearest(self, value: Nearest, ordinals: Ordinals, most_rows: int | None) -> tuple[Ordinals, Floats]:
        """Return the rows with a vector, and their distances; those that cannot be wanted may be missing."""
        query = self._vector(value)
        if most_rows is None or query is None:
            distances = self._distances(value, ordinals)
            at = np.flatnonzero(~np.isnan(distances))
            return at, distances[at]
        vectors = self._context.caches.search.vectors(self._table(value), value.member.column)
        return vectors.best(query, ordinals, most_rows)

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

    def _fusion(self, value: Rrf, rows: MatchRows, most_rows: int | None) -> Fused:
        """Fuse the rankings of two arms over the entities at hand; the same for order and output."""
        if value not in self._fused:
            k = K if value.k is None else self._operand(value.k)
            if not isinstance(k, int) or k <= 0:
                raise InvalidRequest(f"rrf takes a k above 0, not {k!r}")
            ordinals = rows.bound[value.first.variable]
            entities = distinct(ordinals[ordinals >= 0], self._table(value.first).span)
            arms = [self._arm(arm, entities, most_rows) for arm in (value.first, value.second)]
            self._fused[value] = fuse(arms[0], arms[1], k)
        return self._fused[value]

    def _arm(self, arm: Nearest | Bm25, entities: Ordinals, most_rows: int | None) -> Ordinals:
        nearest = isinstance(arm, Nearest)
        values = self._distances(arm, entities) if isinstance(arm, Nearest) else self._scores(arm, entities)
        there = ~np.isnan(values) if nearest else values > 0
        ids = self._table(arm).take(ID, entities[there])
        limit = most_rows if nearest else None
        return ranked(entities[there], values[there], ids, descending=not nearest, limit=limit)
