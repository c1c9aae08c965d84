"""HEAD of whatever can be got has its headers and no body, and is counted as what it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

import omnigraph as og
from omnigraph.surfaces.server.app import create_app
from omnigraph.surfaces.server.heads import HeadAsGet
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.server.request_heads import bounded_heads
from omnigraph.surfaces.server.settings import ServerSettings
from tests.support.inside import inside
from tests.surfaces.server.conftest import make_graph


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = ServerSettings(unauthenticated=True)
    place = make_graph(tmp_path_factory.mktemp("heads"))
    with og.connect(place) as graph, inside(create_app(settings, {"kb": graph})) as http:
        yield http


@pytest.mark.parametrize(
    "path",
    ["/branches", "/snapshot", "/rows/node/Person", "http://server/healthz", "http://server/readyz", "/none"],
)
def test_a_head_has_the_headers_of_a_get_and_no_body(http: httpx.Client, path: str) -> None:
    given = {"X-Request-Id": "r-1"}
    head, get = http.head(path, headers=given), http.get(path, headers=given)
    wanted = {name: value for name, value in get.headers.items() if name in head.headers}
    assert (head.status_code, dict(head.headers)) == (get.status_code, wanted)
    assert set(get.headers) - set(head.headers) <= {"content-length"}  # which a stream has not
    assert head.content == b""
    assert get.content


def test_what_is_not_got_has_no_head(http: httpx.Client) -> None:
    answer = http.head("/mutate")
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"


def test_it_is_counted_as_a_head(http: httpx.Client) -> None:
    http.head("/tags")
    metrics = http.get("http://server/metrics").text
    assert 'og_http_requests_total{code="200",method="HEAD",route="/tags"} 1.0' in metrics


@pytest.mark.parametrize("headers", [[(b"content-length", b"2")], []], ids=["whole", "streamed"])
def test_what_follows_a_head_on_its_connection_is_understood(headers: list[tuple[bytes, bytes]]) -> None:
    async def hello(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hi"})

    async def ask() -> bytes:
        config, state = uvicorn.Config(HeadAsGet(hello), log_config=None), ServerState()
        protocol = bounded_heads(Limits())
        server = await asyncio.get_running_loop().create_server(
            lambda: protocol(config, state, {}), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            asked = b"%s / HTTP/1.1\r\nHost: kb\r\n%s\r\n"
            writer.write(asked % (b"HEAD", b"") + asked % (b"GET", b"Connection: close\r\n"))
            answer = await reader.read()
            writer.close()
        return answer

    head, get, body = asyncio.run(ask()).split(b"\r\n\r\n", 2)
    assert head.startswith(b"HTTP/1.1 200")
    assert get.startswith(b"HTTP/1.1 200")  # and no body, nor the end of one, before it
    assert b"hi" in body
