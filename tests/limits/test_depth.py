"""A long history costs nothing where it is not asked for: commits on one branch, to 10,000."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.limits.measure import Measures, peak_bytes

SCHEMA = "node Person { name: String @key  age: I32? }"
INSERT = "query add($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
UPDATE = "query set($n: String, $a: I32) { update Person set { age: $a } where name = $n }"
READ = 'query one() { match { $p: Person { name: "p1" } } return { $p.age } }'
PEOPLE = 40
FLAT = ("open", "probe", "read", "write")  # what a user of the newest state does
SPARED = 2  # requests that folding of small fragments takes more in one write than in another
MEMORY = 300 << 20  # what ten thousand commits may add to the process

DEPTHS = pytest.mark.parametrize(
    "depth",
    [200, pytest.param(10_000, marks=[pytest.mark.full, pytest.mark.timeout(3600)])],
)


@DEPTHS
def test_a_deep_history(tmp_path: Path, depth: int) -> None:
    shallow = _asked(_written(tmp_path / "shallow.og", 100), 100)
    before = peak_bytes()
    deep = _asked(_written(tmp_path / "deep.og", depth), depth)
    grown = peak_bytes() - before
    shallow.report()
    deep.report()
    for step in FLAT:
        assert deep.requests[step] <= shallow.requests[step] + SPARED, step
    assert grown < MEMORY


def _written(address: Path, depth: int) -> Path:
    """Make a graph with a number of one-row commits: some people, then changes of them."""
    with og.init(address, SCHEMA, durability="os") as graph:
        for number in range(depth):
            graph.mutate(INSERT if number < PEOPLE else UPDATE, n=f"p{number % PEOPLE}", a=number)
    return address


def _asked(address: Path, depth: int) -> Measures:
    """Do everything there is to do with a history, and assert that each answer is right."""
    found = Measures(f"{depth} commits")
    with found.of("open", lambda: og.connect(address, durability="os")) as graph:
        people = found.of("read", lambda: graph.query(READ))
        assert len(people) == 1
        found.of("probe", lambda: graph.query(READ))
        found.of("write", lambda: graph.mutate(INSERT, n="new", a=1))
        _assert_listed(graph, found, depth)
        first = found.of("time travel", lambda: graph.nodes("Person", at=f"main~{depth}").to_arrow())
        assert first["name"].to_pylist() == ["p0"]
        changes = found.of("diff, far", lambda: list(graph.diff(f"main~{depth}", "main").changes()))
        assert len(changes) == PEOPLE + 1  # each of them, and the one that is new
        report = found.of("doctor", graph.doctor)
        assert report.ok, report.findings
        cleaned = found.of("cleanup", lambda: graph.cleanup(keep=10, grace="0s", dry_run=False))
        assert cleaned.files > depth
        assert len(graph.nodes("Person")) == PEOPLE + 1
        assert len(graph.commits.list(limit=1_000)) <= 200
        found.of("write, cleaned", lambda: graph.mutate(INSERT, n="newer", a=1))
        assert graph.doctor().ok
    return found


def _assert_listed(graph: Graph, found: Measures, depth: int) -> None:
    """Page through the whole log: every commit once, newest first."""
    page = found.of("log, first page", lambda: graph.commits.list(limit=100))
    ids = [commit.id for commit in page]

    def rest() -> None:
        token = page.next
        while token is not None:
            further = graph.commits.list(limit=500, before=token)
            ids.extend(commit.id for commit in further)
            token = further.next

    found.of("log, all pages", rest)
    assert len(ids) == len(set(ids)) == depth + 2  # the first commit is that of init
