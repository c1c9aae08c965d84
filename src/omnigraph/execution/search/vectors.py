"""Vectors: distances from a query vector, and the nearest entities, exactly.

Room    execution.search. Distances are Euclidean. Stored vectors and queries are 32-bit; differences, squares
        and sums are 64-bit, so the distance of an entity never depends on which others are asked for.
How     one pass over the rows with a ceiling, the least distance that is certainly enough: a sketch of each
        vector (sketch.py) bounds its distance from below, a product in 32 bits with a known error bounds it
        closer, and only rows that both leave under the ceiling are measured.
Rule    an entity without a vector has no distance: NaN where it is asked for, and never among the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.execution.entities import Ordinals
from omnigraph.execution.search.parts import Mask, Part
from omnigraph.execution.search.sketch import (
    NO_SKETCH,
    Sketch,
    error_of_product,
    sketch,
    underflow_of_product,
)

CHUNK_ROWS = 8_192  # small enough for the processor's caches, large enough to hide Python (measured)
FEW = 0.02  # below this share of the rows, entities are measured one by one
DENSE = 8  # measuring beats bounding closer while fewer than one row in so many is left
Distances = NDArray[np.float64]
Query = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Matrix:
    """The vectors of one fragment; rows without one are zero and not `present`."""

    values: NDArray[np.float32]
    lengths: NDArray[np.float64]
    present: Mask
    sketch: Sketch

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.values.nbytes + self.lengths.nbytes + self.present.nbytes + self.sketch.nbytes)


def matrix(vectors: pa.ChunkedArray) -> Matrix:
    """Return the vectors of a fragment as a matrix."""
    values = np.zeros((len(vectors), vectors.type.list_size), dtype=np.float32)
    present = np.zeros(len(vectors), dtype=bool)
    at = 0
    for chunk in vectors.chunks:
        values[at : at + len(chunk)], present[at : at + len(chunk)] = numbers(chunk)
        at += len(chunk)
    squares = np.empty(len(vectors))
    for part in _chunks(len(vectors)):
        squares[part] = np.square(values[part], dtype=np.float64).sum(axis=1)
    return Matrix(values, np.sqrt(squares), present, sketch(values, squares))


def numbers(vectors: pa.FixedSizeListArray) -> tuple[NDArray[np.float32], Mask]:
    """Return vectors as rows of numbers, zero where there is none, and which rows have one."""
    size = vectors.type.list_size
    flat = vectors.values.slice(vectors.offset * size, len(vectors) * size)
    rows = flat.to_numpy(zero_copy_only=False).reshape(len(vectors), size).astype(np.float32)
    present = vectors.is_valid().to_numpy(zero_copy_only=False)
    if not present.all():
        rows[~present] = 0
    return rows, present


def as_query(values: Sequence[float]) -> Query:
    """Return a query as vectors are stored."""
    return np.asarray(values, dtype=np.float32)


def measured(rows: NDArray[np.float32], query: Query) -> Distances:
    """Return the distance of each row of a matrix."""
    found = np.empty(len(rows))
    wanted = query.astype(np.float64)
    for part in _chunks(len(rows)):
        found[part] = np.sqrt(np.square(rows[part] - wanted).sum(axis=1))
    return found


def nearest_of(ordinals: Ordinals, distances: Distances, count: int) -> tuple[Ordinals, Distances]:
    """Return the entities with the least distances, in the order given; all that tie with the last."""
    known = ~np.isnan(distances)
    ordinals, distances = ordinals[known], distances[known]
    if count < len(ordinals):
        most = np.partition(distances, count - 1)[count - 1] if count else -1.0
        kept = distances <= most
        ordinals, distances = ordinals[kept], distances[kept]
    return ordinals, distances


class VectorColumn:
    """The vectors of one column of one table version."""

    def __init__(self, span: int, parts: Sequence[Part[Matrix]]) -> None:
        self._parts = tuple(parts)
        self._living = [_living(part) for part in parts]
        self._starts = np.array([part.start for part in parts], dtype=np.int64)
        self._span = span

    def distances(self, query: Sequence[float], ordinals: Ordinals) -> Distances:
        """Return the distance of each entity; NaN where it has no vector, or is missing."""
        wanted = as_query(query)
        found = np.full(len(ordinals), np.nan)
        owners = np.searchsorted(self._starts, ordinals, side="right") - 1  # -1: before all, so missing
        for number in np.unique(owners[owners >= 0]).tolist():
            at = np.flatnonzero(owners == number)
            rows = ordinals[at] - self._parts[number].start
            kept = self._living[number][rows]
            found[at[kept]] = measured(self._parts[number].derived.values[rows[kept]], wanted)
        return found

    def top(
        self, query: Sequence[float], count: int, among: Ordinals | None = None
    ) -> tuple[Ordinals, Distances]:
        """Return the nearest of all entities, or of some distinct ones; all that tie with the last.

        They come in no order, each with its distance.
        """
        if among is not None and len(among) <= max(count, self._span * FEW):
            return nearest_of(among, self.distances(query, among), count)
        chosen = None if among is None else _mask(among, self._span)
        found = Found(count)
        for part, living in zip(self._parts, self._living, strict=True):
            rows = slice(part.start, part.start + len(living))
            _search(part, living if chosen is None else living & chosen[rows], as_query(query), found)
        return found.nearest()


class Found:
    """The entities measured so far that may be among the nearest."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ordinals: list[Ordinals] = [np.zeros(0, np.int64)]
        self._distances: list[Distances] = [np.zeros(0)]
        self._best = np.zeros(0)
        self.ceiling = np.inf if count else -1.0  # a distance; nothing beyond it is wanted

    def add(self, ordinals: Ordinals, distances: Distances) -> None:
        """Take what is not beyond the ceiling, and lower the ceiling to the last that is wanted."""
        kept = distances <= self.ceiling
        self._ordinals.append(ordinals[kept])
        self._distances.append(distances[kept])
        best = np.concatenate([self._best, distances[kept]])
        if len(best) >= self._count > 0:
            best = np.partition(best, self._count - 1)[: self._count]
            self.ceiling = float(best[-1])
        self._best = best

    @property
    def bound(self) -> float:
        """The ceiling for squares, rounded up: equal distances may have unequal squares."""
        return self.ceiling * self.ceiling * (1 + 1e-12)

    @property
    def wanted(self) -> int:
        """How many entities are missing before there is a ceiling; at least one."""
        return max(self._count - len(self._best), 1)

    def nearest(self) -> tuple[Ordinals, Distances]:
        """Return the nearest of all."""
        return nearest_of(np.concatenate(self._ordinals), np.concatenate(self._distances), self._count)


def _search(part: Part[Matrix], living: Mask, query: Query, found: Found) -> None:
    vectors, outline = part.derived, part.derived.sketch.of(query)
    length = float(np.sqrt(np.square(query, dtype=np.float64).sum()))
    error, smallest = error_of_product(len(query)), underflow_of_product(len(query))
    sketched = vectors.sketch is not NO_SKETCH

    def measure(rows: NDArray[np.int64]) -> None:
        found.add(rows + part.start, measured(vectors.values[rows], query))

    def least(own: NDArray[np.float32], other: NDArray[np.float32], chunk: slice) -> Distances:
        """Return squared distances or less, from products that are never too small; not finite if unknown."""
        lengths = vectors.lengths[chunk]
        products = np.einsum("ij,j->i", own[chunk], other)  # not BLAS: its threads wait for busy processors
        squares: Distances = (
            lengths * (lengths - error * length) - 2.0 * products + (length * length - smallest)
        )
        return squares

    def beyond(bound: Distances) -> Mask:
        """Say which rows are beyond the ceiling for certain."""
        return (bound > found.bound) & (bound < np.inf)

    with np.errstate(over="ignore", invalid="ignore"):
        for chunk in _chunks(len(living)):
            wanted = living[chunk].copy()
            bound = (
                least(vectors.sketch.rows, outline, chunk)
                if sketched
                else least(vectors.values, query, chunk)
            )
            if found.ceiling == np.inf:
                seeds = _first(bound, wanted, found.wanted)
                measure(seeds + chunk.start)
                wanted[seeds] = False
            wanted &= ~beyond(bound)
            if sketched and np.count_nonzero(wanted) * DENSE > len(wanted):
                wanted &= ~beyond(least(vectors.values, query, chunk))
            measure(np.flatnonzero(wanted) + chunk.start)


def _first(bound: Distances, wanted: Mask, count: int) -> NDArray[np.int64]:
    """Return the rows that look nearest, to find a low ceiling early."""
    rows = np.flatnonzero(wanted)
    if count >= len(rows):
        return rows
    found: NDArray[np.int64] = rows[np.argpartition(bound[rows], count - 1)[:count]]
    return found


def _living(part: Part[Matrix]) -> Mask:
    return part.derived.present if part.alive is None else part.derived.present & part.alive


def _mask(ordinals: Ordinals, span: int) -> Mask:
    mask = np.zeros(span, dtype=bool)
    mask[ordinals[ordinals >= 0]] = True
    return mask


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK_ROWS, rows)) for start in range(0, rows, CHUNK_ROWS))
