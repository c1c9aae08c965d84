"""Indexes built by executors: one segment each, as good as those of one process, in one commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import omnigraph as og
from omnigraph import Graph
from omnigraph.engine.indexes import TypeIndexes
from omnigraph.pipeline import ensure_indexes, load
from omnigraph.storage.manifest.records import CommitKind
from tests.engine.test_indexes import DECLARED, SCHEMA, covers_all, put, row, segments
from tests.support.derived import EVERYTHING, derived_files, small_tiers
from tests.support.places import Place

pytestmark = pytest.mark.spark

PARTS = 4
QUESTIONS = [
    "query q() { match { $d: Doc { size: 57 } } return { $d.title } }",
    'query q() { match { $d: Doc  search($d.text, "subject3") } return { $d.title } order { $d.title } }',
    "query q() { match { $d: Doc  $d.size > 90 } return { $d.title, $d.kind } order { $d.title } }",
    "query q($v: Vector(4)) { match { $d: Doc } return { $d.title } "
    "order { nearest($d.embedding, $v) } limit 5 }",
]


@pytest.fixture
def graph(spark: SparkSession, local_place: Place) -> Iterator[Graph]:
    """A hundred documents in several fragments, loaded by executors."""
    with og.init(local_place.address, SCHEMA, durability="os") as made:
        rows = [(f"doc {n}", f"words of subject{n % 7}", n, [n / 7, 1.0, -n / 3, 0.5]) for n in range(100)]
        frame = spark.createDataFrame(rows, "title string, text string, size long, embedding array<float>")
        load(spark, made, {"Doc": frame.repartition(PARTS)}, mode="append", driver_rows=0)
        yield made


def answers(graph: Graph) -> list[pa.Table]:
    found = [graph.query(text).to_arrow() for text in QUESTIONS[:-1]]
    return [*found, graph.query(QUESTIONS[-1], {"v": [3.0, 1.0, -7.0, 0.5]}).to_arrow()]


def test_many_tasks_build_one_segment_of_each_index(spark: SparkSession, graph: Graph) -> None:
    before = answers(graph)
    told: list[tuple[int, int]] = []

    report = ensure_indexes(
        spark, graph, part_rows=30, actor="keeper", progress=lambda *pair: told.append(pair)
    )

    table = graph.store.table(graph.store.snapshot(), graph.schema.catalog().node("Doc").id)
    assert len(table.get_fragments()) == PARTS
    assert row(report).created == tuple(DECLARED)
    assert covers_all(graph)
    assert set(segments(graph).values()) == {1}
    head = graph.store.snapshot().state.commit
    assert (head.id, head.kind, head.actor) == (report.commit_id, CommitKind.MAINTENANCE, "keeper")
    assert answers(graph) == before
    assert told[-1][0] == told[-1][1] > PARTS


def test_a_second_run_builds_nothing(spark: SparkSession, graph: Graph) -> None:
    ensure_indexes(spark, graph)
    report = ensure_indexes(spark, graph)

    assert report.commit_id is None
    assert row(report) == TypeIndexes("Doc", "node")


def test_rows_that_came_meanwhile_are_indexed_by_the_driver(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.pipeline.bulk import indexes

    build = indexes._built

    def late(*arguments: object) -> Iterator[object]:
        yield from build(*arguments)  # type: ignore[arg-type]
        put(graph, range(100, 130))

    monkeypatch.setattr(indexes, "_built", late)
    report = ensure_indexes(spark, graph)

    assert row(report).committed
    assert len(graph.nodes("Doc").to_arrow()) == 130
    graph.ensure_indexes()
    assert covers_all(graph)


def test_an_index_without_values_is_pending_and_the_others_are_built(
    spark: SparkSession, local_place: Place
) -> None:
    with og.init(local_place.address, SCHEMA, durability="os") as graph:
        put(graph, range(20), vectors=False)

        report = ensure_indexes(spark, graph)

        assert [pending.property for pending in row(report).pending] == ["embedding"]
        assert "size" in row(report).created


def test_a_table_that_cannot_be_read_is_reported_and_the_others_are_built(
    spark: SparkSession, graph: Graph, local_place: Place
) -> None:
    ids = [f"doc {n}" for n in range(2)]
    graph.load([{"edge": "Cites", "from": ids[0], "to": ids[1], "data": {}}], mode="append")
    cites = graph.schema.catalog().edge("Cites").id
    for file in (Path(local_place.address) / "tables" / cites / "_versions").glob("d*.manifest"):
        file.unlink()

    with og.connect(local_place.address) as fresh:
        report = ensure_indexes(spark, fresh)

    assert row(report).committed
    assert "not stored" in str(row(report, "Cites").error)


def test_executors_write_the_key_hashes_that_files_lack(
    spark: SparkSession, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tiers(monkeypatch, EVERYTHING)
    before = answers(graph)
    for file in derived_files(graph.uri):
        file.unlink()

    report = ensure_indexes(spark, graph, part_rows=30)

    assert row(report).derived == ("born", "id", "kind", "size", "text")
    assert len(derived_files(graph.uri)) == PARTS * len(row(report).derived)
    assert graph.verify().derived_damaged == ()
    assert answers(graph) == before
    assert not any(one.derived for one in ensure_indexes(spark, graph).types)
