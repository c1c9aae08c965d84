"""Vectors: distances from a query vector, and the nearest entities, exactly.

Distances are Euclidean. Stored vectors and queries are 32-bit; differences, squares and sums are 64-bit,
so the distance of an entity never depends on which others are asked for. An entity without a vector has
no distance: NaN where it is asked for, and never among the nearest.

A search is one pass over the rows with a ceiling, the least distance that is certainly enough: a sketch
of each vector bounds its distance from below, a product in 32 bits with a known error bounds it closer,
and only rows that both leave under the ceiling are measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.search.parts import Mask, SearchFragment

# -- sketch ----------------------------------------------------------------------------------------
#
# A few numbers for each vector that bound its distance to any other from below: the vector's coordinates
# along the axes in which the vectors of a fragment vary most, the length of the rest, and the square of
# the whole length. The product of two sketches is at least the product of the vectors (Cauchy and
# Schwarz, for the rest), so |x|² + |q|² - 2 · product is at most their squared distance. It costs a
# quarter of the true product, and excludes most rows where vectors are not random.
#
# The sketch of a vector is `axes..., rest, -|x|²/2`, that of a query `axes..., rest, 1`: one product
# gives (|q|² - least)/2, where `least` is the bound. Sketches are columns, so that one number of all
# vectors lies side by side: that multiplies twice as fast as rows of so few numbers (measured).


SAMPLE = 8_192
LEAST_ROWS = 4_096  # smaller fragments are measured as they are
LEAST_NUMBERS = 16
SHARES = (16, 8, 4, 2)  # one axis for so many numbers of a vector
QUESTIONS, NEIGHBOURS = 16, 10
MEASURING = 5  # what measuring a number costs, next to multiplying it
SKETCH_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Sketch:
    """The sketches of a fragment's vectors."""

    axes: NDArray[np.float64]  # a column for each
    columns: NDArray[np.float32]  # one for each vector

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.axes.nbytes + self.columns.nbytes)

    def products(self, at: slice | NDArray[np.int64], outline: NDArray[np.float32]) -> NDArray[np.float32]:
        """Multiply the sketches of some vectors with that of a query."""
        some = self.columns[:, at] if isinstance(at, slice) else self.columns.take(at, axis=1, mode="clip")
        # Not BLAS: its threads wait for each other while the processors are busy with something else.
        products: NDArray[np.float32] = np.einsum("ij,i->j", some, outline)
        return products

    def of(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sketch of a query."""
        if not self.axes.size:
            return np.zeros(0, np.float32)
        square = np.square(query, dtype=np.float64).sum(keepdims=True)
        outline = _outline(query.reshape(1, -1), square, self.axes)[0]
        return np.append(outline, 1.0).astype(np.float32)


NO_SKETCH = Sketch(np.zeros((0, 0)), np.zeros((0, 0), np.float32))


def sketch(values: NDArray[np.float32], squares: NDArray[np.float64]) -> Sketch:
    """Sketch vectors, given the squares of their lengths; `NO_SKETCH` where that would exclude too few."""
    count, size = values.shape
    if count < LEAST_ROWS or size < LEAST_NUMBERS:
        return NO_SKETCH
    sample = values[:: max(count // SAMPLE, 1)].astype(np.float64)
    moments = sample.T @ sample
    if not np.isfinite(moments).all():
        return NO_SKETCH
    axes = _cheapest(sample, np.linalg.eigh(moments)[1])
    if axes is None:
        return NO_SKETCH
    columns = np.empty((axes.shape[1] + 2, count), dtype=np.float32)
    with np.errstate(over="ignore"):  # what 32 bits cannot hold becomes infinite, and excludes nothing
        for start in range(0, count, SKETCH_ROWS):
            part = slice(start, start + SKETCH_ROWS)
            columns[:-1, part] = _outline(values[part], squares[part], axes).T
            columns[-1, part] = -squares[part] / 2
    return Sketch(axes, columns)


def _cheapest(sample: NDArray[np.float64], axes: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Try a few numbers of axes on a sample; return those that make a search cheapest, if any help at all."""
    size = sample.shape[1]
    squares = np.square(sample).sum(axis=1)
    questions = np.arange(0, len(sample), max(len(sample) // QUESTIONS, 1))
    true = squares + squares[questions, None] - 2.0 * sample[questions] @ sample.T
    near = np.partition(true, NEIGHBOURS, axis=1)[:, NEIGHBOURS, None]
    best, least = None, float(size)  # what it costs to look at the vectors themselves
    for share in SHARES:
        chosen = axes[:, -max(size // share, 1) :]
        outline = _outline(sample, squares, chosen)
        bound = squares + squares[questions, None] - 2.0 * outline[questions] @ outline.T
        cost = outline.shape[1] + 1 + MEASURING * size * float((bound <= near).mean())
        if cost < least:
            best, least = chosen, cost
    return best


def error_of_products(size: int, longest: float, length: float) -> float:
    """Bound the error of twice a 32-bit product, given the longest vector and the length of the query.

    Rounding each of n products and sums costs at most n units in the last place (half of `eps`) of what is
    summed, and so does rounding what is multiplied; this is more than twice as much. Numbers too small for 32
    bits add to it.
    """
    kinds = np.finfo(np.float32)
    return 4.0 * (size + 4) * (float(kinds.eps) * (longest * length + longest * longest) + float(kinds.tiny))


def _outline(
    values: NDArray[Any], squares: NDArray[np.float64], axes: NDArray[np.float64]
) -> NDArray[np.float64]:
    along = values.astype(np.float64) @ axes
    rest = np.sqrt(np.maximum(squares - np.square(along).sum(axis=1), 0.0))
    return np.concatenate([along, rest[:, None]], axis=1)


# -- exact search ----------------------------------------------------------------------------------


CHUNK_ROWS = 32_768  # small enough for the processor's caches, large enough to hide Python (measured)
MEASURED_ROWS = 4_096  # likewise, for 64-bit numbers of the whole vector
FEW = 0.02  # below this share of the rows, entities are measured one by one
LARGE = 1e36  # a square: of vectors and queries below it, no sum of products leaves 32 bits
NO_ROWS = np.zeros(0, np.int64)
DENSE = 8  # measuring beats bounding closer while fewer than one row in so many is left
Distances = NDArray[np.float64]
Query = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Matrix:
    """The vectors of one fragment; rows without one are zero and not `present`."""

    values: NDArray[np.float32]
    lengths: NDArray[np.float64]
    longest: float
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
    for part in _chunks(len(vectors), MEASURED_ROWS):
        squares[part] = np.square(values[part], dtype=np.float64).sum(axis=1)
    lengths = np.sqrt(squares)
    return Matrix(values, lengths, float(lengths.max(initial=0.0)), present, sketch(values, squares))


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
    distances = np.empty(len(rows))
    target = query.astype(np.float64)
    for part in _chunks(len(rows), MEASURED_ROWS):
        distances[part] = np.sqrt(np.square(rows[part] - target).sum(axis=1))
    return distances


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

    def __init__(self, span: int, parts: Sequence[SearchFragment[Matrix]]) -> None:
        self._parts = tuple(parts)
        self._living = [_living(part) for part in parts]
        self._starts = np.array([part.start for part in parts], dtype=np.int64)
        self._span = span

    def distances(self, query: Sequence[float], ordinals: Ordinals) -> Distances:
        """Return the distance of each entity; NaN where it has no vector, or is missing."""
        vector = as_query(query)
        distances = np.full(len(ordinals), np.nan)
        owners = np.searchsorted(self._starts, ordinals, side="right") - 1  # -1: before all, so missing
        for number in np.unique(owners[owners >= 0]).tolist():
            at = np.flatnonzero(owners == number)
            rows = ordinals[at] - self._parts[number].start
            kept = self._living[number][rows]
            distances[at[kept]] = measured(self._parts[number].derived.values[rows[kept]], vector)
        return distances

    def top(
        self, query: Sequence[float], count: int, among: Ordinals | None = None
    ) -> tuple[Ordinals, Distances]:
        """Return the nearest of all entities, or of some distinct ones; all that tie with the last.

        They come in no order, each with its distance.
        """
        if among is not None and len(among) <= max(count, self._span * FEW):
            return nearest_of(among, self.distances(query, among), count)
        nearest = NearestRows(count)
        bounds = [*self._starts.tolist(), self._span]
        chosen = None if among is None else np.sort(among[among >= 0])
        for part, living, (start, end) in zip(self._parts, self._living, pairwise(bounds), strict=True):
            search = _PartSearch(part, as_query(query), nearest)
            if chosen is None:
                search.run(living)
            else:
                rows = chosen[np.searchsorted(chosen, start) : np.searchsorted(chosen, end)] - start
                search.run_some(rows[living[rows]])
        return nearest.nearest()


class NearestRows:
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
    def missing(self) -> int:
        """How many entities are missing before there is a ceiling; at least one."""
        return max(self._count - len(self._best), 1)

    def nearest(self) -> tuple[Ordinals, Distances]:
        """Return the nearest of all."""
        return nearest_of(np.concatenate(self._ordinals), np.concatenate(self._distances), self._count)


class _PartSearch:
    """The search for a query in one part.

    Rows are judged by half of |q|² less a bound of their squared distance from below: the larger, the nearer.
    """

    def __init__(self, part: SearchFragment[Matrix], query: Query, nearest: NearestRows) -> None:
        self._start = part.start
        self._vectors = part.derived
        self._query = query
        self._nearest = nearest
        self._sketched = part.derived.sketch is not NO_SKETCH
        self._outline = part.derived.sketch.of(query)
        self._square = float(np.square(query, dtype=np.float64).sum())
        longest = part.derived.longest
        self._error = error_of_products(len(query), longest, float(np.sqrt(self._square)))
        self._exact = max(longest * longest, self._square) < LARGE  # then nothing overflows

    def run(self, living: Mask) -> None:
        """Look at all rows that are alive."""
        with np.errstate(over="ignore", invalid="ignore"):
            for chunk in _chunks(len(living)):
                self._look(chunk, living[chunk])

    def run_some(self, rows: NDArray[np.int64]) -> None:
        """Look at some rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            for chunk in _chunks(len(rows)):
                self._look(rows[chunk], np.ones(len(rows[chunk]), dtype=bool))

    def _look(self, at: slice | NDArray[np.int64], living: Mask) -> None:
        sketch = self._vectors.sketch
        bounds = sketch.products(at, self._outline) if self._sketched else self._by_vector(at)
        seeds: NDArray[np.int64] = NO_ROWS
        if self._nearest.ceiling == np.inf:
            seeds = _largest(bounds, living, self._nearest.missing)
            self._measure(_rows(at, seeds))
        near = self._near(bounds)
        near &= living
        near[seeds] = False
        left = np.flatnonzero(near)
        if self._sketched and len(left) * DENSE > len(near):
            near &= self._near(self._by_vector(at))
            left = np.flatnonzero(near)
        if len(left):
            self._measure(_rows(at, left))

    def _measure(self, rows: NDArray[np.int64]) -> None:
        self._nearest.add(rows + self._start, measured(self._vectors.values[rows], self._query))

    def _by_vector(self, at: slice | NDArray[np.int64]) -> NDArray[Any]:
        products = np.einsum("ij,j->i", self._vectors.values[at], self._query)
        bounds: NDArray[np.float64] = products - np.square(self._vectors.lengths[at]) / 2
        return bounds

    def _near(self, bounds: NDArray[Any]) -> Mask:
        """Say which rows may be under the ceiling; of those whose bound overflowed nothing is known."""
        limit = (self._square - self._nearest.bound - self._error) / 2
        least = np.nextafter(bounds.dtype.type(limit), bounds.dtype.type(-np.inf))
        near: Mask = bounds >= least
        if not self._exact:
            near |= ~(bounds > -np.inf)
        return near


def _rows(at: slice | NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    return positions + at.start if isinstance(at, slice) else at[positions]


def _largest(bounds: NDArray[Any], candidates: Mask, count: int) -> NDArray[np.int64]:
    """Return the positions that look nearest, to find a low ceiling early."""
    positions = np.flatnonzero(candidates)
    if count >= len(positions):
        return positions
    nearest: NDArray[np.int64] = positions[np.argpartition(-bounds[positions], count - 1)[:count]]
    return nearest


def _living(part: SearchFragment[Matrix]) -> Mask:
    return part.derived.present if part.alive is None else part.derived.present & part.alive


def _chunks(rows: int, size: int = CHUNK_ROWS) -> Iterator[slice]:
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))
