"""Many types, branches and tags: 500, 2,000 and 200. What concerns one of them costs what it did before."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import Graph
from tests.limits.measure import Measures

SCHEMA = "node Person { name: String @key  age: I32? }"
INSERT = "query add($n: String) { insert Person { name: $n } }"
IN_FULL = [pytest.mark.full, pytest.mark.timeout(3600)]


def _many_types(number: int, property: str = "") -> str:
    """Return a schema of node types, and edges from each to the next; the first may get a property."""
    lines = [
        f"node T{n} {{ name: String @key  age: I32? @index {property if n == 0 else ''} }}"
        for n in range(number // 2)
    ]
    lines += [f"edge E{n}: T{n} -> T{(n + 1) % (number // 2)}" for n in range(number // 2)]
    return "\n".join(lines)


@pytest.mark.parametrize("number", [30, pytest.param(500, marks=IN_FULL)])
def test_many_types(tmp_path: Path, number: int) -> None:
    found = Measures(f"{number} types")
    schema, half = _many_types(number), number // 2
    with found.of("init", lambda: og.init(tmp_path / "types.og", schema, durability="os")) as graph:
        nodes = [
            {"type": f"T{n}", "data": {"name": f"{n}-{row}", "age": row}}
            for n in range(half)
            for row in (0, 1)
        ]
        edges = [{"edge": f"E{n}", "from": f"{n}-0", "to": f"{(n + 1) % half}-1"} for n in range(half)]
        found.of("load into all", lambda: graph.load([*nodes, *edges], mode="append"))
        found.of("apply", lambda: graph.schema.apply(_many_types(number, "nick: String?")))
        assert found.of("describe", graph.schema.show).count("node T") == half
        hop = 'query hop() { match { $a: T3 { name: "3-0" }  $a e3 $b } return { $b.name } }'
        assert found.of("query", lambda: graph.query(hop)).to_json()["rows"] == [{"b.name": "4-1"}]
        graph.branches.create("side")
        more = [{"type": f"T{n}", "data": {"name": f"{n}-side"}} for n in range(half)]
        found.of("load on a branch", lambda: graph.load(more, mode="append", branch="side"))
        assert len(found.of("diff", lambda: list(graph.diff("main", "side")))) == half
        assert found.of("merge", lambda: graph.merge("side")).outcome.value == "fast_forward"
        report = found.of("optimize", graph.optimize)
        assert len(report.types) == number
        one = found.of("write to one", lambda: graph.load(more[:1], mode="merge"))
        assert one.cost.requests <= 40
        assert found.of("doctor", graph.doctor).ok
        found.of("cleanup", lambda: graph.cleanup(keep=1, grace="0s", dry_run=False))
        assert len(graph.nodes("T1")) == 3
    found.report()


@pytest.mark.parametrize("number", [40, pytest.param(2_000, marks=IN_FULL)])
def test_many_branches(tmp_path: Path, number: int) -> None:
    found = Measures(f"{number} branches")
    with og.init(tmp_path / "branches.og", SCHEMA, durability="os") as graph:
        graph.mutate(INSERT, n="a")
        found.of("create the first", lambda: graph.branches.create("b0"))
        found.of("create the others", lambda: [graph.branches.create(f"b{n}") for n in range(1, number)])
        found.of("create the last", lambda: graph.branches.create("last"))
        assert len(found.of("list", graph.branches.list)) == number + 2
        found.of("write to one", lambda: graph.mutate(INSERT, n="b", branch="b7"))
        assert found.of("merge one", lambda: graph.merge("b7")).outcome.value == "fast_forward"
        found.of("delete one", lambda: graph.branches.delete("b8"))
        found.of("heads and counts", lambda: graph.branches.list(counts=True))
        found.of("cleanup", lambda: graph.cleanup(keep=0, grace="0s", dry_run=False))
        assert found.of("doctor", graph.doctor).ok
    with found.of("open one", lambda: og.connect(tmp_path / "branches.og", branch="b9")) as fresh:
        assert len(found.of("read one", lambda: fresh.nodes("Person").to_arrow())) == 1
        found.of("delete half", lambda: _delete(fresh, number // 2))
        assert len(fresh.branches.list()) == number + 1 - (number // 2 - 10)
    found.report()
    assert found.requests["create the last"] <= found.requests["create the first"] + 1
    assert found.requests["list"] <= 2


def _delete(graph: Graph, until: int) -> None:
    for number in range(10, until):
        graph.branches.delete(f"b{number}")


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=IN_FULL)])
def test_many_tags(tmp_path: Path, number: int) -> None:
    found = Measures(f"{number} tags")
    with og.init(tmp_path / "tags.og", SCHEMA, durability="os") as graph:
        for row in range(number):
            graph.mutate(INSERT, n=f"p{row}")
            step = "create the last" if row else "create the first"
            found.of(step, lambda n=row: graph.tags.create(f"v{n}"))  # type: ignore[misc]
        assert len(found.of("list", graph.tags.list)) == number
        found.of("cleanup", lambda: graph.cleanup(keep=0, grace="0s", dry_run=False))
        for row in (0, number // 2, number - 1):
            assert len(graph.nodes("Person", at=f"v{row}")) == row + 1
        found.of("backup", lambda: graph.backup(tmp_path / "copy.og", durability="os"))
        assert found.of("doctor", graph.doctor).ok
    with og.connect(tmp_path / "copy.og") as copy:
        assert len(copy.tags.list()) == number
        assert len(copy.nodes("Person", at="v0")) == 1
    found.report()
    assert found.requests["create the last"] <= found.requests["create the first"] + 1
    assert found.requests["list"] <= 2
