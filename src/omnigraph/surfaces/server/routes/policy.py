"""The policy of a graph, as the server has it now: asked about anybody, for whoever administers the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from omnigraph.base.errors import NotFound
from omnigraph.engine.access import Action
from omnigraph.surfaces.server.answers import answer
from omnigraph.surfaces.server.calls import CallOf, GraphCall, documented
from omnigraph.surfaces.server.contract import asks
from omnigraph.surfaces.server.models import DecisionReply, PolicyQuestion, PolicyReply

if TYPE_CHECKING:
    from omnigraph.surfaces.policy.policy import Policy

router = APIRouter(tags=["policy"])


@router.get("/policy", responses=documented(PolicyReply), openapi_extra=asks(Action.ADMIN))
async def show_policy(call: CallOf) -> Response:
    """Say how large the policy of this graph is; there is none on an open server."""
    return answer(_policy(call).facts())


@router.post("/policy/explain", responses=documented(DecisionReply), openapi_extra=asks(Action.ADMIN))
async def explain_decision(call: CallOf, body: PolicyQuestion) -> Response:
    """Say what the policy decides about somebody, and why; nothing is done, and nothing recorded of it."""
    decision = _policy(call).decide(
        body.actor, body.action, body.branch, body.target_branch, resource=call.served.graph_id
    )
    return answer(decision.to_json())


def _policy(call: GraphCall) -> Policy:
    call.check(Action.ADMIN)
    access = call.server.access
    policy = None if access.is_open else access.policies.graphs.get(call.served.graph_id)
    if policy is None:
        raise NotFound(
            "this graph has no policy that is asked",
            remedy="Whoever runs the server can give it --policy FILE",
        )
    return policy
