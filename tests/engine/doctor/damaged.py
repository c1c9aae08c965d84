"""Damage to a real graph on local disk, below the engine: files, manifests, rows.

Room    tests. Rows are put by publishing them without any check, which is what a program does that writes
        through the store and not through the engine.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Append
from omnigraph.storage.tables.indexes import TEXT, stub
from omnigraph.storage.transaction import Adopted, PlannedWrite, PublishPlan


def table_id(graph: Graph, name: str, branch: str = "main") -> str:
    """Return the table of a type."""
    pins = graph.store.snapshot(branch).state.pins
    return next(table for table, pin in pins.items() if pin.name == name)


def folder(graph: Graph, name: str) -> Path:
    """Return the folder of the table of a type."""
    return Path(graph.uri, "tables", table_id(graph, name))


def put_rows(graph: Graph, name: str, rows: list[dict[str, Any]], branch: str = "main") -> None:
    """Append rows to a table as they are, judged by nobody."""
    table = table_id(graph, name, branch)
    schema = next(t for t in graph.schema.catalog().tables if t.id == table).stored_schema
    effect = Append(pa.Table.from_pylist(rows, schema=schema))
    plan = PublishPlan(CommitKind.MUTATION, effects={table: effect})
    graph.store.publish(branch, PlannedWrite(plan))


def newest_data_file(graph: Graph, name: str) -> Path:
    """Return the largest data file that the head of main needs of a type."""
    snapshot = graph.store.snapshot()
    handle = graph.store.table(snapshot, table_id(graph, name))
    files = [file for fragment in handle.get_fragments() for file in fragment.metadata.files]
    largest = max(files, key=lambda file: file.file_size_bytes or 0)
    return folder(graph, name) / "data" / str(largest._path)


def flip(path: Path, at: int | None = None) -> None:
    """Change one byte in the middle of a file, or at a place."""
    content = bytearray(path.read_bytes())
    content[len(content) // 3 if at is None else at] ^= 0xFF
    path.write_bytes(bytes(content))


def foreign_commit(graph: Graph, name: str) -> None:
    """Append a row with plain Lance, on the table's own head."""
    dataset = lance.dataset(str(folder(graph, name)))
    row = {field.name: "foreign" if pa.types.is_string(field.type) else None for field in dataset.schema}
    lance.write_dataset(pa.Table.from_pylist([row], schema=dataset.schema), dataset, mode="append")


def foreign_map(graph: Graph, changes: dict[str, str | None], path: str = MANIFEST) -> None:
    """Change keys of a manifest with plain Lance, as no writer of ours would."""
    dataset = lance.dataset(f"{graph.uri}/{path}")
    change = lance.LanceOperation.UpdateMap(dict(changes), replace=False)
    operation = lance.LanceOperation.UpdateConfig(schema_metadata_updates=change)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def claim_more(graph: Graph, name: str, column: str) -> None:
    """Publish a version in which the index of a column claims to cover all fragments, and does not."""
    table = table_id(graph, name)
    snapshot = graph.store.snapshot()
    handle = graph.store.table(snapshot, table)
    index = next(i for i in handle.describe_indices() if column in i.field_names)
    kind = {"BTree": "BTREE", "Inverted": "INVERTED"}.get(index.index_type, index.index_type)
    covered = list(index.segments[0].fragment_ids)
    every = {fragment.fragment_id for fragment in handle.get_fragments()}
    assert set(covered) < every
    own = handle.checkout_version(handle.version)
    options: dict[str, Any] = {"metric": "l2", "num_partitions": 1} if kind == "IVF_FLAT" else {}
    if kind == "INVERTED":
        options = dict(TEXT)
    segment = own.create_index_uncommitted(column, kind, name="tmp", fragment_ids=covered, **options)
    if kind == "INVERTED":
        segment = own.merge_existing_index_segments([segment])
    lying = dataclasses.replace(segment, name=index.name, dataset_version=1, fragment_ids=every)
    gone = [stub(old.uuid, column) for old in index.segments]
    change = lance.LanceOperation.CreateIndex([lying], gone)
    done = lance.LanceDataset.commit(handle, change, read_version=handle.version, detached=True)
    pin = dataclasses.replace(snapshot.state.pins[table], version=done.version)
    plan = PublishPlan(CommitKind.MAINTENANCE, adopt={table: Adopted(pin)}, replans=True)
    graph.store.publish("main", PlannedWrite(plan))
