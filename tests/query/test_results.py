"""What a query returns: Python values, Arrow types, the public JSON, and the commit that was read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, CommitNotFound, InvalidRequest, NotFound

SCHEMA = """
node Person {
    name: String @key  age: I32?  tall: F32?  born: Date?  seen: DateTime?  tags: [String]?  vec: Vector(2)?
}
"""
ALL = """query all($least: I32) {
    match { $p: Person  $p.age >= $least }
    return { $p.name, $p.age, $p.tall, $p.born, $p.seen, $p.tags, $p.vec, $p }
}"""
TYPES = [
    pa.string(),
    pa.int32(),
    pa.float32(),
    pa.date32(),
    pa.timestamp("ms", tz="UTC"),
    pa.list_(pa.field("item", pa.string())),
    pa.list_(pa.field("item", pa.float32()), 2),
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """One person with every value, one with none but an age."""
    ada = {"name": "Ada", "age": 36, "tall": 0.5, "born": "1815-12-10", "seen": "2024-01-02T03:04:05.006Z"}
    records = [
        {"type": "Person", "data": {**ada, "tags": ["x", "y"], "vec": [1, 2]}},
        {"type": "Person", "data": {"name": "Bo", "age": 1}},
    ]
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as opened:
        opened.load(records, mode="append")
        yield opened


def test_rows_hold_python_values(graph: Graph) -> None:
    result = graph.query(ALL, least=30)

    assert len(result) == 1
    assert list(result) == result.rows
    row = {name: value for name, value in result.one().items() if name != "p"}
    assert row == {
        "p.name": "Ada",
        "p.age": 36,
        "p.tall": 0.5,
        "p.born": date(1815, 12, 10),
        "p.seen": datetime(2024, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
        "p.tags": ["x", "y"],
        "p.vec": [1.0, 2.0],
    }


def test_an_empty_result_has_the_types_of_a_full_one(graph: Graph) -> None:
    full, empty = graph.query(ALL, least=0), graph.query(ALL, least=99)

    assert len(empty) == 0
    assert empty.rows == []
    assert empty.columns == full.columns
    assert empty.to_arrow().schema.types == full.to_arrow().schema.types
    assert full.to_arrow().schema.types[:-1] == TYPES


def test_aggregates_have_their_types_even_over_nothing(graph: Graph) -> None:
    gq = """query q($least: I32) { match { $p: Person  $p.age >= $least } return {
        count($p) as n, sum($p.age) as s, avg($p.age) as a, min($p.age) as low, max($p.born) as last,
        count_distinct($p.name) as d, collect($p.age) as l } }"""
    types = [pa.int64(), pa.float64(), pa.float64(), pa.int32(), pa.date32(), pa.int64()]

    for least in (0, 99):
        found = graph.query(gq, least=least).to_arrow().schema.types
        assert found[:-1] == types
        assert found[-1] == pa.list_(pa.field("item", pa.int32()))


def test_the_public_json(graph: Graph) -> None:
    result = graph.query(ALL, least=30)
    shown = result.to_json()

    head = graph.store.snapshot("main").commit_id
    assert {name: value for name, value in shown.items() if name != "rows"} == {
        "query_name": "all",
        "target": {"branch": "main", "snapshot": head},
        "row_count": 1,
        "columns": list(result.columns),
        "graph_commit_id": head,
    }
    assert list(shown["rows"][0]) == shown["columns"]
    assert result.commit_id == head


def test_one_and_scalar_want_exactly_one_row(graph: Graph) -> None:
    count = "query q() { match { $p: Person } return { count($p) as n } }"

    assert graph.query(count).scalar() == 2
    with pytest.raises(InvalidRequest, match="2 rows"):
        graph.query(ALL, least=0).one()
    with pytest.raises(NotFound, match="0 rows"):
        graph.query(ALL, least=99).scalar()


def test_the_commit_of_a_result_can_guard_a_write(graph: Graph) -> None:
    read = graph.query(ALL, least=0)
    graph.mutate('query m() { insert Person { name: "Cy" } }', if_commit=read.commit_id)

    assert graph.query(ALL, least=0).commit_id != read.commit_id
    assert len(graph.query("query q() { match { $p: Person } return { $p.name } }", at=read.commit_id)) == 2


def test_parameters_come_as_a_mapping_or_as_keywords(graph: Graph) -> None:
    assert graph.query(ALL, {"least": 30}).rows == graph.query(ALL, least=30).rows
    with pytest.raises(InvalidRequest, match="given twice"):
        graph.query(ALL, {"least": 30}, least=30)


def test_a_query_can_be_a_file(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "all.gq"
    file.write_text(ALL + "\nquery other() { match { $p: Person } return { 1 as n } }", "utf-8")

    assert graph.query(file, query_name="all", least=30).rows == graph.query(ALL, least=30).rows
    assert len(graph.query(str(file), query_name="other")) == 2


def test_what_does_not_exist_is_named(graph: Graph) -> None:
    with pytest.raises(BranchNotFound, match="review"):
        graph.query(ALL, least=0, branch="review")
    with pytest.raises(CommitNotFound):
        graph.query(ALL, least=0, at="01ARZ3NDEKTSV4RRFFQ69G5FAV")
