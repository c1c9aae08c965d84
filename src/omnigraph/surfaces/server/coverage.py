"""Coverage: how far indexes go, looked at now and then when somebody asks for the metrics.

Reads no rows; a graph that cannot be looked at keeps the figures it had.
"""

from __future__ import annotations

import logging
import threading

from omnigraph.base.errors import GraphError
from omnigraph.base.ids import Clock
from omnigraph.storage.tables.compaction import coverage
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.metrics import Metrics

log = logging.getLogger(__name__)
LOOKED_EVERY = 60.0  # seconds


class CoverageLook:
    """Looks at the main branches of all graphs, once a minute at most."""

    def __init__(self, graphs: ServedGraphs, metrics: Metrics, clock: Clock) -> None:
        self._graphs = graphs
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._due = clock.monotonic()

    def refresh(self) -> None:
        """Look, unless that was done lately or is being done."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._clock.monotonic() < self._due:
                return
            for served in self._graphs.ready:
                assert served.graph is not None
                try:
                    tables = served.graph.fragmentation()
                except GraphError as error:
                    log.warning("the indexes of %s could not be looked at: %s", served.graph_id, error.code)
                    continue
                covered = {
                    (table.type, index.property): coverage(table.rows, index.unindexed_rows)
                    for table in tables
                    for index in table.indexes
                }
                self._metrics.covered(served.graph_id, covered)
            self._due = self._clock.monotonic() + LOOKED_EVERY
        finally:
            self._lock.release()
