"""Observing: what a server counts and records of each request: metrics, access log, spans."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

from omnigraph.surfaces.server.logs import log_access
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.wire import STATUS_BY_CODE

UNKNOWN = "-"
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})  # asked every few seconds: counted, not recorded


def route_of(scope: Scope) -> str:
    """Return the template of the route that took a request."""
    return str(scope.get("omnigraph.route") or getattr(scope.get("route"), "path", UNKNOWN))


class Observer:
    """Takes note of every answer."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and record one request."""
        state: dict[str, Any] = scope.get("state", {})
        template = route_of(scope)
        self.metrics.answered(template, scope["method"], status, seconds)
        code: str | None = state.get("code")
        if code is not None and (status == 409 or STATUS_BY_CODE.get(code) == 412):
            self.metrics.conflicted(code)
        if template in QUIET and status < 400:
            return
        log_access(
            request_id=state.get("request_id", ""),
            actor=state.get("actor"),
            method=scope["method"],
            route=template,
            status=status,
            seconds=seconds,
            graph=state.get("graph_id"),
            code=code,
        )
