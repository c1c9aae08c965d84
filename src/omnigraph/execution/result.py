"""Result: what a query returned, and every other set of rows that a caller is given.

An Arrow table; the same values as objects, frames, JSON, CSV and a table for people.

A zero-row result still has typed columns. JSON follows the specification: dates as text, times with three
fraction digits, integers in full. Every stored value can be read, also a date beyond those that Python has:
it is text, and in Arrow the number that is stored.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property, lru_cache
from typing import Any, overload

import pyarrow as pa

from omnigraph.base.arguments import Positive, checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NotFound, counted
from omnigraph.base.text_table import GAP, cut_text, table_lines, text_width
from omnigraph.base.times import python_day, python_instant, write_day, write_instant
from omnigraph.catalog.query.expressions import OutputColumn
from omnigraph.catalog.types import numbers_in, readable
from omnigraph.storage.cost import Cost

SHOWN_ROWS, SHOWN_ROWS_HTML = 20, 50  # of a printed result, and in a notebook
CELL_WIDTH, TABLE_WIDTH = 40, 100  # columns of a terminal; it may be narrower
PAGE = 10_000  # rows turned into Python values at a time
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_NEEDS_QUOTES = re.compile('[",\r\n]')


@checked_methods
class Rows:
    """Rows of a graph: a table to print, a list of dictionaries, Arrow, frames and files.

    What a query returned (`Result`) and the entities of one type (`TypeRows`) are both of this kind.
    """

    table: pa.Table  # stored types; `to_arrow` gives times their Arrow type
    commit_id: str

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    @overload
    def __getitem__(self, position: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, position: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, position: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self.rows[position]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(self.table.column_names)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow types of the columns."""
        return self.to_arrow().schema

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as dictionaries of Python values; a date that Python has not (year 57045) is text."""
        return row_dicts(self.table, python_values)

    def one(self) -> dict[str, Any]:
        """Return the only row; an error if there is none or more than one."""
        if len(self) != 1:
            kind = NotFound if not len(self) else InvalidRequest
            raise kind(f"there are {len(self)} rows, not one")
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

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows to polars, DuckDB and whoever else takes Arrow streams, without a copy."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

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

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str | None:
        """Write the rows to a CSV file, or return them as text; null is empty, empty text is in quotes."""
        if path is None:
            return "".join(csv_lines(self.table))
        try:
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.writelines(csv_lines(self.table))
        except OSError as error:
            raise InvalidRequest(
                f"cannot write {str(path)!r}: {error.strerror}", remedy="Check the path"
            ) from error
        return None

    def json_rows(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON values."""
        return row_dicts(self.table, json_values)

    def _pandas_with_texts(self) -> Any:
        import pandas

        columns = {}
        for name, column in zip(self.table.column_names, self.table.columns, strict=True):
            try:
                columns[name] = column.cast(readable(column.type)).to_pandas()
            except (ValueError, OverflowError):
                columns[name] = pandas.Series(python_values(column), dtype=object)
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        return printed(self.table, f"at commit {self.commit_id}")

    def _repr_html_(self) -> str:
        shown = row_dicts(self.table.slice(0, SHOWN_ROWS_HTML), json_values)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_html_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in shown
        )
        cut = f", {len(shown)} shown" if len(self) > len(shown) else ""
        foot = f"<p>{counted(len(self), 'row')}{cut} at commit {html.escape(self.commit_id)}</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}"


@checked_methods
@dataclass(frozen=True, eq=False, repr=False)
class Result(Rows):
    """The rows of one query on one snapshot."""

    table: pa.Table
    described: tuple[OutputColumn, ...]
    query_name: str
    branch: str
    commit_id: str
    cost: Cost = field(default_factory=Cost)

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


# -- rows as text --------------------------------------------------------------------------------------


def row_dicts(table: pa.Table, values: Callable[[pa.ChunkedArray], list[Any]]) -> list[dict[str, Any]]:
    """Return rows as dictionaries by column name."""
    columns = [values(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def printed(table: pa.Table, footer: str) -> str:
    """Return the first rows as a table that fits the terminal, and below it how many there are."""
    head = table.slice(0, SHOWN_ROWS)
    columns = [
        [cut_text(text, CELL_WIDTH) for text in (name, *map(cell_text, json_values(column)))]
        for name, column in zip(head.column_names, head.columns, strict=True)
    ]
    fitting = _fitting([max(map(text_width, column)) for column in columns])
    numbers = [n for n, kind in enumerate(table.schema.types) if is_number(kind) and n < fitting]
    lines = table_lines(list(zip(*columns[:fitting], strict=True)), right=numbers) if columns else []
    count = counted(table.num_rows, "row")
    if len(head) < table.num_rows:
        count += f", {len(head)} shown"
    if fitting < len(columns):
        count += f", {counted(len(columns) - fitting, 'more column')}"
    return "\n".join([*lines, f"{count} {footer}"])


def _fitting(widths: list[int]) -> int:
    """Return how many columns stand side by side in the terminal; at least one."""
    room = min(TABLE_WIDTH, shutil.get_terminal_size((TABLE_WIDTH, 24)).columns)
    used = 0
    for number, width in enumerate(widths):
        used += width + (len(GAP) if number else 0)
        if used > room and number:
            return number
    return len(widths)


def is_number(kind: pa.DataType) -> bool:
    """Say whether values of a type are aligned like numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def cell_text(value: Any) -> str:
    """Return a JSON value on one line, without anything that a terminal would obey.

    >>> cell_text("two\\nlines"), cell_text(None), cell_text([1, "a"])
    ('two\\\\nlines', 'null', '[1, "a"]')
    """
    return _CONTROL.sub(lambda met: _ESCAPES.get(met[0], f"\\u{ord(met[0]):04x}"), _json_text(value))


def csv_lines(table: pa.Table) -> Iterator[str]:
    """Yield a table as lines of CSV, the names first."""
    yield ",".join(csv_field(name) for name in table.column_names) + "\r\n"
    for start in range(0, table.num_rows, PAGE):
        for row in row_dicts(table.slice(start, PAGE), json_values):
            yield ",".join(csv_field(value) for value in row.values()) + "\r\n"


def csv_field(value: Any) -> str:
    """Return a field: null is empty, and empty text is in quotes so that the two differ.

    >>> csv_field(None), csv_field(""), csv_field('a "b"'), csv_field(True)
    ('', '""', '"a ""b\"""', 'true')
    """
    if value is None:
        return ""
    text = _json_text(value)
    return '"' + text.replace('"', '""') + '"' if not text or _NEEDS_QUOTES.search(text) else text


def _html_text(value: Any) -> str:
    return "" if value is None else _json_text(value)


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
