"""Predicate: typed conditions on columns, and their one lowering to DataFusion.

Room    storage.tables. Values stay typed Arrow scalars from the caller to the scan: no text is ever
        built from a value, so no value can change the meaning of a condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, assert_never

import lance
import pyarrow as pa
from datafusion import SessionContext, col, lit
from datafusion.functions import in_list

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
ADDRESS = "_rowaddr"


@dataclass(frozen=True)
class Compare:
    """A column against a value of the column's type; null on either side is unknown."""

    column: str
    operator: Operator
    value: pa.Scalar


@dataclass(frozen=True)
class IsIn:
    """A column against a set of values of its type; the empty set matches nothing."""

    column: str
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True)
class IsNull:
    """True when the column is null; never unknown."""

    column: str


@dataclass(frozen=True)
class Not:
    """True when the operand is false; unknown stays unknown."""

    operand: Predicate


@dataclass(frozen=True)
class And:
    """True when all operands are."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """True when any operand is."""

    operands: tuple[Predicate, ...]


Predicate = Compare | IsIn | IsNull | Not | And | Or


def find(handle: Handle, predicate: Predicate, columns: tuple[str, ...] = ()) -> pa.Table:
    """Return the addresses (and some columns) of the rows for which the predicate is true."""
    _check(predicate, handle.schema)
    context = SessionContext()
    context.register_table("t", lance.FFILanceTableProvider(handle, with_row_id=False, with_row_addr=True))
    frame = context.table("t").filter(_lower(predicate))
    try:
        return frame.select(_column(ADDRESS), *map(_column, columns)).to_arrow_table()
    except Exception as error:  # DataFusion raises nothing more specific
        raise storage_failure("scanning rows", error) from error


def matching(rows: pa.Table, predicate: Predicate) -> pa.Table:
    """Return the rows of a table in memory for which the predicate is true."""
    _check(predicate, rows.schema)
    if not rows.num_rows:
        return rows
    return SessionContext().from_arrow(rows).filter(_lower(predicate)).to_arrow_table().cast(rows.schema)


def quoted(name: str) -> str:
    """Return a column name as DataFusion takes it: it parses names, so case and quotes need care."""
    return '"' + name.replace('"', '""') + '"'


def _column(name: str) -> Any:
    return col(quoted(name))


def _lower(predicate: Predicate) -> Any:
    match predicate:
        case Compare(column, operator, value):
            left, right = _column(column), lit(value)
            return {
                "=": left == right,
                "!=": left != right,
                "<": left < right,
                "<=": left <= right,
                ">": left > right,
                ">=": left >= right,
            }[operator]
        case IsIn(column, values):
            return in_list(_column(column), [lit(v) for v in values], negated=False) if values else lit(False)
        case IsNull(column):
            return _column(column).is_null()
        case Not(operand):
            return ~_lower(operand)
        case And(operands):
            return reduce(lambda a, b: a & b, map(_lower, operands), lit(True))
        case Or(operands):
            return reduce(lambda a, b: a | b, map(_lower, operands), lit(False))
        case _:
            assert_never(predicate)


def _check(predicate: Predicate, schema: pa.Schema) -> None:
    """Refuse unknown columns and values of another type: a silent cast would change the question."""
    match predicate:
        case Compare(column, _, value):
            _check_value(column, value, schema)
        case IsIn(column, values):
            for value in values:
                _check_value(column, value, schema)
        case IsNull(column):
            _field(column, schema)
        case Not(operand):
            _check(operand, schema)
        case And(operands) | Or(operands):
            for operand in operands:
                _check(operand, schema)


def _field(column: str, schema: pa.Schema) -> pa.Field:
    if column not in schema.names:
        raise InvalidRequest(
            f"no column {column!r}; the columns are {', '.join(schema.names)}", column=column
        )
    return schema.field(column)


def _check_value(column: str, value: pa.Scalar, schema: pa.Schema) -> None:
    expected = _field(column, schema).type
    if value.type != expected:
        raise InvalidRequest(f"column {column!r} is {expected}, the value is {value.type}", column=column)
