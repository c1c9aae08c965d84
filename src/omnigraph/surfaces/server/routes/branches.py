"""Branches, merges and tags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.base.errors import PreconditionFailed
from omnigraph.engine.access import Action
from omnigraph.engine.branches import Branch
from omnigraph.engine.graph import Graph
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.surfaces.server.answers import answer, replay_header
from omnigraph.surfaces.server.calls import CallOf, GraphCall, documented
from omnigraph.surfaces.server.contract import CONDITIONAL, KEYED, asks
from omnigraph.surfaces.server.models import (
    BranchesReply,
    BranchReply,
    BranchRequest,
    MergeReply,
    MergeRequest,
    RenameRequest,
    ResolutionBody,
    RevertRequest,
    Segment,
    TagReply,
    TagRequest,
    TagsReply,
)

router = APIRouter(tags=["branches"])
DryRun = Annotated[bool, Query(description="Check and report, write nothing.")]

# -- branches ------------------------------------------------------------------------------------------


@router.get("/branches", responses=documented(BranchesReply), openapi_extra=asks(Action.READ))
async def list_branches(
    call: CallOf,
    counts: Annotated[bool, Query(description="Also heads, ahead and behind.")] = False,
) -> Response:
    """List the branches, main first, then by name."""
    branches = await call.read(lambda: call.graph.branches.list(counts=counts))
    return answer(
        {"branches": [one.name for one in branches], "details": [one.to_json() for one in branches]}
    )


@router.post("/branches", responses=documented(BranchReply), openapi_extra=asks(Action.BRANCH_CREATE))
async def create_branch(call: CallOf, body: BranchRequest) -> Response:
    """Fork a branch from the head of another one, or from a past state."""
    branches = call.graph.branches
    made = await call.write(
        lambda: branches.create(body.name, body.from_, at=body.snapshot, dry_run=body.dry_run)
    )
    return _branch(call, made, **{"from": made.parent}, dry_run=body.dry_run)


@router.post(
    "/branches/merge",
    responses=documented(MergeReply),
    openapi_extra=asks(Action.BRANCH_MERGE, Action.READ, Action.BRANCH_DELETE),
    dependencies=[CONDITIONAL, KEYED],
)
async def merge_branches(call: CallOf, body: MergeRequest) -> Response:
    """Fold one branch into another, three ways, as one commit; all conflicts are reported at once."""
    graph, if_commit, key = call.graph, call.if_commit, call.idempotency_key

    def run() -> MergeOutcome:
        return graph.merge(
            body.source,
            body.target,
            preview=body.preview,
            resolutions=_given(body.resolutions),
            strategy=body.strategy,
            granularity=body.granularity,
            delete_branch=body.delete_branch,
            if_commit=if_commit,
            idempotency_key=key,
            message=body.message,
        )

    return await _merged(call, "merge", run, preview=body.preview)


@router.get("/branches/{branch}", responses=documented(BranchReply), openapi_extra=asks(Action.READ))
async def get_branch(call: CallOf, branch: Segment) -> Response:
    """Return one branch with its head and counts."""
    return _branch(call, await call.read(lambda: call.graph.branches.get(branch)))


@router.patch(
    "/branches/{branch}",
    responses=documented(BranchReply),
    openapi_extra=asks(Action.BRANCH_DELETE, Action.BRANCH_CREATE),
)
async def rename_branch(call: CallOf, branch: Segment, body: RenameRequest) -> Response:
    """Give a branch another name, at one instant for everybody."""
    branches = call.graph.branches
    renamed = await call.write(lambda: branches.rename(branch, body.name, dry_run=body.dry_run))
    return _branch(call, renamed, **{"from": branch.strip()}, dry_run=body.dry_run)


@router.delete(
    "/branches/{branch}",
    responses=documented(BranchReply),
    openapi_extra=asks(Action.BRANCH_DELETE),
    dependencies=[CONDITIONAL],
)
async def delete_branch(call: CallOf, branch: Segment, dry_run: DryRun = False) -> Response:
    """Delete a branch that nothing was forked from and nothing of which is tagged.

    With `If-Commit` the head is compared just before.
    """
    graph, expected = call.graph, call.if_commit

    def run() -> Branch:
        if expected is not None:
            _check_head(graph, branch, expected)
        return graph.branches.delete(branch, dry_run=dry_run)

    return _branch(call, await call.write(run), dry_run=dry_run)


async def _merged(call: GraphCall, op: str, run: Callable[[], MergeOutcome], *, preview: bool) -> Response:
    async with call.measured() as measured:
        measured.op = op
        done = measured.receipt = await (call.read(run) if preview else call.write(run, long=True))
    document = {**done.to_json(), "replayed": done.replayed}
    return answer(document, done.commit_id, **replay_header(done.replayed))


def _branch(call: GraphCall, branch: Branch, **more: Any) -> Response:
    document = {**branch.to_json(), "uri": call.served.uri, "actor_id": call.actor, **more}
    return answer(document, branch.head)


def _check_head(graph: Graph, branch: str, expected: str) -> None:
    head = graph.branches.get(branch).head
    if head is None or not (head == expected or (len(expected) >= 6 and head.startswith(expected))):
        raise PreconditionFailed(branch, expected=expected, actual=head)


def _given(resolutions: list[ResolutionBody] | None) -> list[dict[str, Any]] | None:
    return None if resolutions is None else [resolution.given() for resolution in resolutions]


@router.post(
    "/commits/{commit}/revert",
    responses=documented(MergeReply),
    openapi_extra=asks(Action.CHANGE),
    dependencies=[KEYED],
)
async def revert_commit(call: CallOf, commit: Segment, body: RevertRequest) -> Response:
    """Undo one commit by a new one; refused with conflicts where later commits build on it."""
    graph, key = call.graph, call.idempotency_key

    def run() -> MergeOutcome:
        return graph.revert(
            commit,
            branch=body.branch,
            preview=body.preview,
            resolutions=_given(body.resolutions),
            strategy=body.strategy,
            idempotency_key=key,
            message=body.message,
        )

    return await _merged(call, "revert", run, preview=body.preview)


# -- tags ----------------------------------------------------------------------------------------------


@router.get("/tags", responses=documented(TagsReply), openapi_extra=asks(Action.READ))
async def list_tags(call: CallOf) -> Response:
    """List the tags by name, with their commits."""
    tags = await call.read(call.graph.tags.list)
    return answer({"tags": [tag.to_json() for tag in tags]})


@router.post("/tags", responses=documented(TagReply), openapi_extra=asks(Action.CHANGE))
async def create_tag(call: CallOf, body: TagRequest) -> Response:
    """Name a commit: the head of a branch, or a past state. Tags do not move."""
    tags = call.graph.tags
    made = await call.write(
        lambda: tags.create(
            body.name, body.at, branch=body.branch, message=body.message, dry_run=body.dry_run
        )
    )
    return answer({**made.to_json(), "uri": call.served.uri, "dry_run": body.dry_run}, made.commit_id)


@router.get("/tags/{tag}", responses=documented(TagReply), openapi_extra=asks(Action.READ))
async def get_tag(call: CallOf, tag: Segment) -> Response:
    """Return one tag."""
    found = await call.read(lambda: call.graph.tags.get(tag))
    return answer(found.to_json(), found.commit_id)


@router.delete("/tags/{tag}", responses=documented(TagReply), openapi_extra=asks(Action.READ, Action.CHANGE))
async def delete_tag(call: CallOf, tag: Segment, dry_run: DryRun = False) -> Response:
    """Take a name away; the commit stays."""
    deleted = await call.write(lambda: call.graph.tags.delete(tag, dry_run=dry_run))
    return answer({**deleted.to_json(), "uri": call.served.uri, "dry_run": dry_run}, deleted.commit_id)
