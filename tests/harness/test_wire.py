"""The proxy forwards HTTP/1.1 as it is: what it does not understand would otherwise break a signature."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import pytest

from tests.support.proxy import S3Proxy
from tests.support.wire import CONTINUE

TIMEOUT_S = 20.0
GET = b"GET /bucket/next HTTP/1.1\r\nHost: store\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"


@dataclass
class ScriptedStore:
    """A store that expects the given requests, byte for byte, and answers each as written."""

    turns: list[tuple[bytes, bytes]]
    received: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(TIMEOUT_S)
        self._listener.close()

    def _play(self) -> None:
        turns = iter(self.turns)
        while (turn := next(turns, None)) is not None:
            connection, _ = self._listener.accept()
            self.connections += 1
            with connection:
                while turn is not None:
                    request, answer = turn
                    self.received.append(read(connection, len(request)))
                    connection.sendall(answer)
                    if ends_connection(answer):
                        break
                    turn = next(turns, None)


def ends_connection(answer: bytes) -> bool:
    return b"Connection: close" in answer or b"X-Until-Close" in answer


def read(connection: socket.socket, size: int) -> bytes:
    connection.settimeout(TIMEOUT_S)
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def dial(proxy: S3Proxy) -> socket.socket:
    host, port = proxy.endpoint.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


SIGNED = (
    b"PUT /bucket/a%2Fb?x-id=PutObject HTTP/1.1\r\n"
    b"host: signed.example:9000\r\nX-Amz-Meta-ODD_Case:  two  spaces \r\n"
    b"Authorization: AWS4-HMAC-SHA256 Credential=k/d/r/s3/aws4_request, SignedHeaders=host, Signature=00\r\n"
    b"Content-Length: 5\r\nConnection: keep-alive\r\n\r\n\x00\r\n\r\xff"
)
CHUNKED = (
    b"PUT /bucket/k HTTP/1.1\r\nHost: store\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5;chunk-signature=ab\r\nhello\r\nA\r\n0123456789\r\n0\r\nx-amz-checksum-crc32: AAAA\r\n\r\n"
)


@pytest.mark.parametrize(
    ("request_", "answer", "delivered", "up", "down"),
    [
        pytest.param(SIGNED, OK, OK, 5, 4, id="headers-and-body-untouched"),
        pytest.param(CHUNKED, OK, OK, 15, 4, id="chunked-request"),
        pytest.param(
            GET,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            0,
            3,
            id="chunked-answer",
        ),
        pytest.param(
            b"HEAD /bucket/k HTTP/1.1\r\nHost: store\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            0,
            0,
            id="head-has-a-length-and-no-body",
        ),
        pytest.param(
            b"DELETE /bucket/k HTTP/1.1\r\nHost: store\r\n\r\n",
            b"HTTP/1.1 204 NO CONTENT\r\nX-Id: 1\r\n\r\n",
            b"HTTP/1.1 204 NO CONTENT\r\nX-Id: 1\r\n\r\n",
            0,
            0,
            id="204-has-no-body",
        ),
        pytest.param(
            GET,
            b"HTTP/1.1 304 NOT MODIFIED\r\nContent-Length: 7\r\n\r\n",
            b"HTTP/1.1 304 NOT MODIFIED\r\nContent-Length: 7\r\n\r\n",
            0,
            0,
            id="304-has-no-body",
        ),
        pytest.param(
            GET,
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            0,
            2,
            id="a-store-that-closes-does-not-close-the-client",
        ),
        pytest.param(
            GET,
            b"HTTP/1.1 200 OK\r\nX-Until-Close: yes\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nX-Until-Close: yes\r\nContent-Length: 3\r\n\r\nabc",
            0,
            3,
            id="a-body-until-close-gets-a-length",
        ),
    ],
)
def test_message_passes_and_the_connection_stays_usable(
    request_: bytes, answer: bytes, delivered: bytes, up: int, down: int
) -> None:
    with (
        ScriptedStore([(request_, answer), (GET, OK)]) as store,
        S3Proxy(store.address) as proxy,
        dial(proxy) as client,
    ):
        client.sendall(request_)
        assert read(client, len(delivered)) == delivered
        client.sendall(GET)
        assert read(client, len(OK)) == OK
        first = proxy.requests[0]

    assert store.received == [request_, GET]
    assert (first.bytes_up, first.bytes_down) == (up, down)
    assert store.connections == (2 if ends_connection(answer) else 1)


def test_client_that_waits_for_permission_gets_it_once() -> None:
    head = b"PUT /bucket/k HTTP/1.1\r\nHost: store\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    with (
        ScriptedStore([(head + b"body", CONTINUE + OK)]) as store,
        S3Proxy(store.address) as proxy,
        dial(proxy) as client,
    ):
        client.sendall(head)
        assert read(client, len(CONTINUE)) == CONTINUE
        client.sendall(b"body")
        assert read(client, len(OK)) == OK

    assert store.received == [head + b"body"]


def test_client_that_asks_to_close_is_closed() -> None:
    request = b"GET /bucket/k HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n"
    with (
        ScriptedStore([(request, OK)]) as store,
        S3Proxy(store.address) as proxy,
        dial(proxy) as client,
    ):
        client.sendall(request)
        assert read(client, len(OK) + 1) == OK


def test_store_that_is_gone_answers_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with S3Proxy(address) as proxy, dial(proxy) as client:
        client.sendall(GET)
        assert read(client, 12) == b"HTTP/1.1 502"
        assert [request.status for request in proxy.requests] == [502]
