"""A query never takes more memory than it may: it answers, or it ends with a typed error."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import LimitExceeded
from omnigraph.execution import answer
from omnigraph.execution.answer import Answerer
from omnigraph.execution.budget import MEMORY_BYTES, Budget
from omnigraph.execution.context import Caches
from tests.support.derived import small_tiers

pytestmark = pytest.mark.xdist_group("memory")

SCHEMA = """
node Person { name: String @key  text: String  group: I64 }
edge Knows: Person -> Person
"""
MIB = 1 << 20
PEOPLE = 60_000
GROUPS = "query q() { match { $p: Person } return { $p.group, count($p) as n } order { n desc } limit 3 }"
TEXTS = "query q() { match { $p: Person } return { $p.text } }"
ONE = "query q($name: String) { match { $p: Person { name: $name } } return { $p.text } }"
FRIENDS = "query q() { match { $p: Person  $p knows $q } return { $p.name, $q.name } }"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("memory") / "graph.og"
    with og.init(place, SCHEMA, durability="os") as made:
        names = [f"p{n}" for n in range(PEOPLE)]
        people = {
            "name": names,
            "text": [name * 20 for name in names],
            "group": [n % 7 for n in range(PEOPLE)],
        }
        edges = {"from": names, "to": names[1:] + names[:1]}
        made.load({"Person": pa.table(people), "Knows": pa.table(edges)}, mode="append")
    return place


@pytest.fixture
def graph(address: Path) -> Iterator[Graph]:
    with og.connect(address) as opened:
        yield opened


@pytest.mark.parametrize("gq", [TEXTS, FRIENDS, GROUPS])
def test_a_query_without_room_ends_with_a_typed_error(graph: Graph, gq: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        graph.query(gq, memory_bytes=MIB // 2)

    assert caught.value.fields["limit"] == MIB // 2
    assert caught.value.fields["actual"] > MIB // 2
    assert "raise the memory limit" in str(caught.value.remedy)
    assert len(graph.query(gq)) > 0  # with room, on the same handle


def test_a_column_in_the_cache_counts_for_every_query_that_uses_it(graph: Graph) -> None:
    assert len(graph.query(TEXTS)) == PEOPLE

    with pytest.raises(LimitExceeded):
        graph.query(TEXTS, memory_bytes=4 * MIB)


def test_picking_a_few_values_needs_no_room_for_the_column(graph: Graph) -> None:
    for number in range(12):  # often enough that reading the whole column would pay
        found = graph.query(ONE, name=f"p{number}", memory_bytes=MIB // 2)
        assert found.rows == [{"p.text": f"p{number}" * 20}]


def test_what_other_queries_left_is_dropped_for_what_this_one_needs() -> None:
    caches = Caches.within(4_000)
    for number in range(8):
        caches.columns.put(("table", number), "c", pa.array(range(25)))  # 200 bytes; 1,000 are kept
    budget = Budget(4_000, caches.make_room)

    budget.hold("rows", object(), 3_500, "rows")

    assert caches.columns.nbytes <= 500
    with pytest.raises(LimitExceeded, match="beside 1 MiB already held"):
        budget.check_bytes(600, "more rows")
    budget.hold("rows", object(), 3_500, "the same rows again")  # counts once


def test_what_holds_in_one_version_only_is_kept_for_two_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch)
    rows, taken = 4_000, []
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as graph:
        names = [f"p{n}" for n in range(rows)]
        people = {"name": names, "text": names, "group": [n % 7 for n in range(rows)]}
        edges = {"from": names * 2, "to": (names[1:] + names[:1]) * 2}
        graph.load({"Person": pa.table(people), "Knows": pa.table(edges)}, mode="append")
        for number in range(30):
            graph.mutate(
                "query w($n: String) { update Person set { group: 9 } where name = $n }", n=f"p{number}"
            )
            graph.query(HEAVY["group"], memory_bytes=1 << 30)
            caches = graph._query._caches
            taken.append(caches.columns.nbytes + caches.topologies.nbytes)
    grown = taken[-1] - taken[9]
    assert grown < 20 * rows, taken  # an array of their ordinals alone has eight bytes a row, in each of 20


PAIRS = "match { $a: Person  $b: Person }"
LIKED = "match { $a: Person  $b: Person  optional { $a knows $c  $c.group = 3 } }"
FEWER = {
    "distinct": f"query q() {{ {PAIRS} return distinct {{ $a.group as x, $b.group as y }} }}",
    "in order": f"query q() {{ {PAIRS} return distinct {{ $a.name as x }} order {{ x desc }} limit 5 }}",
    "first": f"query q() {{ {PAIRS} return {{ $a.name, $b.text }} order {{ $b.group, $a.text }} limit 7 }}",
    "no order": f"query q() {{ {PAIRS} return {{ $a.name, $b.name }} limit 3 offset 40 }}",
    "friends": "query q() { match { $a: Person  $a knows{1,3} $b } return distinct { $b.group as x } }",
    "optional": f"query q() {{ {LIKED} return distinct {{ $c.name as x }} }}",
    "none": f'query q() {{ {PAIRS[:-1]} $a.name = "nobody" }} return distinct {{ $b.name as x }} }}',
}


@pytest.mark.parametrize("name", FEWER)
def test_blocks_of_rows_have_the_answer_of_all_rows_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with og.init(tmp_path / "g", SCHEMA, durability="os") as graph:
        names = [f"p{n}" for n in range(40)]
        people = {"name": names, "text": names[::-1], "group": [n * n % 7 for n in range(40)]}
        graph.load(
            {"Person": pa.table(people), "Knows": pa.table({"from": names, "to": names[3:] + names[:3]})},
            mode="append",
        )
        whole = graph.query(FEWER[name]).rows
        blocks = Counter[str]()
        reduced = Answerer._reduced
        monkeypatch.setattr(answer, "ROWS_SHARE", MEMORY_BYTES // 1_000)  # blocks of 1,000 bytes

        def counted(self: Answerer, *args: Any) -> Any:
            blocks["reduced"] += 1
            return reduced(self, *args)

        monkeypatch.setattr(Answerer, "_reduced", counted)
        assert graph.query(FEWER[name]).rows == whole
        assert blocks["reduced"] > 3 or name == "none"


# -- in a process of its own -----------------------------------------------------------------------------

NODES, SMALL = 1_500, 64 * MIB
SHAPES = {
    "distinct": FEWER["distinct"],
    "every pair is distinct": f"query q() {{ {PAIRS} return distinct {{ $a.text as x, $b.text as y }} }}",
    "count": f"query q() {{ {PAIRS} return {{ count($a) as n, count($b) as m }} }}",
    "cross product": f"query q() {{ {PAIRS} return {{ $a.name, $b.name }} }}",
}
MORE_SHAPES = {
    "first": FEWER["first"],
    "filter": f"query q() {{ {PAIRS[:-1]} $a.group < $b.group }} return {{ $a.name, $b.text }} limit 3 }}",
    "group": f"query q() {{ {PAIRS} return {{ $a.name, $b.group, count($b) as n }} }}",
    "collect": f"query q() {{ {PAIRS} return {{ $a.group, collect($b.name) as n }} }}",
    "count distinct": f"query q() {{ {PAIRS} return {{ $a.group, count_distinct($b.name) as n }} }}",
    "optional": FEWER["optional"],
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("small") / "graph.og"
    with og.init(place, SCHEMA, durability="os") as graph:
        names = [f"p{n}" for n in range(NODES)]
        people = {"name": names, "text": names, "group": [n % 7 for n in range(NODES)]}
        edges = {"from": names, "to": names[1:] + names[:1]}
        graph.load({"Person": pa.table(people), "Knows": pa.table(edges)}, mode="append")
    return place


@pytest.mark.parametrize(
    "name", [*SHAPES, *(pytest.param(name, marks=pytest.mark.full) for name in MORE_SHAPES)]
)
def test_a_process_grows_by_no_more_than_its_limit_and_a_half(small: Path, name: str) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        outcome, growth = pool.apply(_growth, (str(small), (SHAPES | MORE_SHAPES)[name]))
    assert growth <= 1.5 * SMALL, f"{name}: {outcome}, grew by {growth // MIB} MiB"
    if name in ("distinct", "first", "filter", "count"):
        assert outcome.endswith(" rows"), outcome  # few rows answer it: it is not refused


def _growth(place: str, gq: str) -> tuple[str, int]:
    """Ask one question; return what came of it, and by how much the process was larger at most."""
    with og.connect(place, memory_bytes=SMALL) as graph:
        graph.query(ONE, name="p1")
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        try:
            outcome = f"{len(graph.query(gq))} rows"
        except LimitExceeded as error:
            outcome = str(error)
    return outcome, _resident("VmHWM") - before


def _resident(name: str) -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith(name))
    return int(line.split()[1]) << 10


# -- in earnest ------------------------------------------------------------------------------------------

PEOPLE_IN_EARNEST, EDGES_IN_EARNEST = 1_000_000, 10_000_000
LIMIT = 512 * MIB
HEAVY = {
    "group": "query q() { match { $p: Person  $p knows $q } return { $q.group, count($p) as n } }",
    "list": FRIENDS,
    "sort": "query q() { match { $p: Person  $p knows $q } return { $q.name } order { $q.name } limit 9 }",
    "two hops": "query q() { match { $p: Person  $p knows{1,2} $q } return { count($q) as n } }",
    "every edge": "query q() { match { $p: Person  $p $e:knows $q } return { $e.@id as id } }",
    "texts": TEXTS,
}


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_million_edges_under_512_mib(tmp_path: Path) -> None:
    _fill(tmp_path / "graph.og")
    context = multiprocessing.get_context("spawn")
    for name, gq in HEAVY.items():
        with context.Pool(1) as pool:  # a fresh process for each: its peak is that of the query
            outcome, peak = pool.apply(_asked, (str(tmp_path / "graph.og"), gq))
        print(f"{name}: {outcome}, peak {peak // MIB} MiB")
        assert peak <= LIMIT + 256 * MIB, f"{name}: {outcome}, peak {peak // MIB} MiB"


def _fill(place: Path) -> None:
    names = pa.array([f"p{n}" for n in range(PEOPLE_IN_EARNEST)])
    with og.init(place, SCHEMA, durability="os") as graph:
        columns: dict[str, Any] = {
            "name": names,
            "text": names,
            "group": pa.array([n % 1_000 for n in range(len(names))]),
        }
        graph.load(pa.table(columns), type="Person", mode="append")
        one = EDGES_IN_EARNEST // 4
        for part in range(4):
            numbers = range(part * one, (part + 1) * one)
            sources = names.take(pa.array([n % PEOPLE_IN_EARNEST for n in numbers]))
            targets = names.take(
                pa.array([(n * 7_919 + n // 1_000_000) % PEOPLE_IN_EARNEST for n in numbers])
            )
            graph.load(pa.table({"from": sources, "to": targets}), type="Knows", mode="append")


def _asked(place: str, gq: str) -> tuple[str, int]:
    with og.connect(place, memory_bytes=LIMIT) as graph:
        try:
            outcome = f"{len(graph.query(gq))} rows"
        except LimitExceeded as error:
            outcome = str(error)
    return outcome, _resident("VmHWM")  # not ru_maxrss: a process starts with that of its parent
