"""Answers: documents, problems, rows and streams as responses."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

import pyarrow as pa
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from omnigraph.base.errors import LimitExceeded
from omnigraph.engine.write import cost_json
from omnigraph.execution.result import PAGE, Result, json_values, row_dicts
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


def answer(document: Any, commit_id: str | None = None, **headers: str) -> Response:
    """Return a JSON document as a response."""
    return document_response(json_bytes(document), commit_id, **headers)


def document_response(body: bytes, commit_id: str | None = None, **headers: str) -> Response:
    """Return encoded JSON as a response."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if commit_id is not None:
        named[COMMIT_HEADER] = commit_id
    return Response(body, media_type=JSON, headers=named)


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


def json_result(result: Result, most_rows: int, shown: Callable[[pa.Table], pa.Table]) -> bytes:
    """Return a result as the JSON of a read, its table as `shown`; a large one belongs into Arrow."""
    if len(result) > most_rows:
        raise LimitExceeded(
            f"{len(result)} rows are too many for JSON; the limit is {most_rows}",
            remedy=f"Limit the query, or ask for Accept: {ARROW}",
            resource="json_rows",
            limit=most_rows,
            actual=len(result),
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
    connection.
    """

    def __init__(self, pool: Executor, chunks: Iterator[bytes], size: int) -> None:
        self._pool = pool
        self._pieces = _pieces(chunks, size)
        self._context: Context = copy_context()  # one, since what the chunks set they also take back

    async def first(self) -> bytes | None:
        """Return the next piece, or None at the end."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._context.run, self._next)

    def _next(self) -> bytes | None:
        return next(self._pieces, None)

    async def rest(self, first: bytes | None) -> AsyncIterator[bytes]:
        """Yield a piece, and those after it."""
        piece = first
        while piece is not None:
            yield piece
            piece = await self.first()


class _Streamed(StreamingResponse):
    """A stream that gives back what it holds when it ends, however it ends."""

    held: AsyncExitStack | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.held or AsyncExitStack():
            await super().__call__(scope, receive, send)


async def stream(
    pool: Executor,
    chunks: Iterator[bytes],
    size: int,
    media_type: str,
    commit_id: str | None,
    held: AsyncExitStack | None = None,
) -> Response:
    """Begin a stream: what fails before its first piece is still an ordinary error.

    What is `held` is taken over, and given back at the end of the stream.
    """
    pieces = ChunkStream(pool, chunks, size)
    first = await pieces.first()
    headers = {} if commit_id is None else {COMMIT_HEADER: commit_id}
    response = _Streamed(pieces.rest(first), media_type=media_type, headers=headers)
    response.held = None if held is None else held.pop_all()
    return response


def _pieces(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of at most so many."""
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            yield chunk[start : start + size]
