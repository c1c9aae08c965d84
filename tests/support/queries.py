"""A folder of stored queries.

Room    tests of servers.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.base.ids import SystemClock
from omnigraph.engine.graph import Graph
from omnigraph.surfaces.server.stored import StoredQueries


def folder_of(folder: Path, graph: Graph, *texts: str) -> StoredQueries:
    """Return queries, each in a file of its own."""
    for number, text in enumerate(texts):
        (folder / f"{number}.gq").write_text(text)
    return StoredQueries(folder, graph, SystemClock())
