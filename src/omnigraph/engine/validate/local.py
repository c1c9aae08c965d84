"""Local: the executor of one process.

Room    engine.validate. Small changes are answered row by row with look-ups, others by a query engine; what
        must be held decides, question by question. The answers are the same.
"""

from __future__ import annotations

from functools import cached_property

from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.frames import FrameExecutor
from omnigraph.engine.validate.relation import Answer, Relation
from omnigraph.engine.validate.rows import MOST, RowExecutor
from omnigraph.storage.transaction import WriteTxn


class LocalExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: WriteTxn, most: int = MOST) -> None:
        self._change = change
        self._base = base
        self._rows = RowExecutor(change, base, most)

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total."""
        chosen = self._rows if self._rows.fits(relation) else self._frames
        return chosen.answer(relation, order, limit)

    @cached_property
    def _frames(self) -> FrameExecutor:
        return FrameExecutor(self._change, self._base)
