"""Stored queries: a folder of `.gq` files, looked at again when it changes, and called by name.

Checked against the schema when the server starts and whenever they change: one that does not fit, or a name
that two files have, keeps a server from starting, and later leaves the queries as they were. Every call is
compiled against the branch that it reads, as any other query.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph.base.errors import GraphError
from omnigraph.base.ids import Clock
from omnigraph.engine.graph import Graph
from omnigraph.engine.stored import QueriesByName, StoredQuery, no_query, query_files, read_queries

log = logging.getLogger(__name__)
LOOKED_EVERY = 1.0  # seconds
Stamp = tuple[tuple[str, int, int], ...]


class StoredQueries:
    """The queries of one graph; safe for many threads, which all see one state of the folder."""

    def __init__(self, folder: Path, graph: Graph, clock: Clock) -> None:
        self._folder = folder
        self._graph = graph
        self._clock = clock
        self._lock = threading.Lock()
        self._looked = clock.monotonic()
        self._stamp = self._newest()
        self._queries = self._read()

    def get(self, name: str) -> StoredQuery:
        """Return a query, or say that there is none."""
        query = self._current().get(name)
        if query is None:
            raise no_query(name)
        return query

    def entries(self) -> list[Mapping[str, Any]]:
        """Return what is known of each, by name."""
        queries = self._current()
        return [queries[name].entry for name in sorted(queries)]

    def reload(self) -> bool:
        """Read the folder again, changed or not, as at SIGHUP; say whether that went well."""
        with self._lock:
            self._stamp = self._newest()
            return self._replace()

    def _current(self) -> QueriesByName:
        if self._lock.acquire(blocking=False):  # whoever comes meanwhile takes what there is
            try:
                self._look()
            finally:
                self._lock.release()
        return self._queries

    def _look(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked < LOOKED_EVERY:
            return
        self._looked = now
        stamp = self._newest()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._replace()

    def _replace(self) -> bool:
        try:
            self._queries = self._read()
        except (GraphError, OSError) as error:
            log.error("the stored queries were not reloaded, the earlier ones stay: %s", error)
            return False
        log.info("reloaded the stored queries: %d", len(self._queries))
        return True

    def _newest(self) -> Stamp:
        try:
            files = [(path, path.stat()) for path in query_files(self._folder)]
        except OSError:
            return ()
        return tuple((str(path), status.st_mtime_ns, status.st_size) for path, status in files)

    def _read(self) -> QueriesByName:
        return read_queries(self._folder, self._graph.schema.catalog())
