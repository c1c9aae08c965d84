"""Tracing: spans by OpenTelemetry where it is installed and configured, nothing at all elsewhere.

Configured by the usual variables: an exporter's endpoint, or `OTEL_TRACES_EXPORTER`. A request that comes
with `traceparent` continues that trace. Spans carry templates and names, as the access log does; errors are
noted by their code, since a message may quote data.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from omnigraph.base.errors import GraphError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

SERVICE = "omnigraph"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
OTEL_EXTRA = 'pip install "omnigraph[otel]"'

log = logging.getLogger(__name__)
Noted = Callable[[str, str | int | float | bool], None]  # sets an attribute of the span


def configured(environment: Mapping[str, str]) -> bool:
    """Say whether the environment asks for traces.

    >>> configured({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}), configured({})
    (True, False)
    """
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    if exporter:
        return exporter != "none"
    return any(environment.get(name) for name in ENDPOINTS)


class Tracing:
    """The spans of one process; without a provider, none."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = None if provider is None else provider.get_tracer(SERVICE)

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Tracing:
        """Return the tracing that the environment asks for."""
        if not configured(environment):
            return Tracing()
        try:
            return Tracing(_exporting(environment))
        except ImportError:
            log.warning("OTEL_* asks for traces, and OpenTelemetry is not installed: %s", OTEL_EXTRA)
            return Tracing()

    @property
    def active(self) -> bool:
        """Whether spans go anywhere."""
        return self._tracer is not None

    @contextmanager
    def span(
        self, name: str, *, traceparent: str | None = None, **attributes: str | int | float | bool
    ) -> Iterator[Noted]:
        """Run a block as a span, within the one around it or below `traceparent`; yield what sets attributes.

        Names of attributes have `_` where OpenTelemetry has a dot: `http_route="/query"`.
        """
        if self._tracer is None:
            yield _nothing
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode

        outermost = traceparent is not None or attributes.get("http_route") is not None
        with self._tracer.start_as_current_span(
            name,
            context=_continued(traceparent),
            kind=SpanKind.SERVER if outermost else SpanKind.INTERNAL,
            attributes={_dotted(key): value for key, value in attributes.items()},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield lambda key, value: span.set_attribute(_dotted(key), value)
            except BaseException as error:
                code = error.code if isinstance(error, GraphError) else type(error).__name__
                span.set_attribute("error.type", code)
                span.set_status(Status(StatusCode.ERROR, code))
                raise

    def close(self) -> None:
        """Send what is still here; waits for the exporter."""
        if self._provider is not None:
            self._provider.shutdown()


def _nothing(_: str, __: Any) -> None:
    """Set no attribute."""


def _dotted(name: str) -> str:
    return name.replace("_", ".")


def _continued(traceparent: str | None) -> Any:
    """Return the context of the caller's span; None, or one that cannot be read, leaves the current one."""
    if traceparent is None:
        return None
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def _exporting(environment: Mapping[str, str]) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = environment.get("OTEL_SERVICE_NAME") or SERVICE
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))  # reads OTEL_* itself
    return provider
