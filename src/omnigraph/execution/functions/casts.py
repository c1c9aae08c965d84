"""Casts: texts from values and values from texts.

Arrow reads and writes what is spelt as usual; the rest, and what Arrow spells in another way than JSON does,
is asked for once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.times import (
    DAY_MS,
    FIRST_DAY,
    FIRST_INSTANT,
    LAST_DAY,
    LAST_INSTANT,
    OutsideYears,
    read_day,
    read_instant,
)
from omnigraph.execution.functions.columns import (
    Column,
    Kernel,
    as_arrays,
    by_distinct,
    cast,
    first_failing,
    first_true,
    numbers_of,
    refuse,
    with_nulls_of,
)
from omnigraph.execution.functions.numbers import as_floats, as_integers
from omnigraph.execution.result import json_value

_X = ord("x"), ord("X")
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e10  # floats that Arrow spells as JSON does, unless they are whole
_MOST_WHOLE = 1e15


# -- to text -----------------------------------------------------------------------------------------


def _to_string(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = as_arrays(*arguments)
    if pa.types.is_floating(column.type):
        return _texts_of_floats(as_floats(column))
    if pa.types.is_date32(column.type):
        return _texts_of_days(column)
    if pa.types.is_date64(column.type):
        return _texts_of_times(column)
    return cast(column, kind)


def _texts_of_floats(floats: pa.Array) -> pa.Array:
    """Spell floats as JSON does: 1.0 and 1e-05, where Arrow has 1 and 0.00001."""
    values = numbers_of(floats, np.float64)
    size = np.abs(values)
    with np.errstate(all="ignore"):
        whole = (values == np.trunc(values)) & (size < _MOST_WHOLE) & ~((values == 0) & np.signbit(values))
        usual = whole | ((size >= _LEAST_PLAIN) & (size < _MOST_PLAIN) & (values != np.trunc(values)))
    if whole.all():
        return _with_point(values, floats)
    texts = cast(floats, pa.string())
    if whole.any():
        texts = pc.if_else(pa.array(whole), _with_point(np.where(whole, values, 0), floats), texts)
    if usual.all():
        return texts
    return _replaced(texts, pa.array(~usual), _json_texts(floats.filter(pa.array(~usual))))


def _with_point(values: Any, floats: pa.Array) -> pa.Array:
    integers = with_nulls_of(values.astype(np.int64), pa.int64(), [floats])
    return pc.binary_join_element_wise(cast(integers, pa.string()), ".0", "")


def _json_texts(column: pa.Array) -> pa.Array:
    """Return values as results have them, each distinct one once."""
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    numbers = cast(
        distinct, {pa.date32(): pa.int32(), pa.date64(): pa.int64()}.get(distinct.type, distinct.type)
    )
    texts = pa.array([str(json_value(v, column.type)) for v in numbers.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _replaced(texts: pa.Array, chosen: pa.Array, others: pa.Array) -> pa.Array:
    return pc.replace_with_mask(texts, chosen, others) if len(others) else texts


def _texts_of_days(days: pa.Array) -> pa.Array:
    values = numbers_of(days, np.int32)
    usual = (values >= FIRST_DAY) & (values <= LAST_DAY)
    if usual.all():
        return cast(days, pa.string())
    return _far_times(days, usual, _texts_of_days)


def _texts_of_times(times: pa.Array) -> pa.Array:
    values = numbers_of(times, np.int64)
    usual = (values >= FIRST_INSTANT) & (values <= LAST_INSTANT)
    if not usual.all():
        return _far_times(times, usual, _texts_of_times)
    # Without a zone, which Arrow would look up for each value.
    texts = cast(with_nulls_of(values, pa.timestamp("ms"), [times]), pa.string())
    return pc.binary_join_element_wise(pc.binary_replace_slice(texts, 10, 11, "T"), "Z", "")


def _far_times(times: pa.Array, usual: Any, texts_of: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Spell years that Arrow cannot."""
    near = texts_of(
        pc.if_else(pa.array(usual), times, pa.scalar(0, pa.int32()).cast(pa.date32()).cast(times.type))
    )
    return _replaced(near, pa.array(~usual), _json_texts(times.filter(pa.array(~usual))))


# -- to numbers --------------------------------------------------------------------------------------


def _to_int(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = arguments
    if pa.types.is_string(column.type):
        return _read(column, kind, "to_int", "an integer such as -12", _is_hexadecimal)
    if pa.types.is_integer(column.type):
        return as_integers(column, kind)
    (floats,) = as_arrays(as_floats(column))
    values = numbers_of(floats, np.float64)
    row = first_true(~((values >= -(2.0**63)) & (values < 2.0**63)), [floats])
    if row is not None:
        why, remedy = "overflow, the result is outside I64", "Filter out the rows with such numbers"
        refuse("to_int({})", arguments, row, reason="overflow", why=why, remedy=remedy)
    with np.errstate(all="ignore"):
        return with_nulls_of(values.astype(np.int64), kind, [floats])


def _to_float(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = arguments
    if not pa.types.is_string(column.type):
        return as_floats(column)
    return _read(column, kind, "to_float", "a number such as -1.5e3", _is_no_number)


def _read(
    texts: Column,
    kind: pa.DataType,
    name: str,
    wanted: str,
    doubtful: Callable[[pa.Array, pa.Array], pa.Array],
) -> pa.Array:
    """Read numbers as Arrow does, but for spellings that it takes and the language does not."""
    (texts,) = as_arrays(texts)
    failing: int | None = None
    try:
        numbers = cast(texts, kind)
    except pa.ArrowInvalid:
        failing = first_failing(lambda part: pc.cast(part, kind), [texts])
        numbers = cast(texts.slice(0, failing), kind)
    readable = texts.slice(0, len(numbers))
    refused = doubtful(readable, numbers)
    doubted = None if refused is None else first_true(np.asarray(refused), [readable])
    row = failing if doubted is None else doubted
    if row is not None:
        _bad_text(name, texts, row, wanted)
    return numbers


def _is_hexadecimal(texts: pa.Array, numbers: pa.Array) -> Any:
    data = texts.buffers()[2]
    if data is None:
        return None
    octets = np.frombuffer(data, np.uint8)
    if not any((octets == letter).any() for letter in _X):
        return None
    return pc.fill_null(pc.match_substring(texts, "x", ignore_case=True), False)


def _is_no_number(texts: pa.Array, numbers: pa.Array) -> Any:
    """Mask words such as nan, numbers too large and a leading plus."""
    refused = pc.or_(pc.starts_with(texts, "+"), pc.invert(pc.is_finite(numbers)))
    return pc.fill_null(refused, False)


def _bad_text(name: str, texts: Column, row: int, wanted: str) -> NoReturn:
    why, remedy = f"the text is not {wanted}", f"Filter with matches(s, ...) before {name}"
    refuse(f"{name}({{}})", [texts], row, reason="bad_value", why=why, remedy=remedy)


def _to_bool(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (texts,) = as_arrays(*arguments)
    true, false = pc.equal(texts, "true"), pc.equal(texts, "false")
    row = first_true(np.asarray(pc.fill_null(pc.invert(pc.or_(true, false)), False)), [texts])
    if row is not None:
        _bad_text("to_bool", texts, row, '"true" or "false"')
    return true


# -- to times ----------------------------------------------------------------------------------------


def _to_date(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = as_arrays(*arguments)
    if pa.types.is_string(column.type):
        return _read_times(column, kind, "to_date", "a date such as 2026-01-31", read_day, pa.date32())
    if pa.types.is_date64(column.type):
        days = numbers_of(column, np.int64) // DAY_MS
        return with_nulls_of(days.astype(np.int32), kind, [column])
    return column


def _to_datetime(arguments: Sequence[Column], kind: pa.DataType) -> Column:
    (column,) = as_arrays(*arguments)
    if pa.types.is_string(column.type):
        wanted = "a time such as 2026-01-31T09:00:00Z"
        return _read_times(column, kind, "to_datetime", wanted, read_instant, pa.timestamp("ms", "UTC"))
    if pa.types.is_date32(column.type):
        times = numbers_of(column, np.int32).astype(np.int64) * DAY_MS
        return with_nulls_of(times, kind, [column])
    return column


def _read_times(
    texts: pa.Array,
    kind: pa.DataType,
    name: str,
    wanted: str,
    read: Callable[[str], int],
    usual: pa.DataType,
) -> pa.Array:
    """Read times as Arrow does if all are spelt in its way, else each distinct text once."""
    try:
        times = cast(texts, usual)
        integers = times.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        low = FIRST_DAY if pa.types.is_date32(kind) else FIRST_INSTANT  # Arrow takes the year 0000
        if not pc.any(pc.less(integers, low)).as_py():
            return integers.view(kind)
    except pa.ArrowInvalid:
        pass
    width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    numbers = by_distinct(lambda text: _time_or_none(read, text), width, [texts])
    row = first_true(numbers.is_null().to_numpy(zero_copy_only=False), [texts])
    if row is not None:
        _bad_text(name, texts, row, wanted)
    return numbers.view(kind)


def _time_or_none(read: Callable[[str], int], text: str) -> int | None:
    try:
        return read(text)
    except (ValueError, OutsideYears):
        return None


KERNELS: dict[str, Kernel] = {
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "to_bool": _to_bool,
    "to_date": _to_date,
    "to_datetime": _to_datetime,
}
