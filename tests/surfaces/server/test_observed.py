"""What a server says about itself: metrics, access log and spans, and what never is in them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from omnigraph.base.errors import GraphError
from omnigraph.storage.cost import Cost, process_totals
from omnigraph.surfaces.cli.support.call import JsonFormatter
from omnigraph.surfaces.server.admission import Admission
from omnigraph.surfaces.server.logs import ACCESS_LOGGER, log_access, request_id_of
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.tracing import Tracing, configured

# -- metrics -------------------------------------------------------------------------------------------


def samples(metrics: Metrics) -> dict[str, float]:
    """Return what a scrape reads, by name and labels."""
    lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def used() -> Metrics:
    """Return metrics in which everything has happened once."""
    metrics = Metrics(Admission())
    metrics.answered("/query", "POST", 200, 0.02)
    metrics.queried("kb", "friends", 0.01, 3, Cost(requests=5, stages=3, bytes_read=70))
    metrics.queried("kb", None, 0.01, 4)
    metrics.committed("kb", "main", 0.3, cost=Cost(requests=9, stages=5, bytes_written=40))
    metrics.committed("kb", "review", 0.3, op="load")
    metrics.conflicted("precondition_failed")
    metrics.ready("kb", served=True)
    return metrics


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ('og_http_requests_total{code="200",method="POST",route="/query"}', 1),
        ('og_http_request_seconds_count{route="/query"}', 1),
        ('og_query_seconds_count{graph="kb",query="friends"}', 1),
        ('og_query_seconds_count{graph="kb",query="-"}', 1),
        ("og_rows_returned_total", 7),
        ('og_commits_total{branch_class="main",graph="kb"}', 1),
        ('og_commits_total{branch_class="other",graph="kb"}', 1),
        ("og_commit_seconds_count", 2),
        ('og_conflicts_total{kind="precondition_failed"}', 1),
        ('og_admission_rejected_total{scope="actor"}', 0),
        ('og_admission_running{scope="read"}', 0),
        ('og_graph_ready{graph="kb"}', 1),
        ('og_storage_requests_total{op="query"}', 5),
        ('og_storage_requests_total{op="mutate"}', 9),
        ('og_storage_read_bytes_total{op="query"}', 70),
        ('og_storage_written_bytes_total{op="mutate"}', 40),
        ('og_operation_storage_requests_sum{op="query"}', 5),
        ('og_operation_storage_stages_sum{op="mutate"}', 5),
        ('og_operation_storage_stages_bucket{le="4.0",op="query"}', 1),
    ],
)
def test_each_metric_has_its_name_and_labels(name: str, value: float) -> None:
    assert samples(used())[name] == value


def test_what_the_whole_process_asked_of_storage_is_counted_apart() -> None:
    metrics = Metrics()
    assert samples(metrics)["og_process_storage_requests_total"] == process_totals().requests


def test_two_servers_of_one_process_count_apart_and_methods_are_bounded() -> None:
    one, other = Metrics(), Metrics()
    for number in range(50):
        one.answered("-", f"METHOD{number}", 404, 0)
    assert samples(one)['og_http_requests_total{code="404",method="OTHER",route="-"}'] == 50
    assert not [name for name in samples(other) if name.startswith("og_http_requests_total")]


# -- access log ----------------------------------------------------------------------------------------


def test_a_record_has_the_facts_as_fields_and_in_its_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOGGER)
    log_access(
        request_id="req-7",
        actor="ada",
        method="POST",
        route="/graphs/{graph_id}/query",
        status=200,
        seconds=0.01234,
        graph="kb",
    )
    (record,) = caplog.records
    line = json.loads(JsonFormatter().format(record))
    del line["time"]
    assert line == {
        "level": "info",
        "logger": "omnigraph.access",
        "message": "POST /graphs/{graph_id}/query 200 12.34 ms actor='ada' request_id=req-7",
        "request_id": "req-7",
        "actor": "ada",
        "method": "POST",
        "route": "/graphs/{graph_id}/query",
        "status": 200,
        "ms": 12.34,
        "graph": "kb",
    }


@pytest.mark.parametrize(
    ("status", "level"), [(200, "INFO"), (401, "INFO"), (429, "INFO"), (503, "INFO"), (500, "ERROR")]
)
def test_what_is_the_fault_of_the_server_is_an_error(
    status: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOGGER)
    log_access(request_id="r", actor=None, method="GET", route="/", status=status, seconds=0, code="storage")
    assert [record.levelname for record in caplog.records] == [level]


def test_a_caller_cannot_write_lines_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOGGER)
    forged = "x\n2027-01-01 INFO omnigraph.access: forged"
    log_access(request_id=forged, actor="a\nforged", method=forged, route="/", status=400, seconds=0)
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert len(text.splitlines()) == 1
    assert "x\n" not in JsonFormatter().format(caplog.records[0])


@pytest.mark.parametrize("given", ["a", "req-7_/+=", "x" * 128])
def test_the_id_of_a_request_is_kept_if_it_can_stand_in_a_log(given: str) -> None:
    assert request_id_of(given) == given


@pytest.mark.parametrize("given", [None, "", "two words", "ä", "x" * 129, "a\r\nb", "\x00"])
def test_any_other_id_of_a_request_is_replaced(given: str | None) -> None:
    first, second = request_id_of(given), request_id_of(given)
    assert first != second
    assert given not in (first, second)


# -- spans ---------------------------------------------------------------------------------------------

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Iterator[tuple[Tracing, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    yield tracing, exporter
    tracing.close()


def finished(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_continues_the_trace_of_its_caller(spans: tuple[Tracing, InMemorySpanExporter]) -> None:
    tracing, exporter = spans
    with (
        tracing.span("POST /query", traceparent=PARENT, http_route="/query") as note,
        tracing.span("execute"),
    ):
        note("http_status", 200)
    request, execute = finished(exporter)["POST /query"], finished(exporter)["execute"]
    assert request.context is not None
    assert request.parent is not None
    assert execute.parent is not None
    assert f"{request.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{request.parent.span_id:016x}" == PARENT.split("-")[2]
    assert execute.parent.span_id == request.context.span_id
    assert dict(request.attributes or {}) == {"http.route": "/query", "http.status": 200}


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", "00-0-0-00", PARENT.replace("0af7", "zzzz")])
def test_a_caller_without_a_readable_trace_begins_one(
    traceparent: str | None, spans: tuple[Tracing, InMemorySpanExporter]
) -> None:
    tracing, exporter = spans
    with tracing.span("GET /healthz", traceparent=traceparent, http_route="/healthz"):
        pass
    assert finished(exporter)["GET /healthz"].parent is None


def test_a_span_notes_the_code_of_an_error_and_not_its_words(
    spans: tuple[Tracing, InMemorySpanExporter],
) -> None:
    tracing, exporter = spans
    for name, error in (("known", GraphError("a secret of Ada")), ("unknown", KeyError("a secret of Ada"))):
        with pytest.raises(type(error)), tracing.span(name):
            raise error
    known, unknown = finished(exporter)["known"], finished(exporter)["unknown"]
    assert (known.attributes or {})["error.type"] == "internal"
    assert (unknown.attributes or {})["error.type"] == "KeyError"
    assert "secret" not in known.to_json() + unknown.to_json()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "kb"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, False),
    ],
)
def test_the_usual_variables_turn_traces_on_and_off(environment: dict[str, str], expected: bool) -> None:
    assert configured(environment) is expected


def test_without_configuration_spans_are_nothing_and_opentelemetry_is_not_imported() -> None:
    program = (
        "import sys\n"
        "from omnigraph.surfaces.server.tracing import Tracing\n"
        "tracing = Tracing.from_environment({})\n"
        "with tracing.span('a', http_route='/') as note: note('b', 1)\n"
        "tracing.close()\n"
        "print(tracing.active, [name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False []\n"


def test_where_opentelemetry_is_not_installed_a_record_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "otlp"})
    assert not tracing.active
    assert "omnigraph[otel]" in caplog.text


def test_configured_traces_have_an_exporter() -> None:
    tracing = Tracing.from_environment({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SERVICE_NAME": "kb"})
    assert tracing.active
    tracing.close()
