"""Document: the OpenAPI document, made from the models that check requests.

What the framework writes is mended where it says something else than this server does: failures are problems,
none of them is a 422, and whoever needs a token says so.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from omnigraph.surfaces.wire import PROBLEM

METHODS = ("get", "post", "put", "patch", "delete")
OPEN_ROUTES = ("/healthz", "/readyz")
BEARER = {"bearer": {"type": "http", "scheme": "bearer"}}
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
    for name in OF_THE_FRAMEWORK:
        components.get("schemas", {}).pop(name, None)
    if with_tokens:
        components["securitySchemes"] = BEARER
    return document


def _mend(operation: dict[str, Any], *, with_tokens: bool) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    failed = responses.get("default")
    if failed is not None:
        failed["content"] = dict.fromkeys([PROBLEM], failed["content"]["application/json"])
    if with_tokens:
        operation["security"] = [{"bearer": []}]
