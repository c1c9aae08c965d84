"""Graphs: what a server process holds open, by id; those that cannot be opened, and why.

Opened a few at a time when the process starts. One that fails is quarantined: its routes answer that it is
unavailable, and the others are served. On SIGHUP it is tried again.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from functools import partial

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, GraphNotFound, InvalidRequest, Unavailable
from omnigraph.engine.graph import Graph
from omnigraph.engine.open import connect
from omnigraph.execution.memory import Memory
from omnigraph.surfaces.server.embedding import CountedEmbedder, embedder_for
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServedAddress, ServerSettings
from omnigraph.surfaces.server.stored import StoredQueries

log = logging.getLogger(__name__)
GRAPH_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
RESERVED = frozenset({"policies", "healthz", "openapi", "graphs", "readyz", "metrics"})
OPENED_AT_ONCE = 4


@dataclass(eq=False)
class ServedGraph:
    """One graph of the process: open, or in quarantine with a reason."""

    graph_id: str
    graph: Graph | None = None
    reason: str | None = None
    stored: StoredQueries | None = None

    @property
    def uri(self) -> str:
        """Where it is, as clients of this server see it; where it is stored is not their matter."""
        return f"/graphs/{self.graph_id}"


@dataclass(eq=False)
class ServedGraphs:
    """The graphs of the process by id, and the memory that their queries share."""

    by_id: Mapping[str, ServedGraph] = field(default_factory=dict)
    memory: Memory = field(default_factory=partial(Memory, Limits().memory_bytes))
    embedder: CountedEmbedder | None = None

    @classmethod
    def of(cls, graphs: Mapping[str, Graph], memory: Memory) -> ServedGraphs:
        """Serve graphs that are open already; their queries share the memory if they were opened with it."""
        by_id = {graph_id: ServedGraph(check_id(graph_id), graph) for graph_id, graph in graphs.items()}
        return cls(by_id, memory)

    @classmethod
    def open(cls, settings: ServerSettings) -> ServedGraphs:
        """Open what the settings name."""
        names = [check_id(address.graph_id) for address in settings.graphs]
        if len(set(names)) < len(names):
            raise InvalidRequest("two graphs have one id", remedy="Give each graph an id of its own")
        graphs = cls({}, Memory(settings.limits.memory_bytes), embedder_for(settings.environment))
        with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
            opened = list(pool.map(lambda address: graphs._opened(address, settings), settings.graphs))
        graphs.by_id = {served.graph_id: served for served in sorted(opened, key=lambda one: one.graph_id)}
        return graphs

    def __iter__(self) -> Iterator[ServedGraph]:
        return iter(self.by_id.values())

    @property
    def ready(self) -> tuple[ServedGraph, ...]:
        """Those that are open."""
        return tuple(served for served in self if served.graph is not None)

    @property
    def quarantined(self) -> tuple[ServedGraph, ...]:
        """Those that are not."""
        return tuple(served for served in self if served.graph is None)

    def reopen(self, settings: ServerSettings) -> tuple[ServedGraph, ...]:
        """Try again to open what could not be opened; return those that could be now."""
        by_id = {address.graph_id: address for address in settings.graphs}
        mended = []
        for served in self.quarantined:
            again = self._opened(by_id[served.graph_id], settings)
            served.reason, served.stored = again.reason, again.stored
            served.graph = again.graph  # the last: from here on it is served
            if again.graph is not None:
                mended.append(served)
        return tuple(mended)

    def _opened(self, address: ServedAddress, settings: ServerSettings) -> ServedGraph:
        graph = None
        try:
            graph = connect(
                address.address,
                memory_bytes=settings.limits.query_memory_bytes,
                embedding=self.embedder,
                memory=self.memory,
                strict=settings.strict,
            )
            graph.store.snapshot()  # a damaged head is found now
            folder = address.queries
            stored = None if folder is None else StoredQueries(folder, graph, graph.store.clock)
        except GraphError as error:
            log.error("graph %s is quarantined: %s", address.graph_id, error)
            if graph is not None:
                graph.close()
            return ServedGraph(address.graph_id, None, error.code)
        return ServedGraph(address.graph_id, graph, None, stored)

    @property
    def sole(self) -> ServedGraph | None:
        """The graph of a server that has exactly one."""
        served = list(self)
        return served[0] if len(served) == 1 else None

    def get(self, graph_id: str | None) -> ServedGraph:
        """Return a graph; None is the only one there is."""
        served = self.sole if graph_id is None else self.by_id.get(graph_id)
        if served is None:
            raise unknown(graph_id)
        return served

    def close(self) -> None:
        """Close all of them."""
        for served in self.ready:
            assert served.graph is not None
            served.graph.close()


def unknown(graph_id: str | None) -> GraphNotFound:
    """Return the answer for a graph that there is not, or of which the caller is to know nothing."""
    if graph_id is None:
        return GraphNotFound("no graph was named", remedy="Ask for one of GET /graphs")
    return GraphNotFound(
        f"there is no graph {graph_id[:64]!r} here", remedy="GET /graphs lists them", graph_id=graph_id[:64]
    )


def opened(served: ServedGraph) -> Graph:
    """Return the graph of an entry; one in quarantine answers that it cannot be served."""
    if served.graph is None:
        raise Unavailable(
            f"graph {served.graph_id!r} cannot be served now",
            remedy="The server's log says why it could not be opened",
            graph_id=served.graph_id,
        )
    return served.graph


def check_id(graph_id: str) -> str:
    """Return an id that can stand in a path."""
    if not GRAPH_ID.fullmatch(graph_id) or graph_id in RESERVED:
        raise InvalidRequest(
            f"{graph_id!r} is no graph id",
            remedy="Use 1 to 64 letters, digits and dashes; give one with --id",
        )
    return graph_id


def id_of(address: str) -> str:
    """Return the id that a graph has if nobody gave it one: from the last part of its address.

    >>> id_of("s3://bucket/team/library.og"), id_of("kb.og/")
    ('library', 'kb')
    """
    last = address.rstrip("/").rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    return re.sub(r"[^A-Za-z0-9-]+", "-", stem).strip("-")[:64] or "graph"


def reasons(graphs: Iterable[ServedGraph]) -> dict[str, str]:
    """Return the state of each graph, as `/readyz` tells it."""
    return {
        served.graph_id: "ready" if served.graph is not None else f"quarantined: {served.reason}"
        for served in graphs
    }
