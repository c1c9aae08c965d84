"""Queries as DataFrames: the rows of one snapshot, in columns that are known before anything runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import InvalidRequest
from omnigraph.pipeline import register
from omnigraph.pipeline.reading.source import OmnigraphSource
from tests.spark.samples import ALL, EVERY_TYPE

pytestmark = pytest.mark.spark

SCHEMA = (
    EVERY_TYPE
    + """
node Person { name: String @key age: I32? }
edge Knows: Person -> Person { since: I32? }
"""
)
AGES = "query ages() { match { $p: Person } return { $p.name as name, $p.age as age } order { name } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """A small graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        people = [{"type": "Person", "data": {"name": name, "age": n}} for n, name in enumerate("abc")]
        edges = [{"edge": "Knows", "from": "a", "to": "b", "data": {"since": 3}}]
        made.load([*people, *edges, {"type": "All", "data": ALL}], mode="append")
        yield made


def source(graph: Graph, query: str, **options: str) -> OmnigraphSource:
    return OmnigraphSource({"uri": graph.uri, "query": query, **options})


def rows(source: OmnigraphSource, schema: StructType | None = None) -> list[dict[str, Any]]:
    """Return the rows as a task would give them, without Spark."""
    reader = source.reader(schema or source.schema())
    (partition,) = reader.partitions()
    batches = [batch for batch in reader.read(partition) if isinstance(batch, pa.RecordBatch)]
    return [row for batch in batches for row in batch.to_pylist()]


def frame(spark: SparkSession, graph: Graph, query: str, **options: str) -> DataFrame:
    """Read by the format alone, as people write it."""
    register(spark)
    return spark.read.format("omnigraph").options(uri=graph.uri, query=query, **options).load()


# -- on Spark ----------------------------------------------------------------------------------------


def test_a_query_with_parameters_is_a_frame_of_one_snapshot(spark: SparkSession, graph: Graph) -> None:
    text = """
query older($least: I32) { match { $p: Person  $p.age >= $least } return { $p.name as name, $p.age as age } }
query all() { match { $p: Person } return { count($p) as n } }
"""
    found = frame(spark, graph, text, query_name="older", params=json.dumps({"least": 1}))
    before = frame(spark, graph, text, query_name="all", at="main~1")
    assert found.schema.simpleString() == "struct<name:string,age:int>"
    graph.load([{"type": "Person", "data": {"name": "d", "age": 9}}], mode="append")

    assert sorted(map(tuple, found.collect())) == [("b", 1), ("c", 2)]
    assert found.where("age > 1").count() == 1
    assert found.rdd.getNumPartitions() == 1
    assert [row.n for row in before.collect()] == [0]
    assert [row.n for row in frame(spark, graph, text, query_name="all").collect()] == [4]


def test_every_type_arrives_also_inside_a_node(spark: SparkSession, graph: Graph) -> None:
    names = [name for name in ALL if name != "raw"]
    text = f"""
query q() {{
  match {{ $x: All }}
  return {{ {", ".join(f"$x.{name} as {name}" for name in names)}, $x as whole, $x.@id as id }}
}}
"""
    (row,) = frame(spark, graph, text).collect()
    plain = row.asDict(recursive=True)
    at, times = plain.pop("at"), plain.pop("times")
    assert [moment.astimezone(UTC) for moment in (at, *times)] == [
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
    ]
    whole = plain.pop("whole")
    assert (whole.pop("at"), whole.pop("times")) == (at, times)
    assert whole == plain  # the id is in both
    assert plain == {
        **{name: ALL[name] for name in names if name not in ("at", "times")},
        "id": "x",
        "w": Decimal(2**64 - 1),
        "numbers": [Decimal(0), Decimal(2**64 - 1)],
        "day": date(1969, 12, 31),
    }


def test_what_goes_wrong_while_it_runs_has_its_code_in_the_text(spark: SparkSession, graph: Graph) -> None:
    """The columns were known without running it."""
    found = frame(spark, graph, "query q() { match { $p: Person } return { 1 / $p.age as share } }")
    assert found.dtypes == [("share", "bigint")]
    with pytest.raises(PySparkException, match="division by zero") as caught:
        found.collect()
    assert "omnigraph error code: bad_request" in str(caught.value)


# -- without Spark -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "dtype"),
    [
        ("count($p) as n", "bigint"),
        ("sum($p.age) as n", "double"),
        ("avg($p.age) as n", "double"),
        ("max($p.age) as n", "int"),
        ("collect($p.name) as n", "array<string>"),
        ("count_distinct($p.age) as n", "bigint"),
        ("$p.age + 1 as n", "bigint"),
        ("1.5 * 2.0 as n", "double"),
        ("$p.@type as n", "string"),
        ("now() as n", "timestamp"),
        ('"text" as n', "string"),
    ],
)
def test_the_columns_that_are_promised_are_those_that_come(graph: Graph, returned: str, dtype: str) -> None:
    for condition in ("", '$p.name = "nobody"'):
        made = source(graph, f"query q() {{ match {{ $p: Person {condition} }} return {{ {returned} }} }}")
        assert [field.dataType.simpleString() for field in made.schema()] == [dtype]
        reader = made.reader(made.schema())
        expected = to_arrow_schema(made.schema(), timezone="UTC")
        for batch in reader.read(reader.partitions()[0]):
            assert isinstance(batch, pa.RecordBatch)
            assert batch.schema == expected


def test_an_answer_without_rows_has_its_columns(graph: Graph) -> None:
    made = source(
        graph, 'query q() { match { $p: Person  $p.name = "nobody" } return { $p.age as age, $p } }'
    )
    assert made.schema().simpleString() == "struct<age:int,p:struct<id:string,age:int,name:string>>"
    assert rows(made) == []


def test_columns_can_be_narrowed_by_a_schema_of_the_callers(graph: Graph) -> None:
    made = source(graph, AGES)
    assert rows(made, StructType([made.schema()["age"]])) == [{"age": 0}, {"age": 1}, {"age": 2}]
    wrong = StructType([made.schema()["age"]]).add("nmae", "string")
    with pytest.raises(InvalidRequest, match="there is no column 'nmae'"):
        made.reader(wrong)
    with pytest.raises(InvalidRequest, match="column 'age' is int, not string"):
        made.reader(StructType().add("age", "string"))


def test_whoever_writes_meanwhile_the_answer_and_its_names_stay(graph: Graph) -> None:
    made = source(graph, AGES)
    graph.mutate("query q() { update Person set { age: 7 } where age >= 0 }")
    graph.schema.apply(
        SCHEMA.replace("name: String @key age: I32?", 'name: String @key years: I32? @rename_from("age")')
    )
    assert [row["age"] for row in rows(made)] == [0, 1, 2]
    with pytest.raises(GraphError):
        source(graph, AGES)  # the name is of yesterday
    past = source(graph, AGES.replace("$p.age", "$p.years"), at="main~2")
    assert [row["age"] for row in rows(past)] == [0, 1, 2]


def test_the_clock_stands_still_for_a_frame(graph: Graph) -> None:
    made = source(graph, "query q() { match { $p: Person } return { now() as t } limit 1 }")
    (first,), (second,) = rows(made), rows(made)
    assert first == second


def test_a_query_may_be_a_file(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "ages.gq").write_text(AGES)
    made = source(graph, str(tmp_path / "ages.gq"))
    (tmp_path / "ages.gq").unlink()  # executors need not have it
    assert len(rows(made)) == 3


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        ({"type": "Person"}, "options 'type' and 'query' exclude each other", "bad_request"),
        (
            {"query": "query q() { delete Person where age = 1 }"},
            "query 'q' changes the graph",
            "bad_request",
        ),
        ({"params": "{"}, "option 'params' is not JSON", "bad_request"),
        ({"params": "[1]"}, "option 'params' is not a JSON object", "bad_request"),
        ({"params": '{"x": 1}'}, "unknown parameter 'x'", "bad_request"),
        ({"query_name": "other"}, "other", "query_not_found"),
        ({"query": AGES.replace("$p.age", "$p.aeg")}, "aeg", "compile_error"),
        (
            {"partition_bytes": "5"},
            "option 'partition_bytes' does not go with reading a query",
            "bad_request",
        ),
        ({"load_mode": "merge"}, "option 'load_mode' does not go with reading a query", "bad_request"),
        ({"branch": "nowhere"}, "nowhere", "branch_not_found"),
    ],
)
def test_what_is_wrong_is_said_when_the_frame_is_made(
    graph: Graph, options: dict[str, str], says: str, code: str
) -> None:
    with pytest.raises(GraphError) as caught:
        OmnigraphSource({"uri": graph.uri, "query": AGES, **options}).schema()
    assert says in str(caught.value)
    assert caught.value.code == code
    assert caught.value.__notes__ == [f"omnigraph error code: {code}"]
