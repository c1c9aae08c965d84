"""Rounds: the state of a computation that goes round after round.

Room    pipeline.algorithms. Spark plans a round from where its state came from, so without care each round
        plans, and perhaps computes, all rounds before it. Here a state is computed once and kept, the one
        before it is let go, and each few rounds the plan is cut.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame

CUT_EVERY = 4


class Rounds:
    """Keeps the state of the newest round."""

    def __init__(self) -> None:
        self.count = 0
        self._kept: list[DataFrame] = []

    def take(self, state: DataFrame, *measures: Column) -> tuple[DataFrame, Any]:
        """Compute a new state; return it as it is kept, and what is measured of it, as a row."""
        self.count += 1
        cut = self.count % CUT_EVERY == 0
        kept = state.localCheckpoint() if cut else state.persist()
        measured = kept.agg(*measures).collect()[0]
        self.close()
        if not cut:
            self._kept.append(kept)
        return kept, measured

    def close(self) -> None:
        """Let go of what is kept in memory."""
        while self._kept:
            self._kept.pop().unpersist()
