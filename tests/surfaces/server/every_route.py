"""A call of every route of a graph: whoever adds a route adds a call here, and gets its tests with it.

Room    tests of what routes ask a policy (`test_contract.py`) and of who is refused (`test_security.py`).
"""

from __future__ import annotations

import json
from typing import Any

import httpx
from fastapi.routing import APIRoute

from omnigraph.base.dataclass import dataclass
from omnigraph.engine.graph import Graph
from omnigraph.surfaces.server.app import GRAPH_ROUTES
from omnigraph.surfaces.server.contract import ACTIONS
from omnigraph.surfaces.wire import NDJSON
from tests.support.people import INSERT, SCHEMA, person

READ = {"query": "query all() { match { $p: Person } return { $p.name } }"}
STORED = (INSERT, "query everybody() { match { $p: Person } return { $p.name } }")
NO_HEAD = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LINE = json.dumps(person("Row")).encode()


@dataclass(frozen=True)
class RouteCall:
    """A call of a route; its path counts from the graph."""

    route: str  # method and template
    path: str
    body: Any = None
    content: bytes | None = None
    condition: str | None = None  # where a route needs one
    asks: str | None = None  # first, where that is not what its route names first

    @property
    def method(self) -> str:
        """The method."""
        return self.route.partition(" ")[0]

    @property
    def action(self) -> str:
        """What a policy is asked for first."""
        return self.asks or asked_by(self.route)[0]

    def options(self, **headers: str) -> dict[str, Any]:
        """Return body and headers as httpx takes them; `_` in names of headers is a dash."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.condition is not None:
            given = {"If-Commit": self.condition} | given
        if self.content is None:
            return {"json": self.body, "headers": given}
        return {"content": self.content, "headers": {"content-type": NDJSON} | given}

    def send(self, http: httpx.Client, **headers: str) -> httpx.Response:
        """Make the call."""
        return http.request(self.method, self.path, **self.options(**headers))


def add(name: str) -> dict[str, Any]:
    """Return the body of a mutation."""
    return {"query": INSERT, "params": {"name": name, "age": 1}}


CALLS = [
    RouteCall("POST /query", "/query", READ),
    RouteCall("POST /explain", "/explain", READ),
    RouteCall("POST /profile", "/profile", READ),
    RouteCall("POST /mutate", "/mutate", add("One")),
    RouteCall("POST /load/ndjson", "/load/ndjson?branch=loaded&from=main", content=LINE),
    RouteCall("POST /load", "/load", {"data": LINE.decode(), "branch": "listed", "from": "main"}),
    RouteCall("POST /export", "/export", {}),
    RouteCall("GET /rows/{kind}/{type}", "/rows/node/Person"),
    RouteCall("GET /commits", "/commits"),
    RouteCall("GET /commits/{commit}", "/commits/main~0"),
    RouteCall("GET /commits/{commit}/changes", "/commits/main~0/changes"),
    RouteCall("GET /diff", "/diff?from=side&to=main"),
    RouteCall("GET /branches/{branch}/diff/{other}", "/branches/side/diff/main"),
    RouteCall("GET /changes", "/changes"),
    RouteCall("POST /changes/baseline", "/changes/baseline", {}),
    RouteCall("GET /entities/{type}/{id}", "/entities/Person/Ada"),
    RouteCall("GET /entities/{type}/{id}/history", "/entities/Person/Ada/history"),
    RouteCall("GET /receipts/{key}", "/receipts/k1"),
    RouteCall("GET /branches", "/branches"),
    RouteCall("POST /branches", "/branches", {"name": "forked", "from": "main"}),
    RouteCall("POST /branches/merge", "/branches/merge", {"source": "side", "preview": True}, asks="read"),
    RouteCall("POST /branches/merge", "/branches/merge", {"source": "merged", "delete_branch": True}),
    RouteCall("GET /branches/{branch}", "/branches/side"),
    RouteCall("PATCH /branches/{branch}", "/branches/old", {"name": "new"}),
    RouteCall("DELETE /branches/{branch}", "/branches/gone"),
    RouteCall("POST /commits/{commit}/revert", "/commits/main~0/revert", {"preview": True}),
    RouteCall("GET /tags", "/tags"),
    RouteCall("POST /tags", "/tags", {"name": "second"}),
    RouteCall("GET /tags/{tag}", "/tags/first"),
    RouteCall("DELETE /tags/{tag}", "/tags/first"),
    RouteCall("GET /schema", "/schema"),
    RouteCall("POST /schema/plan", "/schema/plan", {"schema_source": SCHEMA}),
    RouteCall("POST /schema/apply", "/schema/apply", {"schema_source": SCHEMA}),
    RouteCall("POST /schema/apply", "/schema/apply?dry_run=true", {"schema_source": SCHEMA}, asks="read"),
    RouteCall("GET /snapshot", "/snapshot"),
    RouteCall("GET /stats", "/stats"),
    RouteCall("GET /storage", "/storage"),
    RouteCall("GET /queries", "/queries"),
    RouteCall("POST /queries/{name}", "/queries/everybody"),
    RouteCall("POST /queries/{name}", "/queries/add", {"params": {"name": "Stored", "age": 2}}),
    RouteCall("GET /policy", "/policy"),
    RouteCall("POST /policy/explain", "/policy/explain", {"actor": "ada", "action": "read"}),
    RouteCall("POST /read", "/read", READ),
    RouteCall("POST /change", "/change", add("Changed")),
    RouteCall("POST /ingest", "/ingest", {"data": LINE.decode(), "branch": "ingested"}),
    RouteCall(
        "POST /mutate/if-graph-commit",
        "/mutate/if-graph-commit",
        add("Old"),
        condition=NO_HEAD,
    ),
    RouteCall(
        "POST /queries/{name}/if-graph-commit",
        "/queries/add/if-graph-commit",
        add("Older"),
        condition=NO_HEAD,
    ),
]
CALL_NAMES = [f"{number}: {call.route}" for number, call in enumerate(CALLS)]


def prepare(graph: Graph) -> None:
    """Make what the calls name: branches and a tag."""
    for name in ("side", "merged", "old", "gone"):
        graph.branches.create(name)
    graph.mutate(INSERT, name="Merged", age=1, branch="merged")
    graph.tags.create("first")


def routes() -> dict[str, APIRoute]:
    """Return the routes of a graph by method and template."""
    listed = [route for router in GRAPH_ROUTES for route in router.routes]
    return {
        f"{method} {route.path}": route
        for route in listed
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def asked_by(route: str) -> list[str]:
    """Return the actions that a route says it asks a policy for."""
    extra = routes()[route].openapi_extra
    assert extra is not None, f"{route} does not say what it asks"
    actions: list[str] = extra[ACTIONS]
    return actions
