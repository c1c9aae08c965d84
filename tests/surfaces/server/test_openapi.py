"""The OpenAPI document is the one in the repository, and the server does what it says."""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.surfaces.server.conftest import make_graph


def test_the_document_is_the_one_in_the_repository() -> None:
    assert openapi.TARGET.read_text(encoding="utf-8") == openapi.text(), "run scripts/openapi.py"


def test_every_operation_says_what_it_is_for() -> None:
    document = openapi.document()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["description"] for operation in operations)


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
