"""Operators for many rows answer as plain loops do, in each of the ways that they choose between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import InvalidRequest
from omnigraph.execution import arrays, counting, cycles, expand, paths
from omnigraph.execution.budget import Budget
from omnigraph.execution.match_rows import matching

SCHEMA = "node P { name: String @key  city: String?  x: F64?  n: I64? }\nedge Knows: P -> P"
NODES = 60
CITIES = ["c0", "c1", None, "c2", "c0", "c3", "c3", "c4", "c5"]


def edges_of(seed: int) -> list[tuple[int, int]]:
    """Return edges with skewed degrees, parallel ones and loops among them."""
    rnd = Random(seed)
    return [(int(NODES * rnd.random() ** 2), rnd.randrange(NODES)) for _ in range(240)]


def name(number: int) -> str:
    """Return the id of a node; the order of ids is not that of the rows."""
    return f"p{number * 37 % 101:03d}"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("operators") / "g", SCHEMA, durability="os") as made:
        people = [
            {
                "name": name(i),
                "city": None if i % 11 == 0 else f"c{i % 7}",
                "x": [0.0, -0.0, 1.0, None][i % 4],
                "n": i % 4,
            }
            for i in range(NODES)
        ]
        links = [{"from": name(a), "to": name(b)} for a, b in edges_of(1)]
        made.load({"P": pa.Table.from_pylist(people), "Knows": pa.Table.from_pylist(links)}, mode="append")
        yield made


def neighbours(*, either: bool = False) -> dict[str, set[str]]:
    """Return who knows whom, each pair once."""
    found: dict[str, set[str]] = {name(i): set() for i in range(NODES)}
    for a, b in edges_of(1):
        found[name(a)].add(name(b))
        if either:
            found[name(b)].add(name(a))
    return found


# -- shortest paths --------------------------------------------------------------------------------


def plain_way(links: dict[str, set[str]], source: str, target: str, low: int, high: int) -> list[str] | None:
    """Return the shortest way, the first by ids; a node reaches itself by its own loop alone."""
    level = {source: [source]}
    seen = {source}
    for hop in range(1, high + 1):
        longer: dict[str, list[str]] = {}
        for way in level.values():
            for other in links[way[-1]]:
                if hop == low == 1 and other == source == target:
                    return [source, source]
                if other not in seen:
                    longer[other] = min(longer.get(other, [*way, other]), [*way, other])
        seen |= set(longer)
        if target in longer:
            return longer[target] if hop >= low else None
        level = longer
    return None


@pytest.mark.parametrize(
    ("many", "walked"), [(1, 3), (8, 4_096), pytest.param(10**9, 4_096, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("word", ["knows", "<knows>"])
@pytest.mark.parametrize("bounds", [(1, 6), (2, 3), (1, 1)])
@pytest.mark.parametrize("ends", ["", '$a.name = "p074"', '$b.name = "p074"'])
def test_shortest_paths_are_those_of_a_plain_search(
    graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    many: int,
    walked: int,
    word: str,
    bounds: tuple[int, int],
    ends: str,
) -> None:
    """One to one, one to many and many to one: chosen by how many ways have an end in common."""
    monkeypatch.setattr(paths, "MANY", many)
    monkeypatch.setattr(paths, "WALKED_AT_ONCE", walked)
    low, high = bounds
    rows = graph.query(
        f"query q() {{ match {{ $a: P  $b: P  {ends} }}"
        f" return {{ $a.name as a, $b.name as b, shortest($a {word}{{{low},{high}}} $b) as way }} }}"
    ).rows
    links = neighbours(either="<" in word)
    assert len(rows) in (NODES, NODES * NODES)
    for row in rows:
        assert row["way"] == plain_way(links, row["a"], row["b"], low, high), row


# -- cycles ----------------------------------------------------------------------------------------

TRIANGLES = {
    "a-b-c, a-c": "$a knows $b  $b knows $c  $a knows $c",
    "a-b-c-a": "$a knows $b  $b knows $c  $c knows $a",
    "either way": "$a <knows> $b  $b knows $c  $a <knows> $c",
    "four nodes": "$a knows $b  $b knows $c  $a knows $c  $c knows $d  $a knows $d  $b knows $d",
}


@pytest.mark.parametrize("pattern", TRIANGLES)
@pytest.mark.parametrize("whole", [True, False])
def test_cycles_are_those_of_plain_loops(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, pattern: str, whole: bool
) -> None:
    """By a map of all pairs with many hashes in common, in small blocks; or by the lists of a few nodes."""
    monkeypatch.setattr(cycles, "WHOLE_BELOW", 10**6 if whole else 0)
    monkeypatch.setattr(cycles, "BITS_PER_PAIR", 1)
    monkeypatch.setattr(cycles, "BLOCK", 64)
    clauses = [clause.split() for clause in TRIANGLES[pattern].split("  ")]
    links = {"knows": neighbours(), "<knows>": neighbours(either=True)}
    everyone = [name(i) for i in range(NODES)]
    rows: list[dict[str, str]] = [{}]
    for left, word, right in clauses:
        longer = []
        for row in rows:
            for a in [row[left]] if left in row else everyone:
                ends = links[word][a]
                longer += [
                    {**row, left: a, right: b} for b in ([row[right]] if right in row else ends) if b in ends
                ]
        rows = longer
    names = sorted({word for clause in clauses for word in clause if word.startswith("$")})
    outputs = ", ".join(f"{variable}.name as {variable[1:]}" for variable in names)

    match = f"match {{ {TRIANGLES[pattern]} }}"
    found = graph._query.run(f"query q() {{ {match} return {{ {outputs} }} }}", traversal="csr").rows
    count = graph._query.run(f"query q() {{ {match} return {{ count($a) as n }} }}", traversal="csr").rows

    assert [list(row.values()) for row in found] == sorted([row[v] for v in names] for row in rows)
    assert count == [{"n": len(rows)}]


def test_a_cycle_is_explained_with_both_edges(graph: Graph) -> None:
    query = "query q() { match { $a knows $b  $b knows $c  $a knows $c } return { count($a) as n } }"

    plan = str(graph.profile(query))

    assert "intersect $b -Knows-> $c and $a -Knows-> $c" in plan
    assert "the shorter of two lists, tested in the other" in plan


# -- counts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("few", [0, 1, 10**9])
@pytest.mark.parametrize(
    "match",
    [
        "$a knows $b  $b knows $c  $c knows $d",
        "$a knows $b  $c <knows> $b  $c knows $d  $e knows $d",
        "$a: P { n: 1 }  $a knows $b  $b knows $c  $c knows $d  $d.x = 0.0",
        '$a: P { name: "p074" }  $a knows $b  $b <knows> $c  $c knows $d',
        "$a knows $b  $a knows $c  $a knows $d  $c knows $e  $b.n > 1",
        "$a $e:knows $b  $b $f:knows $c  $d: P { n: 2 }",
    ],
)
def test_counts_from_degrees_are_the_number_of_rows(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, match: str, few: int
) -> None:
    """Carried along edges, or summed over all lists, by how few entities meet conditions."""
    monkeypatch.setattr(counting, "FEW", few)
    monkeypatch.setattr(counting, "BLOCK", 16)
    query = f"query q() {{ match {{ {match} }} return {{ count($a) as n, count($b) as m }} }}"

    plain = graph._query.run(query, rules=frozenset({"join_order"})).rows

    assert graph.query(query).rows == plain
    assert plain[0]["n"] == plain[0]["m"] > 0
    assert "degrees" in str(graph.explain(query))


def test_sums_beyond_64_bits_are_exact() -> None:
    offsets, others = np.array([0, 2, 2, 5]), np.array([0, 1, 1, 1, 0])
    values = np.array([2**62, 2**61 + 1])

    assert counting.summed(offsets, others, values).tolist() == [
        2**62 + 2**61 + 1,
        0,
        2**62 + 2 * (2**61 + 1),
    ]
    assert counting._product(values, np.array([4, 8])).tolist() == [2**64, 2**64 + 8]


def test_a_count_that_no_64_bit_number_holds_is_refused(graph: Graph) -> None:
    hops = "  ".join(f"$v{n} <knows> $v{n + 1}" for n in range(24))

    with pytest.raises(InvalidRequest, match="I64 overflow in 'count'"):
        graph.query(f"query q() {{ match {{ {hops} }} return {{ count($v0) as n }} }}")


# -- joins -----------------------------------------------------------------------------------------


def test_a_join_finds_equal_values_and_never_null() -> None:
    near, far = [0.0, None, 2.0, -0.0, 3.5], [2, None, 0, 0, 2**53 + 1]

    rows, places = matching(pa.array(near), pa.array(far, pa.int64()), 2, Budget())

    assert sorted(zip(rows.tolist(), places.tolist(), strict=True)) == sorted(
        (a, b)
        for a, b in product(range(5), range(5))
        if near[a] is not None and far[b] is not None and near[a] == far[b]
    )


@pytest.mark.parametrize("condition", ["$a.city = $b.city", "$a.x = $b.n", "$b.x = $a.x and $a.n < $b.n"])
def test_a_join_by_value_has_the_rows_of_a_filtered_product(graph: Graph, condition: str) -> None:
    query = f"query q() {{ match {{ $a: P  $b: P  {condition} }} return {{ $a.name, $b.name }} }}"

    plain = graph._query.run(query, rules=frozenset()).rows

    assert graph.query(query).rows == plain
    assert len(plain) > NODES
    assert "join $" in str(graph.explain(query))


def test_a_thousand_rows_meet_two_hundred_thousand_within_the_default_limit(tmp_path: Path) -> None:
    """As a cross product these would be 200 million rows."""
    schema = "node City { name: String @key }\nnode P { name: String @key  city: String? }"
    with og.init(tmp_path / "g", schema, durability="os") as graph:
        numbers = range(200_000)
        people = {"name": [f"p{n}" for n in numbers], "city": [f"c{n % 2_000}" for n in numbers]}
        cities = {"name": [f"c{n}" for n in range(1_000)]}
        graph.load({"City": pa.table(cities), "P": pa.table(people)}, mode="append")
        query = "query q() { match { $c: City  $p: P  $p.city = $c.name } return { count($p) as n } }"

        assert graph.query(query).rows == [{"n": 100_000}]


# -- the first rows by ids -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "match",
    [
        "$a: P  $b: P",
        "$b: P  $b knows $a",
        "$a: P { n: 1 }  $a knows $b  $b.n = 3",
        "$b: P  optional { $b knows $a  $a.n = 3 }",
        "$m: P  $a knows $m  $m.city = $b.city  $b: P".replace(
            "  $m.city = $b.city  $b: P", "  $b: P  $m.city = $b.city"
        ),
    ],
)
@pytest.mark.parametrize("page", ["limit 5", "limit 7 offset 33", "limit 0", "limit 100000"])
def test_the_first_rows_by_ids_are_those_of_the_whole_order(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, match: str, page: str
) -> None:
    monkeypatch.setattr("omnigraph.execution.answer.FEWEST", 1)
    outputs = "return { $a.name as a, $b.name as b }"
    everything = graph.query(f"query q() {{ match {{ {match} }} {outputs} }}").rows
    words = page.split()
    limit, offset = int(words[1]), int(words[3]) if len(words) > 2 else 0

    found = graph.query(f"query q() {{ match {{ {match} }} {outputs} {page} }}").rows

    assert found == everything[offset : offset + limit]


# -- expansion -------------------------------------------------------------------------------------


@pytest.mark.parametrize("visited", [0, 1 << 25])
@pytest.mark.parametrize("word", ["knows", "<knows>"])
def test_what_is_reached_is_the_same_by_byte_maps_and_by_sorted_lists(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, visited: int, word: str
) -> None:
    query = f"query q() {{ match {{ $a: P  $a {word}{{2,3}} $b }} return {{ $a.name as a, $b.name as b }} }}"
    links = neighbours(either="<" in word)
    monkeypatch.setattr(expand, "VISITED_BYTES", visited)
    expected = []
    for source in sorted(links):
        for target in sorted(links):
            way = None if source == target else plain_way(links, source, target, 2, 3)
            expected += [[source, target]] if way else []

    found = graph._query.run(query, traversal="csr").rows

    assert [list(row.values()) for row in found] == expected


def test_arrays_of_numbers_are_numbered_alike_dense_or_not() -> None:
    rnd = np.random.default_rng(1)
    for span in (10, 100, 10**6):
        values = rnd.integers(0, span, 200)
        found, places = arrays.numbered(values, span)
        assert found.tolist() == sorted({*values.tolist()})
        assert (found[places] == values).all()
        members = rnd.integers(0, span, 50)
        asked = np.append(values, -1)
        assert arrays.is_member(asked, members, span).tolist() == [
            value in {*members.tolist()} for value in asked.tolist()
        ]
    large = rnd.integers(0, 1_000, 300_000)
    assert (arrays.take(np.arange(1_000) * 2, large) == large * 2).all()


def test_threads_give_outcomes_in_order_and_may_be_nested() -> None:
    def outer(number: int) -> list[int]:
        return arrays.in_threads(lambda inner: number * 10 + inner, range(3))

    assert arrays.in_threads(outer, range(4)) == [[n * 10 + i for i in range(3)] for n in range(4)]


@pytest.mark.parametrize("most", [0, 4_096])
def test_lists_are_laid_out_one_after_another(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(arrays, "FEW_ITEMS", most)
    random = np.random.default_rng(5)
    for lists in (1, 2, 50):
        counts, starts = random.integers(0, 4, lists), random.integers(0, 1_000, lists)
        counts[random.integers(lists)] += 1
        owners, places = arrays.repeated(counts, starts)
        wanted = [(n, starts[n] + i) for n in range(lists) for i in range(counts[n])]
        assert list(zip(owners.tolist(), places.tolist(), strict=True)) == wanted
    for nothing in (np.zeros(3, np.int64), np.zeros(0, np.int64)):
        assert [part.tolist() for part in arrays.repeated(nothing, nothing)] == [[], []]
