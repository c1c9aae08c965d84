"""Pending: the rows that a mutation has written so far, seen by its own later statements.

Room    engine.mutate. An overlay on the base: a pending row hides the committed one with its id.
Rule    statements come in order; of several rows with one id the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ID, TableType
from omnigraph.catalog.types import repeated
from omnigraph.engine.change import TypeChange, last_of_each
from omnigraph.engine.mutate.search import Search
from omnigraph.storage.transaction import WriteTxn


@dataclass
class Pending:
    """What is written to one type."""

    declared: TableType
    minted: bool = True  # nothing but new ids so far
    _tables: list[pa.Table] = field(default_factory=list)
    _rows: list[Mapping[str, Any]] = field(default_factory=list)

    def insert(self, row: Mapping[str, Any], *, minted: bool) -> None:
        """Add one row, by stored column."""
        self.minted = self.minted and minted
        self._rows.append(row)

    def update(self, txn: WriteTxn, search: Search, values: Mapping[str, pa.Scalar]) -> int:
        """Give matching rows new values; return how many there were."""
        mine = self.rows()
        touched = pa.concat_tables([self._committed(txn, search, mine), search.among(mine)])
        for name, value in values.items():
            position = touched.schema.get_field_index(name)
            column = repeated(value, touched.num_rows)
            touched = touched.set_column(position, touched.schema.field(name), column)
        if touched.num_rows:
            self._tables.append(touched)
            self.minted = False
        return int(touched.num_rows)

    def _committed(self, txn: WriteTxn, search: Search, mine: pa.Table) -> pa.Table:
        schema = self.declared.stored_schema
        found = search.run(txn, schema.names).cast(schema)
        hidden = pc.is_in(found[ID], value_set=mine[ID].combine_chunks())
        return found.filter(pc.invert(hidden))

    def rows(self) -> pa.Table:
        """Return the rows so far, one for each id."""
        schema = self.declared.stored_schema
        if self._rows:
            columns = [pa.array([row.get(f.name) for row in self._rows], f.type) for f in schema]
            self._tables.append(pa.table(columns, schema=schema))
            self._rows = []
        if len(self._tables) != 1:
            self._tables = [pa.concat_tables([schema.empty_table(), *self._tables])]
        if not self.minted:
            self._tables = [last_of_each(self._tables[0])]
        return self._tables[0]

    def change(self) -> TypeChange:
        """Return what happens to the type."""
        rows = self.rows()
        return TypeChange(self.declared, rows, minted=self.minted and rows.num_rows > 0)
