"""Reads by value: the same rows whatever the shape of the table, for every type of column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Append, DeleteIds
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan

TABLE = "t-1"
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a'b", 'c"d', "é", "x' or 'a'='a"]),
    "i32": (pa.int32(), [-1, 0, 7, 2**31 - 1]),
    "u64": (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    "f64": (pa.float64(), [0.5, -2.25, 1e300, 3.0]),
    "bool": (pa.bool_(), [True, False, True, False]),
    "date": (pa.date32(), [date(1960, 1, 1), date(2026, 6, 29), date(2026, 7, 1), date(9999, 12, 31)]),
    "datetime": (
        pa.date64(),
        [date(1970, 1, 1), date(1970, 1, 2), date(2000, 2, 29), date(2026, 7, 1)],
    ),
}
MANY = 6_000  # past the first tier: these rows are in a settled fragment


def rows(first: int, count: int) -> pa.Table:
    columns = {"id": pa.array([f"r{n}" for n in range(first, first + count)])}
    for name, (kind, values) in KINDS.items():
        columns[name] = pa.array([values[n % 4] for n in range(first, first + count)], kind)
    return pa.table(columns, schema=SCHEMA)


SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), *(pa.field(n, k) for n, (k, _) in KINDS.items())]
)


def publish(store: GraphStore, effect: Any) -> None:
    store.publish("main", PlannedWrite(PublishPlan(CommitKind.MUTATION, effects={TABLE: effect})))


@pytest.fixture(params=["small", "settled", "both"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    tables = {TABLE: NewTable("T", "node", SCHEMA)}
    with GraphStore.create(tmp_path / "g", schema=b"{}", tables=tables, durability="os") as made:
        if request.param != "small":
            publish(made, Append(rows(100, MANY)))
        if request.param != "settled":
            for n in range(8):
                publish(made, Append(rows(n, 1)))
            publish(made, DeleteIds(pa.array(["r3"])))
        yield made


@pytest.mark.parametrize("name", KINDS)
def test_lookup_agrees_with_a_scan(store: GraphStore, name: str) -> None:
    version = store.snapshot().pin(TABLE).version
    every = store.reads.scan(TABLE, version, ["id", name]).read_all()
    kind, values = KINDS[name]
    for wanted in (values[:1], values[1:3], []):
        found = store.reads.lookup(TABLE, version, name, pa.array(wanted, kind), ["id", name])
        expected = [row for row in every.to_pylist() if row[name] in pa.array(wanted, kind).to_pylist()]
        assert found.sort_by("id").to_pylist() == sorted(expected, key=lambda row: str(row["id"]))


def test_exists(store: GraphStore) -> None:
    version = store.snapshot().pin(TABLE).version
    stored = set(store.reads.scan(TABLE, version, ["id"]).read_all()["id"].to_pylist())
    some = sorted(stored)[:3]
    for asked in (["r0"], ["r3"], ["r0", "r100", "r5000", "nobody", "r0"], some, [], ["nobody"]):
        mask = store.reads.exists(TABLE, version, pa.array(asked, pa.string()))
        assert mask.to_pylist() == [one in stored for one in asked]


def test_many_ids_are_scanned_for(store: GraphStore) -> None:
    version = store.snapshot().pin(TABLE).version
    stored = set(store.reads.scan(TABLE, version, ["id"]).read_all()["id"].to_pylist())
    asked = [f"r{n}" for n in range(-50, 6_200)]
    mask = store.reads.exists(TABLE, version, pa.array(asked))
    assert mask.to_pylist() == [one in stored for one in asked]


def test_a_moment_is_found_to_the_millisecond(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("at", pa.date64())])
    moments = [int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000) + n for n in range(4)]
    at = pa.array(moments, pa.int64()).cast(pa.date64(), safe=False)
    with GraphStore.create(
        tmp_path / "g", schema=b"{}", tables={TABLE: NewTable("T", "node", schema)}, durability="os"
    ) as made:
        publish(made, Append(pa.table({"id": ["a", "b", "c", "d"], "at": at}, schema=schema)))
        version = made.snapshot().pin(TABLE).version
        found = made.reads.lookup(TABLE, version, "at", at.slice(1, 1), ["id"])
        assert found["id"].to_pylist() == ["b"]
