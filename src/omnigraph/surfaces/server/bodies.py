"""Bodies: an upload on its way to a load: counted, kept on disk beyond some megabytes, and looked at.

Nothing of it is visible before it is whole. What a few bytes can blow up to many is refused: text that is
compressed, Arrow buffers that are, Parquet files that say they hold more than a load may.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.requests import Request

from omnigraph.base.errors import InvalidRequest, LimitExceeded, UnsupportedMedia
from omnigraph.surfaces.server.admission import Place
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.wire import ARROW, NDJSON

PARQUET = "application/vnd.apache.parquet"
FORMAT_BY_TYPE = {
    NDJSON: "jsonl",
    "application/ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/x-jsonlines": "jsonl",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    PARQUET: "parquet",
    "application/parquet": "parquet",
    ARROW: "arrow",
    "application/vnd.apache.arrow.file": "arrow",
}
TEXTS = frozenset({"jsonl", "csv", "tsv"})
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ", b"\x04\x22\x4d\x18")
WRITTEN_AT_ONCE = 1 << 20
INFLATION = 8  # times the limit of a body that a columnar one may hold
COMPRESSION_FIELD = 10  # where the table of a record batch says that its buffers are compressed


def format_of(request: Request) -> str:
    """Return the format of an upload, by its content type."""
    given = request.headers.get("content-type", "")
    kind = given.partition(";")[0].strip().lower()
    if kind not in FORMAT_BY_TYPE:
        raise UnsupportedMedia(
            f"a body of type {kind or 'unknown'!r} is not loaded",
            remedy=f"Send {', '.join(FORMAT_BY_TYPE)}; or JSON to /load",
            content_type=kind,
        )
    return FORMAT_BY_TYPE[kind]


@asynccontextmanager
async def spooled(
    request: Request, limits: Limits, pool: Executor, upload: Place
) -> AsyncIterator[tuple[IO[bytes], Place]]:
    """Receive a body into a file for a block. It arrived whole: a caller who left has loaded nothing.

    The file is there until all work in its place has ended, as that of the upload is.
    """
    loop = asyncio.get_running_loop()
    spool = SpooledTemporaryFile(limits.spool_bytes)  # noqa: SIM115 - its place closes it
    place = Place(spool.close, upload)
    try:
        waiting = bytearray()
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= WRITTEN_AT_ONCE:
                await loop.run_in_executor(pool, spool.write, bytes(waiting))
                waiting.clear()
        spool.write(waiting)
        spool.seek(0)
        yield spool, place
    finally:
        place.leave()


async def json_body(request: Request) -> Any:
    """Return the document of a request whose body is read by its route."""
    body = await request.body()
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not JSON in UTF-8", remedy="Mend the body") from error


def check_content(spool: IO[bytes], format: str, limits: Limits) -> None:
    """Refuse an upload that would grow while it is read."""
    most = limits.max_load_bytes * INFLATION
    head = spool.read(8)
    spool.seek(0)
    if format in TEXTS and head.startswith(COMPRESSED):
        raise UnsupportedMedia("a compressed body is not taken", remedy="Send the text as it is")
    try:
        if format == "parquet":
            _check_parquet(spool, most)
        elif format == "arrow":
            _check_arrow(spool, head)
    except (pa.ArrowException, OSError, struct.error, IndexError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise InvalidRequest(f"the body is not {format}: {reason}", remedy="Send it whole") from error
    finally:
        spool.seek(0)


def _check_parquet(spool: IO[bytes], most: int) -> None:
    file = pq.ParquetFile(pa.PythonFile(spool, "r"))
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    declared = sum(group.total_byte_size for group in groups)
    cells = file.metadata.num_rows * max(1, file.metadata.num_columns)
    if declared > most or cells > most // 8:
        raise LimitExceeded(
            "the Parquet file holds more than a load takes",
            remedy="Load it in parts",
            resource="request_body",
            limit=most,
            actual=max(declared, cells * 8),
        )


def _check_arrow(spool: IO[bytes], head: bytes) -> None:
    if head.startswith(b"ARROW1"):
        reader = pa.ipc.open_file(pa.PythonFile(spool, "r"))
        spool.seek(8)  # the messages of a file follow its magic, as those of a stream
        del reader
    messages = pa.ipc.MessageReader.open_stream(pa.PythonFile(spool, "r"))
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.type in ("record batch", "dictionary") and is_compressed(message.metadata.to_pybytes()):
            raise UnsupportedMedia(
                "Arrow buffers that are compressed are not taken",
                remedy="Write the stream without compression",
            )


def is_compressed(metadata: bytes) -> bool:
    """Say whether the buffers of a message are compressed, from its flatbuffer.

    A message is a table of version, kind and header; the header of a dictionary holds one of a batch, and
    that of a batch has a fourth field where its buffers are compressed.
    """
    root = _table(metadata, 0)
    kind = metadata[_field(metadata, root, 6)] if _field(metadata, root, 6) else 0
    header = _follow(metadata, root, 8)
    if header is not None and kind == 2:  # a dictionary
        header = _follow(metadata, header, 6)
    return header is not None and bool(_field(metadata, header, COMPRESSION_FIELD))


def _table(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, slot: int) -> int:
    """Return where a field of a table is, or 0."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    size = int(struct.unpack_from("<H", data, vtable)[0])
    offset = int(struct.unpack_from("<H", data, vtable + slot)[0]) if slot < size else 0
    return table + offset if offset else 0


def _follow(data: bytes, table: int, slot: int) -> int | None:
    at = _field(data, table, slot)
    return _table(data, at) if at else None


def columns_of(text: str | None) -> Mapping[str, str] | None:
    """Return which property each column is, from a parameter of the address."""
    if text is None:
        return None
    try:
        columns = json.loads(text)
    except ValueError:
        columns = None
    if not isinstance(columns, dict) or not all(isinstance(value, str) for value in columns.values()):
        raise InvalidRequest(
            "columns is no JSON object of texts", remedy='Give columns={"name of the column": "property"}'
        )
    return columns


def text_file(text: str) -> IO[bytes]:
    """Return text as a file to load."""
    return io.BytesIO(text.encode("utf-8", "surrogatepass"))
