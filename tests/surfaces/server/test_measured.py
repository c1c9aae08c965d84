"""What requests leave behind: metrics that the page names, audit records, spans, counts of an embedder."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import omnigraph as og
from omnigraph.base.errors import GraphError
from omnigraph.engine.access import Action
from omnigraph.execution.search.embedding import EmbeddingUnavailable, FunctionEmbedder
from omnigraph.surfaces.server.access import AccessRules, PolicyFiles
from omnigraph.surfaces.server.admission import Admission
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.coverage import CoverageLook
from omnigraph.surfaces.server.embedding import CountedEmbedder, embedder_for
from omnigraph.surfaces.server.graphs import ServedGraph, ServedGraphs
from omnigraph.surfaces.server.identity import AccessMode, StartState
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.settings import ServedAddress, ServerSettings
from omnigraph.surfaces.server.tracing import Tracing
from tests.support.inside import inside
from tests.support.people import INSERT
from tests.surfaces.server.clocks import HandClock
from tests.surfaces.server.conftest import make_graph

PAGE = Path(__file__).parents[3] / "docs" / "server.md"
SCHEMA = "node Doc { name: String @key  text: String  vector: Vector(4)? @embed(text) }"
NEAR = (
    'query near() { match { $d: Doc } return { $d.name } order { nearest($d.vector, "some words") } limit 1 }'
)
ADD = {"query": INSERT, "params": {"name": "New", "age": 1}}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARTED = """
version: 1
groups: { readers: [ada], writers: [bob] }
rules:
  - id: all-read
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
  - id: writers
    allow: { actors: { group: writers }, actions: [read, change], branch_scope: any }
"""


def samples(text: str) -> dict[str, float]:
    """Return what a scrape reads, by name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


# -- the reference ---------------------------------------------------------------------------------------


def documented() -> dict[str, set[str]]:
    """Return the metrics of the page with their labels."""
    section = PAGE.read_text().partition("## Metrics")[2]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `og_")]
    return {
        name: set(re.findall(r"`(\w+)`", labels))
        for names, labels in rows
        for name in re.findall(r"`(\w+)`", names)
    }


def of_the_code() -> dict[str, set[str]]:
    """Return the metrics that a server has, under the names of its samples."""
    metrics = Metrics(Admission(), CountedEmbedder(FunctionEmbedder(lambda texts: [])))
    found = {}
    for name, labels in _declared(metrics):
        found[name] = labels
    return found


def _declared(metrics: Metrics) -> Iterator[tuple[str, set[str]]]:
    own = [one for one in vars(metrics).values() if hasattr(one, "_labelnames")]
    for one in own:
        suffix = "_total" if one._type == "counter" else ""
        yield one._name + suffix, set(one._labelnames)
    for family in metrics.registry.collect():
        if family.name not in {one._name for one in own}:
            suffix = "_total" if family.type == "counter" else ""
            yield family.name + suffix, {label for sample in family.samples for label in sample.labels}


def test_the_page_has_every_metric_with_its_labels_and_no_other() -> None:
    there, said = of_the_code(), documented()
    del there["og_embedding_calls_total"]  # without a sample its labels are not known here; see below
    assert said.pop("og_embedding_calls_total") == {"provider", "outcome"}
    assert said == there


# -- what requests count ---------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return make_graph(tmp_path)


def test_every_write_counts_its_commit_and_what_it_asked_of_storage(place: Path) -> None:
    with og.connect(place) as graph, inside(create_app(ServerSettings(), {"kb": graph})) as http:
        for path, body in (
            ("/mutate", ADD),
            ("/branches", {"name": "side"}),
            ("/mutate", {**ADD, "params": {"name": "On side", "age": 1}, "branch": "side"}),
            ("/load", {"data": '{"type": "Person", "data": {"name": "Loaded"}}'}),
            ("/branches/merge", {"source": "side"}),
            ("/commits/HEAD/revert", {}),
            ("/schema/apply", {"schema_source": graph.schema.show() + "node More { name: String @key }\n"}),
        ):
            head = http.get("/snapshot").json()["graph_commit_id"]
            answer = http.post(path.replace("HEAD", head), json=body)
            assert answer.status_code == 200, answer.text
        got = samples(http.get("http://server/metrics").text)
    assert got['og_commits_total{branch_class="main",graph="kb"}'] == 5
    assert got['og_commits_total{branch_class="other",graph="kb"}'] == 1
    for op, times in (("mutate", 2), ("load", 1), ("merge", 1), ("revert", 1), ("schema", 1)):
        assert got[f'og_operation_storage_requests_count{{op="{op}"}}'] == times
        assert got[f'og_operation_storage_requests_sum{{op="{op}"}}'] > 0
        assert got[f'og_operation_storage_stages_sum{{op="{op}"}}'] > 0


def rules(tmp_path: Path, text: str | None) -> AccessRules:
    """Return the access of a server with a policy, or with none."""
    files = None
    if text is not None:
        file = tmp_path / "policy.yaml"
        file.write_text(text)
        files = PolicyFiles(ServerSettings(graphs=(ServedAddress("kb", "kb.og"),), policies=(file,)))
    return AccessRules(StartState(AccessMode.POLICY), files=files)


@pytest.mark.parametrize("text", [PARTED, None], ids=["policy", "none"])
def test_each_decision_is_recorded_and_counted(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "omnigraph.audit")
    metrics = Metrics()
    access = rules(tmp_path, text)
    told = AccessRules(access.state, files=access.files, decided=metrics.decided)
    for action in (Action.READ, Action.CHANGE):
        guard = told.guard("ada", "kb", "r-1")
        assert guard is not None
        try:
            guard.check(action, branch="main")
            allowed = True
        except GraphError:
            allowed = False
        assert allowed == (action is Action.READ)
    fields = ("actor", "action", "branch", "decision", "request_id")
    decisions = [tuple(vars(record)[name] for name in fields) for record in caplog.records]
    assert decisions == [("ada", "read", "main", "allow", "r-1"), ("ada", "change", "main", "deny", "r-1")]
    got = samples(metrics.render().decode())
    assert got['og_policy_decisions_total{action="read",decision="allow"}'] == 1
    assert got['og_policy_decisions_total{action="change",decision="deny"}'] == 1


# -- indexes ---------------------------------------------------------------------------------------------


def test_how_far_indexes_go_is_looked_at_once_a_minute(place: Path) -> None:
    metrics, clock = Metrics(), HandClock()
    name = 'og_index_coverage_ratio{graph="kb",property="name",type="Person"}'

    def told() -> float | None:
        look.refresh()
        return samples(metrics.render().decode()).get(name)

    with og.connect(place) as graph:
        look = CoverageLook(ServedGraphs({"kb": ServedGraph("kb", graph)}), metrics, clock)
        before = told()
        graph.optimize()
        assert told() == before == 0.0
        clock.seconds += 61
        assert told() == 1.0
        graph.mutate(INSERT, name="Later", age=1)
        clock.seconds += 61
        assert told() == 0.75
    metrics.covered("kb", {("Other", "name"): 0.5})
    assert name not in samples(metrics.render().decode())


# -- embedding -------------------------------------------------------------------------------------------


def test_a_server_embeds_by_its_environment_and_counts_that(tmp_path: Path) -> None:
    place = tmp_path / "docs.og"
    with og.init(place, SCHEMA) as graph:
        graph.load([{"type": "Doc", "data": {"name": "a", "text": "some words"}}], mode="append")
    with og.connect(place, embedding="mock") as graph:
        graph.embed()
    served = ServedAddress("kb", str(place))
    settings = ServerSettings(graphs=(served,), environment={"OMNIGRAPH_EMBED_PROVIDER": "mock"})
    graphs = ServedGraphs.open(settings)
    with inside(create_app(settings, graphs)) as http:
        for _ in range(2):  # the second is answered from what is known
            answer = http.post("/query", json={"query": NEAR})
            assert answer.status_code == 200, answer.text
        got = samples(http.get("http://server/metrics").text)
    graphs.close()
    assert got['og_embedding_calls_total{outcome="ok",provider="mock"}'] == 1


def test_failed_calls_of_an_embedder_are_counted_by_code() -> None:
    def fail(texts: list[str]) -> Any:
        raise EmbeddingUnavailable("gone") if texts == ["later"] else ValueError("a secret")

    embedder = CountedEmbedder(FunctionEmbedder(fail))
    for text in ("later", "now"):
        with pytest.raises((EmbeddingUnavailable, ValueError)):
            embedder([text], 4)
    assert embedder.calls == {"embedding_unavailable": 1, "internal": 1}


def test_without_a_provider_there_is_no_embedder_and_a_wrong_one_is_refused() -> None:
    assert embedder_for({}) is None
    with pytest.raises(GraphError):
        embedder_for({"OMNIGRAPH_EMBED_PROVIDER": "nobody"})


# -- spans -----------------------------------------------------------------------------------------------


def test_a_request_is_a_span_below_the_one_of_its_caller(place: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with og.connect(place) as graph:
        app = create_app(ServerSettings(), {"kb": graph}, tracing=Tracing(provider))
        with inside(app) as http:
            http.get("/entities/Person/Ada", headers={"traceparent": TRACE, "X-Request-Id": "r-7"})
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE.split("-")[1]
    assert f"{span.parent.span_id:016x}" == TRACE.split("-")[2]
    attributes = dict(span.attributes or {})
    assert attributes["http.route"] == "/entities/{type}/{id}"
    assert attributes["omnigraph.request.id"] == "r-7"
    assert "Ada" not in span.to_json()
