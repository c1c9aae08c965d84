"""Stored queries: listed, and called by name."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from omnigraph.base.errors import PermissionDenied
from omnigraph.engine.access import Action
from omnigraph.engine.stored import StoredQuery, no_query
from omnigraph.engine.write import Receipt
from omnigraph.execution.result import Result
from omnigraph.storage.manifest.records import MAIN
from omnigraph.surfaces.server.answers import answer
from omnigraph.surfaces.server.calls import CallOf, GraphCall, documented
from omnigraph.surfaces.server.contract import CONDITIONAL, INTEGERS, KEYED, asks
from omnigraph.surfaces.server.models import Catalogue, Reply, Segment, StoredCall
from omnigraph.surfaces.server.routes.data import receipt_answer, rows_answer

router = APIRouter(tags=["queries"])


@router.get("/queries", responses=documented(Catalogue), openapi_extra=asks(Action.READ))
async def list_queries(call: CallOf) -> Response:
    """List the stored queries: names, parameters, what they return, whether they write."""
    stored = call.served.stored
    call.check(Action.READ, branch=MAIN)
    entries = [] if stored is None else await call.server.pools.small(stored.entries)
    return answer({"queries": entries})


@router.post(
    "/queries/{name}",
    responses=documented(Reply),
    openapi_extra=asks(Action.INVOKE_QUERY, Action.READ, Action.CHANGE),
    dependencies=[CONDITIONAL, KEYED, INTEGERS],
)
async def call_query(call: CallOf, name: Segment, body: StoredCall | None = None) -> Response:
    """Run a stored query: the answer is that of `/query` or of `/mutate`."""
    given = body or StoredCall()
    query = await _found(call, name)
    query.check(
        at=given.snapshot,
        if_commit=call.if_commit,
        message=given.message,
        expect_mutation=given.expect_mutation,
    )
    if query.mutation:
        return await _mutate(call, query, given)

    def run() -> Result:
        return call.graph.query(
            query.text, given.params, query_name=query.name, branch=given.branch, at=given.snapshot
        )

    return await rows_answer(call, run, call.form, query.text, query.name)


async def _found(call: GraphCall, name: str) -> StoredQuery:
    """Return the query; one that the actor may not call is answered like one that there is not."""
    stored = call.served.stored
    try:
        call.check(Action.INVOKE_QUERY)
    except PermissionDenied:
        raise no_query(name) from None
    if stored is None:
        raise no_query(name)
    return await call.server.pools.small(lambda: stored.get(name))


async def _mutate(call: GraphCall, query: StoredQuery, given: StoredCall) -> Response:
    graph, if_commit, key = call.graph, call.if_commit, call.idempotency_key

    def run() -> Receipt:
        return graph.mutate(
            query.text,
            given.params,
            query_name=query.name,
            branch=given.branch,
            if_commit=if_commit,
            idempotency_key=key,
            message=given.message,
        )

    async with call.measured() as done:
        receipt = done.receipt = await call.write(run)
    return receipt_answer(receipt)
