"""History: commits, differences, the change feed, entities through time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.engine.access import Action
from omnigraph.engine.graph import Graph
from omnigraph.engine.history.changes import LIMIT, MAX_LIMIT, ChangeFilter, Packer
from omnigraph.engine.history.diff import Diff, stats_json, steps_json
from omnigraph.engine.history.feed import Baseline, FeedPage, rejected, seal, unseal
from omnigraph.engine.write import commit_json, landed
from omnigraph.storage.manifest.records import MAIN, CommitRecord
from omnigraph.surfaces.server.answers import answer, lasting, stream
from omnigraph.surfaces.server.calls import CallOf, GraphCall, documented, streamed
from omnigraph.surfaces.server.contract import asks
from omnigraph.surfaces.server.events import changed_or_over, events
from omnigraph.surfaces.server.models import (
    BaselineRequest,
    BranchQuery,
    Changed,
    Commit,
    CommitsReply,
    Differences,
    EntityReply,
    FeedReply,
    KindQuery,
    OpQuery,
    Segment,
    SnapshotQuery,
    TypeQuery,
    WriteReply,
)
from omnigraph.surfaces.server.routes.data import receipt_answer
from omnigraph.surfaces.wire import EVENTS, NDJSON, json_bytes

router = APIRouter(tags=["history"])
PageToken = Annotated[str | None, Query(description="Go on where the last page ended.")]
PageLimit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="So many changes at most.")]
DIFF_PAGE = "page token of a diff"

# -- commits -------------------------------------------------------------------------------------------


@router.get("/commits", responses=documented(CommitsReply), openapi_extra=asks(Action.READ))
async def list_commits(
    call: CallOf,
    branch: BranchQuery = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="So many commits at most.")] = 50,
    before: Annotated[str | None, Query(description="Go on after this commit of the last page.")] = None,
    actor: Annotated[str | None, Query(description="Only the commits of this actor.")] = None,
) -> Response:
    """List the commits of a branch, newest first, those it inherited included."""
    page = await call.read(lambda: call.graph.commits.list(branch, limit, before, actor=actor))
    return answer({"commits": [_commit(commit) for commit in page], "next": page.next})


@router.get("/commits/{commit}", responses=documented(Commit), openapi_extra=asks(Action.READ))
async def get_commit(call: CallOf, commit: Segment, branch: BranchQuery = None) -> Response:
    """Return one commit by its id, a tag, or any other name of a state."""
    found = await call.read(lambda: call.graph.commits.get(commit, branch=branch))
    return answer(_commit(found), found.id)


def _commit(commit: CommitRecord) -> dict[str, Any]:
    tables = [
        {"name": t.name, "inserted": t.inserted, "updated": t.updated, "deleted": t.deleted}
        for t in commit.tables
    ]
    return {**(commit_json(commit) or {}), "tables": tables}


@router.get("/commits/{commit}/changes", responses=documented(Changed), openapi_extra=asks(Action.READ))
async def commit_changes(
    call: CallOf,
    commit: Segment,
    page_token: PageToken = None,
    limit: PageLimit = LIMIT,
    kind: KindQuery = None,
    type: TypeQuery = None,
    op: OpQuery = None,
) -> Response:
    """Return what one commit changed, against its first parent."""
    changes = call.graph.changes
    page = await call.read(
        lambda: changes.of(commit, kinds=kind, types=type, ops=op, limit=limit, page_token=page_token)
    )
    document = page.to_json()
    return answer(document, document["cause"]["graph_commit_id"])


# -- differences ---------------------------------------------------------------------------------------


@router.get("/diff", responses=documented(Differences), openapi_extra=asks(Action.READ))
async def diff(
    call: CallOf,
    from_: Annotated[str, Query(alias="from", description="A branch, or a past state.")],
    to: Annotated[str | None, Query(description="A branch, or a past state; `main` if not given.")] = None,
    branch: BranchQuery = None,
    kind: KindQuery = None,
    type: TypeQuery = None,
    op: OpQuery = None,
    limit: PageLimit = LIMIT,
    page_token: PageToken = None,
) -> Response:
    """Return what leads from one state to another, a page at a time; counts are on the first page."""
    return await _difference(call, branch, (from_, to), (kind, type, op), limit, page_token)


@router.get(
    "/branches/{branch}/diff/{other}", responses=documented(Differences), openapi_extra=asks(Action.READ)
)
async def diff_branches(
    call: CallOf,
    branch: Segment,
    other: Segment,
    kind: KindQuery = None,
    type: TypeQuery = None,
    op: OpQuery = None,
    limit: PageLimit = LIMIT,
    page_token: PageToken = None,
) -> Response:
    """Return what leads from one branch to another."""
    return await _difference(call, None, (branch, other), (kind, type, op), limit, page_token)


async def _difference(
    call: GraphCall,
    branch: str | None,
    ends: tuple[str, str | None],
    chosen: tuple[list[str] | None, list[str] | None, list[str] | None],
    limit: int,
    page_token: str | None,
) -> Response:
    graph = call.graph if branch is None else await call.read(lambda: call.graph.branch(branch))
    kinds, types, ops = chosen

    def page() -> dict[str, Any]:
        before, after, inside = ends[0], ends[1], None
        values = None if page_token is None else unseal(DIFF_PAGE, page_token)
        if values is not None:
            before, after = values["from"], values["to"]
        difference = graph.diff(before, after, kinds=kinds, types=types, ops=ops)
        digest = _filter(graph, difference, chosen)
        if values is not None:
            if values["filter"] != digest:
                raise rejected("it was given for another filter")
            edges, type_id, entity_id = values["inside"]
            inside = bool(edges), str(type_id), str(entity_id)
        changes, more = Packer(limit).take(difference.comparison.changes(inside))
        document: dict[str, Any] = {
            "from": difference.from_commit_id,
            "to": difference.to_commit_id,
            "from_branch": difference.before.branch,
            "to_branch": difference.after.branch,
        }
        if values is None:
            document |= {"stats": stats_json(difference.types), "schema": steps_json(difference.schema)}
        document |= {"changes": [change.to_json() for change in changes], "truncated": more}
        return document | {
            "next_page_token": _next(difference, digest, changes[-1].sort_key) if more else None
        }

    document = await call.read(page)
    return answer(document, document["to"])


def _filter(graph: Graph, difference: Diff, chosen: tuple[Any, Any, Any]) -> str:
    comparison = difference.comparison
    return ChangeFilter.read([comparison.newer, comparison.older], *chosen).digest


def _next(difference: Diff, digest: str, inside: tuple[bool, str, str]) -> str:
    values = {"from": difference.from_commit_id, "to": difference.to_commit_id}
    return seal(DIFF_PAGE, {**values, "filter": digest, "inside": inside})


# -- the feed ------------------------------------------------------------------------------------------


@router.get("/changes", responses=documented(FeedReply), openapi_extra=asks(Action.READ))
async def changes(
    call: CallOf,
    branch: BranchQuery = None,
    cursor: Annotated[str | None, Query(description="What happened since; from an earlier page.")] = None,
    start: Annotated[str | None, Query(description="`now`, `beginning` or `after:COMMIT`.")] = None,
    page_token: PageToken = None,
    kind: KindQuery = None,
    type: TypeQuery = None,
    op: OpQuery = None,
    limit: PageLimit = LIMIT,
    wait: Annotated[float, Query(ge=0, description="Wait so many seconds for something to happen.")] = 0,
) -> Response:
    """Return the commits of a branch since a cursor, with what each of them changed.

    With `wait` a poll lasts until there is something. With `Accept: text/event-stream` it goes on for as long
    as the caller listens; the id of an event is the cursor, and `Last-Event-ID` resumes there.
    """
    feed, pools = call.graph.changes, call.server.pools
    chosen: dict[str, Any] = {"branch": branch, "kinds": kind, "types": type, "ops": op, "limit": limit}
    begin: dict[str, Any] = {"cursor": cursor, "start": start, "page_token": page_token}
    if EVENTS in call.request.headers.get("accept", ""):
        resumed = call.request.headers.get("last-event-id")
        if resumed:
            begin = {"cursor": resumed, "start": None, "page_token": None}

        def poll(**where: Any) -> FeedPage:
            return feed.poll(**where, **chosen)

        async with call.server.admission.listener(call.actor) as place:
            first = await call.read(lambda: poll(**begin))
            return lasting(events(pools, place, poll, first), EVENTS, place)
    seconds = min(wait, call.server.settings.limits.longest_wait_seconds)
    page = await call.read(lambda: feed.poll(**begin, **chosen))
    if not page.blocks and page.cursor is not None and seconds > 0:
        async with call.server.admission.listener(call.actor) as place:
            changed = changed_or_over(pools, place, page, seconds, lambda at: feed.poll(at, **chosen))
            page = await pools.listen(call.request, seconds + call.seconds, changed)
    return answer(page.to_json())


@router.post(
    "/changes/baseline",
    response_class=Response,
    responses=streamed(NDJSON),
    openapi_extra=asks(Action.EXPORT),
)
async def baseline(call: CallOf, body: BaselineRequest) -> Response:
    """Return everything there is, as inserts, and in the last line the cursor that goes on from there."""
    graph, pools = call.graph, call.server.pools

    def begin() -> Baseline:
        call.check(Action.EXPORT, branch=body.branch or MAIN)
        return graph.changes.baseline(branch=body.branch, kinds=body.kind or None, types=body.type or None)

    def lines(whole: Baseline) -> Iterator[bytes]:
        for change in whole:
            yield json_bytes(change.to_json()) + b"\n"
        end = {"snapshot_commit_id": whole.snapshot_commit_id, "resume_cursor": whole.resume_cursor}
        yield json_bytes({"baseline": end}) + b"\n"

    size = call.server.settings.limits.chunk_bytes
    async with call.server.admission.export(call.actor) as place:
        whole = await call.read(begin)
        return await stream(pools.streams, lines(whole), size, NDJSON, whole.snapshot_commit_id, place)


# -- entities and receipts -----------------------------------------------------------------------------


@router.get("/entities/{type}/{id}", responses=documented(EntityReply), openapi_extra=asks(Action.READ))
async def get_entity(
    call: CallOf, type: Segment, id: Segment, branch: BranchQuery = None, snapshot: SnapshotQuery = None
) -> Response:
    """Return one entity, now or then; null if it is not there."""
    graph = call.graph
    found = await call.read(lambda: graph.entity(type, id).get(branch=branch, at=snapshot))
    return answer({"entity": found})


@router.get("/entities/{type}/{id}/history", responses=documented(), openapi_extra=asks(Action.READ))
async def entity_history(
    call: CallOf,
    type: Segment,
    id: Segment,
    branch: BranchQuery = None,
    limit: Annotated[int, Query(ge=1, le=1_000, description="So many versions at most.")] = 50,
) -> Response:
    """List the versions of an entity, newest first: who changed what, when and why."""
    graph = call.graph
    history = await call.read(lambda: graph.entity(type, id).history(branch=branch, limit=limit))
    return answer(history.to_json())


@router.get("/receipts/{key}", responses=documented(WriteReply), openapi_extra=asks(Action.CHANGE))
async def get_receipt(call: CallOf, key: Segment, branch: BranchQuery = None) -> Response:
    """Return what the write did that this actor made under an idempotency key."""
    graph = call.graph
    if not 0 < len(key) <= 128 or not key.isprintable():
        raise InvalidRequest("an idempotency key has 1 to 128 visible characters")

    def read() -> Any:
        call.check(Action.CHANGE, branch=branch or MAIN)
        receipt = landed(graph.store, key, graph.store.snapshot(branch or MAIN), call.actor)
        if receipt is None:
            raise NotFound(
                "no write of yours under this key is on the branch",
                remedy="It may still be under way: ask again, or repeat it under the same key",
            )
        return receipt

    return receipt_answer(await call.read(read))
