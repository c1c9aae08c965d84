"""The asynchronous twin: the same calls, awaited; side by side, bounded, and safe to cancel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.support.faults import Fault
from tests.support.proxy import S3Proxy
from tests.support.served import serving

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Tag { name: String @key }\n"
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


@pytest.mark.parametrize("kind", ["embedded", "served"])
def test_what_reads_later_is_gone_through_beside_other_tasks(addresses: dict[str, str], kind: str) -> None:
    async def service() -> None:
        async with await og.aio.connect(addresses[kind]) as g:
            await g.branches.create("wide")
            names = [f"w{number:04}" for number in range(600)]
            people = [{"type": "Person", "data": {"name": name}} for name in names]
            await g.load(people, mode="append", branch="wide")
            difference = await g.diff("main", "wide")
            assert [change.id async for change in difference] == names
            assert [count.name for count in await difference.types] == ["Person"]
            assert len((await difference.to_json(3))["changes"]) == 3
            wide = await g.branch("wide")
            rows = await wide.nodes("Person")
            assert len([row async for row in rows if row["name"] >= "w"]) == 600
            chosen = await rows.filter(name=["w0001", "w0002"])
            assert (await (await chosen.select("name")).to_arrow()).num_rows == 2
            assert set(await rows.columns) == {"id", "name", "age"}
            baseline = await g.changes.baseline(branch="wide")
            seen = {change.id async for change in baseline}
            assert len([name for name in seen if name.startswith("w")]) == 600
            assert (await g.changes(await baseline.resume_cursor, branch="wide")).caught_up

    asyncio.run(service())


@pytest.mark.parametrize("kind", ["embedded", "served"])
def test_a_feed_is_followed_and_taken_up_again(addresses: dict[str, str], kind: str) -> None:
    async def names(g: Any, count: int, **options: Any) -> tuple[list[str], str]:
        found: list[str] = []
        async for page in g.changes.follow(branch="feed", **options):
            found += [change.id for block in page.blocks for change in block.changes]
            if len(found) >= count:
                return found, page.cursor
        raise AssertionError

    async def service() -> None:
        async with await og.aio.connect(addresses[kind]) as g:
            await g.branches.create("feed")
            start = (await g.changes.poll(branch="feed")).cursor
            following = asyncio.create_task(names(g, 2, cursor=start))
            await g.mutate(ADD, n="f1", branch="feed")
            await g.mutate(ADD, n="f2", branch="feed")
            found, cursor = await following
            assert found == ["f1", "f2"]
            await g.mutate(ADD, n="f3", branch="feed")
            assert (await names(g, 1, cursor=cursor))[0] == ["f3"]
            tail = f"after:{(await g.commits.list('feed', 2))[-1].id}"
            assert (await names(g, 1, start=tail))[0] == ["f3"]

    asyncio.run(service())


def test_a_write_whose_reply_is_lost_is_there_once(addresses: dict[str, str]) -> None:
    server, _, path = addresses["served"].partition("/graphs")

    async def service(address: str, proxy: S3Proxy) -> None:
        async with await og.aio.connect(address, timeout=30.0, retries=2) as g:
            before = len(await g.commits.list(limit=1_000))
            proxy.fail(lambda method, _: method == "POST", Fault.CUT_AFTER, 2)
            receipt = await g.mutate(ADD, n="lost")
            assert receipt.replayed
            assert len(await g.commits.list(limit=1_000)) == before + 1
            proxy.fail(lambda method, _: method == "POST", Fault.CUT_AFTER, 3)
            with pytest.raises(og.GraphError) as caught:
                await g.mutate(ADD, n="unclear")
            fields = caught.value.fields
            assert fields["may_have_written"]
            again = await g.mutate(ADD, n="unclear", idempotency_key=fields["idempotency_key"])
            assert again.replayed

    with S3Proxy(server) as proxy:
        asyncio.run(service(f"{proxy.endpoint}/graphs{path}", proxy))


@pytest.mark.parametrize("kind", ["embedded", "served"])
def test_loads_and_exports_say_how_far_they_are(addresses: dict[str, str], kind: str, tmp_path: Path) -> None:
    loaded: list[Any] = []
    exported: list[tuple[int, int]] = []

    async def service() -> int:
        async with await og.aio.connect(addresses[kind]) as g:
            await g.branches.create("told")
            people = tmp_path / "people.jsonl"
            line = '{"type": "Person", "data": {"name": "t%d"}}\n'
            people.write_text("".join(line % number for number in range(50)))
            await g.load([{"type": "Tag", "data": {"name": "t"}}], mode="append", branch="told")
            await g.load(people, mode="append", branch="told", progress=loaded.append)
            out = tmp_path / "out"
            report = await g.export(
                out, branch="told", progress=lambda done, total: exported.append((done, total))
            )
            return int(report.rows)

    rows = asyncio.run(service())
    assert loaded[-1].stage == "done"
    assert loaded[-1].rows == 50
    assert max(progress.bytes_total or 0 for progress in loaded) == (tmp_path / "people.jsonl").stat().st_size
    assert exported[-1] == (rows, rows)
    assert {total for _, total in exported} == {rows}


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
