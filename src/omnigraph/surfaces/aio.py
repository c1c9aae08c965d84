"""Graphs for asynchronous programs: `og.aio.connect(...)`, the methods of a graph to be awaited.

    async with await og.aio.connect("http://localhost:8080") as g:
        result = await g.query("query all() { match { $p: Person } return { $p.name } }")

The same graph, embedded or remote, whose calls run in a few threads of its own. A call that is cancelled is
no longer waited for; what it began ends by itself, and a write that had reached the storage takes effect as
a whole, as after a lost connection. What is no call (`view`, `uri`) is read as it is.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any

AT_ONCE = 8  # calls of one graph
NAMESPACES = frozenset({"branches", "changes", "commits", "queries", "schema", "tags"})
VIEWS = frozenset({"branch", "at"})
LAZY = frozenset({"entity"})  # calls whose result has calls of its own


class AsyncCalls:
    """The methods of an object, each run in a thread and awaited."""

    def __init__(self, target: Any, run: Callable[..., Any]) -> None:
        self._target = target
        self._call = run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._target, name)
        if not callable(found):
            return found
        return partial(self._call, found)

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"Async{self._target!r}"

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object itself, as `changes(cursor)`."""
        return await self._call(self._target, *arguments, **named)


class AsyncGraph(AsyncCalls):
    """A graph whose calls are awaited; `branch` and `at` give the same for another view."""

    def __init__(self, graph: Any, threads: ThreadPoolExecutor, *, owns: bool = True) -> None:
        super().__init__(graph, self._in_thread)
        self._threads = threads
        self._owns = owns

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments, **named))

    def __getattr__(self, name: str) -> Any:
        if name in NAMESPACES:
            return AsyncCalls(getattr(self._target, name), self._in_thread)
        if name in VIEWS:
            return partial(self._view, name)
        if name in LAZY:
            return lambda *given, **named: AsyncCalls(
                getattr(self._target, name)(*given, **named), self._in_thread
            )
        return super().__getattr__(name)

    async def _view(self, name: str, *arguments: Any, **named: Any) -> AsyncGraph:
        view = await self._in_thread(getattr(self._target, name), *arguments, **named)
        return AsyncGraph(view, self._threads, owns=False)

    async def close(self) -> None:
        """Wait for calls that run, and give back what the graph holds; a view closes nothing."""
        if self._owns:
            await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        self._target.close()

    async def __aenter__(self) -> AsyncGraph:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def connect(
    address: str | os.PathLike[str], *, calls_at_once: int = AT_ONCE, **options: Any
) -> AsyncGraph:
    """Open a graph as `og.connect` does, with at most `calls_at_once` calls running at the same time."""
    from omnigraph.surfaces.connect import connect as open_graph

    threads = ThreadPoolExecutor(calls_at_once, thread_name_prefix="omnigraph-aio")
    try:
        opened = partial(open_graph, address, **options)
        graph = await asyncio.get_running_loop().run_in_executor(threads, opened)
    except BaseException:
        threads.shutdown(wait=False)
        raise
    return AsyncGraph(graph, threads)
