"""The asynchronous twin: the same calls, awaited; side by side, bounded, and safe to cancel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.support.served import serving

SCHEMA = "node Person { name: String @key  age: I32? }\n"
ALL = "query all() { match { $p: Person } return { $p.name } }"
ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("aio")
    for name in ("here", "there"):
        og.init(folder / name, SCHEMA, durability="os").close()
    with serving(folder / "there") as server:
        yield {"embedded": str(folder / "here"), "served": server.graph}


@pytest.mark.parametrize("kind", ["embedded", "served"])
def test_services_await_the_same_calls(addresses: dict[str, str], kind: str) -> None:
    async def service() -> None:
        async with await og.aio.connect(addresses[kind]) as g:
            await asyncio.gather(*(g.mutate(ADD, n=f"p{number}") for number in range(10)))
            assert len(await g.query(ALL)) == 10
            await g.branches.create("side")
            side = await g.branch("side")
            await side.mutate(ADD, n="aside")
            assert len(await side.query(ALL)) == 11
            await side.close()  # a view closes nothing
            assert [branch.name for branch in await g.branches.list()] == ["main", "side"]
            assert (await g.entity("Person", "p1").get())["name"] == "p1"
            assert (await g.changes()).caught_up
            assert (await g.schema.show()).startswith("node Person")
            with pytest.raises(og.BranchExists):
                await g.branches.create("side")
            assert g.uri == addresses[kind]
            past = await g.at("main~1")
            assert len(await past.query(ALL)) < 10  # inserts that waited together share a commit

    asyncio.run(service())


class Slow:
    """A graph whose calls last until they are let go."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.ended = 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def query(self, text: str) -> str:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.go.wait(60)
        with self._lock:
            self.running -= 1
            self.ended += 1
        return text

    def close(self) -> None:
        self.go.set()


def test_calls_are_bounded_and_a_cancelled_one_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    opened: Any = lambda address, **options: slow  # noqa: E731
    monkeypatch.setattr("omnigraph.surfaces.connect.connect", opened)

    async def service() -> list[Any]:
        async with await og.aio.connect("any", calls_at_once=3) as g:
            tasks = [asyncio.create_task(g.query(str(number))) for number in range(6)]
            while slow.running < 3:
                await asyncio.sleep(0.001)
            tasks[0].cancel()
            tasks[5].cancel()
            await asyncio.sleep(0)
            slow.go.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(service())
    assert slow.most == 3
    assert answers[1:5] == ["1", "2", "3", "4"]
    assert isinstance(answers[0], asyncio.CancelledError)
    assert slow.ended == 5  # the one that had not begun was never run


def test_an_address_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(og.GraphNotFound):
        asyncio.run(og.aio.connect(tmp_path / "none"))
