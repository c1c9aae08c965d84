"""Former spellings of routes, for programs that were written for them: each answers as its successor does.

They take the former names of fields, and pass over fields that they do not know. Those that have a successor
of another name say so in `Deprecation` and `Link`.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import AliasChoices, ConfigDict, Field
from starlette.responses import Response

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.access import Action
from omnigraph.surfaces.server.calls import CallOf, GraphCall, documented
from omnigraph.surfaces.server.contract import CONDITIONAL, INTEGERS, KEYED, asks
from omnigraph.surfaces.server.models import (
    LoadBody,
    MutateRequest,
    QueryBody,
    QueryReply,
    Reply,
    Segment,
    StoredCall,
    WriteReply,
)
from omnigraph.surfaces.server.routes import data, queries

router = APIRouter(tags=["former"])
LENIENT = ConfigDict(extra="ignore", strict=True)
TEXT = AliasChoices("query", "query_source")
NAME = AliasChoices("name", "query_name")


class FormerQuery(QueryBody):
    """One read."""

    model_config = LENIENT
    query: str = Field(validation_alias=TEXT)
    name: str | None = Field(default=None, validation_alias=NAME)


class FormerMutation(MutateRequest):
    """One mutation."""

    model_config = LENIENT
    query: str = Field(validation_alias=TEXT)
    name: str | None = Field(default=None, validation_alias=NAME)


class FormerLoad(LoadBody):
    """Records in a JSON document, loaded onto a branch that is forked from main if it is not there."""

    model_config = LENIENT
    from_: str | None = Field(default="main", alias="from")


class FormerCall(StoredCall):
    """A call of a stored query."""

    model_config = LENIENT


@router.post(
    "/read",
    deprecated=True,
    responses=documented(QueryReply),
    openapi_extra=asks(Action.READ),
    dependencies=[INTEGERS],
)
async def read(call: CallOf, body: FormerQuery) -> Response:
    """Run one read, as `/query` does."""
    return _succeeded(call, "/query", await data.query(call, body))


@router.post(
    "/change",
    deprecated=True,
    responses=documented(WriteReply),
    openapi_extra=asks(Action.CHANGE),
    dependencies=[CONDITIONAL, KEYED],
)
async def change(call: CallOf, body: FormerMutation) -> Response:
    """Run one mutation, as `/mutate` does."""
    return _succeeded(call, "/mutate", await data.mutate(call, body))


@router.post(
    "/ingest",
    deprecated=True,
    responses=documented(WriteReply),
    openapi_extra=data.LOADS | data.document_body(FormerLoad),
    dependencies=[CONDITIONAL, KEYED],
)
async def ingest(call: CallOf) -> Response:
    """Load records in a JSON document, as `/load` does."""
    return _succeeded(call, "/load", await data.from_document(call, FormerLoad))


@router.post(
    "/mutate/if-graph-commit",
    responses=documented(WriteReply),
    openapi_extra=asks(Action.CHANGE),
    dependencies=[CONDITIONAL, KEYED],
)
async def mutate_if(call: CallOf, body: FormerMutation) -> Response:
    """Run one mutation, as `/mutate` does, on the head that a header has to name."""
    _need_condition(call)
    return await data.mutate(call, body)


@router.post(
    "/queries/{name}/if-graph-commit",
    responses=documented(Reply),
    openapi_extra=asks(Action.INVOKE_QUERY, Action.CHANGE),
    dependencies=[CONDITIONAL, KEYED],
)
async def call_query_if(call: CallOf, name: Segment, body: FormerCall | None = None) -> Response:
    """Run a stored mutation, as `/queries/{name}` does, on the head that a header has to name."""
    _need_condition(call)
    return await queries.call_query(call, name, body)


def _succeeded(call: GraphCall, successor: str, response: Response) -> Response:
    headers: dict[str, Any] = {
        "Deprecation": "true",
        "Link": f'<{call.served.uri}{successor}>; rel="successor-version"',
    }
    response.headers.update(headers)
    return response


def _need_condition(call: GraphCall) -> None:
    if call.if_commit is None:
        raise InvalidRequest("the head is not named", remedy="Send If-Commit, or call the route without it")
