"""Every route asks the policy for what it says that it asks, and keeps the headers that it says it keeps.

The calls are in `every_route.py`; those that keep an idempotency key have another one here, which succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cache

import httpx
import pytest

import omnigraph as og
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import PermissionDenied
from omnigraph.engine.access import Action, Guard
from omnigraph.engine.graph import Graph
from omnigraph.surfaces.server.access import AccessRules
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.identity import AccessMode, StartState
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServerSettings
from scripts import openapi
from tests.support.inside import inside
from tests.support.people import INSERT, SCHEMA, person
from tests.support.queries import folder_of
from tests.surfaces.server.every_route import (
    CALL_NAMES,
    CALLS,
    STORED,
    RouteCall,
    add,
    asked_by,
    prepare,
    routes,
)


@dataclass
class Asked:
    """A guard that notes what it is asked, and allows everything or nothing."""

    allows: bool
    actions: list[str] = field(default_factory=list)

    def check(self, action: Action, *, branch: str | None = None, target: str | None = None) -> None:
        """Note a question and answer it."""
        self.actions.append(action.value)
        if not self.allows:
            raise PermissionDenied("not allowed", action=action.value, resource="kb")


@dataclass(frozen=True, eq=False)
class Asking(AccessRules):
    """Access for which one guard decides."""

    asked: Asked = field(default_factory=lambda: Asked(allows=True))

    def guard(self, actor: str | None, graph_id: str, request_id: str | None = None) -> Guard | None:
        """Return the guard."""
        return self.asked


@pytest.fixture(scope="module")
def graph() -> Iterator[Graph]:
    with og.init(None, SCHEMA) as graph:
        graph.load([person("Ada", age=36)], mode="append")
        prepare(graph)
        yield graph


@dataclass(frozen=True)
class Ground:
    """A client of the graph, and the guard behind it."""

    http: httpx.Client
    rules: Asking

    def told(self, *, allow: bool) -> Asked:
        """Begin to note anew."""
        self.rules.asked.allows = allow
        self.rules.asked.actions.clear()
        return self.rules.asked


@pytest.fixture(scope="module")
def ground(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    rules = Asking(StartState(AccessMode.POLICY))
    settings = ServerSettings(limits=Limits(longest_wait_seconds=0.1))
    app = create_app(settings, {"kb": graph}, rules)
    served = app.state.server.graphs.by_id["kb"]
    served.stored = folder_of(tmp_path_factory.mktemp("queries"), graph, *STORED)
    with inside(app) as http:
        yield Ground(http, rules)


def test_every_route_has_a_call() -> None:
    assert {call.route for call in CALLS} == routes().keys()


@pytest.mark.parametrize("call", CALLS, ids=CALL_NAMES)
def test_what_is_denied_is_not_done_and_it_was_asked_what_the_route_says(
    ground: Ground, call: RouteCall
) -> None:
    asked = ground.told(allow=False)
    answer = call.send(ground.http)
    assert (answer.status_code, answer.json()["code"]) in ((403, "forbidden"), (404, "query_not_found"))
    assert asked.actions[0] == call.action


def test_nothing_else_is_asked_and_everything_that_is_said_is_asked(ground: Ground) -> None:
    seen: dict[str, set[str]] = {}
    for call in CALLS:
        asked = ground.told(allow=True)
        answer = call.send(ground.http)
        assert answer.status_code in (200, 404, 412), answer.text
        seen.setdefault(call.route, set()).update(asked.actions)
    assert seen == {route: set(asked_by(route)) for route in seen}


# -- headers ---------------------------------------------------------------------------------------------

WRITE_HEADERS = ("If-Commit", "Omnigraph-If-Graph-Commit", "Idempotency-Key")


document = cache(openapi.document)


def in_document(route: str) -> set[str]:
    """Return the headers that the document says a route takes."""
    method, path = route.split()
    operation = document()["paths"]["/graphs/{graph_id}" + path][method.lower()]
    return {one["name"] for one in operation.get("parameters", []) if one.get("in") == "header"}


@pytest.mark.parametrize("name", WRITE_HEADERS)
@pytest.mark.parametrize("call", CALLS, ids=CALL_NAMES)
def test_a_header_of_a_write_is_kept_or_refused(ground: Ground, call: RouteCall, name: str) -> None:
    ground.told(allow=False)
    answer = call.send(ground.http, **{name: "k-1"})
    kept = name.lower() in {one.lower() for one in in_document(call.route)}
    only_reads = set(asked_by(call.route)) <= {"read", "export"}
    refused = answer.status_code == 400 and "is not kept by" in answer.json()["error"]
    assert refused == (not kept and not (only_reads and name == "Idempotency-Key"))


KEYED = [
    RouteCall("POST /mutate", "/mutate", add("Keyed")),
    RouteCall("POST /load/ndjson", "/load/ndjson?mode=append", content=json.dumps(person("Lines")).encode()),
    RouteCall("POST /load", "/load", {"data": json.dumps(person("Text")), "mode": "append"}),
    RouteCall("POST /branches/merge", "/branches/merge", {"source": "to-merge"}),
    RouteCall("POST /commits/{commit}/revert", "/commits/{head}/revert", {}),
    RouteCall(
        "POST /schema/apply",
        "/schema/apply",
        {"schema_source": SCHEMA + "node Added { name: String @key }\n"},
    ),
    RouteCall("POST /queries/{name}", "/queries/add", {"params": {"name": "Called", "age": 2}}),
    RouteCall("POST /change", "/change", add("Keyed change")),
    RouteCall("POST /ingest", "/ingest", {"data": json.dumps(person("Keyed ingest"))}),
    RouteCall("POST /mutate/if-graph-commit", "/mutate/if-graph-commit", add("Keyed if"), condition="{head}"),
    RouteCall(
        "POST /queries/{name}/if-graph-commit",
        "/queries/add/if-graph-commit",
        {"params": {"name": "Keyed call", "age": 1}},
        condition="{head}",
    ),
]


@pytest.mark.parametrize("call", KEYED, ids=[call.route for call in KEYED])
def test_a_write_under_a_key_is_done_once_on_every_route_that_keeps_it(
    ground: Ground, graph: Graph, call: RouteCall
) -> None:
    ground.told(allow=True)
    if call.route == "POST /branches/merge":
        graph.branches.create("to-merge")
        graph.mutate(INSERT, name="To merge", age=1, branch="to-merge")
    head = str(graph.mutate(INSERT, name=f"Before {call.route}", age=1).commit_id)
    condition = None if call.condition is None else head
    call = replace(call, path=call.path.replace("{head}", head), condition=condition)
    first, again = (call.send(ground.http, Idempotency_Key=f"key of {call.route}") for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Graph-Commit-Id"] == first.headers["Graph-Commit-Id"]
    for of_both in ("commit", "steps"):
        assert again.json().get(of_both) == first.json().get(of_both)


def test_every_keyed_route_has_a_call() -> None:
    kept = {route for route in routes() if "idempotency-key" in in_document(route)}
    assert {call.route for call in KEYED} == kept
