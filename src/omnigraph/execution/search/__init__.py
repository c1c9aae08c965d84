"""Search: full text, vectors and the fusion of rankings, over the entities of one table version.

Room    execution. Knows nothing of queries: it takes tables, columns and values, and gives ordinals
        and scores.
"""

from omnigraph.execution.search.fusion import Fused, fuse, ranked
from omnigraph.execution.search.room import Search, Texts, Vectors

__all__ = ["Fused", "Search", "Texts", "Vectors", "fuse", "ranked"]
