"""Request heads: their lines and headers, bounded in bytes and in time before anybody looks at them.

The parser keeps a head until it is whole, however long that takes and however much it is; so it does with
what may stand between the parts of a body. An answer that was handed over is kept, too, until the client has
taken it, also when the connection is to be closed after it: one that takes nothing is cut off.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from omnigraph.base.errors import LimitExceeded
from omnigraph.base.ids import new_id
from omnigraph.surfaces.server.limits import Limits
from omnigraph.surfaces.wire import PROBLEM, json_bytes, problem_document

STATUS, TITLE = 431, "Request header fields too large"
PER_HEADER = len(": \r\n")


def bounded_heads(limits: Limits) -> type[BoundedHeads]:
    """Return the protocol of connections with these limits."""
    return type("BoundedHeads", (BoundedHeads,), {"limits": limits})


class BoundedHeads(HttpToolsProtocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()
    _waiting_bytes = 0  # that the parser has made nothing of yet
    _in_head = True
    _refused = False
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # whatever is left of an answer is watched
        self._begin_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._end_timer()
        self._end_taking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to watch whether the client takes its answer."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop to: it has taken all."""
        self._end_taking()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless there are too many before a head is whole."""
        if self._refused:
            return
        self._waiting_bytes += len(data)
        if self._in_head and self._timer is None:
            self._begin_timer()
        super().data_received(data)
        if self._waiting_bytes > self.limits.max_head_bytes:
            self._refuse()

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is too large."""
        self._end_timer()
        self._waiting_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + PER_HEADER for name, value in self.headers)
        if size > self.limits.max_head_bytes:
            self._refuse()
        self._in_head = False
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._waiting_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take note that the request is whole; what follows is the head of another one."""
        self._in_head, self._waiting_bytes = True, 0
        if not self._refused:
            super().on_message_complete()

    def _watch(self, left: int) -> None:
        self._taking = self.loop.call_later(self.limits.answer_seconds, self._check_taken, left)

    def _check_taken(self, before: int) -> None:
        """Cut off a client that has not taken a piece of its answer in all the time."""
        left = self.transport.get_write_buffer_size()
        if left > before - self.limits.chunk_bytes:
            self.transport.abort()  # closing would wait for it
        else:
            self._watch(left)

    def _end_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _begin_timer(self) -> None:
        self._timer = self.loop.call_later(self.limits.head_seconds, self.transport.close)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self) -> None:
        """Answer for the whole connection, and close it: the rest of the head is not read."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        if not self._in_head:
            self.transport.close()
            return
        limit = self.limits.max_head_bytes
        error = LimitExceeded(
            f"the request line and headers have more than {limit} bytes",
            remedy="Send fewer or shorter headers",
            resource="request_head",
            limit=limit,
            actual=max(self._waiting_bytes, limit + 1),
        )
        document = {**problem_document(error, new_id()), "status": STATUS, "title": TITLE}
        body = json_bytes(document)
        head = f"HTTP/1.1 {STATUS} {TITLE}\r\ncontent-type: {PROBLEM}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
