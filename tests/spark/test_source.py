"""The data source: what a graph holds at one snapshot is what Spark reads, whatever the type and option."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph import Graph
from omnigraph.pipeline import read, register
from omnigraph.pipeline.reading.scan import spark_type
from omnigraph.pipeline.reading.source import Group, OmnigraphSource
from omnigraph.pipeline.session import active
from tests.spark.samples import ALL, EVERY_TYPE
from tests.support.formats import older_release
from tests.support.places import Place

pytestmark = pytest.mark.spark

SCHEMA = (
    EVERY_TYPE
    + """
node Person { name: String @key age: I32? born: Date? ok: Bool? big: I64? }
node Empty { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""
)


def people(numbers: range) -> pa.Table:
    """Return people with some of everything, nulls among them."""
    return pa.table(
        {
            "name": [f"p{n:03d}'\"" for n in numbers],
            "age": pa.array([None if n % 7 == 0 else n % 50 for n in numbers], pa.int32()),
            "born": pa.array([None if n % 5 == 0 else date(2000, 1, 1 + n % 28) for n in numbers]),
            "ok": [None if n % 3 == 0 else n % 2 == 0 for n in numbers],
            "big": pa.array([None if n % 11 == 0 else n << 40 for n in numbers], pa.int64()),
        }
    )


def fill(graph: Graph) -> Graph:
    """Load three fragments of people, some friends, and one node with every type."""
    for start in (0, 40, 80):
        graph.load(people(range(start, start + 40)), mode="append", type="Person")
    names = people(range(10))["name"].to_pylist()
    edges = [
        {"edge": "Knows", "from": a, "to": b, "data": {"since": n}}
        for n, (a, b) in enumerate(pairwise(names))
    ]
    graph.load(
        [{"type": "All", "data": ALL}, {"type": "All", "data": {"name": "null"}}, *edges], mode="append"
    )
    return graph


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph that nobody changes."""
    with og.init(tmp_path_factory.mktemp("source") / "graph.og", SCHEMA, durability="os") as graph:
        yield fill(graph)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Graph]:
    """A graph of the test's own."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as graph:
        yield graph


def frame(spark: SparkSession, graph: Graph, type_name: str, **options: str) -> DataFrame:
    """Read by the format alone, as people write it."""
    register(spark)
    found = spark.read.format("omnigraph").option("uri", graph.uri).option("type", type_name)
    return found.options(**options).load()


def rows(found: DataFrame) -> list[dict[str, Any]]:
    """Return the rows by id, as plain values."""
    return sorted((row.asDict() for row in found.collect()), key=lambda row: str(row["id"]))


def refusal(found: pytest.ExceptionInfo[PySparkException]) -> str:
    return str(found.value)


# -- what is read ------------------------------------------------------------------------------------


def test_the_schema_is_the_catalogs_by_name(spark: SparkSession, filled: Graph) -> None:
    for name in ("All", "Person", "Empty"):
        declared = filled.schema.catalog().node(name)
        found = [(field.name, field.dataType) for field in frame(spark, filled, name).schema]
        assert found == [
            ("id", spark_type(pa.string())),
            *((p.name, spark_type(p.type.arrow)) for p in declared.properties),
        ]


def test_every_type_arrives_as_it_was_written(spark: SparkSession, filled: Graph) -> None:
    """S7: what Spark has no type for travels as another, without a loss."""
    null, row = rows(frame(spark, filled, "All"))

    assert null == {**dict.fromkeys(row), "id": "null", "name": "null"}
    at = row.pop("at"), row.pop("times")[0]
    assert [moment.astimezone(UTC) for moment in at] == [
        datetime(1969, 12, 31, 23, 59, 59, 999000, UTC),
        datetime(2024, 2, 29, 12, tzinfo=UTC),
    ]
    assert row == {
        **{name: value for name, value in ALL.items() if name not in ("at", "times")},
        "id": "x",
        "w": Decimal(2**64 - 1),
        "numbers": [Decimal(0), Decimal(2**64 - 1)],
        "day": date(1969, 12, 31),
        "raw": b"\x00\xff",
    }


def test_edges_have_ends(spark: SparkSession, filled: Graph) -> None:
    found = frame(spark, filled, "Knows")
    assert found.columns == ["id", "src", "dst", "since"]
    assert rows(found) == filled.edges("Knows").to_arrow().to_pylist()


def test_all_fragments_are_read_once_in_groups_by_bytes(spark: SparkSession, filled: Graph) -> None:
    expected = filled.nodes("Person").to_arrow().to_pylist()
    each = frame(spark, filled, "Person", partition_bytes="1")
    together = frame(spark, filled, "Person")
    fragments = len(
        filled.store.table(filled.store.snapshot(), filled.schema.catalog().node("Person").id).get_fragments()
    )

    assert each.rdd.getNumPartitions() == fragments > 1
    assert together.rdd.getNumPartitions() == 1
    assert rows(each) == rows(together) == expected


def test_a_type_without_rows_is_an_empty_frame(spark: SparkSession, filled: Graph) -> None:
    """S8: Spark makes up a partition without a value, and reads it."""
    found = frame(spark, filled, "Empty")
    assert (found.columns, found.collect(), found.count()) == (["id", "name"], [], 0)
    source = OmnigraphSource({"uri": filled.uri, "type": "Empty"})
    assert list(source.reader(source.schema()).read(InputPartition(None))) == []


def test_columns_are_narrowed_by_option_or_schema_in_the_order_asked(
    spark: SparkSession, filled: Graph
) -> None:
    """S3: a selection alone does not reach the reader, so these are the ways to read less."""
    expected = [(row["age"], row["id"]) for row in filled.nodes("Person").to_arrow().to_pylist()]
    by_option = frame(spark, filled, "Person", columns="age, id")
    by_schema = (
        spark.read.format("omnigraph").schema("age int, id string").option("type", "Person").load(filled.uri)
    )
    for found in (by_option, by_schema):
        assert sorted(map(tuple, found.collect()), key=lambda row: row[1]) == expected
    assert frame(spark, filled, "Person").select("age").count() == len(expected)
    source = OmnigraphSource({"uri": filled.uri, "type": "Person", "columns": "age"})
    (group,) = source.reader(source.schema()).partitions()
    assert next(iter(source.reader(source.schema()).read(group))).schema.names == ["age"]


# -- which state -------------------------------------------------------------------------------------


def test_branches_and_past_states_are_read_under_the_names_of_now(
    spark: SparkSession, own: Graph, tmp_path: Path
) -> None:
    first = own.load(people(range(3)), mode="append", type="Person").commit_id
    own.branches.create("dev")
    own.load(people(range(3, 5)), mode="append", type="Person", branch="dev")
    own.schema.apply(
        SCHEMA.replace(
            "node Person { name: String @key age: I32?",
            'node Human @rename_from("Person") { name: String @key years: I64? @rename_from("age") new: U64?',
        ).replace("Person -> Person", "Human -> Human")
    )

    assert frame(spark, own, "Person", branch="dev").count() == 5
    past = frame(spark, own, "Human", at=str(first)).where("years >= 2")
    assert [(row.years, row.new) for row in past.collect()] == [(2, None)]
    assert dict(past.dtypes)["years"] == "int"  # the type that it had then
    only_new = frame(spark, own, "Human", at="main~1", columns="new")
    assert [row.new for row in only_new.collect()] == [None] * 3


def test_one_frame_is_one_snapshot_whoever_writes_meanwhile(spark: SparkSession, own: Graph) -> None:
    own.load(people(range(10)), mode="append", type="Person")
    before = frame(spark, own, "Person")
    named = spark.read.format("omnigraph").schema("id string").option("type", "Person").load(own.uri)
    assert named.count() == 10

    own.load(people(range(10, 20)), mode="append", type="Person")
    own.mutate("query q() { delete Person where age = 1 }")

    assert before.count() == named.count() == 10
    assert before.join(before.select("id"), "id").count() == 10
    assert frame(spark, own, "Person").count() == 19


def test_nothing_that_is_sent_holds_a_handle(filled: Graph) -> None:
    import pickle

    source = pickle.loads(pickle.dumps(OmnigraphSource({"uri": filled.uri, "type": "Knows"})))
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    assert all(isinstance(part, Group) for part in parts)
    assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 9


def test_a_relative_path_is_the_drivers(
    spark: SparkSession, filled: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(filled.uri).parent)
    assert read(spark, "graph.og", "Knows", at=filled.store.snapshot().commit_id).count() == 9


@pytest.mark.s3
def test_storage_options_travel(spark: SparkSession, s3_place: Place) -> None:
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        graph.load(people(range(5)), mode="append", type="Person")
        options = {f"storage.{name}": value for name, value in s3_place.options.items()}
        assert frame(spark, graph, "Person", **options).count() == 5
        assert read(spark, graph, "Person", columns=["age"]).columns == ["age"]


# -- what Spark does with a source -------------------------------------------------------------------


class Taking(DataSourceReader):
    """Takes any filter, and finds one row if it took one, else two."""

    taken = False

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self.taken = True
        return iter(())

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from [(1,)] if self.taken else [(1,), (2,)]


class TakingSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "taking"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Taking()


def test_spark_confuses_the_filters_of_one_frame_so_the_source_takes_none(
    spark: SparkSession, filled: Graph
) -> None:
    """S4: when the first half fails, Spark is mended, and filters may be taken where a session allows it."""
    session = spark.newSession()
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with active(session):
        session.dataSource.register(TakingSource)
    broken = session.read.format("taking").load()
    assert [broken.count(), broken.where("n = 1").count(), broken.count()] == [2, 1, 1]  # 2, 1, 2 is right

    for allowed in ("true", "false"):
        session.conf.set("spark.sql.python.filterPushdown.enabled", allowed)
        people = frame(session, filled, "Person")
        assert [people.count(), people.where("age = 3").count(), people.count()] == [120, 3, 120]
        assert people.where("age = 3").union(people.where("age is null")).count() == 21


def test_spark_does_not_know_how_small_a_source_is(spark: SparkSession, filled: Graph) -> None:
    """S13: it never broadcasts one by itself; where that is wanted it has to be said."""
    plan = frame(spark, filled, "Empty")._jdf.queryExecution().optimizedPlan()
    assert plan.stats().sizeInBytes() == 2**63 - 1


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        ({"type": "Persn"}, "did you mean 'Person'?", "type_not_found"),
        pytest.param({"branch": "nowhere"}, "nowhere", "branch_not_found", marks=pytest.mark.full),
        pytest.param({"at": "no-such-tag"}, "no-such-tag", "tag_not_found", marks=pytest.mark.full),
        ({"columns": "age,aeg"}, "there is no column 'aeg'. The columns are id, age", "bad_request"),
        pytest.param(
            {"brnch": "dev"},
            "unknown option 'brnch'; did you mean 'branch'?",
            "bad_request",
            marks=pytest.mark.full,
        ),
        ({"partition_bytes": "0"}, "option 'partition_bytes' is '0'", "bad_request"),
        pytest.param(
            {"kind": "edge"}, "the schema has no type 'edge:Person'", "type_not_found", marks=pytest.mark.full
        ),
        pytest.param({"kind": "table"}, "option 'kind' is 'table'", "bad_request", marks=pytest.mark.full),
        ({"uri": "/nowhere/at/all"}, "/nowhere/at/all", "graph_not_found"),
        ({"type": ""}, "option 'type' is missing", "bad_request"),
    ],
)
def test_what_is_wrong_is_told_in_the_text(
    spark: SparkSession, filled: Graph, options: dict[str, str], says: str, code: str
) -> None:
    register(spark)
    given = {"uri": filled.uri, "type": "Person", **options}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("omnigraph").options(**given).load()
    assert says in refusal(caught)
    assert f"omnigraph error code: {code}" in refusal(caught)


def test_a_graph_of_an_older_format_is_neither_read_nor_written(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with older_release(), og.init(tmp_path / "older.og", "node Person { name: String @key }") as graph:
        given = {"uri": graph.uri, "type": "Person"}
    with pytest.raises(PySparkException) as read_caught:
        spark.read.format("omnigraph").options(**given).load()
    rows = spark.createDataFrame([("Ada",)], "name string")
    with pytest.raises(PySparkException) as write_caught:
        rows.write.format("omnigraph").options(**given).mode("append").save()
    for caught in (read_caught, write_caught):
        assert f"omnigraph upgrade {graph.uri}" in refusal(caught)
        assert "omnigraph error code: format_too_old" in refusal(caught)


def test_a_column_asked_for_in_another_type_is_refused(spark: SparkSession, filled: Graph) -> None:
    register(spark)
    with pytest.raises(PySparkException) as caught:
        spark.read.format("omnigraph").schema("age string").option("type", "Person").load(
            filled.uri
        ).collect()
    assert "column 'age' is int, not string" in refusal(caught)
