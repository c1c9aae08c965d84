"""Stored vectors: the nearest entities of a column that is too large to hold in memory.

Rows are streamed, or Lance's vector index names candidates; either way distances are measured here, on
the pinned version, so what comes back is never stale.

An index looks into some of its partitions only. How many is found out once for each index, by asking it
questions with known answers: each must be answered well, not just most of them, for a user asks one
question, not the mean of many. Where that takes most partitions, the index is not used.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from omnigraph.execution.columns import FEW, Ordinals
from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search.vectors import Distances, NearestRows, Query, measured, nearest_of, numbers
from omnigraph.storage.lance_reads import scanner
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
    by_entity = np.full(len(ordinals), np.nan)
    for start in range(0, len(ordinals), FEW):
        part = slice(start, start + FEW)
        values, present = numbers(table.take(column, ordinals[part]))
        by_entity[part] = np.where(present, measured(values, query), np.nan)
    return by_entity


def streamed(
    table: EntityTable, column: str, query: Query, count: int, chosen: NDArray[np.bool_] | None = None
) -> tuple[Ordinals, Distances]:
    """Return the nearest of all entities, or of those that a mask by ordinal chooses, reading every row."""
    nearest = NearestRows(count)
    for batch in scanner(table.handle, columns=[column], with_row_address=True).to_batches():
        ordinals = table.ordinals(batch[ADDRESS].to_numpy())
        values, present = numbers(batch[column])
        candidates = present if chosen is None else present & chosen[ordinals]
        nearest.add(ordinals[candidates], measured(values[candidates], query))
    return nearest.nearest()


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
        nearest = None if probes is None else indexed(table, column, query, count, probes)
        # The partitions that were looked into may hold too few.
        return None if nearest is None or len(nearest[0]) < count else nearest


def indexed(
    table: EntityTable, column: str, query: Query, count: int, probes: int
) -> tuple[Ordinals, Distances]:
    """Ask the index for the nearest entities; all that tie with the last."""
    requested = count + BEYOND
    while True:
        near = {
            "column": column,
            "q": query,
            "k": requested,
            "minimum_nprobes": probes,
            "maximum_nprobes": probes,
        }
        scan = scanner(table.handle, nearest=near, columns=["_distance"], with_row_id=True)
        ordinals = table.ordinals(scan.to_table()["_rowid"].to_numpy())
        exact = distances(table, column, query, ordinals)
        best = nearest_of(ordinals, exact, count)
        if len(ordinals) < requested or best[1].max(initial=0.0) < np.nanmax(exact):
            return best
        requested *= 4  # the last of them tie: there may be more


def _segments(table: EntityTable, column: str) -> tuple[str, ...]:
    name = IndexSpec(column, StoredIndexKind.VECTOR).name
    uuids = (
        s.uuid for index in table.handle.describe_indices() if index.name == name for s in index.segments
    )
    return tuple(sorted(uuids))


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
    centred, most = (questions - middle).T, MOST_WANTED + BEYOND
    nearest = [NearestRows(MOST_WANTED) for _ in questions]
    for batch in scanner(table.handle, columns=[column], with_row_address=True).to_batches():
        values, present = numbers(batch[column])
        values, ordinals = values[present], table.ordinals(batch[ADDRESS].to_numpy())[present]
        seen = values - middle
        # Squared distances, but for the square of the question, which is the same for all rows.
        squares = np.square(seen).sum(axis=1)[:, None] - 2 * (seen @ centred)
        near = np.argpartition(squares, most, axis=0)[:most] if len(values) > most else None
        for number, question in enumerate(questions):
            rows = slice(None) if near is None else near[:, number]
            nearest[number].add(ordinals[rows], measured(values[rows], question))
    return [set(part.nearest()[0].tolist()) for part in nearest]


def _questions(table: EntityTable, column: str) -> NDArray[np.float32]:
    """Return stored vectors, outliers among them, and points half way between two: both are asked for."""
    places = np.linspace(0, max(table.span - 1, 0), 2 * QUESTIONS).astype(np.int64)
    values, present = numbers(table.take(column, np.intersect1d(places, table.every())))
    known = values[present][: QUESTIONS + 1]
    between = (known[:-1] + known[1:]) / np.float32(2)
    return np.where(np.arange(len(between))[:, None] % 2, known[:-1], between)
