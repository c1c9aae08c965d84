"""Queries that share one account: together they take no more than it has, and give everything back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.base.cancellation import Cancellation, Cancelled, cancelled_by
from omnigraph.base.errors import LimitExceeded, NoRoomNow
from omnigraph.engine.open import connect
from omnigraph.execution import memory as memory_module
from omnigraph.execution.budget import Budget
from omnigraph.execution.context import Caches
from omnigraph.execution.memory import Memory

MIB = 1 << 20
PEOPLE = 500
PAIRS = "query q() { match { $p: Person  $q: Person  $p.name < $q.name } return { count($p) as n } }"
NAMES = "query q() { match { $p: Person } return { $p.name } }"


def budget(memory: Memory, limit: int = 10 * MIB) -> Budget:
    return Budget(limit, memory=memory)


def test_what_others_have_is_not_there_for_a_query_until_they_end() -> None:
    memory = Memory(10 * MIB)
    first, second = budget(memory), budget(memory)
    first.check_bytes(6 * MIB, "rows")
    first.check_bytes(2 * MIB, "fewer rows")  # those of before may still be there
    with pytest.raises(NoRoomNow, match="all queries together have 6 of 10 MiB") as caught:
        second.check_bytes(5 * MIB, "rows")
    assert caught.value.retryable
    assert caught.value.fields == {"resource": "memory", "limit": 10 * MIB, "actual": 11 * MIB}
    second.check_bytes(4 * MIB, "fewer rows")
    first.close()
    second.check_bytes(9 * MIB, "rows")
    second.close()
    assert memory.taken == 0


def test_what_several_queries_hold_counts_once() -> None:
    memory, column = Memory(10 * MIB), object()
    first, second = budget(memory), budget(memory)
    for one in (first, second):
        one.hold("column", column, 6 * MIB, "a column")
        one.hold("column", column, 6 * MIB, "a column")
    assert memory.taken == 6 * MIB
    first.close()
    assert memory.taken == 6 * MIB
    with pytest.raises(NoRoomNow):
        budget(memory).hold("other", object(), 5 * MIB, "another column")
    second.close()
    assert memory.taken == 0


def test_small_asks_go_through_whatever_others_have() -> None:
    memory = Memory(10 * MIB)
    with memory.taking(10 * MIB, "a heavy query"):
        look_up = budget(memory)
        look_up.check_bytes(MIB, "a few rows")
        look_up.hold("column", object(), MIB, "a small column")
        with pytest.raises(NoRoomNow):
            look_up.check_bytes(MIB + 1, "more rows")
        look_up.close()
    assert memory.taken == 0


def test_one_query_may_have_what_it_may_have_alone() -> None:
    """What it asked for at once and what it holds to its end are within its own limit, and so is the sum."""
    memory = Memory(10 * MIB)
    alone = budget(memory)
    alone.check_bytes(9 * MIB, "rows")
    alone.hold("column", object(), 8 * MIB, "a column")
    assert memory.taken == 10 * MIB
    with pytest.raises(LimitExceeded) as caught:
        alone.check_bytes(3 * MIB, "rows")
    assert not caught.value.retryable  # by itself it is too large
    alone.close()
    assert memory.taken == 0


def test_the_caches_of_all_graphs_give_way_to_the_rows_of_one() -> None:
    memory, both = Memory(4_000), [Caches.within(4_000) for _ in range(2)]
    for caches in both:
        memory.serves(caches)
        for number in range(5):
            caches.columns.put(("table", number), "c", pa.array(range(25)))  # 200 bytes
    memory.take(3_000, "rows")
    assert 0 < sum(caches.nbytes for caches in both) <= 1_000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("shared") / "graph.og"
    with og.init(place, "node Person { name: String @key }", durability="os") as made:
        made.load({"Person": pa.table({"name": [f"p{n}" for n in range(PEOPLE)]})}, mode="append")
    return place


def test_a_query_gives_back_what_it_took_however_it_ends(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "SMALL_BYTES", 0)
    memory = Memory(512 * MIB)
    with memory.taking(100, "a look at the account"):
        assert memory.taken == 100
    with connect(place, durability="os", memory=memory) as graph:
        for text in (NAMES, PAIRS):
            assert len(graph.query(text)) > 0
            assert memory.taken == 0
        with pytest.raises(LimitExceeded):
            graph.query(PAIRS, memory_bytes=1_000)
        assert memory.taken == 0
        stopped = Cancellation()
        stopped.cancel("nobody waits")
        with cancelled_by(stopped), pytest.raises(Cancelled):
            graph.query(f"{PAIRS} ")
        assert memory.taken == 0


def test_a_query_is_refused_while_others_have_the_memory_and_runs_when_they_have_not(place: Path) -> None:
    memory = Memory(64 * MIB)
    with connect(place, durability="os", memory=memory) as graph:
        with memory.taking(64 * MIB - 1_000, "others"), pytest.raises(NoRoomNow):
            graph.query(PAIRS)
        assert graph.query(PAIRS).rows == [{"n": PEOPLE * (PEOPLE - 1) // 2}]
    assert memory.taken == 0
