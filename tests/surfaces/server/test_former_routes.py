"""Former spellings of routes answer as their successors, and say which those are."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import omnigraph as og
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.settings import ServerSettings
from tests.support.inside import inside
from tests.support.people import INSERT
from tests.support.queries import folder_of
from tests.surfaces.server.conftest import make_graph

NAMES = "query names() { match { $p: Person } return { $p.name } order { $p.name asc } }"
TWO = NAMES + " query ages() { match { $p: Person } return { $p.age } }"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with og.connect(make_graph(tmp_path_factory.mktemp("former"))) as graph:
        app = create_app(ServerSettings(unauthenticated=True), {"kb": graph})
        app.state.server.graphs.by_id["kb"].stored = folder_of(
            tmp_path_factory.mktemp("queries"), graph, INSERT
        )
        with inside(app) as http:
            yield http


def volatile(document: dict[str, object]) -> dict[str, object]:
    """Return a document without what differs from call to call."""
    return {name: value for name, value in document.items() if name not in ("cost", "took_ms")}


@pytest.mark.parametrize(
    "body",
    [
        {"query_source": NAMES},
        {"query": NAMES, "of": "another time"},
        {"query_source": TWO, "query_name": "names", "branch": "main"},
        {"query": TWO, "name": "names"},
    ],
)
def test_a_read_takes_former_names_and_passes_over_unknown_ones(
    old: httpx.Client, body: dict[str, str]
) -> None:
    answer = old.post("/read", json=body)
    assert answer.status_code == 200, answer.text
    successor = old.post("/query", json={"query": NAMES})
    assert volatile(answer.json()) == volatile(successor.json())
    assert answer.headers["Deprecation"] == "true"
    assert answer.headers["Link"] == '</graphs/kb/query>; rel="successor-version"'
    assert "Deprecation" not in successor.headers


def test_unknown_fields_are_an_error_on_every_other_route(old: httpx.Client) -> None:
    for path, body in (("/query", {"query": NAMES}), ("/mutate", {"query": INSERT})):
        answer = old.post(path, json={**body, "of": "another time"})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
        assert "of" in answer.json()["error"]


def test_a_change_and_an_ingest_write(old: httpx.Client) -> None:
    body = {"query_source": INSERT, "params": {"name": "Cho", "age": 3}, "actor": "somebody"}
    changed = old.post("/change", json=body)
    assert (changed.status_code, changed.json()["affected_nodes"]) == (200, 1), changed.text
    assert changed.headers["Link"] == '</graphs/kb/mutate>; rel="successor-version"'
    loaded = {"data": '{"type": "Person", "data": {"name": "Ing"}}', "branch": "side", "of": "before"}
    ingested = old.post("/ingest", json=loaded)
    assert (ingested.status_code, ingested.json()["branch"]) == (200, "side"), ingested.text
    assert ingested.headers["Link"] == '</graphs/kb/load>; rel="successor-version"'
    assert old.post("/load", json=loaded).status_code == 400


@pytest.mark.parametrize("path", ["/mutate/if-graph-commit", "/queries/add/if-graph-commit"])
def test_a_conditional_route_needs_its_condition(old: httpx.Client, path: str) -> None:
    head = old.get("/snapshot").json()["graph_commit_id"]
    body = {"params": {"name": path, "age": 1}, "query": INSERT}
    unconditional = old.post(path, json=body)
    assert (unconditional.status_code, "If-Commit" in unconditional.text) == (400, True)
    done = old.post(path, json=body, headers={"Omnigraph-If-Graph-Commit": head})
    assert done.status_code == 200, done.text
    lost = old.post(path, json=body, headers={"If-Commit": head})
    assert (lost.status_code, lost.json()["code"]) == (412, "precondition_failed")
