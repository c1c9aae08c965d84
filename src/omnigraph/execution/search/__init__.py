"""Search: full text, vectors and the fusion of rankings, over the entities of one table version.

Room    execution. Knows nothing of queries: it takes tables, columns and values, and gives ordinals
        and scores.
"""

from omnigraph.execution.search.corpus import Corpus
from omnigraph.execution.search.fusion import Fused, fuse, ranked
from omnigraph.execution.search.room import Search
from omnigraph.execution.search.vectors import VectorColumn

__all__ = ["Corpus", "Fused", "Search", "VectorColumn", "fuse", "ranked"]
