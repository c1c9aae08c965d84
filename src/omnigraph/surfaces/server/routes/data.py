"""Rows in and out: queries, mutations, loads, exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Annotated, Any, Literal

import pyarrow as pa
from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.responses import Response

from omnigraph.base.errors import InvalidRequest, TooBroad, UnsupportedMedia
from omnigraph.engine.access import Action
from omnigraph.engine.export.export import export_lines
from omnigraph.engine.write import Receipt
from omnigraph.execution.memory import counted_bytes
from omnigraph.execution.result import Result
from omnigraph.surfaces.server.admission import Place
from omnigraph.surfaces.server.answers import (
    arrow_chunks,
    document_response,
    document_stream,
    json_result,
    json_room,
    replay_header,
    result_facts,
    row_lines,
    stream,
    with_texts,
)
from omnigraph.surfaces.server.bodies import (
    PARQUET,
    check_content,
    columns_of,
    format_of,
    json_body,
    spooled,
    text_file,
)
from omnigraph.surfaces.server.calls import (
    CallOf,
    GraphCall,
    bad_request,
    documented,
    pinned,
    streamed,
    text_of,
)
from omnigraph.surfaces.server.contract import CONDITIONAL, INTEGERS, KEYED, asks
from omnigraph.surfaces.server.models import (
    BranchQuery,
    ExportRequest,
    LoadBody,
    MutateRequest,
    PlanReply,
    QueryBody,
    QueryReply,
    Segment,
    SnapshotQuery,
    WriteReply,
)
from omnigraph.surfaces.wire import ARROW, NDJSON, json_bytes

router = APIRouter(tags=["data"])
BINARY = {"schema": {"type": "string", "format": "binary"}}
ROWS: dict[str, Any] = {
    "model": QueryReply,
    "description": "The rows.",
    "content": {ARROW: BINARY, NDJSON: BINARY},
}

# -- reads ---------------------------------------------------------------------------------------------


@router.post(
    "/query",
    responses=documented(QueryReply) | {200: ROWS},
    openapi_extra=asks(Action.READ),
    dependencies=[INTEGERS],
)
async def query(call: CallOf, body: QueryBody) -> Response:
    """Run one read on one snapshot: the head of a branch, or a past state.

    JSON unless `Accept` asks for an Arrow stream or JSON lines.
    """
    graph, form, most = call.graph, call.form, call.server.settings.limits.query_memory_bytes

    def run() -> Result:
        return graph.query(
            text_of(body.query),
            body.params,
            query_name=body.name,
            branch=body.branch,
            at=body.snapshot,
            memory_bytes=None if body.memory_bytes is None else min(body.memory_bytes, most),
        )

    return await rows_answer(call, run, form, body.query)


async def rows_answer(
    call: GraphCall, run: Callable[[], Result], form: str, text: str, name: str | None = None
) -> Response:
    """Run a read and answer in the form that the caller wants; a stored query has a `name`."""
    limits, pools = call.server.settings.limits, call.server.pools
    shown = with_texts if call.request.headers.get("accept-integers") == "string" else _same

    def rendered() -> tuple[Result, bytes]:
        answered = run()
        with call.server.memory.taking(counted_bytes(json_room(answered.table)), "the JSON of the answer"):
            return answered, json_result(answered, limits, shown)

    async with call.measured() as done:
        done.query = name
        if form not in (ARROW, NDJSON):
            result, body = await call.read(rendered, text)
            done.result = result
            return large_answer(call, body, result.commit_id)
        result = done.result = await call.read(run, text)
    if form == ARROW:
        chunks = arrow_chunks(result.table, result_facts(result))
    else:
        chunks = row_lines(shown(result.table))
    with call.keeping(int(result.table.nbytes)) as place:
        return await stream(pools.streams, chunks, limits.chunk_bytes, form, result.commit_id, place)


def large_answer(call: GraphCall, body: bytes, commit_id: str) -> Response:
    """Return a JSON answer that may be large: then its memory counts until the caller has taken it."""
    if not counted_bytes(len(body)):
        return document_response(body, commit_id)
    with call.keeping(len(body)) as place:
        return document_stream(body, call.server.settings.limits.chunk_bytes, commit_id, place)


def _same(table: pa.Table) -> pa.Table:
    return table


@router.post("/explain", responses=documented(PlanReply), openapi_extra=asks(Action.READ))
async def explain(call: CallOf, body: QueryBody) -> Response:
    """Describe how a read would run, without running it."""
    graph = call.graph

    def run() -> tuple[bytes, str]:
        plan = graph.explain(
            text_of(body.query), body.params, query_name=body.name, branch=body.branch, at=body.snapshot
        )
        return json_bytes(plan.to_json()), plan.commit_id

    return document_response(*await call.read(run))


@router.post("/profile", responses=documented(PlanReply), openapi_extra=asks(Action.READ))
async def profile(call: CallOf, body: QueryBody) -> Response:
    """Run a read and say what each step did."""
    graph = call.graph

    def run() -> tuple[bytes, str]:
        plan = graph.profile(
            text_of(body.query), body.params, query_name=body.name, branch=body.branch, at=body.snapshot
        )
        return json_bytes(plan.to_json()), plan.commit_id

    return document_response(*await call.read(run))


# -- writes --------------------------------------------------------------------------------------------


@router.post(
    "/mutate",
    responses=documented(WriteReply),
    openapi_extra=asks(Action.CHANGE),
    dependencies=[CONDITIONAL, KEYED],
)
async def mutate(call: CallOf, body: MutateRequest) -> Response:
    """Run one mutation as one commit.

    `If-Commit` makes it depend on the head of the branch; under an `Idempotency-Key` it is done once.
    """
    graph, if_commit, key = call.graph, call.if_commit, call.idempotency_key

    def run() -> Receipt:
        return graph.mutate(
            text_of(body.query),
            body.params,
            query_name=body.name,
            branch=body.branch,
            if_commit=if_commit,
            idempotency_key=key,
            message=body.message,
            dry_run=body.dry_run,
        )

    async with call.measured() as done:
        receipt = done.receipt = await call.write(run)
    return receipt_answer(receipt)


def receipt_answer(receipt: Receipt, **more: Any) -> Response:
    """Return what a write did as a response."""
    document = {**receipt.to_json(), "attempts": receipt.attempts, **more}
    return document_response(json_bytes(document), receipt.commit_id, **replay_header(receipt.replayed))


# -- loads ---------------------------------------------------------------------------------------------

LOADS = asks(Action.CHANGE, Action.BRANCH_CREATE)


def document_body(model: type[LoadBody], *others: str) -> dict[str, Any]:
    """Return what the document says of a body that is a JSON document, or of one of other types."""
    content = {"application/json": {"schema": model.model_json_schema()}} | dict.fromkeys(others, BINARY)
    return {"requestBody": {"required": True, "content": content}}


Mode = Annotated[Literal["append", "merge", "overwrite"], Query(description="What happens to what exists.")]
FromQuery = Annotated[str | None, Query(alias="from", description="Fork a missing branch from this one.")]
TypeName = Annotated[str | None, Query(description="The type of all rows; tables need it.")]
ColumnsQuery = Annotated[str | None, Query(description="JSON: the property of each column of a table.")]
MessageQuery = Annotated[str | None, Query(description="Why; recorded on the commit.")]
ReplaceTypes = Annotated[list[str] | None, Query(description="With overwrite: types to empty besides.")]


@router.post(
    "/load/ndjson",
    responses=documented(WriteReply),
    openapi_extra=LOADS | {"requestBody": {"required": True, "content": {NDJSON: BINARY}}},
    dependencies=[CONDITIONAL, KEYED],
)
async def load_ndjson(
    call: CallOf,
    branch: BranchQuery = None,
    from_: FromQuery = None,
    mode: Mode = "merge",
    type: TypeName = None,
    message: MessageQuery = None,
    dry_run: bool = False,
    replace_types: ReplaceTypes = None,
) -> Response:
    """Load JSON lines: every record in one commit, or nothing."""
    options = {
        "branch": branch,
        "from_branch": from_,
        "mode": mode,
        "type": type,
        "message": message,
        "dry_run": dry_run,
        "replace_types": replace_types or (),
    }
    if format_of(call.request) != "jsonl":
        raise UnsupportedMedia("JSON lines are loaded here", remedy="Send anything else to /load")
    return await _uploaded(call, "jsonl", options)


@router.post(
    "/load",
    responses=documented(WriteReply),
    openapi_extra=LOADS | document_body(LoadBody, "text/csv", PARQUET, ARROW),
    dependencies=[CONDITIONAL, KEYED],
)
async def load(
    call: CallOf,
    branch: BranchQuery = None,
    from_: FromQuery = None,
    mode: Mode = "merge",
    type: TypeName = None,
    columns: ColumnsQuery = None,
    message: MessageQuery = None,
    dry_run: bool = False,
    replace_types: ReplaceTypes = None,
) -> Response:
    """Load a table (CSV, Parquet, Arrow), or records in a JSON document, as one commit or not at all.

    With JSON the options are in the document; with anything else they are in the address.
    """
    if call.request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return await from_document(call, LoadBody)
    options = {
        "branch": branch,
        "from_branch": from_,
        "mode": mode,
        "type": type,
        "columns": columns_of(columns),
        "message": message,
        "dry_run": dry_run,
        "replace_types": replace_types or (),
    }
    return await _uploaded(call, format_of(call.request), options)


async def from_document(call: GraphCall, model: type[LoadBody]) -> Response:
    """Load the records that are in a JSON document."""
    if call.request.query_params:
        raise InvalidRequest(
            "with JSON the options are in the document", remedy="Take them out of the address"
        )
    try:
        body = model.model_validate(await json_body(call.request))
    except ValidationError as error:
        raise bad_request(error.errors()) from error
    options = body.model_dump(exclude={"data", "from_"}) | {"from_branch": body.from_}
    call.check_writable()
    call.check_load(body.branch, body.from_)
    with call.upload(call.server.settings.limits.max_load_bytes) as upload:
        return await _loaded(call, upload, text_file(body.data), "jsonl", options)


async def _uploaded(call: GraphCall, format: str, options: dict[str, Any]) -> Response:
    call.check_writable()
    call.check_load(options["branch"], options["from_branch"])
    limits, pools = call.server.settings.limits, call.server.pools
    with call.upload(limits.max_load_bytes) as upload:
        async with spooled(call.request, limits, pools.streams, upload) as (spool, place):
            await pools.small(lambda: check_content(spool, format, limits))
            return await _loaded(call, place, spool, format, options)


async def _loaded(
    call: GraphCall, place: Place, data: IO[bytes], format: str, options: dict[str, Any]
) -> Response:
    graph, if_commit, key = call.graph, call.if_commit, call.idempotency_key

    def run() -> Receipt:
        return graph.load(
            data, format=format, engine="local", if_commit=if_commit, idempotency_key=key, **options
        )

    async with call.measured() as done:
        done.op = "load"
        receipt = done.receipt = await call.load(place, run)
    return receipt_answer(receipt, uri=call.served.uri)


# -- exports and rows ----------------------------------------------------------------------------------


@router.post(
    "/export", response_class=Response, responses=streamed(NDJSON), openapi_extra=asks(Action.EXPORT)
)
async def export(call: CallOf, body: ExportRequest) -> Response:
    """Write the entities of one commit as JSON lines that a load takes back.

    A failure after the answer has begun breaks it off: with `framed` the last line tells that it is whole.
    """
    graph, pools = call.graph, call.server.pools

    def begin() -> tuple[Iterator[bytes], str]:
        state = pinned(graph, body.branch, body.snapshot, Action.EXPORT)
        types, at = body.type_names or None, state.commit_id
        lines = export_lines(graph.store, types=types, branch=state.branch, at=at, framed=body.framed)
        return lines, at

    size = call.server.settings.limits.chunk_bytes
    async with call.server.admission.export(call.actor) as place:
        lines, commit_id = await call.read(begin)
        return await stream(pools.streams, lines, size, NDJSON, commit_id, place)


@router.get(
    "/rows/{kind}/{type}", response_class=Response, responses=streamed(ARROW), openapi_extra=asks(Action.READ)
)
async def rows(
    call: CallOf,
    kind: Literal["node", "edge"],
    type: Segment,
    branch: BranchQuery = None,
    snapshot: SnapshotQuery = None,
    columns: Annotated[list[str] | None, Query(description="Only these columns.")] = None,
) -> Response:
    """Return the rows of one type as an Arrow stream, by id."""
    graph, pools = call.graph, call.server.pools
    if call.server.settings.strict:
        raise TooBroad(
            f"all rows of {type} have no bound", remedy="This server is strict; query with a limit, or export"
        )

    def read() -> tuple[Any, dict[str, Any], str]:
        view = graph.nodes if kind == "node" else graph.edges
        typed = view(type, branch=branch, at=snapshot).select(*(columns or ()))
        facts = {
            "query_name": typed.declared.name,
            "branch": typed.snapshot.branch,
            "graph_commit_id": typed.commit_id,
            "columns": [{"name": name} for name in typed.columns],
        }
        return typed.table, facts, typed.commit_id

    table, facts, commit_id = await call.read(read)
    chunks, size = arrow_chunks(table, facts), call.server.settings.limits.chunk_bytes
    with call.keeping(int(table.nbytes)) as place:
        return await stream(pools.streams, chunks, size, ARROW, commit_id, place)
