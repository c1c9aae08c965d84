"""Images: entities as plain values, and back.

Room    engine.history. Dates and moments pass through Python as numbers, because Python's dates hold less
        than the stored ones; what people see is in the formats of query results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from omnigraph.catalog.model import ID, EdgeType, TableType
from omnigraph.catalog.types import Scalar, numbers_in
from omnigraph.execution.result import json_value

ENDS = {"src": "from", "dst": "to"}


def to_python(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as stored values by column."""
    found: list[dict[str, Any]] = table.cast(_numbers(table.schema)).to_pylist()
    return found


def from_python(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return rows that `to_python` gave as a table again."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=_numbers(schema)).cast(schema)


def image(row: Mapping[str, Any], declared: TableType) -> dict[str, Any]:
    """Return an entity as surfaces show it: id, ends, then every property but blobs, by name.

    A property whose column the row lacks is null.
    """
    ends = ENDS if isinstance(declared, EdgeType) else {}
    fixed = {ID: row[ID], **{name: row[column] for column, name in ends.items()}}
    members = {
        p.name: json_value(row.get(p.column), p.type.arrow) for p in declared.properties if not _blob(p.type)
    }
    return {**fixed, **members}


def column_name(column: str, declared: TableType) -> str:
    """Return the name of a stored column."""
    return ENDS.get(column) or next((p.name for p in declared.properties if p.column == column), column)


def _blob(kind: Any) -> bool:
    return bool(kind.scalar is Scalar.BLOB)


def _numbers(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(numbers_in(field.type)) for field in schema])
