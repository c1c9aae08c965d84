"""Predicate: typed conditions on columns that a scan can prune by, and their one lowering to DataFusion.

Room    storage.tables. Values stay typed Arrow scalars from the caller to the scan: no text is ever
        built from a value, so no value can change the meaning of a condition.
Rule    a predicate is true or not true of a row: what is true, false and unknown in the language is decided
        by one function (execution/conditions.py), which a caller that needs it hands in as `holds`.
        Trees are small: recursion over deep ones ends the process in DataFusion, and in Lance at 500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, assert_never

import lance
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext, col, lit
from datafusion.functions import in_list

from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS

Operator = Literal["=", "!=", "<", "<=", ">", ">="]
Holds: TypeAlias = Callable[[pa.RecordBatch], pa.Array]  # where a condition is true, row by row


@dataclass(frozen=True)
class Compare:
    """A column against a value of the column's type; never true of null."""

    column: str
    operator: Operator
    value: pa.Scalar


@dataclass(frozen=True, eq=False)
class IsIn:
    """A column against a set of values of its type; the empty set matches nothing."""

    column: str
    values: pa.Array


@dataclass(frozen=True)
class IsNull:
    """True when the column is null, or with `negated` when it is not."""

    column: str
    negated: bool = False


@dataclass(frozen=True)
class And:
    """True when all operands are."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True)
class Or:
    """True when any operand is."""

    operands: tuple[Predicate, ...]


Predicate = Compare | IsIn | IsNull | And | Or


def find(
    handle: Handle,
    predicate: Predicate | None,
    columns: Sequence[str] = (),
    holds: Holds | None = None,
) -> pa.Table:
    """Return the addresses (and some columns) of the rows for which the predicate is true, and `holds`."""
    context = SessionContext()
    context.register_table("t", lance.FFILanceTableProvider(handle, with_row_id=False, with_row_addr=True))
    frame = context.table("t")
    if predicate is not None:
        _check(predicate, handle.schema)
        frame = frame.filter(_lower(predicate))
    frame = frame.select(_column(ADDRESS), *map(_column, columns))
    kept = (batch if holds is None else batch.filter(holds(batch)) for batch in _batches(frame))
    return pa.Table.from_batches(kept, frame.schema())


def _batches(frame: Any) -> Iterator[pa.RecordBatch]:
    try:
        for batch in frame.execute_stream():
            yield batch.to_pyarrow()
    except Exception as error:  # DataFusion raises nothing more specific
        raise storage_failure("scanning rows", error) from error


def both_zeros(values: pa.Array) -> pa.Array:
    """Return the values, with both zeros where one is among them: they are equal, but not to a hash table."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.equal(values, 0)).as_py():
        return values
    return pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])


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
            items = [lit(value) for value in values]
            return in_list(_column(column), items, negated=False) if items else lit(False)
        case IsNull(column, negated):
            return _column(column).is_not_null() if negated else _column(column).is_null()
        case And(operands):
            return _balanced([_lower(part) for part in operands], lambda a, b: a & b, lit(True))
        case Or(operands):
            return _balanced([_lower(part) for part in operands], lambda a, b: a | b, lit(False))
        case _:
            assert_never(predicate)


def _balanced(parts: list[Any], join: Callable[[Any, Any], Any], nothing: Any) -> Any:
    """Join parts in pairs, and the pairs again: the tree is as deep as the logarithm of their number."""
    while len(parts) > 1:
        pairs = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs if len(parts) % 2 == 0 else [*pairs, parts[-1]]
    return parts[0] if parts else nothing


def _check(predicate: Predicate, schema: pa.Schema) -> None:
    """Refuse unknown columns and values of another type: a silent cast would change the question."""
    match predicate:
        case Compare(column, _, value):
            _check_type(column, value.type, schema)
        case IsIn(column, values):
            _check_type(column, values.type, schema)
        case IsNull(column):
            _field(column, schema)
        case And(operands) | Or(operands):
            for operand in operands:
                _check(operand, schema)


def _field(column: str, schema: pa.Schema) -> pa.Field:
    if column not in schema.names:
        raise InvalidRequest(
            f"no column {column!r}; the columns are {', '.join(schema.names)}", column=column
        )
    return schema.field(column)


def _check_type(column: str, kind: pa.DataType, schema: pa.Schema) -> None:
    expected = _field(column, schema).type
    if kind != expected:
        raise InvalidRequest(f"column {column!r} is {expected}, the value is {kind}", column=column)
