"""Vectors: distances from a query vector, and the nearest entities.

Room    execution.search. Distances are Euclidean. Stored vectors and queries are 32-bit; differences, squares
        and sums are 64-bit, so the distance of an entity never depends on which others are asked for.
How     the nearest of all rows are found in two steps: rough squares from one matrix product in 32 bits, with
        a bound on their error, then true distances of those few that the bound does not exclude.
Rule    an entity without a vector has no distance: NaN where it is asked for, and never among the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.execution.entities import EntityTable, Ordinals
from omnigraph.execution.search.parts import Part

CHUNK_ROWS = 16_384
Distances = NDArray[np.float64]
Query = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Matrix:
    """The vectors of one fragment; rows without one are zero and not `present`."""

    values: NDArray[np.float32]
    squares: NDArray[np.float64]  # of their lengths
    present: NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.values.nbytes + self.squares.nbytes + self.present.nbytes)


def matrix(vectors: pa.ChunkedArray) -> Matrix:
    """Return the vectors of a fragment as a matrix."""
    size = vectors.type.list_size
    values = np.zeros((len(vectors), size), dtype=np.float32)
    present = np.zeros(len(vectors), dtype=bool)
    at = 0
    for chunk in vectors.chunks:
        values[at : at + len(chunk)], present[at : at + len(chunk)] = numbers(chunk)
        at += len(chunk)
    squares = np.empty(len(vectors))
    for part in _chunks(len(vectors)):
        squares[part] = np.square(values[part], dtype=np.float64).sum(axis=1)
    return Matrix(values, squares, present)


def numbers(vectors: pa.FixedSizeListArray) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return vectors as rows of numbers, zero where there is none, and which rows have one."""
    size = vectors.type.list_size
    flat = vectors.values.slice(vectors.offset * size, len(vectors) * size)
    rows = flat.to_numpy(zero_copy_only=False).reshape(len(vectors), size).astype(np.float32)
    present = vectors.is_valid().to_numpy(zero_copy_only=False)
    if not present.all():
        rows[~present] = 0
    return rows, present


def measured(rows: NDArray[np.float32], query: Query) -> Distances:
    """Return the distance of each row of a matrix."""
    found = np.empty(len(rows))
    wanted = query.astype(np.float64)
    for part in _chunks(len(rows)):
        found[part] = np.sqrt(np.square(rows[part] - wanted).sum(axis=1))
    return found


def as_query(values: Sequence[float]) -> Query:
    """Return a query as vectors are stored."""
    return np.asarray(values, dtype=np.float32)


class VectorColumn:
    """The vectors of one column of one table version."""

    def __init__(self, table: EntityTable, parts: Sequence[Part[Matrix]]) -> None:
        self._parts = tuple(parts)
        self._bounds = np.array([part.start for part in parts], dtype=np.int64)

    def distances(self, query: Sequence[float], ordinals: Ordinals) -> Distances:
        """Return the distance of each entity; NaN where it has no vector, or is missing."""
        wanted = as_query(query)
        found = np.full(len(ordinals), np.nan)
        owners = np.searchsorted(self._bounds, ordinals, side="right") - 1  # -1: before all, so missing
        for number in np.unique(owners[owners >= 0]).tolist():
            part = self._parts[number]
            at = np.flatnonzero(owners == number)
            rows = ordinals[at] - part.start
            kept = _living(part)[rows]
            found[at[kept]] = measured(part.derived.values[rows[kept]], wanted)
        return found

    def top(
        self, query: Sequence[float], count: int, among: Ordinals | None = None
    ) -> tuple[Ordinals, Distances]:
        """Return the nearest entities, ascending by ordinal; all that tie with the last."""
        if among is not None:
            distances = self.distances(query, among)
            return nearest_of(among, distances, count)
        wanted = as_query(query)
        ordinals: list[Ordinals] = [np.zeros(0, np.int64)]
        distances_: list[Distances] = [np.zeros(0)]
        for part in self._parts:
            rows = _candidates(part, wanted, count)
            ordinals.append(rows + part.start)
            distances_.append(measured(part.derived.values[rows], wanted))
        return nearest_of(np.concatenate(ordinals), np.concatenate(distances_), count)


def nearest_of(ordinals: Ordinals, distances: Distances, count: int) -> tuple[Ordinals, Distances]:
    """Return the entities with the least distances, in the order given; all that tie with the last."""
    known = ~np.isnan(distances)
    ordinals, distances = ordinals[known], distances[known]
    if count < len(ordinals):
        most = np.partition(distances, count - 1)[count - 1] if count else -1.0
        kept = distances <= most
        ordinals, distances = ordinals[kept], distances[kept]
    return ordinals, distances


def _candidates(part: Part[Matrix], query: Query, count: int) -> NDArray[np.int64]:
    """Return the rows of a part that may be among its nearest ones."""
    living = np.flatnonzero(_living(part))
    if count >= len(living):
        return living
    if not count:
        return living[:0]
    values, squares = part.derived.values, part.derived.squares
    length = float(np.square(query, dtype=np.float64).sum())
    rough = np.empty(len(values))
    with np.errstate(over="ignore", invalid="ignore"):  # what is beyond 32 bits is measured below
        for chunk in _chunks(len(values)):
            rough[chunk] = squares[chunk] - 2.0 * (values[chunk] @ query) + length
        # The error of a 32-bit product of two vectors is at most about n units in the last place of the
        # product of their lengths; taken four times: the factor 2 comes on top, the rest is for safety.
        error = 4.0 * len(query) * float(np.finfo(np.float32).eps) * np.sqrt(squares * length)
    rough, error = rough[living], error[living]
    ceiling = np.partition(rough + error, count - 1)[count - 1]
    found: NDArray[np.int64] = living[~(rough - error > ceiling)]
    return found


def _living(part: Part[Matrix]) -> NDArray[np.bool_]:
    return part.derived.present if part.alive is None else part.derived.present & part.alive


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK_ROWS, rows)) for start in range(0, rows, CHUNK_ROWS))
