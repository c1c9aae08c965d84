"""Stored vectors: the nearest entities of a column that is too large to hold in memory.

Room    execution.search. Rows are streamed, or Lance's vector index names candidates; either way distances
        are measured here, on the pinned version, so what comes back is never stale.
Recall  an index looks into some of its partitions only. How many is found out once for each index, by asking
        it questions with known answers: each must be answered well, not just most of them, for a user asks
        one question, not the mean of many. Where that takes most partitions, the index is not used.
"""

from __future__ import annotations

import threading
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType, TableType
from omnigraph.catalog.model import IndexKind as Intended
from omnigraph.execution.entities import FEW, EntityTable, Ordinals
from omnigraph.execution.search.vectors import Distances, NearestRows, Query, measured, nearest_of, numbers
from omnigraph.storage.tables.effects import IndexSpec, StoredIndexKind
from omnigraph.storage.tables.indexes import partitions_for
from omnigraph.storage.tables.layout import ADDRESS

BEYOND = 32  # candidates asked for besides those wanted: Lance measures in 32 bits, so its order may differ
QUESTIONS = 32
MOST_WANTED = 100  # entities: what the questions ask for, too
ENOUGH = 0.99  # of the true answers, for every question
SHARES = (16, 8, 4, 2)  # one in so many partitions


def distances(table: EntityTable, column: str, query: Query, ordinals: Ordinals) -> Distances:
    """Return the distance of each entity; NaN where it has no vector, or is missing."""
    found = np.full(len(ordinals), np.nan)
    for start in range(0, len(ordinals), FEW):
        part = slice(start, start + FEW)
        values, present = numbers(table.take(column, ordinals[part]))
        found[part] = np.where(present, measured(values, query), np.nan)
    return found


def streamed(
    table: EntityTable, column: str, query: Query, count: int, chosen: NDArray[np.bool_] | None = None
) -> tuple[Ordinals, Distances]:
    """Return the nearest of all entities, or of those that a mask by ordinal chooses, reading every row."""
    found = NearestRows(count)
    for batch in table.handle.scanner(columns=[column], with_row_address=True).to_batches():
        ordinals = table.ordinals(batch[ADDRESS].to_numpy())
        values, present = numbers(batch[column])
        wanted = present if chosen is None else present & chosen[ordinals]
        found.add(ordinals[wanted], measured(values[wanted], query))
    return found.nearest()


class VectorIndexes:
    """How many partitions of which index are enough."""

    def __init__(self) -> None:
        self._probes: dict[tuple[str, ...], int | None] = {}
        self._lock = threading.Lock()

    def top(
        self, table: EntityTable, column: str, query: Query, count: int
    ) -> tuple[Ordinals, Distances] | None:
        """Return the nearest of all entities, nearly always all of them; None where no index is of use."""
        segments = _segments(table, column)
        if not segments or not 0 < count <= MOST_WANTED:
            return None
        with self._lock:
            if segments not in self._probes:
                self._probes[segments] = _calibrated(table, column)
            probes = self._probes[segments]
        found = None if probes is None else indexed(table, column, query, count, probes)
        return None if found is None or len(found[0]) < count else found  # its partitions may hold too few


def indexed(
    table: EntityTable, column: str, query: Query, count: int, probes: int
) -> tuple[Ordinals, Distances]:
    """Ask the index for the nearest entities; all that tie with the last."""
    asked = count + BEYOND
    while True:
        near = {
            "column": column,
            "q": query,
            "k": asked,
            "minimum_nprobes": probes,
            "maximum_nprobes": probes,
        }
        scanner = table.handle.scanner(nearest=near, columns=["_distance"], with_row_id=True)
        ordinals = table.ordinals(scanner.to_table()["_rowid"].to_numpy())
        found = distances(table, column, query, ordinals)
        best = nearest_of(ordinals, found, count)
        if len(ordinals) < asked or best[1].max(initial=0.0) < np.nanmax(found):
            return best
        asked *= 4  # the last of them tie: there may be more


def _segments(table: EntityTable, column: str) -> tuple[str, ...]:
    name = IndexSpec(column, StoredIndexKind.VECTOR).name
    found = (
        s.uuid for index in table.handle.describe_indices() if index.name == name for s in index.segments
    )
    return tuple(sorted(found))


def _calibrated(table: EntityTable, column: str) -> int | None:
    """Return the fewest partitions that answer every question well; None when that is most of them."""
    whole, questions = partitions_for(table.rows), _questions(table, column)
    if not len(questions):
        return None
    known = list(zip(questions, _answers(table, column, questions), strict=True))
    for share in SHARES:
        probes = -(-whole // share)
        if all(len(true & _answer(table, column, q, probes)) >= ENOUGH * len(true) for q, true in known):
            return probes
    return None


def _answer(table: EntityTable, column: str, question: Query, probes: int) -> set[int]:
    return set(indexed(table, column, question, MOST_WANTED, probes)[0].tolist())


def _answers(table: EntityTable, column: str, questions: NDArray[np.float32]) -> list[set[int]]:
    """Return the true answers to all questions, reading every row once.

    A product in 32 bits says which rows of a batch may be among the nearest, and only those are measured.
    Vectors are seen from the middle of the questions: far from zero, products would tell nothing.
    """
    middle = questions.mean(axis=0, dtype=np.float64).astype(np.float32)
    asked, most = (questions - middle).T, MOST_WANTED + BEYOND
    found = [NearestRows(MOST_WANTED) for _ in questions]
    for batch in table.handle.scanner(columns=[column], with_row_address=True).to_batches():
        values, present = numbers(batch[column])
        values, ordinals = values[present], table.ordinals(batch[ADDRESS].to_numpy())[present]
        seen = values - middle
        squares = np.square(seen).sum(axis=1)[:, None] - 2 * (seen @ asked)  # but for a part of the question
        near = np.argpartition(squares, most, axis=0)[:most] if len(values) > most else None
        for number, question in enumerate(questions):
            rows = slice(None) if near is None else near[:, number]
            found[number].add(ordinals[rows], measured(values[rows], question))
    return [set(one.nearest()[0].tolist()) for one in found]


def _questions(table: EntityTable, column: str) -> NDArray[np.float32]:
    """Return stored vectors, outliers among them, and points half way between two: both are asked for."""
    places = np.linspace(0, max(table.span - 1, 0), 2 * QUESTIONS).astype(np.int64)
    values, present = numbers(table.take(column, np.intersect1d(places, table.every())))
    known = values[present][: QUESTIONS + 1]
    between = (known[:-1] + known[1:]) / np.float32(2)
    return np.where(np.arange(len(between))[:, None] % 2, known[:-1], between)


# -- indexes wanted ------------------------------------------------------------------------------
#
# Which index serves which column of a type.
# Pure: what every table is looked up by, and the catalog's intents.


def wanted(declared: TableType) -> tuple[IndexSpec, ...]:
    """Return the indexes that a type's table should have: ids and ends of edges first, then as declared."""
    keys = (ID, *ENDPOINTS) if isinstance(declared, EdgeType) else (ID,)
    intents = {intent.column: _kind(intent.kind) for intent in declared.index_intents}
    looked_up = tuple(IndexSpec(column, StoredIndexKind.BTREE) for column in keys)
    return looked_up + tuple(IndexSpec(column, kind) for column, kind in sorted(intents.items()))


def _kind(intended: Intended) -> StoredIndexKind:
    match intended:
        case Intended.ORDERED:
            return StoredIndexKind.BTREE
        case Intended.FULL_TEXT:
            return StoredIndexKind.INVERTED
        case Intended.VECTOR:
            return StoredIndexKind.VECTOR
        case _:
            assert_never(intended)
