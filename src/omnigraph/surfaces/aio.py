"""Graphs for asynchronous programs: `og.aio.connect(...)`, the methods of a graph to be awaited.

    async with await og.aio.connect("http://localhost:8080") as g:
        result = await g.query("query all() { match { $p: Person } return { $p.name } }")
        async for change in await g.diff("review", "main"):
            ...

The same graph, embedded or remote, whose calls run in a few threads of its own. A call that is cancelled is
no longer waited for; what it began ends by itself, and a write that had reached the storage takes effect as
a whole, as after a lost connection. What is no call (`view`, `uri`) is read as it is. What reads only when it
is used (a diff, the rows of a type, a stream) is gone through with `async for`, a batch of it at a time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any

AT_ONCE = 8  # calls of one graph
BATCH = 256  # things that are taken from an iterator in one step
LOOK_SECONDS = 5.0  # that one call waits for a change: the longest that a graph takes to close
NAMESPACES = frozenset({"branches", "commits", "queries", "schema", "tags"})
VIEWS = frozenset({"branch", "at"})
UNREAD = frozenset({"entity"})  # calls that read nothing by themselves, and so need not be awaited
Run = Callable[..., Any]


class AsyncCalls:
    """The methods of an object, each run in a thread and awaited."""

    def __init__(self, target: Any, run: Run) -> None:
        self._target = target
        self._run = run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._target, name)
        return partial(self._call, found) if callable(found) else found

    def __dir__(self) -> list[str]:
        return dir(self._target)

    def __repr__(self) -> str:
        return f"Async{self._target!r}"

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object itself, as `changes(cursor)`."""
        return await self._call(self._target, *arguments, **named)

    async def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        found = await self._run(function, *arguments, **named)
        return AsyncReading(found, self._run) if _reads_later(found) else found


def _reads_later(found: Any) -> bool:
    return isinstance(found, Iterator) or getattr(type(found), "reads_later", False)


class AsyncReading(AsyncCalls):
    """Something that reads when it is used: `async for` goes through it, its attributes are awaited."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return AsyncAttribute(partial(getattr, self._target, name), self._call)

    async def __aiter__(self) -> AsyncIterator[Any]:
        """Yield what an iteration would, without holding up the event loop."""
        iterator = await self._run(iter, self._target)
        while batch := await self._run(_next_of, iterator):
            for item in batch:
                yield item


def _next_of(iterator: Iterator[Any]) -> list[Any]:
    return list(islice(iterator, BATCH))


class AsyncAttribute:
    """A property, to be awaited, or a method, to be called and awaited."""

    def __init__(self, read: Callable[[], Any], call: Run) -> None:
        self._read = read
        self._call = call

    def __await__(self) -> Generator[Any, None, Any]:
        return self._call(self._read).__await__()  # type: ignore[no-any-return]

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the method."""
        return await self._call(lambda: self._read()(*arguments, **named))


class AsyncChanges(AsyncCalls):
    """The change feed of a graph."""

    async def follow(self, cursor: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """Yield pages as commits come, without end; the `cursor` of each is where to go on later.

        Without a cursor it begins with what `start` says: "now", if nothing else.
        """
        first = {name: options.pop(name) for name in ("start", "page_token") if name in options}
        page = await self.poll(cursor, **first, **options)
        while True:
            if page.blocks:
                yield page
            if page.page_token is not None:
                page = await self.poll(page_token=page.page_token, **options)
            else:
                page = await self.wait(page.cursor, timeout=LOOK_SECONDS, **options)


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
        if name == "changes":
            return AsyncChanges(self._target.changes, self._in_thread)
        if name in VIEWS:
            return partial(self._view, name)
        if name in UNREAD:
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
