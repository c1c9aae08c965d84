"""An application asked without a socket: its event loop has a thread, and a client waits for it.

Room    tests of routes that need no process of their own. An answer comes whole; nothing streams.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

PATIENCE = 60.0  # seconds; a test fails rather than hangs


class Inside(httpx.BaseTransport):
    """Hands requests to an application."""

    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._app = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the whole answer."""
        request.read()
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result(PATIENCE)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        asked = httpx.Request(
            request.method, request.url, headers=request.headers.raw, content=request.content
        )
        answer = await self._app.handle_async_request(asked)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


@contextmanager
def inside(app: Any, base_url: str = "http://server/graphs/kb") -> Iterator[httpx.Client]:
    """Run an application for a block, from its start to its end, and ask it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="inside")
    thread.start()
    try:
        life = app.router.lifespan_context(app)
        asyncio.run_coroutine_threadsafe(life.__aenter__(), loop).result(PATIENCE)
        try:
            with httpx.Client(transport=Inside(app, loop), base_url=base_url) as http:
                yield http
        finally:
            asyncio.run_coroutine_threadsafe(life.__aexit__(None, None, None), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
