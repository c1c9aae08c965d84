"""Contract: what a route says of itself: the actions that it asks a policy for, the headers that it keeps.

Both stand in the OpenAPI document. A condition or an idempotency key that a route does not keep is refused: a
caller who relies on one must not find out later that nobody looked.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header
from starlette.requests import Request

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.access import Action

ACTIONS = "x-omnigraph-actions"
CONDITION = ("if-commit", "omnigraph-if-graph-commit")
KEY = "idempotency-key"
READING = frozenset(action.value for action in (Action.READ, Action.EXPORT))
HEAD = "The head that the branch must have: 412 if it is another, and nothing is written."
AS_TEXT = "With `string`, integers of 64 bits are texts in JSON: JavaScript loses those beyond 2^53."
ONCE = "Under one key a write is done once, however often it is sent. It is good for seven days."


def asks(*actions: Action) -> dict[str, Any]:
    """Return what the document says of the actions that a call may need; the usual one asks for the first."""
    return {ACTIONS: [action.value for action in actions]}


async def _conditional(
    if_commit: Annotated[str | None, Header(alias=CONDITION[0], description=HEAD)] = None,
    former: Annotated[str | None, Header(alias=CONDITION[1], description=HEAD, deprecated=True)] = None,
) -> None:
    """Put the headers into the document; GraphCall.if_commit reads them."""


async def _keyed(key: Annotated[str | None, Header(alias=KEY, description=ONCE)] = None) -> None:
    """Put the header into the document; GraphCall.idempotency_key reads it."""


async def _integers(
    integers: Annotated[str | None, Header(alias="accept-integers", description=AS_TEXT)] = None,
) -> None:
    """Refuse another wish than the known one."""
    if integers not in (None, "string"):
        raise InvalidRequest("Accept-Integers is not understood", remedy="Send `string`, or leave it out")


CONDITIONAL, KEYED, INTEGERS = Depends(_conditional), Depends(_keyed), Depends(_integers)


async def check_headers(request: Request) -> None:
    """Refuse conditions and keys of a write that the route does not keep."""
    given = [name for name in (*CONDITION, KEY) if name in request.headers]
    if not given:
        return
    route = request.scope["route"]
    kept = {*(CONDITION if CONDITIONAL in route.dependencies else ())}
    if KEYED in route.dependencies:
        kept.add(KEY)
    if READING.issuperset(route.openapi_extra[ACTIONS]):
        kept.add(KEY)  # reading twice is reading once
    for name in given:
        if name not in kept:
            raise InvalidRequest(
                f"{name} is not kept by {request.method} {route.path}",
                remedy="Leave it out; /openapi.json says which headers a route takes",
                places=[f"header.{name}"],
            )
