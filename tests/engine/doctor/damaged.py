"""Damage to a real graph on local disk, below the engine: files, manifests, rows.

Room    tests. Rows are put by publishing them without any check, which is what a program does that writes
        through the store and not through the engine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from omnigraph import Graph
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.tables.effects import Append
from omnigraph.storage.transaction import PlannedWrite, PublishPlan


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
    return folder(graph, name) / "data" / largest._path


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
