"""Bulk loads: inputs good and bad, places of what is wrong, rows set aside, one commit or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph import Graph, GraphError
from omnigraph.base.errors import ConstraintViolation, InvalidRequest, StorageError
from omnigraph.engine.load.assembly import LoadProgress
from omnigraph.engine.load.conform import UnreadableInput
from omnigraph.pipeline import load
from omnigraph.storage.location import Location
from tests.support.contents import check_whole, read, state
from tests.support.people import INSERT, coming_first, head, knows, person, thing, violations
from tests.support.people import SCHEMA as PEOPLE
from tests.support.places import Place

pytestmark = pytest.mark.spark
SCHEMA = PEOPLE + "node Event { at: DateTime  day: Date?  size: U64?  shape: Vector(2)?  tags: [String]? }\n"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph.og", SCHEMA, durability="os") as made:
        made.load([person("a", age=1), person("b", age=2), knows("a", "b", id="e")], mode="append")
        yield made


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    """Return rows as a DataFrame, in their order."""
    return spark.createDataFrame(list(rows), schema)


def names(graph: Graph, **where: Any) -> list[str]:
    """Return the names of all people."""
    return sorted(row["name"] for row in read(graph, "Person", **where))


# By executors to the end each takes many jobs: two of these tests do so in every run, all in the full one.
both = pytest.mark.parametrize(
    "driver_rows", [pytest.param(0, id="executors", marks=pytest.mark.full), pytest.param(1000, id="driver")]
)
each = pytest.mark.parametrize("driver_rows", [0, 1000], ids=["executors", "driver"])


# -- inputs ----------------------------------------------------------------------------------------------


def test_frames_of_several_types_are_one_commit(graph: Graph, spark: SparkSession) -> None:
    before = head(graph)
    people = frame(spark, "name string, age int", ("c", 3), ("d", None))
    edges = frame(spark, "`from` string, `to` string, since int", ("c", "a", 2000), ("d", "c", None))

    receipt = load(
        spark, graph, {"Knows": edges, "Person": people}, mode="append", message="bulk", actor="me"
    )

    assert receipt.parents == (before,)
    assert [(c.name, c.inserted, c.given) for c in receipt.types] == [("Person", 2, 2), ("Knows", 2, 2)]
    assert (receipt.actor, receipt.facts["engine"]) == ("me", "spark")
    assert names(graph) == ["a", "b", "c", "d"]
    check_whole(graph)


def test_types_travel_without_loss(graph: Graph, spark: SparkSession) -> None:
    rows = frame(
        spark,
        "at timestamp, day date, size decimal(20,0), shape array<float>, tags array<string>",
        *spark.sql(
            "select timestamp'2026-01-02 03:04:05.678Z', date'1969-12-31', 18446744073709551615bd,"
            " array(1.5f, -2f), array('x', 'é')"
        ).collect(),
    )

    load(spark, graph, {"Event": rows}, mode="append")

    (row,) = graph.query(
        "query q() { match { $e: Event } return { $e.at, $e.day, $e.size, $e.shape, $e.tags } }"
    ).rows
    assert list(row.values()) == [
        datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
        date(1969, 12, 31),
        18446744073709551615,
        [1.5, -2.0],
        ["x", "é"],
    ]


def test_modes_differ_by_type_and_columns_are_mapped(graph: Graph, spark: SparkSession) -> None:
    people = frame(spark, "who string, years int", ("a", 9))
    edges = frame(spark, "a string, b string", ("b", "a"))

    receipt = load(
        spark,
        graph,
        {"Person": people, "Knows": edges},
        mode={"Person": "merge", "Knows": "overwrite"},
        columns={"Person": {"who": "name", "years": "age"}, "Knows": {"a": "from", "b": "to"}},
    )

    counts = [(c.name, c.inserted, c.updated, c.deleted) for c in receipt.types]
    assert counts == [("Person", 0, 1, 0), ("Knows", 1, 0, 1)]
    assert [(row["src"], row["dst"]) for row in read(graph, "Knows")] == [("b", "a")]


@both
def test_a_type_that_is_overwritten_with_nothing_is_empty(
    graph: Graph, spark: SparkSession, driver_rows: int
) -> None:
    none = frame(spark, "`from` string, `to` string")

    receipt = load(spark, graph, {"Knows": none}, mode="overwrite", driver_rows=driver_rows)

    assert [(c.name, c.deleted) for c in receipt.types] == [("Knows", 1)]
    assert read(graph, "Knows") == []
    assert names(graph) == ["a", "b"]


def test_files_by_engine_name(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"name": ["c"], "age": [3]}), tmp_path / "in" / "Person.parquet")
    (tmp_path / "in" / "Knows.csv").write_text("from,to\nc,a\n")
    (tmp_path / "in" / "more.jsonl").write_text(json.dumps(person("d")) + "\n" + json.dumps(knows("d", "c")))

    receipt = graph.load(tmp_path / "in", mode="append", engine="spark")

    assert receipt.facts["engine"] == "spark"
    assert names(graph) == ["a", "b", "c", "d"]
    assert len(read(graph, "Knows")) == 3
    assert graph.load([person("z")], mode="append").facts["engine"] == "local"


def test_a_branch_is_made_and_a_dry_run_writes_nothing(graph: Graph, spark: SparkSession) -> None:
    rows = frame(spark, "name string", ("c",))

    rehearsed = load(
        spark, graph, {"Person": rows}, mode="append", branch="b", from_branch="main", dry_run=True
    )
    assert rehearsed.commit is None
    assert rehearsed.types[0].inserted == 1
    assert "b" not in [one.name for one in graph.branches.list()]

    load(spark, graph, {"Person": rows}, mode="append", branch="b", from_branch="main")
    assert names(graph, branch="b") == ["a", "b", "c"]
    assert names(graph) == ["a", "b"]


def test_the_same_key_again_is_the_first_receipt(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "things.jsonl"
    path.write_text("\n".join(json.dumps(thing(str(n))) for n in range(3)))

    first = load(spark, graph, path, mode="append", idempotency_key="k", labels={"batch": "7"})
    again = load(spark, graph, path, mode="append", idempotency_key="k")

    assert (again.replayed, again.commit_id) == (True, first.commit_id)
    assert first.commit is not None
    assert first.commit.labels["batch"] == "7"
    assert len(read(graph, "Thing")) == 3
    path.write_text(json.dumps(thing("other")))
    with pytest.raises(GraphError, match="idempotency"):
        load(spark, graph, path, mode="append", idempotency_key="k")


def test_tasks_are_told_and_a_caller_who_has_enough_stops_them(graph: Graph, spark: SparkSession) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(3)
            yield batch

    every = spark.range(0, 40, 1, numPartitions=20).selectExpr("concat('n', id) as name")
    slow = every.mapInArrow(slowly, "name string")
    told: list[LoadProgress] = []

    def enough(now: LoadProgress) -> None:
        told.append(now)
        if 0 < now.tasks_done < now.tasks:  # in the middle of a job: a short job before it may be done by now
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(spark, graph, {"Person": slow}, mode="append", progress=enough)

    assert told[-1].tasks > told[-1].tasks_done
    assert told[-1].stage == "reading"
    assert names(graph) == ["a", "b"]


def test_progress_is_told(graph: Graph, spark: SparkSession) -> None:
    told: list[LoadProgress] = []
    load(spark, graph, {"Person": frame(spark, "name string", ("c",))}, mode="append", progress=told.append)

    stages = ["reading", "checking", "writing", "deriving", "done"]
    assert list(dict.fromkeys(one.stage for one in told)) == stages
    assert told[-1].rows == 1


# -- rows that are replaced ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["driver", "deletions", "rewrite"])
def test_rows_are_replaced_by_each_way(graph: Graph, spark: SparkSession, way: Any) -> None:
    graph.load([thing(str(n), id=f"t{n}") for n in range(20)], mode="append")
    rows = [(f"t{n}", "new") for n in range(10, 30)] + [("t5", "first"), ("t5", "last")]

    receipt = load(
        spark,
        graph,
        {"Thing": frame(spark, "id string, value string", *rows)},
        mode="merge",
        upsert=way,
        driver_rows=0,
    )

    (count,) = receipt.types
    assert (count.inserted, count.updated, count.given) == (10, 11, 22)
    assert receipt.facts["upsert"] == {"Thing": way}
    found = {row["id"]: row["value"] for row in read(graph, "Thing")}
    assert len(found) == 30
    assert (found["t4"], found["t5"], found["t12"], found["t29"]) == ("4", "last", "new", "new")
    check_whole(graph)


@each
def test_a_lost_race_publishes_the_same_files_on_the_new_base(
    graph: Graph, spark: SparkSession, driver_rows: int
) -> None:
    rows = frame(spark, "name string, age int", ("a", 7), ("c", 3))

    with coming_first(graph.uri, lambda other: other.mutate(INSERT, name="first", age=1)):
        receipt = load(spark, graph, {"Person": rows}, mode="merge", driver_rows=driver_rows)

    assert receipt.attempts == 2
    assert names(graph) == ["a", "b", "c", "first"]
    check_whole(graph)


@both
def test_a_rival_that_breaks_the_load_is_found(graph: Graph, spark: SparkSession, driver_rows: int) -> None:
    rows = frame(spark, "name string, age int", ("c", 3))

    with (
        coming_first(graph.uri, lambda other: other.mutate(INSERT, name="c", age=1)),
        pytest.raises(GraphError, match="exists already"),
    ):
        load(spark, graph, {"Person": rows}, mode="append", driver_rows=driver_rows)

    assert names(graph) == ["a", "b", "c"]


# -- bad input -------------------------------------------------------------------------------------------


@each
def test_duplicate_keys_in_different_partitions_are_found(
    graph: Graph, spark: SparkSession, driver_rows: int
) -> None:
    before = state(graph)
    rows = spark.createDataFrame([("x",), ("y",), ("x",)], "name string").repartition(3)

    with pytest.raises(ConstraintViolation) as caught:
        load(spark, graph, {"Person": rows}, mode="append", driver_rows=driver_rows)

    assert violations(caught.value) == ["unique"]
    assert state(graph) == before


@both
def test_what_is_wrong_is_told_with_file_and_line(
    graph: Graph, spark: SparkSession, tmp_path: Path, driver_rows: int
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(
        "\n".join(
            [json.dumps(person("c")), json.dumps(knows("c", "a")), "", json.dumps(knows("c", "nobody"))]
        )
    )

    with pytest.raises(ConstraintViolation) as caught:
        load(spark, graph, path, mode="append", driver_rows=driver_rows)

    (violation,) = caught.value.fields["violations"]
    assert (violation["code"], violation["place"]) == ("orphan_edge", "data.jsonl:4")


def test_every_problem_of_every_partition_is_counted(graph: Graph, spark: SparkSession) -> None:
    rows = spark.range(0, 60, 1, 3).selectExpr("concat('p', id) as name", "cast(id + 100 as int) as age")

    with pytest.raises(ConstraintViolation) as caught:
        load(spark, graph, {"Person": rows}, mode="append")

    assert caught.value.fields["total"] == 39
    assert (
        caught.value.fields["violations"][0]["place"] == "<Person>:22"
    )  # row 1 has age 100, 120 is the last good one


@pytest.mark.parametrize(
    ("schema", "row", "words"),
    [
        ("name string, wrong int", ("x", 1), "unknown input field 'wrong'"),
        ("age int", (1,), "non-nullable property 'name'.*there is no such column"),
        ("name string, age string", ("x", "old"), r"Person\.age"),
        ("name string, age int", (None, 1), "non-nullable property 'name'"),
        ("name string, age bigint", ("x", 2**40), r"Person\.age.*exceeds Int32 range|Person\.age"),
    ],
    ids=["unknown-column", "missing-column", "type", "null-key", "range"],
)
def test_frames_that_do_not_fit_are_refused(
    graph: Graph, spark: SparkSession, schema: str, row: tuple[Any, ...], words: str
) -> None:
    before = state(graph)
    with pytest.raises(ConstraintViolation, match=words):
        load(spark, graph, {"Person": frame(spark, schema, row)}, mode="append")
    assert state(graph) == before


def test_a_corrupt_file_is_a_typed_error_that_names_it(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "Person.parquet"
    pq.write_table(pa.table({"name": [f"n{n}" for n in range(5000)]}), path)
    content = bytearray(path.read_bytes())
    content[100:4000] = b"\0" * 3900
    path.write_bytes(content)

    with pytest.raises(UnreadableInput, match=r"Person\.parquet: broken"):
        load(spark, graph, path, mode="append")
    assert names(graph) == ["a", "b"]


def test_a_frame_that_fails_says_why(graph: Graph, spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("cast(assert_true(id > 5, 'too small') as string) as name")
    with pytest.raises(StorageError, match="too small"):
        load(spark, graph, {"Person": rows}, mode="append")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "upsert"}, "'mode' must be .*'append'.*not 'upsert'"),
        ({"mode": "append", "replace_types": ["Person"]}, "only mode overwrite"),
        ({"mode": "append", "on_violation": "reject"}, "nothing says where to"),
        ({"mode": "append", "on_violation": "skip"}, "'on_violation' must be 'fail' or 'reject', not 'skip'"),
        ({"mode": "append", "columns": {"Thing": {}}}, "'Thing', which is not loaded"),
    ],
    ids=["mode", "replace", "rejects", "violation", "columns"],
)
def test_requests_that_make_no_sense_are_refused(
    graph: Graph, spark: SparkSession, options: Any, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        load(spark, graph, {"Person": frame(spark, "name string", ("x",))}, **options)


# -- rows set aside --------------------------------------------------------------------------------------


@both
def test_bad_rows_are_set_aside_and_the_others_loaded(
    graph: Graph, spark: SparkSession, tmp_path: Path, driver_rows: int
) -> None:
    people = frame(
        spark,
        "name string, age int, email string",
        ("c", 3, "x"),
        ("old", 200, None),
        ("twin", 4, "x"),
        ("c", 5, None),
        ("a", 6, None),
    )
    edges = frame(spark, "`from` string, `to` string", ("c", "b"), ("c", "old"), ("twin", "c"))

    receipt = load(
        spark,
        graph,
        {"Person": people, "Knows": edges},
        mode="append",
        on_violation="reject",
        rejects=tmp_path / "out" / "rejects.parquet",
        driver_rows=driver_rows,
    )

    assert receipt.facts["rejected"] == 6
    rows = pq.read_table(receipt.facts["rejects"]).to_pylist()
    assert [(r["type"], r["code"], r["place"]) for r in rows if r["type"] == "Person"] == [
        ("Person", "range", "<Person>:2"),
        ("Person", "key_conflict", "<Person>:5"),
        ("Person", "unique", "<Person>:4"),
        ("Person", "unique", "<Person>:3"),
    ]
    assert sorted(r["place"] for r in rows if r["type"] == "Knows") == ["<Knows>:2", "<Knows>:3"]
    assert names(graph) == ["a", "b", "c"]
    assert len(read(graph, "Knows")) == 2
    check_whole(graph)


@pytest.mark.s3
def test_rejects_lie_on_an_object_store_as_the_graph_does(spark: SparkSession, s3_place: Place) -> None:
    with og.init(s3_place.address, SCHEMA, **s3_place.kwargs) as graph:
        receipt = load(
            spark,
            graph,
            {"Person": frame(spark, "name string, age int", ("c", 3), ("old", 200))},
            mode="append",
            on_violation="reject",
            rejects=f"{s3_place.address}-rejects/of/today.parquet",
        )

        assert receipt.facts["rejects"] == f"{s3_place.address}-rejects/of/today.parquet"
        assert names(graph) == ["c"]
    folder = Location(f"{s3_place.address}-rejects", s3_place.options).objects
    (row,) = pq.read_table(pa.BufferReader(folder.read("of/today.parquet"))).to_pylist()
    assert (row["type"], row["code"], row["place"]) == ("Person", "range", "<Person>:2")


def test_what_no_row_of_the_input_is_to_blame_for_is_raised(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    before = state(graph)
    with pytest.raises(ConstraintViolation, match="rejecting rows of the input cannot mend"):
        load(
            spark,
            graph,
            {"Person": frame(spark, "name string", ("a",))},  # `b` goes, and an edge ends there
            mode="overwrite",
            on_violation="reject",
            rejects=tmp_path / "rejects.parquet",
        )
    assert state(graph) == before
    assert not (tmp_path / "rejects.parquet").exists()


def test_a_wrong_column_is_not_a_matter_of_rows(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "Person.csv").write_text("name,wrong\nx,1\n")
    with pytest.raises(ConstraintViolation, match="unknown input field"):
        graph.load(
            tmp_path / "Person.csv", mode="append", on_violation="reject", rejects=tmp_path / "r.parquet"
        )
    assert names(graph) == ["a", "b"]
