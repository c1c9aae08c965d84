"""Executors read exactly the snapshot that the driver pinned (engine rule S-16)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot
from tests.support.graphs import PERSON, build_history, make_graph, persons, upsert_person
from tests.support.places import Place

pytestmark = pytest.mark.spark
Read = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def reader(address: str, snapshot: PinnedSnapshot) -> Read:
    """Return what executors run: open the table at the version they were given, read some fragments."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with GraphStore.open(address) as store:
            table = store.table(snapshot, PERSON)
            for batch in batches:
                for fragment in batch["fragment"].to_pylist():
                    yield from table.get_fragment(fragment).to_table(columns=["id", "age"]).to_batches()

    return read


def test_executors_read_the_pinned_snapshot_whatever_is_committed_meanwhile(
    spark: SparkSession, local_place: Place
) -> None:
    with make_graph(local_place.address) as store:
        build_history(store, 9)
        snapshot, expected = store.snapshot(), persons(store)
        fragments = [f.fragment_id for f in store.table(snapshot, PERSON).get_fragments()]
        upsert_person(store, "later")

        numbers = spark.createDataFrame([(f,) for f in fragments], "fragment int").repartition(2)
        rows = numbers.mapInArrow(reader(local_place.address, snapshot), "id string, age int").collect()

    assert {row["id"]: row["age"] for row in rows} == expected
    assert "later" not in expected
