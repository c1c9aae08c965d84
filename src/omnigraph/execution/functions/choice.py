"""Choice: the values that are chosen among others.

`if` and `coalesce` are here for arguments that are computed already. What must be computed only where it is
chosen is computed for its own rows alone, and `merge` puts the rows together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.execution.functions.columns import Column, Kernel, NotComputable, Numbers, as_arrays, cast
from omnigraph.execution.functions.logic import compare
from omnigraph.execution.functions.numbers import as_floats, as_integers


def in_type(column: Column, kind: pa.DataType) -> Column:
    """Return a column in the type that it shares with others: numbers keep their value."""
    if column.type == kind:
        return column
    if pa.types.is_integer(kind) and pa.types.is_integer(column.type):
        return as_integers(column, kind)
    return as_floats(column) if kind == pa.float64() else cast(column, kind)


def merge(choice: Numbers, branches: Sequence[Column], kind: pa.DataType) -> pa.Array:
    """Return for each row a value of the branch that it chose, NULL for -1.

    An array has the values of the rows that chose it, in their order; a scalar is for all of them.
    """
    order = np.zeros(len(choice), np.int64)
    parts, begin = [pa.nulls(1, kind)], 1
    for number, branch in enumerate(branches):
        rows = np.flatnonzero(choice == number)
        if len(rows):
            part = _chosen(branch, rows, kind)
            order[rows] = begin if isinstance(branch, pa.Scalar) else np.arange(begin, begin + len(rows))
            parts.append(part)
            begin += len(part)
    return pa.concat_arrays(parts).take(pa.array(order))


def _chosen(branch: Column, rows: Numbers, kind: pa.DataType) -> pa.Array:
    """Return the values of a branch in the type of the result; one that fails is named by its row of all."""
    try:
        return as_arrays(in_type(branch, kind))[0]
    except NotComputable as error:
        fields = error.fields | {"row": int(rows[error.row])}
        raise NotComputable(error.message, remedy=error.remedy or "", **fields) from error


def _coalesce(arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    columns = _all_in_type(arguments, kind)
    if columns is not None and not pa.types.is_nested(kind):  # Arrow coalesces no lists
        return pc.coalesce(*columns)
    arrays = as_arrays(*arguments)
    choice = np.full(len(arrays[0]), -1)
    for number in reversed(range(len(arrays))):
        choice[arrays[number].is_valid().to_numpy(zero_copy_only=False)] = number
    return _picked(choice, arrays, kind)


def _all_in_type(columns: Sequence[Column], kind: pa.DataType) -> list[Column] | None:
    """Return columns in one type; None if a value is outside it, which is no matter unless it is chosen."""
    try:
        return [in_type(column, kind) for column in columns]
    except NotComputable:
        return None


def _picked(choice: Numbers, arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return for each row its value in the array that it chose: what is not chosen is not converted."""
    own = [array.filter(pa.array(choice == number)) for number, array in enumerate(arrays)]
    return merge(choice, own, kind)


def _nullif(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    first, second = arguments
    if pa.types.is_null(first.type) or pa.types.is_null(second.type):
        return in_type(first, kind)
    if pa.types.is_nested(first.type):
        arrays = as_arrays(first, second)
        equal = pa.array([a == b for a, b in zip(*arrays, strict=True)], pa.bool_())
        return _picked(np.where(pc.and_(equal, arrays[1].is_valid()), -1, 0), arrays[:1], kind)
    (first,) = as_arrays(first) if isinstance(second, pa.Scalar) else as_arrays(first, second)[:1]
    return pc.if_else(pc.fill_null(compare("=", first, second), False), None, first)


def _if(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    condition, first, second = arguments
    chosen = pc.fill_null(cast(condition, pa.bool_()), False)
    columns = _all_in_type((first, second), kind)
    if columns is not None:
        return pc.if_else(chosen, *columns)
    chosen, *arrays = as_arrays(chosen, first, second)
    return _picked(np.where(chosen, 0, 1), arrays, kind)


def _extreme(function: Callable[..., Any]) -> Kernel:
    def kernel(arguments: Sequence[Column], kind: pa.DataType) -> Column:
        columns = [in_type(argument, kind) for argument in arguments]
        if kind == pa.bool_():  # Arrow orders no booleans
            return cast(function(*(cast(column, pa.uint8()) for column in columns)), kind)
        return function(*columns)

    return kernel


KERNELS: dict[str, Kernel] = {
    "coalesce": _coalesce,
    "nullif": _nullif,
    "if": _if,
    "least": _extreme(pc.min_element_wise),
    "greatest": _extreme(pc.max_element_wise),
}
