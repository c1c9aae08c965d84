"""The OpenAPI document is the one in the repository, and the server does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import omnigraph as og
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.settings import ServerSettings
from scripts import openapi
from tests.support.inside import inside
from tests.surfaces.server.conftest import make_graph


def test_the_document_is_the_one_in_the_repository() -> None:
    assert openapi.TARGET.read_text(encoding="utf-8") == openapi.text(), "run scripts/openapi.py"


def test_every_operation_says_what_it_is_for() -> None:
    document = openapi.document()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["description"] for operation in operations)


def test_the_page_for_people_has_every_route_and_loads_nothing() -> None:
    app = create_app(ServerSettings(unauthenticated=True), {})
    with inside(app, "http://server") as http:
        page = http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            assert f"<code>{method.upper()} {path}</code>" in page.text
            assert escape(operation["description"]) in page.text
    assert "http" not in page.text.replace("over HTTP", "")
    assert "<script" not in page.text


def resolved(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the document, or what it refers to."""
    if "$ref" not in part:
        return part
    found: Any = document
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return dict(found)


def test_failures_and_headers_are_described() -> None:
    document = openapi.document()
    mutate = document["paths"]["/graphs/{graph_id}/mutate"]["post"]
    failures = {"400", "401", "403", "404", "409", "410", "412", "413", "415", "429", "500", "503", "504"}
    assert set(mutate["responses"]) == failures | {"200", "default"}
    for status in (*failures, "default"):
        described = resolved(document, mutate["responses"][status])
        problem = described["content"]["application/problem+json"]["schema"]
        assert resolved(document, problem)["required"][:3] == ["type", "title", "status"]
        assert "X-Request-Id" in described["headers"]
    assert "WWW-Authenticate" in resolved(document, mutate["responses"]["401"])["headers"]
    assert "Retry-After" in resolved(document, mutate["responses"]["429"])["headers"]
    assert {"Graph-Commit-Id", "Idempotency-Replayed"} <= mutate["responses"]["200"]["headers"].keys()
    taken = {resolved(document, one)["name"] for one in mutate["parameters"]}
    wanted = {"if-commit", "omnigraph-if-graph-commit", "idempotency-key", "X-Request-Id", "X-Timeout-Ms"}
    assert wanted < taken
    read = document["paths"]["/graphs/{graph_id}/query"]["post"]["responses"]
    assert {"412", "429"}.isdisjoint(read)


def test_an_open_server_describes_no_security() -> None:
    with_tokens = openapi.document()
    opened = create_app(ServerSettings(unauthenticated=True), {}).openapi()
    assert "bearer" in with_tokens["components"]["securitySchemes"]
    assert "securitySchemes" not in opened["components"]
    secured = [
        operation
        for document in (with_tokens, opened)
        for path in document["paths"].values()
        for operation in path.values()
        if "security" in operation
    ]
    first = {path: next(iter(of.values())) for path, of in with_tokens["paths"].items()}
    free = [path for path, operation in first.items() if "security" not in operation]
    assert sorted(free) == ["/healthz", "/readyz"]
    assert len(secured) == sum(len(path) for path in with_tokens["paths"].values()) - len(free)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    place: Path = make_graph(tmp_path_factory.mktemp("described"))
    with og.connect(place, durability="os") as graph:
        limits = Limits(longest_wait_seconds=0.1)
        app = create_app(ServerSettings(unauthenticated=True, limits=limits), {"kb": graph})
        yield schemathesis.openapi.from_asgi("/openapi.json", app)


# Lines are no form that it can make up; test_refusals.py sends broken ones.
schema = schemathesis.pytest.from_fixture("described").exclude(path_regex="/load/ndjson$")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=5, suppress_health_check=list(HealthCheck), deadline=None, database=None)
def test_random_requests_are_answered_as_described(case: Any) -> None:
    if "graph_id" in case.path_parameters:
        case.path_parameters["graph_id"] = "kb"
    case.call_and_validate(checks=CHECKS, headers={"X-Timeout-Ms": "5000"})
