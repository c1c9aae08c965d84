"""The server itself: is it alive, is it ready, what does it serve."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from omnigraph import __version__
from omnigraph.engine.access import Action
from omnigraph.storage.manifest.formats import FORMAT
from omnigraph.surfaces.server.answers import answer, document_response
from omnigraph.surfaces.server.calls import documented, server_of
from omnigraph.surfaces.server.graphs import reasons
from omnigraph.surfaces.server.jwt import is_loopback
from omnigraph.surfaces.server.metrics import CONTENT_TYPE
from omnigraph.surfaces.server.models import Graphs, Reply
from omnigraph.surfaces.server.page import POLICY, page_of
from omnigraph.surfaces.wire import json_bytes

router = APIRouter(tags=["server"])


@router.get("/healthz", responses=documented(Reply))
async def healthz() -> Response:
    """Say that the process is alive; touches no storage."""
    return answer({"status": "ok", "version": __version__, "internal_schema_version": FORMAT})


@router.get("/readyz", responses=documented(Reply))
async def readyz(request: Request) -> Response:
    """Say whether requests are served: 200 while at least one graph is, else 503."""
    server = server_of(request)
    draining = server.pools.draining.is_set()
    ready = bool(server.graphs.ready) and not draining
    document: dict[str, Any] = {
        "ready": ready,
        "degraded": bool(server.graphs.quarantined),
        "draining": draining,
    }
    if request.scope["state"]["actor"] is not None or server.access.is_open:
        document["graphs"] = reasons(server.graphs)
    response = document_response(json_bytes(document))
    response.status_code = 200 if ready else 503
    return response


@router.get("/docs", response_class=Response, include_in_schema=False)
async def docs(request: Request) -> Response:
    """Show the routes to people."""
    page = page_of(request.app.openapi())
    return Response(page, media_type="text/html", headers={"Content-Security-Policy": POLICY})


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics of this process for Prometheus."""
    server, actor = server_of(request), request.scope["state"]["actor"]
    if not (actor is None and is_loopback(server.settings.host)):
        server.access.check_server(actor, Action.ADMIN)
    await server.pools.small(request.app.state.coverage.refresh)
    return Response(server.metrics.render(), media_type=CONTENT_TYPE)


@router.get("/graphs", responses=documented(Graphs))
async def graphs(request: Request) -> Response:
    """List the graphs that are served."""
    server, actor = server_of(request), request.scope["state"]["actor"]
    server.access.check_server(actor, Action.GRAPH_LIST)
    served = server.graphs.ready
    return answer({"graphs": [{"graph_id": one.graph_id, "uri": one.uri} for one in served]})
