"""Group: aggregates over the rows of each group.

Keys compare by value, and null is a value of its own; a node groups by identity. Rows where the argument is
null do not count. Without keys there is one group, even over no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.query.expressions import (
    Aggregate,
    AggregateFunction,
    Arithmetic,
    Constant,
    EntityValue,
    Now,
    OutputRef,
    ParamRef,
    PropertyValue,
    Value,
)
from omnigraph.execution.arrays import take
from omnigraph.execution.budget import Budget
from omnigraph.execution.columns import Ordinals
from omnigraph.execution.context import Context
from omnigraph.execution.match_rows import MatchRows
from omnigraph.execution.values import Evaluator, calculate

FIRST_ROWS = 1 << 16  # rows that are looked at first for a row of each group
CODES_SHARE = 4  # a column is encoded for a table where there is a row for at least every so many entities
DENSE_CODES = 4  # combinations of codes are counted in place while there are no more than so many for a row


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each row is in, and a row that stands for each group."""

    of: Ordinals
    count: int

    @cached_property
    def first(self) -> Ordinals:
        """The first row of each group; none when there are no rows."""
        rows = len(self.of)
        first = np.full(self.count if rows else 0, -1, dtype=np.int64)
        start, size = 0, max(FIRST_ROWS, 4 * self.count)
        while start < rows and (unseen := first < 0).any():  # mostly soon: few groups have only late rows
            part = self.of[start : start + size]
            of_part = np.full(self.count, -1, dtype=np.int64)
            of_part[part[::-1]] = np.arange(start + len(part) - 1, start - 1, -1)  # the last one stays
            first[unseen] = of_part[unseen]
            start, size = start + size, 2 * size
        return first


def group(keys: Sequence[pa.Array], rows: int, budget: Budget) -> Groups:
    """Number the groups by the order of their first rows."""
    if not keys:
        return Groups(np.zeros(rows, np.int64), 1)
    budget.check(rows, 3, "grouping")
    return Groups(*_combined([_numbered(key) for key in keys]))


def distinct(columns: Sequence[pa.Array], rows: int, budget: Budget) -> Ordinals:
    """Return the number of the first row of each combination of values, ascending."""
    return group(columns, rows, budget).first


def _combined(columns: Sequence[tuple[Ordinals, int]]) -> tuple[Ordinals, int]:
    """Number the combinations of numbered values by their first appearance; say how many there are."""
    of, count = columns[0]
    for each, values in columns[1:]:
        of, count = _encoded(pa.array(of * values + each))
    return of, count


# -- grouping by codes -----------------------------------------------------------------------------
#
# Where a group has a row for most entities of a type, the key is not fetched for each row: the column is
# encoded once for the table, and its codes are. They are kept beside the column, as long as it would be.


def grouped_rows(keys: Sequence[Value], rows: MatchRows, evaluator: Evaluator) -> Groups:
    """Put rows into groups by the values of some keys; groups are in no particular order."""
    budget = evaluator.context.budget
    if not keys:
        return group((), rows.count, budget)
    budget.check(rows.count, 3, "grouping")
    columns = []
    for key in keys:
        coded = _coded(key, rows, evaluator.context)
        columns.append(_numbered(key_column(key, rows, evaluator, ())) if coded is None else coded)
    of, count = columns[0]
    for each, values in columns[1:]:
        if count * values > rows.count * DENSE_CODES:
            of, count = _encoded(pa.array(of * np.int64(values) + each))
        else:
            of, count = of * np.int64(values) + each, count * values
    return Groups(*_without_empty(of, count))


def _coded(key: Value, rows: MatchRows, context: Context) -> tuple[Ordinals, int] | None:
    """Return the codes of a stored value in each row, where that is cheaper than the value."""
    if not isinstance(key, PropertyValue):
        return None
    ordinals, table = rows.bound[key.variable], context.table(key.variable.type.id)
    column = key.member.column
    if column in table.absent or pa.types.is_nested(key.member.type.arrow):
        return None
    if rows.count * CODES_SHARE < table.span and not table.has_codes(column):
        return None
    context.budget.check_bytes(8 * table.span, f"encoding column {column}")
    numbers, count = table.codes_of(column, ordinals)
    return numbers.astype(np.int64), count


def _without_empty(of: Ordinals, count: int) -> tuple[Ordinals, int]:
    """Number the groups that have rows, without gaps."""
    present = np.bincount(of, minlength=count) > 0
    last = int(np.flatnonzero(present)[-1]) if len(of) else -1
    if present[: last + 1].all():  # often only the code of null, which is the last, has no row
        return of, last + 1
    return take((np.cumsum(present) - 1).astype(np.int64), of), int(present.sum())


def _numbered(column: pa.Array) -> tuple[Ordinals, int]:
    """Number the values of a column: null is a value, both zeros are one, alone and inside lists."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _combined([_numbered(part) for part in (column.is_valid(), *column.flatten())])
    if pa.types.is_nested(kind):
        return _encoded(_as_bytes(column))
    if pa.types.is_floating(kind):
        return _encoded(pc.add(column, pa.scalar(0.0, kind)))
    return _encoded(column)


def _encoded(column: pa.Array) -> tuple[Ordinals, int]:
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _as_bytes(lists: pa.Array) -> pa.Array:
    """Return the numbers of each list's items as bytes: equal where the lists are."""
    items, _ = _numbered(pc.list_flatten(lists))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]) * items.itemsize
    texts = pa.Array.from_buffers(
        pa.large_binary(), len(lists), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(items.tobytes())]
    )
    return pc.if_else(lists.is_valid(), texts, None) if lists.null_count else texts


def key_column(value: Value, rows: MatchRows, evaluator: Evaluator, outputs: Sequence[pa.Array]) -> pa.Array:
    """Return what a grouping key compares by: a node by which one it is, anything else by value."""
    if isinstance(value, EntityValue):
        return pa.array(rows.bound[value.variable])
    return evaluator.column(value, rows, outputs)


def grouped(
    value: Value, rows: MatchRows, groups: Groups, evaluator: Evaluator, outputs: Sequence[pa.Array]
) -> pa.Array:
    """Return the value of an aggregate expression in each group; `outputs` are those of the groups."""
    match value:
        case Aggregate():
            return _aggregate(value, rows, groups, evaluator)
        case Arithmetic(operator, left, right, kind):
            sides = [grouped(side, rows, groups, evaluator, outputs) for side in (left, right)]
            return calculate(operator, sides[0], sides[1], kind)
        case OutputRef(position=position):
            return outputs[position]
        case Constant() | ParamRef() | Now():
            return evaluator.column(value, MatchRows(groups.count, {}))  # there is a group even over no rows
        case _:
            return evaluator.column(value, rows.take(groups.first))


def _aggregate(value: Aggregate, rows: MatchRows, groups: Groups, evaluator: Evaluator) -> pa.Array:
    kind = value.type.arrow
    if isinstance(value.argument, EntityValue):
        if value.function is AggregateFunction.COUNT and not value.argument.variable.optional:
            return pa.array(np.bincount(groups.of, minlength=groups.count), pa.int64()).cast(kind)
        ordinals = rows.bound[value.argument.variable]
        if value.function is AggregateFunction.COUNT:
            return _counted(groups, ordinals >= 0).cast(kind)
        argument = pa.array(ordinals, mask=ordinals < 0)
    else:
        argument = evaluator.column(value.argument, rows)
    match value.function:
        case AggregateFunction.COUNT:
            return _counted(groups, pc.is_valid(argument).to_numpy(zero_copy_only=False)).cast(kind)
        case AggregateFunction.SUM | AggregateFunction.AVG:
            name = "sum" if value.function is AggregateFunction.SUM else "mean"
            return _arrow(argument.cast(pa.float64(), safe=False), groups, name).cast(kind)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return _arrow(argument, groups, value.function.value).cast(kind)
        case AggregateFunction.COUNT_DISTINCT:
            numbers = pa.array(_numbered(argument)[0], mask=argument.is_null().to_numpy(zero_copy_only=False))
            return _arrow(numbers, groups, "count_distinct").cast(kind)
        case AggregateFunction.COLLECT:
            return _collected(argument, groups, kind)


def _counted(groups: Groups, known: NDArray[np.bool_]) -> pa.Array:
    of = groups.of if known.all() else groups.of[known]
    return pa.array(np.bincount(of, minlength=groups.count), pa.int64())


def _arrow(argument: pa.Array, groups: Groups, function: str) -> pa.Array:
    """Aggregate with Arrow; a group without values is null, or 0 where things are counted."""
    known = pc.is_valid(argument)
    values = argument.filter(known)
    of = groups.of[known.to_numpy(zero_copy_only=False)]
    table = pa.table({"g": of, "v": values})
    options = pc.CountOptions(mode="only_valid") if function == "count_distinct" else None
    done = table.group_by("g", use_threads=False).aggregate([("v", function, options)])
    result = done[f"v_{function}"].combine_chunks()
    places = np.full(groups.count, -1, dtype=np.int64)
    places[done["g"].to_numpy()] = np.arange(len(result))
    spread = result.take(pa.array(places, mask=places < 0))
    return pc.fill_null(spread, 0) if function == "count_distinct" else spread


def _collected(argument: pa.Array, groups: Groups, kind: pa.DataType) -> pa.Array:
    """Gather the values of each group, in the order of the rows."""
    known = pc.is_valid(argument).to_numpy(zero_copy_only=False)
    of = groups.of[known]
    order = np.argsort(of, kind="stable")
    values = argument.filter(pa.array(known)).take(pa.array(order))
    counts = np.bincount(of, minlength=groups.count)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values).cast(kind)
