"""Predicate: what a scan prunes by, as one typed filter expression of DataFusion.

Conditions have one tree, that of the checked query (catalog/query/expressions.py), and one lowering to a
predicate (`pruning` in execution/conditions.py). So a predicate is not a tree again but an expression, put
together here from typed Arrow values: no text is ever built from a value, so no value can change the meaning
of a filter. DataFusion is imported with the first of them: most queries by key need none.

A predicate is true or not true of a row. What is true, false or unknown in the language is decided by one
function, which a caller that needs it hands to `find` as `holds`. Predicates are small: recursion over deep
expressions ends the process in DataFusion, and in Lance at 500.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.lance_reads import provider
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.layout import ADDRESS

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Holds: TypeAlias = Callable[[pa.RecordBatch], pa.Array]  # where a condition is true, row by row


@dataclass(frozen=True, eq=False)
class Predicate:
    """A filter expression, the columns that it reads, and how many tests it is made of."""

    expression: Any
    reads: tuple[tuple[str, pa.DataType | None], ...]  # columns, with the type of the values compared with
    tests: int = 1


def compares(column: str, symbol: str, value: pa.Scalar) -> Predicate:
    """Compare a column with a value of its type; never true of null."""
    return Predicate(OPERATORS[symbol](_column(column), _literal(value)), ((column, value.type),))


def is_in(column: str, values: pa.Array) -> Predicate:
    """Test a column against a set of values of its type; the empty set matches nothing."""
    from datafusion.functions import in_list

    items = [_literal(value) for value in values]
    expression = in_list(_column(column), items, negated=False) if items else _literal(False)
    return Predicate(expression, ((column, values.type),))


def is_null(column: str, *, negated: bool = False) -> Predicate:
    """Test whether a column is null, or with `negated` whether it is not."""
    expression = _column(column).is_not_null() if negated else _column(column).is_null()
    return Predicate(expression, ((column, None),))


def all_hold(parts: Sequence[Predicate]) -> Predicate:
    """Join predicates: true when all of them are."""
    return _joined(parts, operator.and_, _literal(True))


def any_holds(parts: Sequence[Predicate]) -> Predicate:
    """Join predicates: true when any of them is."""
    return _joined(parts, operator.or_, _literal(False))


def _joined(parts: Sequence[Predicate], join: Callable[[Any, Any], Any], of_nothing: Any) -> Predicate:
    """Join expressions in pairs, and the pairs again: the depth is the logarithm of their number."""
    level = [part.expression for part in parts] or [of_nothing]
    while len(level) > 1:
        pairs = [join(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs if len(level) % 2 == 0 else [*pairs, level[-1]]
    reads = tuple(read for part in parts for read in part.reads)
    return Predicate(level[0], reads, sum(part.tests for part in parts))


def find(
    handle: Handle,
    predicate: Predicate | None,
    columns: Sequence[str] = (),
    holds: Holds | None = None,
) -> pa.Table:
    """Return the addresses (and some columns) of the rows for which the predicate is true, and `holds`."""
    from datafusion import SessionContext

    context = SessionContext()
    context.register_table("t", provider(handle, addresses=True))
    frame = context.table("t")
    if predicate is not None:
        _check(predicate, handle.schema)
        frame = frame.filter(predicate.expression)
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
    from datafusion import col

    return col(quoted(name))


def _literal(value: Any) -> Any:
    from datafusion import lit

    return lit(value)


def _check(predicate: Predicate, schema: pa.Schema) -> None:
    """Refuse unknown columns and values of another type: a silent cast would change the question."""
    for column, value_type in predicate.reads:
        if column not in schema.names:
            raise InvalidRequest(
                f"no column {column!r}; the columns are {', '.join(schema.names)}", column=column
            )
        expected = schema.field(column).type
        if value_type is not None and value_type != expected:
            raise InvalidRequest(f"column {column!r} is {expected}, the value is {value_type}", column=column)
