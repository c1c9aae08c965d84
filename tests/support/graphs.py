"""Graphs for tests: a small people-and-companies shape, rows for it, writes, and histories of any depth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Effect, Upsert
from omnigraph.storage.transaction import NewTable, PlannedWrite, PublishPlan, PublishReceipt

PERSON, KNOWS = "t-person", "t-knows"
PERSON_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("age", pa.int32()),
    ]
)
KNOWS_SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")])


def people(ids: Iterable[str], age: int = 30) -> pa.Table:
    """Return one Person row for each id."""
    ids = list(ids)
    columns = {"id": ids, "name": [f"name of {i}" for i in ids], "age": [age] * len(ids)}
    return pa.table(columns, schema=PERSON_SCHEMA)


def knows(pairs: Mapping[str, tuple[str, str]]) -> pa.Table:
    """Return one Knows row for each edge id."""
    columns = {
        "id": list(pairs),
        "src": [src for src, _ in pairs.values()],
        "dst": [dst for _, dst in pairs.values()],
    }
    return pa.table(columns, schema=KNOWS_SCHEMA)


def make_graph(address: str, *, extra_tables: int = 0, **options: Any) -> GraphStore:
    """Make a graph with Person, Knows and any number of further Person-shaped tables."""
    tables = {
        PERSON: NewTable("Person", "node", PERSON_SCHEMA),
        KNOWS: NewTable("Knows", "edge", KNOWS_SCHEMA),
    }
    for number in range(extra_tables):
        tables[f"t-extra-{number:03d}"] = NewTable(f"Extra{number:03d}", "node", PERSON_SCHEMA)
    return GraphStore.create(address, schema=b'{"schema": "test"}', tables=tables, **options)


def plan(effects: Mapping[str, Effect], **options: Any) -> PlannedWrite:
    """Return a write that does just these effects."""
    return PlannedWrite(PublishPlan(CommitKind.MUTATION, effects=effects, **options))


def write(
    store: GraphStore, effects: Mapping[str, Effect], branch: str = "main", **intent: Any
) -> PublishReceipt:
    """Publish effects as one commit."""
    return store.publish(branch, plan(effects), Intent(**intent))


def upsert_person(store: GraphStore, person_id: str, age: int = 30, branch: str = "main") -> PublishReceipt:
    """Publish a one-row upsert."""
    return write(store, {PERSON: Upsert(people([person_id], age))}, branch)


def build_history(store: GraphStore, depth: int, branch: str = "main", prefix: str = "h") -> None:
    """Make `depth` real one-row commits: every third replaces an earlier person, the others are new."""
    for number in range(depth):
        person = number // 2 if number % 3 == 2 else number
        upsert_person(store, f"{prefix}{person}", age=number, branch=branch)


def persons(store: GraphStore, branch: str = "main", **at: Any) -> dict[str, int]:
    """Return the ages by id, as a branch has them."""
    table = store.table(store.snapshot(branch, **at), PERSON).to_table()
    return dict(zip(table["id"].to_pylist(), table["age"].to_pylist(), strict=True))


def chain_of(store: GraphStore, branch: str = "main") -> list[str]:
    """Return the commit ids of a branch's own chain, oldest first, checking that it is one line."""
    head = store.snapshot(branch)
    ids: list[str] = []
    parent: str | None = None
    for version in range(1, head.state.version + 1):
        commit = store.snapshot(branch, at=version).state.commit
        if ids and commit.id == ids[-1]:
            continue  # a control write repeats the head
        if ids:
            assert commit.parent == parent, f"version {version} does not follow the one before"
        ids.append(commit.id)
        parent = commit.id
    return ids
