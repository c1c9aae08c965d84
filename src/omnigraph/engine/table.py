"""Table: the rows of one type at one snapshot, under the names in force now.

Room    engine. A past snapshot has its own catalog; columns are found through property identity, so a rename
        since then is followed, a property that did not exist yet reads as null, and a type that did not
        exist is said not to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.base.errors import TableNotFound
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import EdgeType, NodeType, TableType
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore

ID = "id"


@dataclass(frozen=True)
class TableView:
    """A type's rows, read when asked for."""

    _store: GraphStore
    snapshot: PinnedSnapshot
    current: TableType
    _then: Catalog

    @property
    def commit_id(self) -> str:
        """The commit that is read."""
        return self.snapshot.commit_id

    def __len__(self) -> int:
        return self.snapshot.pin(self.current.table_id).rows

    def to_arrow(self) -> pa.Table:
        """Return all rows, by id."""
        if not isinstance(self._then.by_id(self.current.id), NodeType | EdgeType):
            raise TableNotFound(
                f"type {self.current.name!r} did not exist at commit {self.commit_id}", name=self.current.name
            )
        handle = self._store.table(self.snapshot, self.current.table_id)
        fixed = (ID, *ENDPOINTS) if isinstance(self.current, EdgeType) else (ID,)
        columns = self._then.columns_of(self.current)
        try:
            rows = handle.scanner(columns=[*fixed, *columns.values()]).to_table().sort_by(ID)
        except (OSError, ValueError) as error:  # a reclaim may take the files away from under a reader
            raise self._store.why_unreadable(self.snapshot, self.current.table_id, error) from error
        found = {name: rows[name] for name in fixed}
        for declared in self.current.properties:
            if declared.column in columns:
                found[declared.name] = rows[columns[declared.column]].cast(declared.type.arrow)
            else:
                found[declared.name] = pa.nulls(rows.num_rows, declared.type.arrow)
        return pa.table(found)
