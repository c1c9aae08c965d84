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
from types import MappingProxyType
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest, QueryNotFound
from omnigraph.base.ids import Clock
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.query import compile_query, query_entry
from omnigraph.engine.graph import Graph
from omnigraph.language.query import parse_query

log = logging.getLogger(__name__)
LOOKED_EVERY = 1.0  # seconds
SUFFIX = ".gq"
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class StoredQuery:
    """One query: the text of its file, and what is known of it."""

    name: str
    text: str
    file: str
    mutation: bool
    entry: Mapping[str, Any]


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

    def _current(self) -> Mapping[str, StoredQuery]:
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
            files = [(path, path.stat()) for path in sorted(self._folder.rglob(f"*{SUFFIX}"))]
        except OSError:
            return ()
        return tuple((str(path), status.st_mtime_ns, status.st_size) for path, status in files)

    def _read(self) -> Mapping[str, StoredQuery]:
        if not self._folder.is_dir():
            raise InvalidRequest(f"there is no folder {str(self._folder)!r}", remedy="Check --queries")
        catalog = self._graph.schema.catalog()
        queries: dict[str, StoredQuery] = {}
        for path in sorted(self._folder.rglob(f"*{SUFFIX}")):
            for query in _of_file(path, catalog):
                if query.name in queries:
                    raise InvalidRequest(
                        f"{path.name} and {queries[query.name].file} both have a query {query.name!r}",
                        remedy="Rename one of them",
                    )
                queries[query.name] = query
        return MappingProxyType(queries)


def no_query(name: str) -> QueryNotFound:
    """Return the answer for a query that there is not, or that the caller may not call."""
    return QueryNotFound(
        f"there is no stored query {name[:128]!r}", remedy="GET /queries lists them", name=name[:128]
    )


def _of_file(path: Path, catalog: Catalog) -> list[StoredQuery]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path.name} cannot be read", remedy="Save it as UTF-8 text") from error
    queries = []
    for syntax in parse_query(text, path.name).queries:
        checked = compile_query(text, catalog, syntax.name.text, file=path.name)
        queries.append(StoredQuery(checked.name, text, path.name, syntax.mutation, query_entry(checked)))
    return queries
