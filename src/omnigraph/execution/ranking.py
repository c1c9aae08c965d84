"""Ranking: search functions as columns, and the order that a ranking gives.

Room    execution. Between the match and the search room: what is ranked is what the match kept, so a filter
        never starves the limit.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.query.expressions import Bm25, Nearest, Ranking, Rrf, TextMatch
from omnigraph.execution.context import Context
from omnigraph.execution.order import Key
from omnigraph.execution.rows import Rows


class Ranker:
    """Evaluates search functions over rows."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def column(self, value: TextMatch | Nearest | Bm25 | Rrf, rows: Rows) -> pa.Array:
        """Return a match, distance or score for each row."""
        raise InvalidRequest("search functions are not available yet")

    def rank(self, ranking: Ranking, rows: Rows, limit: int | None) -> tuple[Rows, list[Key]]:
        """Return the rows that a ranking keeps, and the keys that order them."""
        raise InvalidRequest("search functions are not available yet")
