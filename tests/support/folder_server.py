"""Serve every graph of a folder, each opened when it is first asked for: `python folder_server.py FOLDER`.

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


class Folder(dict[str, ServedGraph]):
    """Graphs by id, found below a folder."""

    def __init__(self, root: Path) -> None:
        super().__init__({name: self._opened(root / name) for name in ("first", "second")})
        self._root = root
        self._lock = Lock()

    def get(self, graph_id: str, default: Any = None) -> Any:
        """Return a graph, opened now if it was not before."""
        with self._lock:
            if graph_id not in self and (self._root / graph_id).is_dir():
                self[graph_id] = self._opened(self._root / graph_id)
        return super().get(graph_id, default)

    @staticmethod
    def _opened(place: Path) -> ServedGraph:
        return ServedGraph(place.name, connect(place, durability="os"))


def main(root: str) -> int:
    """Serve until a signal says to stop."""
    graphs = ServedGraphs(Folder(Path(root)))
    ServedGraphs.open = lambda *settings, **options: graphs  # type: ignore[method-assign]
    return process.serve(ServerSettings(bind="127.0.0.1:0", unauthenticated=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
