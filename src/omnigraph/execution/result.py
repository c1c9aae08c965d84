"""Result: what a query returned.

Room    execution. An Arrow table with the query's columns; the same values as objects, frames and JSON.
Rule    a zero-row result still has typed columns. JSON follows the specification: dates as text, times with
        three fraction digits, integers in full. Every stored value can be read, also a date beyond those
        that Python has: it is text, and in Arrow the number that is stored.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa

from omnigraph.base.arguments import Positive, checked_methods
from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.base.times import python_day, python_instant, write_day, write_instant
from omnigraph.catalog.query.expressions import OutputColumn
from omnigraph.catalog.types import numbers_in, readable
from omnigraph.storage.cost import Cost

SHOWN_ROWS = 50


@checked_methods
@dataclass(frozen=True, eq=False)
class Result:
    """The rows of one query on one snapshot."""

    table: pa.Table  # stored types; `to_arrow` gives times their Arrow type
    described: tuple[OutputColumn, ...]
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
        """The rows as dictionaries of Python values; a date that Python has not (year 57045) is text."""
        return self._rows(python_values)

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
        columns = [column.cast(readable(column.type)) for column in self.table.columns]
        return pa.table(dict(zip(self.table.column_names, columns, strict=True)))

    def to_batches(self, max_rows: Positive = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        return iter(self.to_arrow().to_batches(max_chunksize=max_rows))

    def to_pandas(self) -> Any:
        """Return a pandas frame (needs pandas); a date that Python has not is text there too."""
        try:
            return self.to_arrow().to_pandas()
        except (ValueError, OverflowError):
            return self._pandas_with_texts()

    def to_polars(self) -> Any:
        """Return a polars frame (needs polars)."""
        import polars

        return polars.from_arrow(self.to_arrow())

    def json_rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON values."""
        return self._rows(json_values)

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

    def _pandas_with_texts(self) -> Any:
        import pandas

        columns = {}
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            try:
                columns[name] = column.cast(readable(column.type)).to_pandas()
            except (ValueError, OverflowError):
                columns[name] = pandas.Series(python_values(column), dtype=object)
        return pandas.DataFrame(columns)

    def _rows(self, values: Callable[[pa.ChunkedArray], list[Any]]) -> list[dict[str, Any]]:
        columns = [values(column) for column in self.table.columns]
        return [dict(zip(self.table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

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


# -- values ------------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return stored values in Python, every one of them: days and instants are numbers."""
    values: list[Any] = column.cast(numbers_in(column.type)).to_pylist()
    return values


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return stored values as Python's own; a date that Python has not is text."""
    return _all(plain_values(column), _converter(column.type, _python_leaf))


def json_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return stored values as JSON has them."""
    return _all(plain_values(column), _converter(column.type, _json_leaf))


def json_value(value: Any, kind: pa.DataType) -> Any:
    """Return one plain value of a stored type in the format of results."""
    convert = _converter(kind, _json_leaf)
    return value if value is None or convert is None else convert(value)


def _all(values: list[Any], convert: Convert | None) -> list[Any]:
    return values if convert is None else [None if value is None else convert(value) for value in values]


@lru_cache(maxsize=1024)
def _converter(kind: pa.DataType, leaf: Callable[[pa.DataType], Convert | None]) -> Convert | None:
    """Return what makes a shown value of a plain one; None where they are the same."""
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        item = _converter(kind.value_type, leaf)
        return None if item is None else lambda items: _all(items, item)
    if not pa.types.is_struct(kind):
        return leaf(kind)
    members = [(field.name, _converter(field.type, leaf)) for field in kind]
    changed = [(name, convert) for name, convert in members if convert is not None]

    def struct(value: dict[str, Any]) -> dict[str, Any]:
        shown = {name: None if value[name] is None else convert(value[name]) for name, convert in changed}
        return {**value, **shown}

    return struct if changed else None


def _python_leaf(kind: pa.DataType) -> Convert | None:
    if pa.types.is_date64(kind):
        return python_instant
    return python_day if pa.types.is_date32(kind) else None


def _json_leaf(kind: pa.DataType) -> Convert | None:
    if pa.types.is_date64(kind):
        return write_instant
    if pa.types.is_date32(kind):
        return write_day
    return _number_or_word if pa.types.is_floating(kind) else None


def _number_or_word(value: float) -> float | str:
    return value if math.isfinite(value) else _WORDS[repr(value)]


_WORDS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
