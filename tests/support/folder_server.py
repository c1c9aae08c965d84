"""Serve every graph of a folder, opened when it is first asked for: `folder_server.py FOLDER QUERIES`.

Room    tests that need many graphs and one server. Runs in a process of its own, on a port of loopback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Lock
from typing import Any

from omnigraph.engine.open import connect
from omnigraph.surfaces.server import process
from omnigraph.surfaces.server.graphs import ServedGraph, ServedGraphs
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.stored import StoredQueries


class Folder(dict[str, ServedGraph]):
    """Graphs by id, found below a folder."""

    def __init__(self, root: Path, queries: Path) -> None:
        self._root = root
        self._queries = queries
        super().__init__({name: self._opened(root / name) for name in ("first", "second")})
        self._lock = Lock()

    def get(self, graph_id: str, default: Any = None) -> Any:
        """Return a graph, opened now if it was not before."""
        with self._lock:
            if graph_id not in self and (self._root / graph_id).is_dir():
                self[graph_id] = self._opened(self._root / graph_id)
        return super().get(graph_id, default)

    def _opened(self, place: Path) -> ServedGraph:
        graph = connect(place, durability="os")
        return ServedGraph(place.name, graph, None, StoredQueries(self._queries, graph, graph.store.clock))


def main(root: str, queries: str) -> int:
    """Serve until a signal says to stop."""
    graphs = ServedGraphs(Folder(Path(root), Path(queries)))
    ServedGraphs.open = lambda *settings, **options: graphs  # type: ignore[method-assign]
    return process.serve(ServerSettings(bind="127.0.0.1:0", unauthenticated=True))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
