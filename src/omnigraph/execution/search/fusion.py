"""Fusion: two rankings of the same entities become one, by reciprocal ranks.

Room    execution.search. Pure: a ranking is entities in order, best first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.execution.entities import Ordinals

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
