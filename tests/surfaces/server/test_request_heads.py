"""The head of a request is bounded in bytes and in time, on a new connection and on one that is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.request_heads import bounded_heads

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
KIB, LARGE = 1_024, 32 << 20  # more than the system keeps of what was sent
GET = b"GET / HTTP/1.1\r\nHost: kb\r\n"


async def hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


async def large(scope: Any, receive: Any, send: Any) -> None:
    size = b"%d" % LARGE
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", size)]})
    await send({"type": "http.response.body", "body": b"x" * LARGE})


@asynccontextmanager
async def listening(app: Any = hello, **limits: Any) -> AsyncIterator[Callable[[], Awaitable[Line]]]:
    """Answer on loopback; yield a function that connects."""
    config, state = uvicorn.Config(app, log_config=None), ServerState()
    protocol = bounded_heads(Limits(**limits))
    server = await asyncio.get_running_loop().create_server(
        lambda: protocol(config, state, {}), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    try:
        yield lambda: asyncio.open_connection("127.0.0.1", port, limit=KIB)
    finally:
        server.close()


async def answer_to(line: Line, sent: bytes) -> bytes:
    """Send bytes, and return all that comes until the connection closes."""
    reader, writer = line
    writer.write(sent)
    try:
        return await reader.read()
    except ConnectionError:
        return b""  # closed while it was still sent to
    finally:
        writer.close()


def refused(answer: bytes, limit: int) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert problem["resource_limit"]["limit"] == limit
    assert (problem["status"], problem["code"]) == (431, "resource_limit")
    return head.startswith(b"HTTP/1.1 431 ")


def test_a_head_of_many_or_long_headers_is_refused() -> None:
    async def ask() -> None:
        async with listening(max_head_bytes=1_000) as connect:
            many = GET + b"".join(b"X-%d: y\r\n" % number for number in range(200)) + b"\r\n"
            assert refused(await answer_to(await connect(), many), 1_000)
            assert refused(await answer_to(await connect(), GET + b"X: " + b"y" * 1_001), 1_000)
            assert refused(await answer_to(await connect(), b"GET /" + b"y" * 1_001), 1_000)
            with_body = (
                b"POST / HTTP/1.1\r\nContent-Length: 2000\r\nX: " + b"y" * 999 + b"\r\n\r\n" + b"z" * 2_000
            )
            assert refused(await answer_to(await connect(), with_body), 1_000)

    asyncio.run(ask())


def test_a_body_and_later_requests_count_for_themselves() -> None:
    async def ask() -> None:
        async with listening(max_head_bytes=1_000) as connect:
            line = await connect()
            for _ in range(3):
                body = b"z" * 5_000
                line[1].write(
                    b"POST / HTTP/1.1\r\nContent-Length: 5000\r\nX: " + b"y" * 700 + b"\r\n\r\n" + body
                )
                assert (await line[0].readuntil(b"hi")).startswith(b"HTTP/1.1 200")
            assert refused(await answer_to(line, GET + b"X: " + b"y" * 1_001), 1_000)

    asyncio.run(ask())


def test_a_head_that_does_not_arrive_closes_the_connection() -> None:
    async def ask() -> None:
        async with listening(head_seconds=0.05) as connect:
            assert await answer_to(await connect(), b"") == b""
            assert await answer_to(await connect(), GET) == b""
            line = await connect()
            line[1].write(GET + b"\r\n")
            assert (await line[0].readuntil(b"hi")).startswith(b"HTTP/1.1 200")
            assert await answer_to(line, GET) == b""  # the next one on the same connection

    asyncio.run(ask())


def test_what_stands_between_the_parts_of_a_body_is_bounded_too() -> None:
    async def ask() -> None:
        async with listening(max_head_bytes=1_000) as connect:
            chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
            line = await connect()
            line[1].write(chunked + b"\r\n")
            assert (await line[0].readuntil(b"hi")).startswith(b"HTTP/1.1 200")
            assert await answer_to(line, chunked + b"X: " + b"y" * 1_000_000) == b""

    asyncio.run(ask())


def test_who_takes_nothing_of_an_answer_is_cut_off_and_who_takes_it_slowly_is_not() -> None:
    async def ask() -> None:
        async with listening(large, answer_seconds=0.3) as connect:
            idle, slow = await connect(), await connect()
            for _, writer in (idle, slow):
                writer.write(GET + b"Connection: close\r\n\r\n")
            for _ in range(LARGE >> 20):
                await slow[0].readexactly(1 << 20)
                await asyncio.sleep(0.03)
            assert await slow[0].read()  # as long as its head
            with pytest.raises(asyncio.IncompleteReadError):  # although the server had closed it by then
                await idle[0].readexactly(LARGE)
            for _, writer in (idle, slow):
                writer.close()

    asyncio.run(ask())
