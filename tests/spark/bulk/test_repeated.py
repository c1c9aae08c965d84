"""Loads by Spark that are repeated under their key, and loads that leave rows out: what is told and kept."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.base.errors import ConstraintViolation, KeyConflict, StorageError
from omnigraph.engine.load.assembly import LoadMode
from omnigraph.engine.write import Receipt
from omnigraph.pipeline import load
from omnigraph.storage.claims import KeyReused
from omnigraph.storage.durability import FailpointHit, armed
from tests.engine.load.test_counts import INPUTS, MODES, check_counts
from tests.support.contents import read
from tests.support.graphs import chain_of
from tests.support.people import SCHEMA, head, knows, person, q, thing

pytestmark = pytest.mark.spark

LINES = [
    person("a", age=1),
    person("b", age=200),  # two rules are broken by one row
    person("c", age=300, email="x" * 3),
    {"type": "Company", "data": {"name": None}},  # the only row of its type
    knows("a", "nobody"),
    knows("a", "a"),
    {"type": "Unknown", "data": {}},
]
EXTENDED = SCHEMA.replace("note: String?", "note: String? extra: String?", 1).replace(
    "node Company", 'node Firm @rename_from("Company")'
)
EXTENDED = EXTENDED.replace("-> Company", "-> Firm")


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "g.og", SCHEMA, durability="os") as made:
        yield made


def same(first: Receipt, second: Receipt) -> bool:
    told = [{**receipt.to_json(), "cost": None, "replayed": None} for receipt in (first, second)]
    return told[0] == told[1] and first.commit == second.commit


def rejecting(spark: SparkSession, graph: Graph, folder: Path, **options: Any) -> Receipt:
    path = folder / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, LINES)))
    options = {"mode": "append", "rejects": folder / "rejects.parquet", **options}
    return load(spark, graph, path, on_violation="reject", idempotency_key="k", **options)


@pytest.mark.parametrize("driver_rows", [0, 1000])
def test_a_repeated_load_with_rejects_returns_the_first_receipt_and_touches_nothing(
    graph: Graph, spark: SparkSession, tmp_path: Path, driver_rows: int
) -> None:
    first = rejecting(spark, graph, tmp_path, driver_rows=driver_rows)
    kept = (tmp_path / "rejects.parquet").read_bytes()
    graph.mutate(q('delete Person where name = "a"'))
    graph.schema.apply(EXTENDED)
    now = head(graph)

    second = rejecting(spark, graph, tmp_path, driver_rows=driver_rows)

    assert second.replayed
    assert same(first, second)
    assert head(graph) == now
    assert (tmp_path / "rejects.parquet").read_bytes() == kept
    with pytest.raises(KeyReused):
        rejecting(spark, graph, tmp_path, mode="merge")


def test_rejects_are_kept_before_the_load_lands(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="reject table cannot be written"):
        rejecting(spark, graph, tmp_path, rejects=tmp_path / "file" / "rejects.parquet")
    assert len(chain_of(graph.store)) == 1

    with armed({"publish.before": "raise"}), pytest.raises(FailpointHit):
        rejecting(spark, graph, tmp_path)
    kept = pq.read_table(tmp_path / "rejects.parquet")["place"]
    assert len(chain_of(graph.store)) == 1

    receipt = rejecting(spark, graph, tmp_path)
    assert not receipt.replayed
    assert pq.read_table(tmp_path / "rejects.parquet")["place"] == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "file",
        "g.og",
        "lines.jsonl",
        "rejects.parquet",
    ]


def test_every_row_is_counted_once(graph: Graph, spark: SparkSession, tmp_path: Path) -> None:
    receipt = rejecting(spark, graph, tmp_path)

    told = {
        one.name: (one.given, one.inserted, one.updated, one.unchanged, one.rejected) for one in receipt.types
    }
    assert told == {"Person": (3, 1, 0, 0, 2), "Company": (1, 0, 0, 0, 1), "Knows": (2, 1, 0, 0, 1)}
    assert receipt.facts["rejected"] == 5  # with the row whose type nobody knows
    assert receipt.facts["rejects"] == str(tmp_path / "rejects.parquet")


@pytest.mark.full
@pytest.mark.timeout(900)  # an interrupted call of Spark's would break the session for all tests
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=INPUTS, second=INPUTS, mode=MODES, driver_rows=st.sampled_from([0, 1000]))
def test_every_row_of_any_load_is_counted_once(
    spark: SparkSession,
    first: list[dict[str, Any]],
    second: list[dict[str, Any]],
    mode: LoadMode,
    driver_rows: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, og.init(f"{folder}/g", SCHEMA, durability="os") as graph:
        for records, how in ((first, "merge"), (second, mode)):
            path, rejects = Path(folder, "in.jsonl"), Path(folder, "r.parquet")
            path.write_text("\n".join(map(json.dumps, records)))
            try:
                receipt = load(
                    spark,
                    graph,
                    path,
                    mode=how,  # type: ignore[arg-type]
                    on_violation="reject",
                    rejects=rejects,
                    driver_rows=driver_rows,
                )
            except (ConstraintViolation, KeyConflict):
                continue  # no row of the input is to blame
            check_counts(receipt, records)
            assert receipt.facts["rejected"] == sum(one.rejected for one in receipt.types)


def test_rows_that_are_many_for_one_complaint_are_all_counted(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    """A source with too many edges is one complaint, and all of its edges go."""
    rows = [person("a"), *({"type": "Company", "data": {"name": name}} for name in "xyz")]
    rows += [{"edge": "WorksAt", "from": "a", "to": name, "data": {}} for name in "xyz"]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))

    receipt = load(spark, graph, path, mode="append", on_violation="reject", rejects=tmp_path / "r.parquet")

    assert [(one.given, one.inserted, one.rejected) for one in receipt.edges] == [(3, 0, 3)]
    assert receipt.facts["rejected"] == 3
    assert pq.read_table(tmp_path / "r.parquet").num_rows == 1


def test_a_path_is_read_where_this_process_says(
    graph: Graph, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have a working directory of their own: the one that the JVM was started in."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "Thing.csv").write_text("value\na\n")
    (tmp_path / "in" / "things.jsonl").write_text(json.dumps(thing("b")) + "\n" + json.dumps({"type": "?"}))
    pq.write_table(pa.table({"value": ["c"]}), tmp_path / "Thing.parquet")
    monkeypatch.chdir(tmp_path)

    for path in ("in", "Thing.parquet"):
        load(spark, graph, path, mode="append", on_violation="reject", rejects="out/r.parquet")

    assert sorted(row["value"] for row in read(graph, "Thing")) == ["a", "b", "c"]
    assert (tmp_path / "out" / "r.parquet").exists()


def people(spark: SparkSession, partitions: int) -> DataFrame:
    rows = spark.range(0, 40, 1, partitions)
    return rows.selectExpr("concat('p', id) as name", "cast(id as int) as age", "array('x') as unused").drop(
        "unused"
    )


def test_a_frame_is_known_by_its_rows_however_it_is_cut(graph: Graph, spark: SparkSession) -> None:
    def act(frame: DataFrame) -> Receipt:
        return load(spark, graph, {"Person": frame}, mode="append", idempotency_key="k")

    first = act(people(spark, 4))
    graph.schema.apply(EXTENDED)

    for again in (people(spark, 1), people(spark, 3).orderBy("age", ascending=False).select("age", "name")):
        assert same(first, act(again))
    with pytest.raises(KeyReused):
        act(people(spark, 2).where("age < 39"))


def test_one_path_is_one_load_whichever_engine_reads_it(
    graph: Graph, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "things.jsonl"
    path.write_text("\n".join(json.dumps(thing(str(n))) for n in range(3)))

    first = graph.load(path, mode="append", idempotency_key="k")
    again = load(spark, graph, path, mode="append", idempotency_key="k")

    assert same(first, again)
    assert len(read(graph, "Thing")) == 3


def test_a_write_of_sparks_own_is_answered_although_its_type_has_moved_on(
    graph: Graph, spark: SparkSession
) -> None:
    from omnigraph.pipeline import register, written

    register(spark)

    def act(frame: DataFrame) -> None:
        writer = frame.write.format("omnigraph").mode("append")
        writer.options(uri=graph.uri, type="Person", idempotency_key="k").save()

    act(people(spark, 4))
    first = written(graph, "k")
    graph.schema.apply(
        SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")').replace("@range(age", "@range(years")
    )
    now = head(graph)

    act(people(spark, 2))

    assert head(graph) == now
    assert same(first, written(graph, "k"))
    with pytest.raises(Exception, match="idempotency_mismatch"):
        act(people(spark, 2).where("age < 3"))
