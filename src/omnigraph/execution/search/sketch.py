"""Sketch: a few numbers for each vector that bound its distance to any other from below.

Room    execution.search. Pure. A sketch holds the vector's coordinates along the axes in which the vectors of
        a fragment vary most, the length of the rest, and the square of the whole length. The product of two
        sketches is at least the product of the vectors (Cauchy and Schwarz, for the rest), so
        |x|² + |q|² - 2 · product is at most their squared distance. It costs a quarter of the true product,
        and excludes most rows where vectors are not random.
Layout  the sketch of a vector is `axes..., rest, -|x|²/2`, that of a query `axes..., rest, 1`: one product
        gives (|q|² - least)/2, where `least` is the bound. Sketches are columns, so that one number of all
        vectors lies side by side: that multiplies twice as fast as rows of so few numbers (measured).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAMPLE = 8_192
LEAST_ROWS = 4_096  # smaller fragments are measured as they are
LEAST_NUMBERS = 16
SHARES = (16, 8, 4, 2)  # one axis for so many numbers of a vector
QUESTIONS, NEIGHBOURS = 16, 10
MEASURING = 5  # what measuring a number costs, next to multiplying it
CHUNK_ROWS = 16_384


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
        found: NDArray[np.float32] = np.einsum("ij,i->j", some, outline)
        return found

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
        for start in range(0, count, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            columns[:-1, part] = _outline(values[part], squares[part], axes).T
            columns[-1, part] = -squares[part] / 2
    return Sketch(axes, columns)


def _cheapest(sample: NDArray[np.float64], axes: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Try a few numbers of axes on a sample; return those that make a search cheapest, if any help at all."""
    size = sample.shape[1]
    squares = np.square(sample).sum(axis=1)
    asked = np.arange(0, len(sample), max(len(sample) // QUESTIONS, 1))
    true = squares + squares[asked, None] - 2.0 * sample[asked] @ sample.T
    near = np.partition(true, NEIGHBOURS, axis=1)[:, NEIGHBOURS, None]
    best, least = None, float(size)  # what it costs to look at the vectors themselves
    for share in SHARES:
        chosen = axes[:, -max(size // share, 1) :]
        outline = _outline(sample, squares, chosen)
        bound = squares + squares[asked, None] - 2.0 * outline[asked] @ outline.T
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
