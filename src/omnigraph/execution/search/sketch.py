"""Sketch: a few numbers for each vector that bound its distance to any other from below.

Room    execution.search. Pure. A sketch holds the vector's coordinates along the axes in which the vectors of
        a fragment vary most, and the length of the rest. The product of two sketches is at least the
        product of the vectors (Cauchy and Schwarz, for the rest), so |x|² + |q|² - 2 · product is at most
        their squared distance. It costs a quarter of the true product, and excludes most rows where
        vectors are not random.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE = 8_192
LEAST_ROWS = 4_096  # smaller fragments are measured as they are
LEAST_NUMBERS = 16
MOST_AXES = 64
CHUNK_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Sketch:
    """The sketches of a fragment's vectors."""

    axes: NDArray[np.float64]  # a column for each
    rows: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self.axes.nbytes + self.rows.nbytes)

    def of(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sketch of a query."""
        if not self.axes.size:
            return np.zeros(0, np.float32)
        square = np.square(query, dtype=np.float64).sum(keepdims=True)
        outline: NDArray[np.float64] = _outline(query.reshape(1, -1), square, self.axes)[0]
        return outline.astype(np.float32)


NO_SKETCH = Sketch(np.zeros((0, 0)), np.zeros((0, 0), np.float32))


def sketch(values: NDArray[np.float32], squares: NDArray[np.float64]) -> Sketch:
    """Sketch vectors, given the squares of their lengths."""
    count, size = values.shape
    if count < LEAST_ROWS or size < LEAST_NUMBERS:
        return NO_SKETCH
    sample = values[:: max(count // SAMPLE, 1)].astype(np.float64)
    moments = sample.T @ sample
    if not np.isfinite(moments).all():
        return NO_SKETCH
    axes = np.linalg.eigh(moments)[1][:, -min(size // 4, MOST_AXES) :]
    rows = np.empty((count, axes.shape[1] + 1), dtype=np.float32)
    with np.errstate(over="ignore"):  # what 32 bits cannot hold becomes infinite, and excludes nothing
        for start in range(0, count, CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            rows[part] = _outline(values[part], squares[part], axes)
    return Sketch(axes, rows)


def error_of_product(size: int) -> float:
    """Bound the error of twice a 32-bit product of vectors, or of sketches, as a share of their lengths.

    Rounding each of n products and sums is at most n units in the last place (half of `eps`); this is four
    times as much again.
    """
    return 4.0 * (size + 2) * float(np.finfo(np.float32).eps)


def underflow_of_product(size: int) -> float:
    """Bound what numbers too small for 32 bits add to that error."""
    return 4.0 * (size + 2) * float(np.finfo(np.float32).tiny)


def _outline(
    values: NDArray[np.float32], squares: NDArray[np.float64], axes: NDArray[np.float64]
) -> NDArray[np.float64]:
    along = values.astype(np.float64) @ axes
    rest = np.sqrt(np.maximum(squares - np.square(along).sum(axis=1), 0.0))
    return np.concatenate([along, rest[:, None]], axis=1)
