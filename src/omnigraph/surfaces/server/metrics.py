"""Metrics: what a server process counts, as Prometheus reads it.

Each process has a registry of its own: nothing is global. Labels are few and bounded: templates of routes,
names of stored queries, never texts or values of a request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from omnigraph.storage.cost import Cost, process_totals

CONTENT_TYPE = CONTENT_TYPE_LATEST
AD_HOC = "-"  # the name of every query whose text came with the request
MAIN, OTHER = "main", "other"  # classes of branches: names of branches are not bounded
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
REQUESTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)
STAGES = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 32)


class AdmissionCounts(Protocol):
    """What admission tells about itself."""

    @property
    def rejected(self) -> Mapping[str, int]:
        """Turned away since the start, by what was asked for."""
        ...

    @property
    def running(self) -> Mapping[str, int]:
        """Running now."""
        ...

    @property
    def waiting(self) -> Mapping[str, int]:
        """Waiting now."""
        ...


class EmbedderCounts(Protocol):
    """What an embedder tells about itself."""

    provider: str

    @property
    def calls(self) -> Mapping[str, int]:
        """How often it was asked, by outcome."""
        ...


class Metrics:
    """The counters of one process; safe for many threads."""

    def __init__(
        self, admission: AdmissionCounts | None = None, embedder: EmbedderCounts | None = None
    ) -> None:
        self.registry = registry = CollectorRegistry()
        self._http = Counter(
            "og_http_requests", "Requests answered", ("route", "method", "code"), registry=registry
        )
        self._http_seconds = Histogram(
            "og_http_request_seconds", "Time to answer", ("route",), buckets=SECONDS, registry=registry
        )
        self._query_seconds = Histogram(
            "og_query_seconds", "Time of queries", ("graph", "query"), buckets=SECONDS, registry=registry
        )
        self._rows = Counter("og_rows_returned", "Rows of query results", registry=registry)
        self._commits = Counter(
            "og_commits", "Commits published", ("graph", "branch_class"), registry=registry
        )
        self._commit_seconds = Histogram(
            "og_commit_seconds", "Time of writes that made a commit", buckets=SECONDS, registry=registry
        )
        self._conflicts = Counter(
            "og_conflicts", "Requests lost to other writers", ("kind",), registry=registry
        )
        self._ready = Gauge("og_graph_ready", "Whether a graph is served", ("graph",), registry=registry)
        self._optimized = Counter(
            "og_optimize_runs", "Runs of optimize in the background", ("graph", "outcome"), registry=registry
        )
        self._storage = Counter(
            "og_storage_requests", "Requests to storage, by operation", ("op",), registry=registry
        )
        self._read = Counter("og_storage_read_bytes", "Bytes read from storage", ("op",), registry=registry)
        self._written = Counter(
            "og_storage_written_bytes", "Bytes written to storage", ("op",), registry=registry
        )
        self._requests_each = Histogram(
            "og_operation_storage_requests",
            "Requests to storage of one operation",
            ("op",),
            buckets=REQUESTS,
            registry=registry,
        )
        self._stages_each = Histogram(
            "og_operation_storage_stages",
            "Steps of one operation that waited for the one before",
            ("op",),
            buckets=STAGES,
            registry=registry,
        )
        self._decisions = Counter(
            "og_policy_decisions",
            "Questions to policies, by what they said",
            ("action", "decision"),
            registry=registry,
        )
        self._coverage = Gauge(
            "og_index_coverage_ratio",
            "Share of the rows on main that an index covers",
            ("graph", "type", "property"),
            registry=registry,
        )
        self._covered: dict[str, frozenset[tuple[str, str]]] = {}
        registry.register(_Totals(admission, embedder))

    def render(self) -> bytes:
        """Return everything in the text format, whose content type is `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request by the template of its route; an unknown path is the route `-`."""
        known = method if method in METHODS else "OTHER"
        self._http.labels(route, known, str(status)).inc()
        self._http_seconds.labels(route).observe(seconds)

    def queried(
        self, graph: str, query: str | None, seconds: float, rows: int, cost: Cost | None = None
    ) -> None:
        """Count a read; `query` is the name of a stored query, None for any other."""
        self._query_seconds.labels(graph, query or AD_HOC).observe(seconds)
        self._rows.inc(rows)
        if cost is not None:
            self.used("query", cost)

    def committed(
        self, graph: str, branch: str, seconds: float, *, op: str = "mutate", cost: Cost | None = None
    ) -> None:
        """Count a write that made a commit; `op` is what it was: mutate, load, merge and so on."""
        self._commits.labels(graph, MAIN if branch == "main" else OTHER).inc()
        self._commit_seconds.observe(seconds)
        if cost is not None:
            self.used(op, cost)

    def used(self, op: str, cost: Cost) -> None:
        """Count what an operation asked of storage.

        Operations that overlap are each told the requests of all (`cost.shared`): the sums are too high then,
        and `og_process_storage_requests_total` is the true one.
        """
        self._storage.labels(op).inc(cost.requests)
        self._read.labels(op).inc(cost.bytes_read)
        self._written.labels(op).inc(cost.bytes_written)
        self._requests_each.labels(op).observe(cost.requests)
        self._stages_each.labels(op).observe(cost.stages)

    def conflicted(self, code: str) -> None:
        """Count a request that ended with a conflict, by the code of its error."""
        self._conflicts.labels(code).inc()

    def optimized(self, graph: str, outcome: str) -> None:
        """Count a run of optimize: it committed, failed, or nothing came of it."""
        self._optimized.labels(graph, outcome).inc()

    def decided(self, action: str, decision: str) -> None:
        """Count a question to a policy and its answer."""
        self._decisions.labels(action, decision).inc()

    def covered(self, graph: str, ratios: Mapping[tuple[str, str], float]) -> None:
        """Note how far the indexes of a graph go, by type and property; those that are gone are left out."""
        for gone in self._covered.get(graph, frozenset()) - ratios.keys():
            self._coverage.remove(graph, *gone)
        for index, ratio in ratios.items():
            self._coverage.labels(graph, *index).set(ratio)
        self._covered[graph] = frozenset(ratios)

    def ready(self, graph: str, *, served: bool) -> None:
        """Note whether a graph is served."""
        self._ready.labels(graph).set(served)


class _Totals(Collector):
    """What others count, asked for when Prometheus asks."""

    def __init__(self, admission: AdmissionCounts | None, embedder: EmbedderCounts | None) -> None:
        self._admission = admission
        self._embedder = embedder

    def describe(self) -> Iterator[Metric]:
        """Name nothing in advance: there is one of these in a registry."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        totals = process_totals()
        for name, text, value in (
            ("requests", "Requests to storage of this process", totals.requests),
            ("read_bytes", "Bytes that this process read", totals.bytes_read),
            ("written_bytes", "Bytes that this process wrote", totals.bytes_written),
        ):
            yield CounterMetricFamily(f"og_process_storage_{name}", text, value=value)
        if self._embedder is not None:
            labels = ("provider", "outcome")
            calls = CounterMetricFamily("og_embedding_calls", "Requests for vectors", labels=labels)
            for outcome, count in self._embedder.calls.items():
                calls.add_metric((self._embedder.provider, outcome), count)
            yield calls
        if self._admission is None:
            return
        rejected = CounterMetricFamily("og_admission_rejected", "Requests turned away", labels=("scope",))
        for scope, count in self._admission.rejected.items():
            rejected.add_metric((scope,), count)
        yield rejected
        for state, counts in (("running", self._admission.running), ("waiting", self._admission.waiting)):
            gauge = GaugeMetricFamily(f"og_admission_{state}", f"Requests {state}", labels=("scope",))
            for scope, count in counts.items():
                gauge.add_metric((scope,), count)
            yield gauge
