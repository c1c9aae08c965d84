"""Columns: what all kernels share - columns beside scalars, numpy views of them, failures with their row."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.types import repeated
from omnigraph.execution.result import json_values

Column: TypeAlias = Any  # pa.Array | pa.Scalar; pyarrow has no types for a checker
Kernel: TypeAlias = Callable[[Sequence[Column], pa.DataType], Column]  # the type is that of the result
Numbers: TypeAlias = NDArray[Any]

LONGEST_SHOWN = 60  # letters of a value in a message


def row_count(columns: Sequence[Column]) -> int:
    """Return how many rows columns have; scalars alone are one row."""
    return next((len(column) for column in columns if not isinstance(column, pa.Scalar)), 1)


def as_arrays(*columns: Column) -> list[pa.Array]:
    """Return columns of one length: a scalar is repeated."""
    count = row_count(columns)
    return [repeated(c, count) if isinstance(c, pa.Scalar) else c for c in columns]


def cast(column: Column, kind: pa.DataType, *, safe: bool = True) -> Column:
    """Return a column in another type."""
    return column if column.type == kind else pc.cast(column, kind, safe=safe)


def is_missing(column: Column) -> bool:
    """Say whether a column is NULL in every row: a scalar without a value, or a bare null."""
    return pa.types.is_null(column.type) or (isinstance(column, pa.Scalar) and not column.is_valid)


# -- numpy -------------------------------------------------------------------------------------------


def numbers_of(column: Column, dtype: type[np.generic]) -> Any:
    """Return the numbers of a column without a copy, whatever stands where it is null; a scalar's alone."""
    if isinstance(column, pa.Scalar):
        return numbers_of(repeated(column, 1), dtype)[0]
    data = column.buffers()[1]
    if data is None or not len(column):
        return np.zeros(len(column), dtype)
    size = np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, len(column), column.offset * size)


def with_nulls_of(values: Numbers, kind: pa.DataType, columns: Sequence[Column]) -> pa.Array:
    """Return numbers as an array of a type, null where one of some columns is."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bitmap_of(validity(columns)), data])


def bitmap_of(valid: pa.Array | None) -> pa.Buffer | None:
    """Return what `validity` gave as the buffer of an array: Arrow begins the booleans that it makes at 0."""
    return None if valid is None else valid.buffers()[1]


def validity(columns: Sequence[Column]) -> pa.Array | None:
    """Return where all of some columns have a value; None if everywhere."""
    valid: pa.Array | None = None
    for column in columns:
        if isinstance(column, pa.Array) and column.null_count:
            own = column.is_valid()
            valid = own if valid is None else pc.and_(valid, own)
    return valid


def mask_of(condition: pa.Array) -> NDArray[np.bool_]:
    """Return booleans as numpy has them; null is false."""
    filled = pc.fill_null(condition, False) if condition.null_count else condition
    mask: NDArray[np.bool_] = filled.to_numpy(zero_copy_only=False)
    return mask


def first_true(mask: NDArray[np.bool_], columns: Sequence[Column]) -> int | None:
    """Return the first row where a mask is true and no column is null."""
    if not mask.any():
        return None
    valid = validity(columns)
    if valid is not None:
        mask = mask & valid.to_numpy(zero_copy_only=False)
    return int(mask.argmax()) if mask.any() else None


# -- values that Arrow has no kernel for -------------------------------------------------------------


def by_distinct(function: Callable[..., Any], kind: pa.DataType, columns: Sequence[Column]) -> pa.Array:
    """Return what a Python function makes of the values of each row, asked once for each combination.

    Only where Arrow has no kernel: texts compared with another pattern in every row, texts of unusual dates.
    The function is given no null.
    """
    places, combinations = combinations_of(as_arrays(*columns))
    outcomes = pa.array([function(*values) for values in combinations], kind)
    return outcomes.take(pa.array(places, mask=places < 0))


def combinations_of(arrays: Sequence[pa.Array]) -> tuple[Numbers, list[tuple[Any, ...]]]:
    """Return which combination of values each row has, -1 where one is null, and all combinations."""
    codes, dictionaries = np.zeros(len(arrays[0]), np.int64), []
    for array in arrays:
        encoded = array.dictionary_encode()
        dictionaries.append(encoded.dictionary)
        codes = codes * max(len(encoded.dictionary), 1) + numbers_of(encoded.indices, np.int32)
    valid = validity(arrays)
    if valid is not None:
        codes[~valid.to_numpy(zero_copy_only=False)] = -1
    if len(arrays) == 1:
        return codes, [(value,) for value in dictionaries[0].to_pylist()]
    distinct, places = np.unique(codes, return_inverse=True)
    known = distinct[distinct >= 0]
    places -= len(distinct) - len(known)  # the first is that of nulls, if there are any
    values = []
    for dictionary in reversed(dictionaries):
        known, own = np.divmod(known, max(len(dictionary), 1))
        values.append(dictionary.take(pa.array(own)).to_pylist())
    return places, list(zip(*reversed(values), strict=True))


# -- failures ----------------------------------------------------------------------------------------


class NotComputable(InvalidRequest):
    """A value cannot be computed from what a row holds; the query ends, and a write wrote nothing.

    `reason` is overflow, division_by_zero, not_finite or bad_value; `row` is the first row that failed,
    counted within what was computed, for whoever can say which entities it is made of.
    """

    def __init__(self, message: str, *, remedy: str, reason: str, row: int, **fields: Any) -> None:
        super().__init__(message, remedy=remedy, reason=reason, row=row, **fields)

    @property
    def reason(self) -> str:
        """What kind of failure it was."""
        return str(self.fields["reason"])

    @property
    def row(self) -> int:
        """Which row failed."""
        return int(self.fields["row"])


def first_failing(attempt: Callable[..., Any], columns: Sequence[Column]) -> int:
    """Return the first row that an Arrow kernel refuses, which refuses the columns as a whole."""
    low, high = 0, row_count(columns)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            attempt(*(c if isinstance(c, pa.Scalar) else c.slice(low, middle - low) for c in columns))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def refuse(
    template: str, columns: Sequence[Column], row: int, *, reason: str, why: str, remedy: str
) -> NoReturn:
    """Raise what cannot be computed in a row; the template has a place for the value of each column."""
    values = [_shown(column, row) for column in columns]
    raise NotComputable(
        f"{template.format(*values)}: {why}", remedy=remedy, reason=reason, row=row, values=tuple(values)
    )


def _shown(column: Column, row: int) -> str:
    value = repeated(column, 1) if isinstance(column, pa.Scalar) else column.slice(row, 1)
    text = json.dumps(json_values(value)[0], ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
