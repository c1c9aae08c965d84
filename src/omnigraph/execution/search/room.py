"""Search room: what the queries of one graph share.

Room    execution.search. Holds the caches; one for each open graph, used by many threads.
"""

from __future__ import annotations

from omnigraph.execution.entities import EntityTable
from omnigraph.execution.search.corpus import Corpus
from omnigraph.execution.search.parts import CACHE_BYTES, PartsCache
from omnigraph.execution.search.postings import Postings, invert
from omnigraph.execution.search.vectors import Matrix, VectorColumn, matrix


class Search:
    """Texts and vectors by table version."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._texts: PartsCache[Postings, Corpus] = PartsCache(invert, Corpus, limit)
        self._vectors: PartsCache[Matrix, VectorColumn] = PartsCache(matrix, VectorColumn, limit)

    def text(self, table: EntityTable, column: str) -> Corpus:
        """Return the texts of a stored column."""
        return self._texts.get(table, column)

    def vectors(self, table: EntityTable, column: str) -> VectorColumn:
        """Return the vectors of a stored column."""
        return self._vectors.get(table, column)
