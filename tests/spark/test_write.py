"""`df.write.format("omnigraph")`: one commit for each write, checked whole, and never undone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import ConstraintViolation, NotFound, StagedFilesGone, StaleVersion
from omnigraph.engine.load.assembly import WriteMode
from omnigraph.pipeline import read, register, written
from omnigraph.pipeline.reading.source import OmnigraphSource
from omnigraph.pipeline.session import active
from omnigraph.pipeline.streaming.publishing import BatchPlan, BatchTarget, plan_write, publish
from omnigraph.storage.publish import Intent
from tests.spark.samples import ALL, EVERY_TYPE
from tests.support.places import Place

pytestmark = pytest.mark.spark

SCHEMA = (
    EVERY_TYPE
    + """
node Person { name: String @key age: I32? }
node Thing { value: String }
edge Knows: Person -> Person { since: I32? }
"""
)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    """An empty graph."""
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        yield made


def people(spark: SparkSession, ages: dict[str, int], partitions: int = 2) -> DataFrame:
    return spark.createDataFrame(list(ages.items()), "name string, age int").repartition(partitions)


def write(frame: DataFrame, graph: Graph, mode: str | None = "append", **options: str) -> None:
    """Write by the format alone, as people do."""
    register(frame.sparkSession)
    writer = frame.write.format("omnigraph").options(**{"uri": graph.uri, "type": "Person", **options})
    (writer if mode is None else writer.mode(mode)).save()


def ages(graph: Graph, **where: Any) -> dict[str, int | None]:
    return {row["name"]: row["age"] for row in graph.nodes("Person", **where).to_arrow().to_pylist()}


def refused(frame: DataFrame, graph: Graph, mode: str | None = "append", **options: str) -> str:
    """Return the text of a refusal, after which nothing has changed."""
    before = graph.store.snapshot().commit_id
    with pytest.raises(PySparkException) as caught:
        write(frame, graph, mode, **options)
    assert graph.store.snapshot().commit_id == before
    return str(caught.value)


# -- one commit --------------------------------------------------------------------------------------


def test_a_write_is_one_commit_that_its_key_finds(spark: SparkSession, graph: Graph) -> None:
    frame = people(spark, {f"p{n}": n for n in range(40)}, partitions=4)
    for _ in range(2):  # the second is the same request, and does nothing
        write(frame, graph, idempotency_key="k", actor="ada", message="people")

    assert ages(graph) == {f"p{n}": n for n in range(40)}
    (commit, _) = graph.commits.list()
    receipt = written(graph, "k", actor="ada")
    assert (receipt.commit, receipt.replayed) == (commit, True)
    assert (commit.kind.value, commit.actor, commit.message) == ("load", "ada", "people")
    assert [(one.name, one.inserted) for one in receipt.nodes] == [("Person", 40)]
    for key, actor in (("other", "ada"), ("k", None)):
        with pytest.raises(NotFound):
            written(graph, key, actor=actor)

    text = refused(people(spark, {"q": 1}), graph, idempotency_key="k", actor="ada")
    assert "omnigraph error code: idempotency_mismatch" in text


def test_modes_are_named_by_an_option(spark: SparkSession, graph: Graph) -> None:
    write(people(spark, {"a": 1, "b": 2}), graph)
    assert "omnigraph error code: key_conflict" in refused(people(spark, {"b": 3, "c": 4}), graph)
    write(people(spark, {"b": 3, "c": 4}), graph, load_mode="merge")
    assert ages(graph) == {"a": 1, "b": 3, "c": 4}
    write(people(spark, {"c": 5, "d": 6}), graph, load_mode="merge", driver_rows="1")
    assert ages(graph) == {"a": 1, "b": 3, "c": 5, "d": 6}
    write(people(spark, {"z": 9}), graph, "overwrite", load_mode="overwrite")
    assert ages(graph) == {"z": 9}
    write(people(spark, {}), graph, "overwrite", load_mode="overwrite")
    assert ages(graph) == {}


def test_spark_has_only_two_modes_and_a_write_without_one_fails(spark: SparkSession, graph: Graph) -> None:
    """S14: what `insert` and `merge` mean, Spark has no words for."""
    for mode in (None, "ignore", "error"):
        assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in refused(people(spark, {"a": 1}), graph, mode)


def test_all_rows_are_judged_together_and_nothing_is_published_of_a_bad_write(
    spark: SparkSession, graph: Graph
) -> None:
    write(people(spark, {"a": 1, "b": 2}), graph)
    edges = spark.createDataFrame([("a", "b"), ("b", "nobody")], "from string, to string").repartition(2)
    for rows in ("1", "100000"):  # joined, or looked up
        text = refused(edges, graph, type="Knows", driver_rows=rows)
        assert "dst 'nobody' not found in Person" in text
        assert "omnigraph error code: constraint_violation" in text
    nameless = spark.createDataFrame([("c", 1), (None, 2)], "name string, age int")
    assert "non-nullable property 'name'" in refused(nameless, graph)
    write(edges.where("to = 'b'"), graph, type="Knows")
    assert graph.edges("Knows").to_arrow().select(["src", "dst"]).to_pylist() == [{"src": "a", "dst": "b"}]


def test_what_is_read_can_be_written(spark: SparkSession, graph: Graph) -> None:
    """S7: unsigned integers come back from decimals, vectors from arrays."""
    graph.load(
        [{"type": "All", "data": ALL}, {"type": "All", "data": {"name": "null"}}],
        mode="append",
    )
    before = read(spark, graph, "All").drop("id")
    write(before.withColumn("name", f.concat("name", f.lit("'"))), graph, type="All")
    rows = {row.pop("name"): row for row in graph.nodes("All").to_arrow().drop_columns(["id"]).to_pylist()}
    assert rows["x'"] == rows["x"]
    assert rows["null'"] == rows["null"]
    assert rows["x"]["w"] == 2**64 - 1


def test_a_branch_and_the_head_that_is_expected_are_options(spark: SparkSession, graph: Graph) -> None:
    first = graph.load([{"type": "Person", "data": {"name": "a"}}], mode="append").commit_id
    graph.branches.create("dev")
    write(people(spark, {"b": 2}), graph, branch="dev", if_commit=str(first))
    assert (ages(graph), ages(graph, branch="dev")) == ({"a": None}, {"a": None, "b": 2})
    graph.load([{"type": "Person", "data": {"name": "c"}}], mode="append")
    text = refused(people(spark, {"b": 2}), graph, if_commit=str(first))
    assert "omnigraph error code: precondition_failed" in text


@pytest.mark.s3
def test_storage_options_travel_to_those_who_write(spark: SparkSession, s3_place: Place) -> None:
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        options = {f"storage.{name}": value for name, value in s3_place.options.items()}
        write(people(spark, {"a": 1, "b": 2}), graph, **options)
        assert ages(graph) == {"a": 1, "b": 2}


# -- what Spark does around a commit -----------------------------------------------------------------


class Watched(OmnigraphSource):
    """The format itself; its commit leaves a note of where it ran, and fails afterwards if told to."""

    @classmethod
    def name(cls) -> str:
        return "watched"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return WatchedSink(super().writer(schema, overwrite), Path(self.options["uri"]).parent)


class WatchedSink(DataSourceArrowWriter):
    """Hands everything on."""

    def __init__(self, sink: DataSourceWriter, folder: Path) -> None:
        self._sink = sink
        self._folder = folder

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages)
        session = SparkSession.getActiveSession()
        (self._folder / "committed").write_text(json.dumps([os.getpid(), session is None]))
        if (self._folder / "fail").exists():
            raise RuntimeError("the reply was lost")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort(messages)
        (self._folder / "aborted").write_text(str(len(messages)))


def files(graph: Graph) -> set[Path]:
    return {path for path in Path(graph.uri).rglob("*.lance") if path.is_file()}


def test_an_abort_after_a_commit_that_landed_undoes_nothing(
    spark: SparkSession, graph: Graph, tmp_path: Path
) -> None:
    """S1: Spark aborts with every message when a commit raises, landed or not. S2: in another process."""
    with active(spark):
        spark.dataSource.register(Watched)
    (tmp_path / "fail").touch()
    frame = people(spark, {f"p{n}": n for n in range(20)}, partitions=4)
    writer = (
        frame.write.format("watched")
        .mode("append")
        .options(uri=graph.uri, type="Person", idempotency_key="k", driver_rows="1")
    )
    with pytest.raises(PySparkException, match="the reply was lost"):
        writer.save()

    assert (tmp_path / "aborted").read_text() == "4"
    process, alone = json.loads((tmp_path / "committed").read_text())
    assert process != os.getpid()
    assert alone  # no session there to ask
    assert ages(graph) == {f"p{n}": n for n in range(20)}
    assert read(spark, graph, "Person").count() == 20
    kept = files(graph)

    (tmp_path / "fail").unlink()
    writer.save()  # the key says that it was done
    assert len(graph.commits.list()) == 2
    assert ages(graph) == {f"p{n}": n for n in range(20)}
    assert kept <= files(graph)


# -- refused before anything runs --------------------------------------------------------------------


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


PERSON = columns(name=StringType(), age=IntegerType())


@pytest.mark.parametrize(
    ("options", "overwrite", "says"),
    [
        ({}, True, "Spark's mode replaces rows, and load_mode is 'insert'"),
        ({"load_mode": "merge"}, True, "Spark's mode replaces rows, and load_mode is 'merge'"),
        ({"load_mode": "overwrite"}, False, "Spark's mode adds rows, and load_mode is 'overwrite'"),
        ({"load_mode": "upsert"}, False, "The modes are insert, merge, overwrite"),
        ({"at": "main~0"}, False, "option 'at' does not go with writing"),
        ({"columns": "name"}, False, "option 'columns' does not go with writing"),
        ({"sink_id": "x"}, False, "option 'sink_id' does not go with writing"),
        ({"driver_rows": "none"}, False, "option 'driver_rows' is 'none'"),
        ({"type": "Persn"}, False, "did you mean 'Person'?"),
        ({"branch": "nowhere"}, False, "nowhere"),
    ],
)
def test_wrong_options_are_refused_by_the_planner(
    graph: Graph, options: dict[str, str], overwrite: bool, says: str
) -> None:
    with pytest.raises(GraphError) as caught:
        OmnigraphSource({"uri": graph.uri, "type": "Person", **options}).writer(PERSON, overwrite)
    assert says in str(caught.value)
    assert caught.value.__notes__ == [f"omnigraph error code: {caught.value.code}"]


@pytest.mark.parametrize(
    ("type_name", "given", "says"),
    [
        ("Person", columns(name=StringType(), aeg=IntegerType()), "'aeg'"),
        ("Person", columns(age=IntegerType()), "non-nullable property 'name'"),
        ("Person", columns(name=StringType(), age=DoubleType()), "Person.age is of type I32?"),
        ("Person", columns(name=IntegerType()), "Person.name is of type String"),
        ("Person", columns(name=StringType(), src=StringType()), "'src'"),
        ("Knows", columns(src=StringType()), "non-nullable property 'to'"),
        ("All", columns(name=StringType(), w=DecimalType(20, 2)), "All.w is of type U64?"),
        (
            "All",
            columns(name=StringType(), texts=ArrayType(IntegerType())),
            "All.texts is of type String and takes text",
        ),
    ],
)
def test_columns_that_cannot_be_right_are_refused_by_the_planner(
    graph: Graph, type_name: str, given: StructType, says: str
) -> None:
    """No task runs for them: Spark hands a writer whatever columns there are."""
    before = files(graph)
    with pytest.raises(ConstraintViolation, match="the load was refused") as caught:
        OmnigraphSource({"uri": graph.uri, "type": type_name}).writer(given, False)
    assert says in str(caught.value)
    assert files(graph) == before


# -- between the tasks and the commit ----------------------------------------------------------------


def planned(graph: Graph, mode: WriteMode = WriteMode.APPEND, driver_rows: int = 1) -> BatchPlan:
    target = BatchTarget(graph.store.location, "Person", "main", mode, driver_rows)
    return plan_write(graph.store, target, PERSON)


def rows(*found: tuple[str, int]) -> list[pa.RecordBatch]:
    names, numbers = zip(*found, strict=True)
    return [pa.RecordBatch.from_pydict({"name": names, "age": pa.array(numbers, pa.int32())})]


@pytest.mark.parametrize("driver_rows", [1, 1000], ids=["files", "rows"])
def test_who_commits_first_does_not_matter(graph: Graph, driver_rows: int) -> None:
    plan = planned(graph, WriteMode.MERGE, driver_rows)
    outcomes = [plan.run(rows(("a", 1), ("b", 2))), plan.run(rows(("c", 3)))]
    graph.load([{"type": "Person", "data": {"name": name, "age": 9}} for name in "cd"], mode="append")

    receipt = publish(graph.store, plan.target, plan.snapshot, outcomes, Intent())

    assert ages(graph) == {"a": 1, "b": 2, "c": 3, "d": 9}
    (count,) = receipt.nodes
    assert (count.inserted, count.updated, receipt.affected_nodes) == (2, 1, 3)


def test_a_schema_that_came_in_between_is_a_conflict(graph: Graph) -> None:
    plan = planned(graph)
    outcome = plan.run(rows(("a", 1)))
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32? town: String?"))
    with pytest.raises(StaleVersion):
        publish(graph.store, plan.target, plan.snapshot, [outcome], Intent())
    assert ages(graph) == {}


def test_files_that_a_cleanup_may_have_taken_are_not_published(graph: Graph) -> None:
    plan = planned(graph)
    outcome = plan.run(rows(("a", 1), ("b", 2)))
    graph.store.raise_floor("main", 1)
    with pytest.raises(StagedFilesGone):
        publish(graph.store, plan.target, plan.snapshot, [outcome], Intent())
    assert ages(graph) == {}


def test_places_of_bad_rows_count_over_all_partitions(graph: Graph) -> None:
    plan = planned(graph)
    outcomes = [plan.run(rows(("a", 1), ("b", 2))), plan.run(rows(("c", 3), ("a", 4)))]
    with pytest.raises(GraphError) as caught:
        publish(graph.store, plan.target, plan.snapshot, outcomes, Intent())
    assert "<Person>:4" in str(caught.value)
