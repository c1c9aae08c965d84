"""Answers: documents, problems, rows and streams as responses."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.base.cancellation import Cancellation, cancelled_by
from omnigraph.base.errors import LimitExceeded
from omnigraph.engine.write import cost_json
from omnigraph.execution.result import PAGE, Result, json_values, row_dicts
from omnigraph.surfaces.server.admission import Place
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.wire import (
    ARROW,
    PROBLEM,
    json_bytes,
    problem_document,
    public,
    retry_after,
    status_of,
)

JSON = "application/json"
COMMIT_HEADER = "Graph-Commit-Id"
METADATA_KEY = b"omnigraph"
BATCH_ROWS = 65_536
ROW_AS_VALUES, CELL_AS_VALUE, TIMES_AS_TEXT = 240, 120, 6  # measured: at most, of numbers and of texts


def answer(document: Any, commit_id: str | None = None, **headers: str) -> Response:
    """Return a JSON document as a response."""
    return document_response(json_bytes(document), commit_id, **headers)


def document_response(body: bytes, commit_id: str | None = None, **headers: str) -> Response:
    """Return encoded JSON as a response."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if commit_id is not None:
        named[COMMIT_HEADER] = commit_id
    return Response(body, media_type=JSON, headers=named)


def document_stream(body: bytes, size: int, commit_id: str, place: Place) -> Response:
    """Return encoded JSON that goes out as its caller takes it, and keeps its place until then."""

    async def pieces() -> AsyncIterator[bytes]:
        for piece in _pieces(iter((body,)), size):
            yield piece

    headers = {COMMIT_HEADER: commit_id, "Content-Length": str(len(body))}
    return lasting(pieces(), JSON, place, headers)


def replay_header(replayed: bool) -> dict[str, str]:
    """Return the header that says that a write was done by an earlier call under the same key."""
    return {"Idempotency_Replayed": "true"} if replayed else {}


def problem(error: BaseException, request_id: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error as a response."""
    shown = public(error)
    status = status_of(shown)
    sent = dict(headers or {})
    if status == 401:
        sent["WWW-Authenticate"] = "Bearer"
    if (seconds := retry_after(shown)) is not None:
        sent["Retry-After"] = str(seconds)
    if status in (413, 415) or (status == 504 and shown.fields.get("stage") == "receiving"):
        sent["Connection"] = "close"  # the rest of the body is not read
    return Response(json_bytes(problem_document(shown, request_id)), status, sent, PROBLEM)


# -- rows ----------------------------------------------------------------------------------------------


def with_texts(table: pa.Table) -> pa.Table:
    """Return a table with decimal texts for integers of 64 bits, also those in lists and structures."""
    return table.cast(pa.schema([(field.name, _as_text(field.type)) for field in table.schema]))


def _as_text(kind: pa.DataType) -> pa.DataType:
    if kind in (pa.int64(), pa.uint64()):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_text(field.type)) for field in kind])
    return kind


def json_room(table: pa.Table) -> int:
    """Return how much memory a table takes while it is made JSON: as Python's values, and as text."""
    as_values = int(table.num_rows) * (ROW_AS_VALUES + CELL_AS_VALUE * int(table.num_columns))
    return as_values + TIMES_AS_TEXT * int(table.nbytes)


def json_result(result: Result, limits: Limits, shown: Callable[[pa.Table], pa.Table]) -> bytes:
    """Return a result as the JSON of a read, its table as `shown`; a large one belongs into Arrow."""
    size = int(result.table.nbytes)
    for resource, actual, limit, unit in (
        ("json_rows", len(result), limits.max_json_rows, "rows"),
        ("json_bytes", size, limits.max_json_answer_bytes, "bytes of rows"),
    ):
        if actual > limit:
            raise LimitExceeded(
                f"{actual} {unit} are too many for JSON; the limit is {limit}",
                remedy=f"Limit the query, or ask for Accept: {ARROW}",
                resource=resource,
                limit=limit,
                actual=actual,
            )
    return json_bytes(replace(result, table=shown(result.table)).to_json())


def result_facts(result: Result) -> dict[str, Any]:
    """Return what the schema of an Arrow answer says of the read."""
    return {
        "query_name": result.query_name,
        "branch": result.branch,
        "graph_commit_id": result.commit_id,
        "columns": [column.to_json() for column in result.described],
        "cost": cost_json(result.cost),
    }


def arrow_chunks(table: pa.Table, facts: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a table as an IPC stream, batch by batch; `facts` are in the metadata of its schema."""
    schema = table.schema.with_metadata({METADATA_KEY: json.dumps(facts, ensure_ascii=False, default=str)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            yield _taken(sink)
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    content = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return content


def row_lines(table: pa.Table) -> Iterator[bytes]:
    """Yield rows as JSON lines, a page at a time."""
    for start in range(0, table.num_rows, PAGE):
        rows = row_dicts(table.slice(start, PAGE), json_values)
        yield b"".join(json_bytes(row) + b"\n" for row in rows)


# -- streams -------------------------------------------------------------------------------------------


class ChunkStream:
    """Bytes that a thread makes while a caller reads them, never further ahead than one piece.

    The thread works only when the caller has taken what there was: a slow reader holds nothing but its
    connection and its place. A piece that is being made when the caller leaves is stopped.
    """

    def __init__(
        self, pool: Executor, chunks: Iterator[bytes], size: int, place: Place | None = None
    ) -> None:
        self._pool = pool
        self._pieces = _pieces(chunks, size)
        self._place = place
        self._stop = Cancellation()
        self._context: Context = copy_context()  # one, since what the chunks set they also take back

    async def first(self) -> bytes | None:
        """Return the next piece, or None at the end."""
        made = asyncio.get_running_loop().run_in_executor(self._pool, self._context.run, self._next)
        made.add_done_callback(_forget)
        if self._place is not None:
            self._place.lasts(made)
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            self._stop.cancel("its caller went away")
            raise

    def _next(self) -> bytes | None:
        with cancelled_by(self._stop):
            return next(self._pieces, None)

    async def rest(self, first: bytes | None) -> AsyncIterator[bytes]:
        """Yield a piece, and those after it."""
        piece = first
        while piece is not None:
            yield piece
            piece = await self.first()


class _Streamed(StreamingResponse):
    """A stream that says when it has ended, however it ends."""

    ended: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self.ended is not None:
                self.ended.set_result(None)


async def stream(
    pool: Executor,
    chunks: Iterator[bytes],
    size: int,
    media_type: str,
    commit_id: str | None,
    place: Place | None = None,
) -> Response:
    """Begin a stream: what fails before its first piece is still an ordinary error.

    Its place is kept to its end.
    """
    pieces = ChunkStream(pool, chunks, size, place)
    first = await pieces.first()
    headers = {} if commit_id is None else {COMMIT_HEADER: commit_id}
    return lasting(pieces.rest(first), media_type, place, headers)


def lasting(
    pieces: AsyncIterator[bytes],
    media_type: str,
    place: Place | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a stream that keeps its place to its end."""
    response = _Streamed(pieces, media_type=media_type, headers=headers)
    if place is not None:
        response.ended = asyncio.get_running_loop().create_future()
        place.lasts(response.ended)
    return response


def _forget(made: asyncio.Future[bytes | None]) -> None:
    """Take notice of the failure of a piece that nobody waits for."""
    if not made.cancelled():
        made.exception()


def _pieces(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at most so many."""
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]
