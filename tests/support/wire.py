"""HTTP/1.1 as bytes: read a whole message and keep it exactly as it was sent.

Room    test support; used by `proxy.py`. No policy here, only framing.
Why     a request's signature covers its headers, so the proxy must not parse and re-print them. Whole
        messages are held in memory: tests move megabytes, and only a complete answer can be withheld.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Self

READ_LIMIT = 1 << 20  # also the longest accepted header block

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PER_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection"}


@dataclass(frozen=True, slots=True)
class Head:
    """A start line and its headers, verbatim, up to and including the empty line."""

    raw: bytes

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self | None:
        """Read the next head, or return None when the peer closed between messages."""
        try:
            return cls(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            return None

    @property
    def start_line(self) -> list[str]:
        """The three parts: method, target, version; or version, status, reason."""
        return self.raw.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)

    def header(self, name: str) -> str:
        """Return a header's value in lower case, or an empty string."""
        wanted = name.encode()
        for line in self.raw.split(b"\r\n")[1:]:
            found, _, value = line.partition(b":")
            if found.lower() == wanted:
                return value.strip().decode("latin-1").lower()
        return ""

    @property
    def chunked(self) -> bool:
        return "chunked" in self.header("transfer-encoding")

    @property
    def keeps_connection(self) -> bool:
        if "HTTP/1.0" in self.start_line:
            return "keep-alive" in self.header("connection")
        return "close" not in self.header("connection")


@dataclass(frozen=True, slots=True)
class Body:
    """A body as sent, chunk framing included, and the size of what it carries."""

    raw: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer ready for the client, and whether the connection it came on can be used again."""

    status: int
    raw: bytes
    size: int = 0
    reusable: bool = False


async def read_request_body(reader: asyncio.StreamReader, head: Head) -> Body:
    """Read what follows a request's head."""
    return await _read_framed(reader, head) or Body()


async def read_reply(reader: asyncio.StreamReader, method: str) -> Reply:
    """Read the final answer to a request, passing over interim ones (100 Continue)."""
    while True:
        head = await Head.read(reader)
        if head is None:
            raise ConnectionError("the store closed the connection without an answer")
        status = int(head.start_line[1])
        if status >= 200:
            break
    if method == "HEAD" or status in (204, 304):
        return Reply(status, _for_client(head), reusable=head.keeps_connection)
    body = await _read_framed(reader, head)
    if body is None:  # the end of the connection is the end of the body; the client's connection stays open
        rest = await reader.read()
        return Reply(status, _for_client(head, add_length=len(rest)) + rest, len(rest))
    return Reply(status, _for_client(head) + body.raw, body.size, head.keeps_connection)


def refusal(method: str, status: int, code: str) -> Reply:
    """Build an error answer in the store's own format."""
    xml = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'
    head = f"HTTP/1.1 {status} {code}\r\nContent-Type: application/xml\r\nContent-Length: {len(xml)}\r\n\r\n"
    sent = "" if method == "HEAD" else xml
    return Reply(status, (head + sent).encode(), len(sent))


async def _read_framed(reader: asyncio.StreamReader, head: Head) -> Body | None:
    """Read a body whose length is declared, or return None when the head declares none."""
    if head.chunked:
        return await _read_chunks(reader)
    if length := head.header("content-length"):
        return Body(await reader.readexactly(int(length)), int(length))
    return None


async def _read_chunks(reader: asyncio.StreamReader) -> Body:
    raw = bytearray()
    size = 0
    while True:
        line = await reader.readuntil(b"\r\n")
        raw += line
        length = int(line.partition(b";")[0], 16)
        if length == 0:
            break
        raw += await reader.readexactly(length + 2)
        size += length
    while line != b"\r\n":  # trailers, closed by an empty line
        line = await reader.readuntil(b"\r\n")
        raw += line
    return Body(bytes(raw), size)


def _for_client(head: Head, add_length: int | None = None) -> bytes:
    """Return an answer's head without what it says about the store's connection: the client has its own."""
    lines = [
        line
        for line in head.raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
        if line.partition(b":")[0].lower() not in PER_CONNECTION
    ]
    if add_length is not None:
        lines.append(b"Content-Length: %d" % add_length)
    return b"\r\n".join(lines) + b"\r\n\r\n"
