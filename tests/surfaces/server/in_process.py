"""An application in this process, asked without a socket and without `await`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import httpx
from fastapi import FastAPI


@dataclass(frozen=True)
class InProcess:
    """Asks one application."""

    loop: asyncio.Runner
    client: httpx.AsyncClient

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the answer."""
        return self.loop.run(self.client.request(method, path, **options))

    get = partialmethod(request, "GET")
    post = partialmethod(request, "POST")
    options = partialmethod(request, "OPTIONS")


@contextmanager
def asking(app: FastAPI) -> Iterator[InProcess]:
    """Run an application for a block; what it raises is answered, as by a server."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://server")
    life = app.router.lifespan_context(app)
    with asyncio.Runner() as loop:
        loop.run(life.__aenter__())
        try:
            yield InProcess(loop, client)
        finally:
            loop.run(client.aclose())
            loop.run(life.__aexit__(None, None, None))
