"""Result: what a query returned.

Room    execution. An Arrow table with the query's columns; the same values as objects, frames and JSON.
Rule    a zero-row result still has typed columns. JSON follows the specification: dates as text, times with
        three fraction digits, integers in full.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa

from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.catalog.query.columns import Column
from omnigraph.storage.cost import Cost

SHOWN_ROWS = 50
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Result:
    """The rows of one query on one snapshot."""

    table: pa.Table  # stored types; `to_arrow` gives times their Arrow type
    described: tuple[Column, ...]
    query_name: str
    branch: str
    commit_id: str
    cost: Cost = field(default_factory=Cost)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the order of the query."""
        return tuple(column.name for column in self.described)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow types of the columns."""
        return self.to_arrow().schema

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries of Python values."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found

    def one(self) -> dict[str, Any]:
        """Return the only row; an error if there is none or more than one."""
        if len(self) != 1:
            kind = NotFound if not len(self) else InvalidRequest
            raise kind(f"the query returned {len(self)} rows, not one")
        return self.rows[0]

    def scalar(self) -> Any:
        """Return the first value of the only row."""
        return self.one()[self.columns[0]]

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table; DateTime is a timestamp in milliseconds, UTC."""
        columns = [_timed(column) for column in self.table.columns]
        return pa.table(dict(zip(self.table.column_names, columns, strict=True)))

    def to_batches(self, max_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return iter(self.to_arrow().to_batches(max_chunksize=max_rows))

    def to_pandas(self) -> Any:
        """Return a pandas frame (needs pandas)."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a polars frame (needs polars)."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def json_rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON values."""
        columns = self.table.columns
        lists = [[json_value(value, column.type) for value in _python(column)] for column in columns]
        return [dict(zip(self.table.column_names, row, strict=True)) for row in zip(*lists, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return the public shape of a read."""
        return {
            "query_name": self.query_name,
            "target": {"branch": self.branch, "snapshot": self.commit_id},
            "row_count": len(self),
            "columns": list(self.columns),
            "rows": self.json_rows(),
            "graph_commit_id": self.commit_id,
        }

    def _repr_html_(self) -> str:
        shown = Result(
            self.table.slice(0, SHOWN_ROWS), self.described, self.query_name, self.branch, self.commit_id
        ).json_rows()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in self.columns) + "</tr>"
            for row in shown
        )
        more = f"<p>{len(self)} rows, {len(shown)} shown</p>" if len(self) > len(shown) else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _timed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    if pa.types.is_list(column.type) and pa.types.is_date64(column.type.value_type):
        inner = pa.list_(pa.field("item", pa.int64()))
        return column.cast(inner).cast(pa.list_(pa.field("item", pa.timestamp("ms", tz="UTC"))))
    return column


def _python(column: pa.ChunkedArray) -> Any:
    if pa.types.is_date64(column.type):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_list(column.type) and pa.types.is_date64(column.type.value_type):
        return column.cast(pa.list_(pa.field("item", pa.int64()))).to_pylist()
    if pa.types.is_struct(column.type):
        fields = [column.type.field(n) for n in range(column.type.num_fields)]
        parts = [_python(pa.chunked_array(_fields(column, n), f.type)) for n, f in enumerate(fields)]
        valid = column.is_valid().to_pylist()
        rows = zip(*parts, strict=True)
        names = [f.name for f in fields]
        return [
            {name: (f.type, value) for name, f, value in zip(names, fields, row, strict=True)} if ok else None
            for row, ok in zip(rows, valid, strict=True)
        ]
    return column.to_pylist()


def _fields(column: pa.ChunkedArray, number: int) -> list[pa.Array]:
    return [chunk.field(number) for chunk in column.chunks]


def json_value(value: Any, kind: pa.DataType) -> Any:
    """Return a value in the format of results; moments come as milliseconds."""
    if value is None or isinstance(value, str | bool):
        return value
    if pa.types.is_struct(kind):
        return {name: json_value(inner, inner_kind) for name, (inner_kind, inner) in value.items()}
    if pa.types.is_date64(kind):
        moment = _EPOCH + timedelta(milliseconds=value)
        return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else _WORDS[repr(value)]
    if isinstance(value, list):
        return [json_value(item, kind.value_type) for item in value]
    return value


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
