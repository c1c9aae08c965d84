"""Storage report: how many files and bytes a graph has, of what, and how much of it a cleanup would free.

One listing of the whole graph, and the layouts of one branch's tables; no rows are read. What lies in tables
is all their versions together: `live_bytes` is what the branch's head reads of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.storage.cleanup import Cleaned
from omnigraph.storage.derived.files import folder_of
from omnigraph.storage.garbage import Listing
from omnigraph.storage.location import StoredObject
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.files import TABLES
from omnigraph.storage.tables.layout import data_files
from omnigraph.storage.transaction import PinnedSnapshot

OF_TABLES = {"data": "data", "_indices": "indexes", "_derived": "derived"}  # anything else is bookkeeping


@dataclass(frozen=True, slots=True)
class Stored:
    """Some files together."""

    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, objects: Iterable[StoredObject]) -> Stored:
        """Count files."""
        sizes = [one.size for one in objects]
        return cls(len(sizes), sum(sizes))

    def to_json(self) -> dict[str, int]:
        """Return the public shape."""
        return {"files": self.files, "bytes": self.bytes}


@dataclass(frozen=True)
class TypeStorage:
    """What one type takes; `derived_missing` large fragments of the head have no derived files yet."""

    kind: str
    name: str
    rows: int
    fragments: int
    live_bytes: int
    parts: Mapping[str, Stored]
    derived_wanted: int
    derived_missing: int

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "entity_kind": self.kind,
            "type_name": self.name,
            "entity_count": self.rows,
            "fragments": self.fragments,
            "files": sum(part.files for part in self.parts.values()),
            "bytes": sum(part.bytes for part in self.parts.values()),
            "live_bytes": self.live_bytes,
            "parts": {name: part.to_json() for name, part in self.parts.items()},
            "derived": {"wanted": self.derived_wanted, "missing": self.derived_missing},
        }


@dataclass(frozen=True)
class StorageReport:
    """What a graph takes in storage, as one branch sees it."""

    branch: str
    commit_id: str
    whole: Stored
    system: Mapping[str, Stored]  # by folder: the manifest, refs, schemas and so on
    types: tuple[TypeStorage, ...]
    other_tables: Stored  # of types that this branch does not have
    cleanup: Cleaned | None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "graph_branch": self.branch,
            "graph_commit_id": self.commit_id,
            **self.whole.to_json(),
            "system": {name: part.to_json() for name, part in self.system.items()},
            "types": [one.to_json() for one in self.types],
            "other_tables": self.other_tables.to_json(),
            "cleanup": None if self.cleanup is None else self.cleanup.to_json(),
        }


def storage_report(
    store: GraphStore, snapshot: PinnedSnapshot, cleanup: Cleaned | None = None
) -> StorageReport:
    """Return the report of a graph; `cleanup` is what one would do, if that was asked."""
    listing = Listing.of(store.location, store.clock.now_us(), 0)
    tables = {table: tuple(files.items()) for table, files in listing.tables().items()}
    types = []
    for declared in Catalogs(store.schemas).get(snapshot.schema).tables:
        types.append(_type(store, snapshot, declared, dict(tables.pop(declared.id, ()))))
    others = [file for files in tables.values() for _, file in files]
    return StorageReport(
        snapshot.branch,
        snapshot.commit_id,
        Stored.of(file for part in listing.parts.values() for file in part),
        {name: Stored.of(files) for name, files in sorted(listing.parts.items()) if name != TABLES},
        tuple(types),
        Stored.of(others),
        cleanup,
    )


def _type(
    store: GraphStore, snapshot: PinnedSnapshot, declared: TableType, files: Mapping[str, StoredObject]
) -> TypeStorage:
    by_part: dict[str, list[StoredObject]] = {name: [] for name in (*OF_TABLES.values(), "bookkeeping")}
    for path, file in files.items():
        by_part[OF_TABLES.get(path.partition("/")[0], "bookkeeping")].append(file)
    with store.reading(snapshot.state, tables=(declared.id,)):
        layout = store.reads.layout(store.table(snapshot, declared.id))
    settled = [data_files(part.metadata) for part in layout.parts.values() if part.settled]
    present = {path.rpartition("/")[0] for path in files}
    return TypeStorage(
        declared.kind.value,
        declared.name,
        snapshot.state.pins[declared.id].rows,
        len(layout.parts),
        sum(part.stored_bytes for part in layout.parts.values()),
        {name: Stored.of(listed) for name, listed in by_part.items()},
        len(settled),
        len([files for files in settled if present.isdisjoint(map(folder_of, files))]),
    )
