"""Table: the rows of one type at one snapshot, under the names in force now.

Room    engine. The type is declared as the snapshot has it (catalog/past.py), so a rename since then is
        followed, a property that did not exist yet reads as null, and a type that did not exist is said
        not to.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.catalog.model import ENDPOINTS, EdgeType, TableType
from omnigraph.catalog.past import stored_column
from omnigraph.catalog.types import readable
from omnigraph.engine.history.resolve_at import check_existed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

ID = "id"


@dataclass(frozen=True)
class TableView:
    """A type's rows, read when asked for."""

    _store: GraphStore
    snapshot: PinnedSnapshot
    declared: TableType  # as the snapshot has it

    @property
    def commit_id(self) -> str:
        """The commit that is read."""
        return self.snapshot.commit_id

    def __len__(self) -> int:
        return self.snapshot.pin(self.declared.table_id).rows

    def to_arrow(self) -> pa.Table:
        """Return all rows, by id; a DateTime is a timestamp in milliseconds, UTC."""
        check_existed(self.snapshot, self.declared)
        handle = self._store.table(self.snapshot, self.declared.table_id)
        fixed = (ID, *ENDPOINTS) if isinstance(self.declared, EdgeType) else (ID,)
        stored = [p.column for p in self.declared.properties if stored_column(p) is not None]
        with self._store.reading(self.snapshot.state, tables=(self.declared.table_id,)):
            rows = handle.scanner(columns=[*fixed, *stored]).to_table().sort_by(ID)
        columns = {name: rows[name] for name in fixed}
        for declared in self.declared.properties:
            kind = declared.type.arrow
            there = stored_column(declared) is not None
            values = rows[declared.column].cast(kind) if there else pa.nulls(rows.num_rows, kind)
            columns[declared.name] = values.cast(readable(kind))
        return pa.table(columns)
