"""Results become properties: whole entities stay whole, and nobody's work is undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import BranchNotFound, InvalidRequest, PreconditionFailed
from omnigraph.catalog.catalog import UnknownType
from omnigraph.pipeline.analytics import write_back

pytestmark = pytest.mark.spark

SCHEMA = """
node A {
  k: String @key  type: String?  rank: F64?  times: U64?
  raw: Blob?  v: Vector(2)?  at: DateTime?  wide: U64?  wides: [U64]?  days: [Date]?
}
node B { k: String @key  rank: F64? }
edge E: A -> B
"""
WHOLE: dict[str, Any] = {
    "type": "t",
    "raw": "base64:AP8=",
    "v": [0.1, -1.5],
    "at": -1,
    "wide": 2**64 - 1,
    "wides": [0, 2**64 - 1],
    "days": [-1, 0],
}
RESULT = [("A", "a", 0.25), ("A", "b", 0.5), ("A", "gone", 9.0), ("B", "b", 0.75)]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """Three nodes of one type, one of which no result names, and one of another type with the same id."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        rows = [{"k": "a", **WHOLE}, {"k": "b", "rank": 0.5}, {"k": "c", "rank": 7.0}]
        made.load(
            [*({"type": "A", "data": row} for row in rows), {"type": "B", "data": {"k": "b"}}], mode="append"
        )
        yield made


def ranks(graph: Graph, branch: str = "main", type: str = "A") -> dict[str, float | None]:
    return {row["k"]: row["rank"] for row in graph.nodes(type, branch=branch).to_arrow().to_pylist()}


def test_a_property_is_set_on_a_branch_and_all_else_stays(spark: SparkSession, graph: Graph) -> None:
    result = spark.createDataFrame(RESULT, "type string, id string, found double")
    before = graph.nodes("A").to_arrow()

    receipt = write_back(
        spark,
        graph,
        result,
        "rank",
        type="A",
        branch="ranked",
        from_branch="main",
        message="ranks",
        actor="ada",
    )

    assert ranks(graph, "ranked") == {"a": 0.25, "b": 0.5, "c": 7.0}
    assert receipt.affected_nodes == 1, "b had its value already, c has no result"
    assert graph.nodes("A", branch="ranked").to_arrow().drop_columns(["rank"]) == before.drop_columns(
        ["rank"]
    )
    assert (ranks(graph, "ranked", "B"), ranks(graph)["a"]) == ({"b": None}, None)
    assert receipt.commit_id is not None
    commit = graph.commits.get(receipt.commit_id)
    assert (commit.message, commit.actor, commit.parent) == ("ranks", "ada", graph.store.snapshot().commit_id)

    again = write_back(spark, graph, result, "rank", type="A", branch="ranked")
    assert again.affected_nodes == 0


def test_values_of_another_type_are_fitted_by_the_load(spark: SparkSession, graph: Graph) -> None:
    counts = spark.createDataFrame([("a", 3), ("b", 0)], "id string, triangles long")
    write_back(spark, graph, counts, "times", type="A")
    rows = {row["k"]: row["times"] for row in graph.nodes("A").to_arrow().to_pylist()}
    assert rows == {"a": 3, "b": 0, "c": None}


def test_the_column_of_the_property_is_taken_where_there_are_several(
    spark: SparkSession, graph: Graph
) -> None:
    several = spark.createDataFrame([("a", 1.0, 2.0)], "id string, other double, rank double")
    write_back(spark, graph, several, "rank", type="A")
    assert ranks(graph)["a"] == 2.0


def test_a_branch_that_moves_meanwhile_is_not_overwritten(spark: SparkSession, graph: Graph) -> None:
    uri = graph.uri

    def intrude(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with og.connect(uri) as theirs:
            theirs.mutate('query q() { update A set { type: "theirs" } where k = "a" }')
        yield pa.RecordBatch.from_pydict({"id": ["a"], "rank": [1.0]})
        yield from ()

    late = spark.range(1).repartition(1).mapInArrow(intrude, "id string, rank double")
    with pytest.raises(PreconditionFailed):
        write_back(spark, graph, late, "rank", type="A")
    assert ranks(graph)["a"] is None
    assert graph.nodes("A").to_arrow()["type"].to_pylist()[0] == "theirs"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"property": "rnk"}, InvalidRequest, "no property 'rnk'; did you mean 'rank'"),
        ({"property": "k"}, InvalidRequest, "'k' is the key of A"),
        ({"type": "C"}, UnknownType, "C"),
        ({"branch": "nowhere"}, BranchNotFound, "nowhere"),
        ({"schema": "id string, x double, y double"}, InvalidRequest, "the result has the columns id, x, y"),
        ({"schema": "name string, rank double, x double"}, InvalidRequest, "It needs 'id'"),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_read(
    spark: SparkSession, graph: Graph, arguments: dict[str, str], error: type[Exception], says: str
) -> None:
    result = spark.createDataFrame([], arguments.pop("schema", "id string, rank double"))
    given = {"property": "rank", "type": "A", **arguments}
    with pytest.raises(error, match=says):
        write_back(spark, graph, result, given.pop("property"), **given)
