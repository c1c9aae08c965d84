"""App: the application, put together from settings and open graphs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.base.errors import GraphError, InvalidRequest, MethodNotAllowed, NotFound
from omnigraph.base.ids import SystemClock
from omnigraph.engine.graph import Graph
from omnigraph.execution.memory import Memory
from omnigraph.surfaces.server.access import OPEN, AccessRules
from omnigraph.surfaces.server.admission import Admission
from omnigraph.surfaces.server.answers import problem
from omnigraph.surfaces.server.calls import Server, bad_request
from omnigraph.surfaces.server.contract import check_headers
from omnigraph.surfaces.server.coverage import CoverageLook
from omnigraph.surfaces.server.document import openapi_document
from omnigraph.surfaces.server.gate import Gate
from omnigraph.surfaces.server.graphs import ServedGraphs
from omnigraph.surfaces.server.heads import HeadAsGet
from omnigraph.surfaces.server.jwt import is_loopback
from omnigraph.surfaces.server.metrics import Metrics
from omnigraph.surfaces.server.observing import Observer
from omnigraph.surfaces.server.routes import branches, data, former, history, policy, queries, schema, system
from omnigraph.surfaces.server.settings import ServerSettings
from omnigraph.surfaces.server.tracing import Tracing
from omnigraph.surfaces.server.upkeep import Upkeep
from omnigraph.surfaces.server.work import Pools

GRAPH_ROUTES: tuple[APIRouter, ...] = (
    data.router,
    history.router,
    branches.router,
    schema.router,
    queries.router,
    policy.router,
    former.router,
)
DESCRIPTION = "A typed, versioned property graph over HTTP."
EXPOSED = (
    "Graph-Commit-Id",
    "Idempotency-Replayed",
    "X-Request-Id",
    "Og-Version",
    "Retry-After",
    "Deprecation",
    "Link",
)


def create_app(
    settings: ServerSettings,
    graphs: ServedGraphs | Mapping[str, Graph],
    access: AccessRules = OPEN,
    tracing: Tracing | None = None,
) -> FastAPI:
    """Return the application that serves these graphs, to everybody unless `access` says to whom.

    Queries are as strict, and share memory, as their graphs were opened: see ServedGraphs.
    """
    memory = Memory(settings.limits.memory_bytes)
    served = graphs if isinstance(graphs, ServedGraphs) else ServedGraphs.of(graphs, memory)
    app = FastAPI(
        title="OmniGraph",
        version=__version__,
        description=DESCRIPTION,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        lifespan=_life,
        generate_unique_id_function=lambda route: route.name,
        separate_input_output_schemas=False,
    )
    admission = Admission(settings.limits)
    metrics = Metrics(admission, served.embedder)
    access = replace(access, decided=metrics.decided)
    for one in served:
        metrics.ready(one.graph_id, served=one.graph is not None)
    app.openapi = cache(partial(openapi_document, app, with_tokens=not access.is_open))  # type: ignore[method-assign]
    app.state.server = Server(settings, served, Pools(settings.limits), access, admission, metrics)
    app.state.tracing = tracing or Tracing.from_environment(settings.environment)
    app.state.coverage = CoverageLook(served, metrics, SystemClock())
    app.include_router(system.router)
    checked = Depends(check_headers)
    for router in GRAPH_ROUTES:
        app.include_router(router, prefix="/graphs/{graph_id}", dependencies=[Depends(_graph_id), checked])
        if served.sole is not None:
            app.include_router(router, include_in_schema=False, dependencies=[checked])
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(HeadAsGet)  # within the gate
    app.add_middleware(
        Gate,
        limits=settings.limits,
        version=__version__,
        identity=access.identity,
        observer=Observer(metrics),
        open_metrics=is_loopback(settings.host),
        tracing=app.state.tracing,
    )
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=("GET", "HEAD", "POST", "PATCH", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED,
        )
    return app


async def _graph_id(
    graph_id: Annotated[str, Path(description="The graph, by its id on this server.")],
) -> None:
    """Put the graph into the document; authorised() reads it."""


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    server: Server = app.state.server
    policy = server.settings.upkeep
    upkeep = None if policy is None else Upkeep(policy, list(server.graphs), server.metrics)
    working = None if upkeep is None else asyncio.create_task(upkeep.run())
    yield
    if working is not None:
        working.cancel()
        await asyncio.wait({working})
    await server.pools.finish_writes()
    server.pools.close()
    await asyncio.to_thread(app.state.tracing.close)  # sends the last spans


# -- failures that the framework finds ---------------------------------------------------------------------


def _request_id(request: Request) -> str:
    request_id: str = request.scope["state"]["request_id"]
    return request_id


async def _invalid(request: Request, error: Exception) -> Response:
    """Answer a body or a parameter that does not fit its model."""
    assert isinstance(error, RequestValidationError)
    request.scope["state"]["code"] = InvalidRequest.code
    return problem(bad_request(error.errors()), _request_id(request))


async def _refused(request: Request, error: Exception) -> Response:
    """Answer what no route took."""
    assert isinstance(error, HTTPException)
    cause = error.__cause__
    failure: GraphError
    if isinstance(cause, GraphError):  # the framework wraps what happened while it read a body
        failure = cause
    elif error.status_code == 404:
        failure = NotFound("there is nothing here", remedy="/openapi.json lists the routes")
    elif error.status_code == 405:
        failure = MethodNotAllowed(
            f"{request.method} is not done here", remedy="/openapi.json says which methods are"
        )
    else:
        failure = InvalidRequest("the body is not JSON in UTF-8", remedy="Mend the body")
    request.scope["state"]["code"] = failure.code
    return problem(failure, _request_id(request), error.headers)
