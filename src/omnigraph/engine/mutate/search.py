"""Search: the rows that the condition of an update or delete is true of.

Room    engine.mutate. A condition that pins one column to some values is looked up by them, which costs the
        same in a table of any size where the column has an index; a key is looked up as the id it makes.
Rule    a look-up or a scan gives all rows that may meet the condition, and perhaps others: which do is
        decided by the function that judges the conditions of reads (execution/conditions.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from omnigraph.catalog.keys import ids_of_keys
from omnigraph.catalog.model import ID, NodeType, TableType
from omnigraph.catalog.query.expressions import (
    Among,
    And,
    Comparison,
    Condition,
    EntityField,
    Fixed,
    PropertyValue,
)
from omnigraph.catalog.query.operands import Values
from omnigraph.execution.conditions import StoredRows, holds, members, stored_column, stored_columns
from omnigraph.execution.predicates import pruning
from omnigraph.storage.transaction import WriteTxn


@dataclass(frozen=True)
class Pinned:
    """A column, and the values of it without which a condition is never true."""

    column: str
    values: pa.Array


class Search:
    """A condition on the rows of a type, with its parameters filled in."""

    def __init__(self, condition: Condition, declared: TableType, values: Values, now_ms: int) -> None:
        self._condition = condition
        self._declared = declared
        self._request = StoredRows(values, now_ms)
        self._pinned = _pinned(condition, declared, self._request)

    def run(self, txn: WriteTxn, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the committed rows that meet the condition."""
        read = list(dict.fromkeys([*columns, *stored_columns(self._condition)]))
        table_id = self._declared.table_id
        if self._pinned is None:
            predicate = pruning([self._condition], self._request)
            return txn.where(table_id, predicate, read, self._holds).select(list(columns))
        rows = txn.lookup(table_id, self._pinned.column, self._pinned.values, read)
        return self.among(rows).select(list(columns))

    def among(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a table in memory that meet the condition."""
        return rows.filter(self._holds(rows))

    def _holds(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        return holds(self._condition, replace(self._request, rows=rows))


def _pinned(condition: Condition, declared: TableType, request: StoredRows) -> Pinned | None:
    """Return what a condition pins a column to; a key is pinned as the id that it makes."""
    match condition:
        case And(operands):
            parts = (_pinned(part, declared, request) for part in operands)
            return next((part for part in parts if part is not None), None)
        case Comparison(PropertyValue() | EntityField() as left, "=", right) if isinstance(right, Fixed):
            among = members((right,), left.type, request)
        case Among(PropertyValue() | EntityField() as left, items):
            among = members(items, left.type, request)
        case _:
            return None
    column = stored_column(left)
    values = pa.array([], left.type.arrow) if among is None else among.values
    if isinstance(declared, NodeType) and len(declared.key) == 1:
        key = declared.property_by_id(declared.key[0])
        if key.column == column:
            return Pinned(ID, ids_of_keys(values, left.type))
    return Pinned(column, values)
