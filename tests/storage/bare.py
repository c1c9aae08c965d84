"""Lance without the package in between: what the guards of the substrate's behaviour are written with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import write_fragments

ROWS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("word", pa.string()),
    ]
)


def rows(ids: Iterable[str], n: int = 1, word: str = "hello") -> pa.Table:
    ids = list(ids)
    return pa.table({"id": ids, "n": [n] * len(ids), "word": [word] * len(ids)}, schema=ROWS)


def new_table(path: Path, schema: pa.Schema = ROWS) -> Any:
    """Create an empty dataset at version 1."""
    return LanceDataset.commit(str(path), LanceOperation.Overwrite(schema, []), max_retries=0)


def detached(base: Any, operation: Any) -> Any:
    """Commit an operation without moving the dataset's head."""
    return LanceDataset.commit(base, operation, read_version=base.version, detached=True, max_retries=5)


def append(base: Any, table: pa.Table) -> Any:
    new = write_fragments(table, base, schema=base.schema, mode="append")
    return detached(base, LanceOperation.Append(new))


def fragment_ids(handle: Any) -> list[int]:
    return [fragment.fragment_id for fragment in handle.get_fragments()]


def add_segment(base: Any, column: str, kind: str, fragments: Iterable[int], **options: Any) -> Any:
    """Build and commit one more segment of a column's index, over some fragments."""
    segment = base.create_index_uncommitted(
        column, kind, name=f"tmp_{uuid4().hex}", fragment_ids=sorted(fragments), **options
    )
    if kind == "INVERTED":
        segment = base.merge_existing_index_segments([segment])
    named = dataclasses.replace(segment, name=f"{column}_idx", dataset_version=1)
    return detached(base, LanceOperation.CreateIndex([named], []))


def uncovered(handle: Any, column: str) -> set[int]:
    """Return the fragments that no segment of a column's index covers."""
    indices = (index for index in handle.describe_indices() if index.name == f"{column}_idx")
    found = {fragment for index in indices for segment in index.segments for fragment in segment.fragment_ids}
    return set(fragment_ids(handle)) - found


def new_map(path: Path | str, content: Mapping[str, str], **options: Any) -> Any:
    """Create a dataset without rows whose schema metadata is a map."""
    schema = pa.schema([pa.field("unused", pa.int8())], metadata=dict(content))
    return LanceDataset.commit(str(path), LanceOperation.Overwrite(schema, []), max_retries=0, **options)


def change_map(handle: Any, updates: Mapping[str, str | None], **options: Any) -> Any:
    """Change keys of such a map."""
    update = LanceOperation.UpdateMap(dict(updates), **options)
    change = LanceOperation.UpdateConfig(schema_metadata_updates=update)
    return LanceDataset.commit(handle, change, read_version=handle.version, max_retries=0)


def change_config(handle: Any, updates: Mapping[str, str | None], **options: Any) -> Any:
    """Change keys of the config map: the one we do not use."""
    update = LanceOperation.UpdateMap(dict(updates), **options)
    change = LanceOperation.UpdateConfig(config_updates=update)
    return LanceDataset.commit(handle, change, read_version=handle.version, max_retries=0)


def read_map(path: Path | str, **options: Any) -> dict[str, str]:
    metadata = lance.dataset(str(path), **options).schema.metadata
    return {key.decode(): value.decode() for key, value in metadata.items()}
