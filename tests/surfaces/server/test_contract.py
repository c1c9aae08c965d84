"""Every route asks the policy for what it says that it asks, and keeps the headers that it says it keeps.

The rows are calls of every route: whoever adds a route adds a row, and gets the tests of a denial with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cache
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

import omnigraph as og
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import PermissionDenied
from omnigraph.engine.access import Action, Guard
from omnigraph.engine.graph import Graph
from omnigraph.surfaces.server.access import AccessRules
from omnigraph.surfaces.server.app import GRAPH_ROUTES, create_app
from omnigraph.surfaces.server.contract import ACTIONS
from omnigraph.surfaces.server.identity import AccessMode, StartState
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServerSettings
from scripts import openapi
from tests.support.inside import inside
from tests.support.people import INSERT, SCHEMA, person
from tests.support.queries import folder_of

READ = {"query": "query all() { match { $p: Person } return { $p.name } }"}
NO_HEAD = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LINE = json.dumps(person("Row")).encode()
NDJSON = {"content-type": "application/x-ndjson"}


@dataclass(frozen=True)
class Row:
    """A call of a route."""

    route: str  # method and template
    path: str
    body: Any = None
    content: bytes | None = None
    condition: str | None = None  # where a route needs one

    def send(self, http: httpx.Client, **headers: str) -> httpx.Response:
        """Make the call; `_` in names of headers is a dash."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.condition is not None:
            given = {"If-Commit": self.condition} | given
        method = self.route.partition(" ")[0]
        if self.content is not None:
            return http.request(method, self.path, content=self.content, headers=NDJSON | given)
        return http.request(method, self.path, json=self.body, headers=given)


def add(name: str) -> dict[str, Any]:
    return {"query": INSERT, "params": {"name": name, "age": 1}}


ROWS = [
    Row("POST /query", "/query", READ),
    Row("POST /explain", "/explain", READ),
    Row("POST /profile", "/profile", READ),
    Row("POST /mutate", "/mutate", add("One")),
    Row("POST /load/ndjson", "/load/ndjson?branch=loaded&from=main", content=LINE),
    Row("POST /load", "/load", {"data": LINE.decode(), "branch": "listed", "from": "main"}),
    Row("POST /export", "/export", {}),
    Row("GET /rows/{kind}/{type}", "/rows/node/Person"),
    Row("GET /commits", "/commits"),
    Row("GET /commits/{commit}", "/commits/main~0"),
    Row("GET /commits/{commit}/changes", "/commits/main~0/changes"),
    Row("GET /diff", "/diff?from=side&to=main"),
    Row("GET /branches/{branch}/diff/{other}", "/branches/side/diff/main"),
    Row("GET /changes", "/changes"),
    Row("POST /changes/baseline", "/changes/baseline", {}),
    Row("GET /entities/{type}/{id}", "/entities/Person/Ada"),
    Row("GET /entities/{type}/{id}/history", "/entities/Person/Ada/history"),
    Row("GET /receipts/{key}", "/receipts/k1"),
    Row("GET /branches", "/branches"),
    Row("POST /branches", "/branches", {"name": "forked", "from": "main"}),
    Row("POST /branches/merge", "/branches/merge", {"source": "side", "preview": True}),
    Row("POST /branches/merge", "/branches/merge", {"source": "merged", "delete_branch": True}),
    Row("GET /branches/{branch}", "/branches/side"),
    Row("PATCH /branches/{branch}", "/branches/old", {"name": "new"}),
    Row("DELETE /branches/{branch}", "/branches/gone"),
    Row("POST /commits/{commit}/revert", "/commits/main~0/revert", {"preview": True}),
    Row("GET /tags", "/tags"),
    Row("POST /tags", "/tags", {"name": "second"}),
    Row("GET /tags/{tag}", "/tags/first"),
    Row("DELETE /tags/{tag}", "/tags/first"),
    Row("GET /schema", "/schema"),
    Row("POST /schema/plan", "/schema/plan", {"schema_source": SCHEMA}),
    Row("POST /schema/apply", "/schema/apply", {"schema_source": SCHEMA}),
    Row("POST /schema/apply", "/schema/apply?dry_run=true", {"schema_source": SCHEMA}),
    Row("GET /snapshot", "/snapshot"),
    Row("GET /stats", "/stats"),
    Row("GET /storage", "/storage"),
    Row("GET /queries", "/queries"),
    Row("POST /queries/{name}", "/queries/everybody"),
    Row("POST /queries/{name}", "/queries/add", {"params": {"name": "Stored", "age": 2}}),
    Row("GET /policy", "/policy"),
    Row("POST /policy/explain", "/policy/explain", {"actor": "ada", "action": "read"}),
    Row("POST /read", "/read", READ),
    Row("POST /change", "/change", add("Changed")),
    Row("POST /ingest", "/ingest", {"data": LINE.decode(), "branch": "ingested"}),
    Row(
        "POST /mutate/if-graph-commit",
        "/mutate/if-graph-commit",
        add("Old"),
        condition=NO_HEAD,
    ),
    Row(
        "POST /queries/{name}/if-graph-commit",
        "/queries/add/if-graph-commit",
        add("Older"),
        condition=NO_HEAD,
    ),
]
NAMES = [f"{number}: {row.route}" for number, row in enumerate(ROWS)]


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
        for name in ("side", "merged", "old", "gone"):
            graph.branches.create(name)
        graph.mutate(INSERT, name="Merged", age=1, branch="merged")
        graph.tags.create("first")
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
    served.stored = folder_of(
        tmp_path_factory.mktemp("queries"),
        graph,
        INSERT,
        "query everybody() { match { $p: Person } return { $p.name } }",
    )
    with inside(app) as http:
        yield Ground(http, rules)


def routes() -> dict[str, APIRoute]:
    """Return the routes of a graph by method and template."""
    listed = [route for router in GRAPH_ROUTES for route in router.routes]
    return {
        f"{method} {route.path}": route
        for route in listed
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def declared(route: str) -> list[str]:
    extra = routes()[route].openapi_extra
    assert extra is not None, f"{route} does not say what it asks"
    actions: list[str] = extra[ACTIONS]
    return actions


def test_every_route_has_a_row() -> None:
    assert {row.route for row in ROWS} == routes().keys()


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_what_is_denied_is_not_done_and_it_was_asked_what_the_route_says(ground: Ground, row: Row) -> None:
    asked = ground.told(allow=False)
    answer = row.send(ground.http)
    assert (answer.status_code, answer.json()["code"]) in ((403, "forbidden"), (404, "query_not_found"))
    assert asked.actions[0] in declared(row.route)


def test_nothing_else_is_asked_and_everything_that_is_said_is_asked(ground: Ground) -> None:
    seen: dict[str, set[str]] = {}
    for row in ROWS:
        asked = ground.told(allow=True)
        answer = row.send(ground.http)
        assert answer.status_code in (200, 404, 412), answer.text
        seen.setdefault(row.route, set()).update(asked.actions)
    assert seen == {route: set(declared(route)) for route in seen}


# -- headers ---------------------------------------------------------------------------------------------

WRITE_HEADERS = ("If-Commit", "Omnigraph-If-Graph-Commit", "Idempotency-Key")


document = cache(openapi.document)


def in_document(route: str) -> set[str]:
    """Return the headers that the document says a route takes."""
    method, path = route.split()
    operation = document()["paths"]["/graphs/{graph_id}" + path][method.lower()]
    return {one["name"] for one in operation.get("parameters", []) if one.get("in") == "header"}


@pytest.mark.parametrize("name", WRITE_HEADERS)
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_header_of_a_write_is_kept_or_refused(ground: Ground, row: Row, name: str) -> None:
    ground.told(allow=False)
    answer = row.send(ground.http, **{name: "k-1"})
    kept = name.lower() in {one.lower() for one in in_document(row.route)}
    only_reads = set(declared(row.route)) <= {"read", "export"}
    refused = answer.status_code == 400 and "is not kept by" in answer.json()["error"]
    assert refused == (not kept and not (only_reads and name == "Idempotency-Key"))


KEYED = [
    Row("POST /mutate", "/mutate", add("Keyed")),
    Row("POST /load/ndjson", "/load/ndjson?mode=append", content=json.dumps(person("Lines")).encode()),
    Row("POST /load", "/load", {"data": json.dumps(person("Text")), "mode": "append"}),
    Row("POST /branches/merge", "/branches/merge", {"source": "to-merge"}),
    Row("POST /commits/{commit}/revert", "/commits/{head}/revert", {}),
    Row(
        "POST /schema/apply",
        "/schema/apply",
        {"schema_source": SCHEMA + "node Added { name: String @key }\n"},
    ),
    Row("POST /queries/{name}", "/queries/add", {"params": {"name": "Called", "age": 2}}),
    Row("POST /change", "/change", add("Keyed change")),
    Row("POST /ingest", "/ingest", {"data": json.dumps(person("Keyed ingest"))}),
    Row("POST /mutate/if-graph-commit", "/mutate/if-graph-commit", add("Keyed if"), condition="{head}"),
    Row(
        "POST /queries/{name}/if-graph-commit",
        "/queries/add/if-graph-commit",
        {"params": {"name": "Keyed call", "age": 1}},
        condition="{head}",
    ),
]


@pytest.mark.parametrize("row", KEYED, ids=[row.route for row in KEYED])
def test_a_write_under_a_key_is_done_once_on_every_route_that_keeps_it(
    ground: Ground, graph: Graph, row: Row
) -> None:
    ground.told(allow=True)
    if row.route == "POST /branches/merge":
        graph.branches.create("to-merge")
        graph.mutate(INSERT, name="To merge", age=1, branch="to-merge")
    head = str(graph.mutate(INSERT, name=f"Before {row.route}", age=1).commit_id)
    condition = None if row.condition is None else head
    row = replace(row, path=row.path.replace("{head}", head), condition=condition)
    first, again = (row.send(ground.http, Idempotency_Key=f"key of {row.route}") for _ in range(2))
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Graph-Commit-Id"] == first.headers["Graph-Commit-Id"]
    for of_both in ("commit", "steps"):
        assert again.json().get(of_both) == first.json().get(of_both)


def test_every_keyed_route_has_a_row() -> None:
    kept = {route for route in routes() if "idempotency-key" in in_document(route)}
    assert {row.route for row in KEYED} == kept
