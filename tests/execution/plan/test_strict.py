"""Strict: a read whose scan no index serves, or whose answer has no bound, is refused with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import TooBroad
from omnigraph.engine.open import connect
from omnigraph.execution.plan import strict

SCHEMA = """
node Person {
  name: String @key  age: I32? @index  email: String? @unique  city: String?  about: String? @index
}
node Town { name: String @key }
edge Knows: Person -> Person
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    place: Path = tmp_path_factory.mktemp("strict") / "graph.og"
    people = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(4)]
    edges = [{"edge": "Knows", "from": "p0", "to": f"p{n}"} for n in range(1, 4)]
    with og.init(place, SCHEMA, durability="os") as made:
        made.load([*people, *edges, {"type": "Town", "data": {"name": "t"}}], mode="append")
    few = patch.object(strict, "FEW_ROWS", 1)  # so that a few rows are many
    with connect(place, durability="os", strict=True) as opened, few:
        yield opened


def run(graph: Graph, match: str, rest: str) -> int:
    text = f"query q() {{ match {{ {match} }} {rest} }}"
    return len(graph.query(text.replace("'", '"')))


ALL, SOME, ONE = "return { $p.name }", "return { $p.name } limit 9", "return { count($p) as n }"
SCANS, ENDLESS = "$p scans every Person", "the answer has no bound"

REFUSED = {
    "a scan": ("$p: Person  $p.city = 'x'", SOME, [SCANS]),
    "a scan for an aggregate": ("$p: Person  $p.city = 'x'", ONE, [SCANS]),
    "everything but": ("$p: Person  $p.age != 3", SOME, [SCANS]),
    "one of two without an index": ("$p: Person  ($p.age = 1 or $p.city = 'x')", SOME, [SCANS]),
    "no limit": ("$p: Person  $p.age = 1", ALL, [ENDLESS]),
    "no limit after a hop": ("$q: Person { name: 'p0' }  $q knows $p", ALL, [ENDLESS]),
    "groups without a limit": ("$p: Person  $p.age = 1", "return { $p.city, count($p) as n }", [ENDLESS]),
    "both": ("$p: Person", ALL, [SCANS, ENDLESS]),
    "a scan beside a look-up": ("$q: Person { name: 'p0' }  $p: Person", SOME, [SCANS]),
    "a scan in a block": (
        "$q: Person { name: 'p0' }  exists { $p: Person  $p.city = $q.city }",
        "return { $q.name }",
        [SCANS],
    ),
    "an optional block": (
        "$q: Person { name: 'p0' }  optional { $q knows $p }",
        "return { $q.name, $p.name }",
        [ENDLESS],
    ),
    "the ends of every edge": ("$q knows $p", SOME, ["Knows is followed from every node"]),
}
TAKEN = {
    "a key": ("$p: Person { name: 'p1' }", ALL, 1),
    "keys": ("$p: Person  $p.name in ['p1', 'p2']", ALL, 2),
    "an indexed property": ("$p: Person  $p.age = 1", SOME, 1),
    "a range of one": ("$p: Person  $p.age >= 1  $p.age < 3", SOME, 2),
    "a unique property": ("$p: Person  $p.email = 'x'", SOME, 0),
    "one of two indexed": ("$p: Person  ($p.age = 1 or $p.name = 'p2')", SOME, 2),
    "an indexed one and another": ("$p: Person  $p.age = 1  $p.city = 'x'", SOME, 0),
    "a count of a type": ("$p: Person", ONE, 1),
    "a hop from a key": ("$q: Person { name: 'p0' }  $q knows $p", SOME, 3),
    "a block beside a key": (
        "$q: Person { name: 'p0' }  exists { $q knows $p }",
        "return { $q.name }",
        1,
    ),
    "a small type": ("$t: Town", "return { $t.name } limit 5", 1),
    "a text search": ("$p: Person  search($p.about, 'x')", SOME, 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_broad_read_is_refused(graph: Graph, name: str) -> None:
    match, rest, parts = REFUSED[name]
    with pytest.raises(TooBroad) as caught:
        run(graph, match, rest)
    if parts is not None:
        assert caught.value.fields["parts"] == parts
    assert all(": " in problem for problem in caught.value.fields["problems"])


@pytest.mark.parametrize("name", TAKEN)
def test_a_narrow_read_is_taken(graph: Graph, name: str) -> None:
    match, rest, rows = TAKEN[name]
    assert run(graph, match, rest) == rows


def test_a_plan_may_be_looked_at_and_is_not_run(graph: Graph) -> None:
    assert "scan" in str(graph.explain("query q() { match { $p: Person } return { $p.name } }"))
    with pytest.raises(TooBroad):
        graph.profile("query q() { match { $p: Person } return { $p.name } }")
