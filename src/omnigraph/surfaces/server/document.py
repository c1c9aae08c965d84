"""Document: the OpenAPI document, made from the models that check requests.

What the framework writes is mended where it says something else than this server does: failures are problems,
none of them is a 422, and whoever needs a token says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from omnigraph.surfaces.server.contract import ACTIONS, CONDITION, KEY, READING
from omnigraph.surfaces.wire import PROBLEM

METHODS = ("get", "post", "put", "patch", "delete")
OPEN_ROUTES = ("/healthz", "/readyz")
BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
OF_EVERY_ANSWER = ("X-Request-Id", "Og-Version")
HEADERS = {
    "X-Request-Id": "The id of the request: the one it came with, or a new one. It stands in the log.",
    "Og-Version": "The version of the server.",
    "Graph-Commit-Id": "The commit that was read or written, where there is one.",
    "Idempotency-Replayed": "`true` if an earlier call under the same key did it.",
    "Retry-After": "After how many seconds trying again may help, where that is known.",
    "WWW-Authenticate": "`Bearer`.",
    "Deprecation": "`true`: the route has a successor.",
    "Link": "The successor of the route.",
}
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "X-Request-Id": (
        "An id to find the request by: 1 to 128 visible characters; any other is replaced.",
        {"type": "string"},
    ),
    "X-Timeout-Ms": (
        "Wait so many milliseconds at most; no longer than the server allows.",
        {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    ),
}
OF_THE_FRAMEWORK = ("HTTPValidationError", "ValidationError")


def openapi_document(app: FastAPI, *, with_tokens: bool) -> dict[str, Any]:
    """Return the document of an application."""
    document: dict[str, Any] = get_openapi(
        title=app.title,
        version="1",
        description=app.description,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                _mend(operations[method], with_tokens=with_tokens and path not in OPEN_ROUTES)
    components = document.setdefault("components", {})
    components |= _shared()
    for name in OF_THE_FRAMEWORK:
        components.get("schemas", {}).pop(name, None)
    if with_tokens:
        components["securitySchemes"] = BEARER
    return document


def _mend(operation: dict[str, Any], *, with_tokens: bool) -> None:
    """Say of an operation which headers it takes, how it may fail, and what its answers carry."""
    responses: dict[str, Any] = operation["responses"]
    responses.pop("422", None)
    actions = operation.get(ACTIONS)
    if actions is not None:
        operation["parameters"] = operation.get("parameters", []) + [
            {"$ref": f"#/components/parameters/{name}"} for name in PARAMETERS
        ]
        for status in sorted(_failures(operation, with_tokens=with_tokens)):
            responses[str(status)] = {"$ref": f"#/components/responses/{_response(status)}"}
    if "default" in responses:
        responses["default"] = {"$ref": "#/components/responses/Problem"}
    if "200" in responses:
        responses["200"]["headers"] = _named(_carried(operation))
    if with_tokens:
        operation["security"] = [{"bearer": []}]


def _carried(operation: dict[str, Any]) -> list[str]:
    """Return the headers of a success."""
    carried = [*OF_EVERY_ANSWER]
    if ACTIONS in operation:
        carried.append("Graph-Commit-Id")
    if KEY in _headers(operation):
        carried.append("Idempotency-Replayed")
    return carried + (["Deprecation", "Link"] if operation.get("deprecated") else [])


def _failures(operation: dict[str, Any], *, with_tokens: bool) -> set[int]:
    """Return the statuses of failures of a route of a graph."""
    statuses = {400, 404, 409, 410, 413, 500, 503, 504}
    if with_tokens:
        statuses |= {401, 403}
    if "requestBody" in operation:
        statuses.add(415)
    if not READING.issuperset(operation[ACTIONS]):
        statuses |= {403, 429}  # a server may be told to read only
    if CONDITION[0] in _headers(operation):
        statuses.add(412)
    return statuses


def _response(status: int) -> str:
    return {401: "Unauthenticated", 429: "Busy", 503: "Busy"}.get(status, "Problem")


def _headers(operation: dict[str, Any]) -> set[str]:
    return {one["name"] for one in operation.get("parameters", []) if one.get("in") == "header"}


def _named(headers: Iterable[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in headers}


def _shared() -> dict[str, Any]:
    """Return the parts of the document that operations refer to."""
    content = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    more = {"Problem": (), "Unauthenticated": ("WWW-Authenticate",), "Busy": ("Retry-After",)}
    return {
        "headers": {
            name: {"description": text, "schema": {"type": "string"}} for name, text in HEADERS.items()
        },
        "parameters": {
            name: {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
            for name, (text, schema) in PARAMETERS.items()
        },
        "responses": {
            name: {
                "description": "A failure.",
                "content": content,
                "headers": _named((*OF_EVERY_ANSWER, *headers)),
            }
            for name, headers in more.items()
        },
    }
