"""Conform: rows must have exactly the columns of their table, or be refused before anything is written.

Room    storage.tables. Lance would take some misfits silently (a missing column becomes null) and report
        others as storage failures; a caller's mistake is the caller's to hear about, in words.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.tables.effects import RowSource


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with their columns in table order."""
    if not rows.schema.equals(schema):
        check_columns(rows.schema, schema)
        rows = rows.select(schema.names)
    _check_nulls(rows, schema)
    return rows.cast(schema) if not rows.schema.equals(schema) else rows  # takes over nullability only


class CheckedStream:
    """Rows in table order, each batch checked as it passes.

    What is raised inside a reader comes out of Lance as a storage failure; `problem` keeps what was
    really wrong.
    """

    def __init__(self, rows: RowSource, schema: pa.Schema) -> None:
        self._source = rows.reader()
        self._schema = schema
        self.problem: InvalidRequest | None = None
        check_columns(self._source.schema, schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the stream as Lance takes it."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            try:
                yield from conform(pa.Table.from_batches([batch]), self._schema).to_batches()
            except InvalidRequest as error:
                self.problem = error
                raise


def check_columns(found: pa.Schema, expected: pa.Schema) -> None:
    """Refuse rows whose columns are not those of the table."""
    problems = [f"column {name!r} is missing" for name in expected.names if name not in found.names]
    problems += [f"the table has no column {name!r}" for name in found.names if name not in expected.names]
    problems += [
        f"column {field.name!r} is {found.field(field.name).type}, the table has {field.type}"
        for field in expected
        if field.name in found.names and found.field(field.name).type != field.type
    ]
    if len(set(found.names)) != len(found.names):
        problems.append("a column name stands twice")
    if problems:
        raise InvalidRequest(f"the rows do not fit the table: {'; '.join(problems)}", problems=problems)


def _check_nulls(rows: pa.Table, schema: pa.Schema) -> None:
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise InvalidRequest(
                f"the rows do not fit the table: column {field.name!r} is required and has nulls",
                column=field.name,
            )
