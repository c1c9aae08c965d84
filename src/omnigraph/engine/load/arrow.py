"""Arrow: a column of any Arrow type as a column of the stored type.

    table, file or frame -> **arrow** -> column -> block

For Parquet, Arrow and frames: whole columns at a time, nothing for each row unless a mask says that a value
does not fit.

Rule    values are kept or refused, never bent: integers change width if they fit, integers become floats,
        F64 is rounded to F32, times finer than a millisecond are cut as in text (times.py). Text is not
        parsed as a number, and a float is not an integer; but text is read as a day or a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.base.times import DAY_MS
from omnigraph.catalog.types import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.engine.load.cells import (
    CellMisfit,
    ColumnMisfit,
    ColumnTarget,
    InputColumn,
    cells_column,
    list_array,
    vector_array,
)
from omnigraph.engine.validate.values import Breach, rows_with, shown

_LISTS = (
    kinds.is_list,
    kinds.is_large_list,
    kinds.is_fixed_size_list,
    kinds.is_list_view,
    kinds.is_large_list_view,
)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def arrow_column(array: pa.Array, target: ColumnTarget, *, whole_floats: bool = False) -> InputColumn:
    """Return the column as stored, or raise `ColumnMisfit` when its type has no such values.

    With `whole_floats` floats without a fraction are integers too: pandas keeps integers that way as
    soon as one is missing.
    """
    plain = decoded(array)
    scalar = target.type.scalar
    if kinds.is_null(plain.type):
        return InputColumn(pa.nulls(len(plain), target.type.arrow))
    if target.type.is_list or scalar is Scalar.VECTOR:
        return _lists(plain, target, whole_floats)
    if scalar in INTEGERS:
        return _integers(plain, target, whole_floats)
    return _CONVERTERS[scalar](plain, target)


def text_column(array: pa.Array, target: ColumnTarget) -> InputColumn:
    """Return a column of text, or raise `ColumnMisfit`."""
    plain = decoded(array)
    if kinds.is_null(plain.type):
        return InputColumn(pa.nulls(len(plain), pa.string()))
    return _strings(plain, target)


def is_text(kind: pa.DataType) -> bool:
    """Say whether values of the type are text."""
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def decoded(array: pa.Array) -> pa.Array:
    """Return the values without encodings that only save space."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if kinds.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    return array.dictionary_decode() if kinds.is_dictionary(array.type) else array


def _misfit(kind: pa.DataType, target: ColumnTarget, takes: str) -> ColumnMisfit:
    return ColumnMisfit(f"{target.place} is of type {target.type} and takes {takes}, not a column of {kind}")


# -- text, booleans, bytes ---------------------------------------------------------------------------


def _strings(array: pa.Array, target: ColumnTarget) -> InputColumn:
    if not is_text(array.type):
        raise _misfit(array.type, target, "text")
    try:
        array.validate(full=True)  # files may claim that any bytes are text
        return InputColumn(_narrowed(array, pa.string()))
    except pa.ArrowInvalid:
        return _broken_text(array, target)


def _broken_text(array: pa.Array, target: ColumnTarget) -> InputColumn:
    stored: list[str | None] = []
    misfits = {}
    for row, value in enumerate(_narrowed(array, pa.binary())):
        content = value.as_py()
        try:
            stored.append(None if content is None else content.decode())
        except UnicodeDecodeError as error:
            stored.append(None)
            misfits[row] = CellMisfit(f"broken UTF-8 at byte {error.start} of the value", content)
    return InputColumn.with_misfits(pa.array(stored, pa.string()), target, misfits)


def _narrowed(array: pa.Array, narrow: pa.DataType) -> pa.Array:
    """Return the values with offsets of 32 bits; a part of a huge column may need its own copy first."""
    if array.type == narrow:
        return array
    try:
        return array.cast(narrow, safe=False)
    except pa.ArrowInvalid:
        return array.take(pa.array(np.arange(len(array)))).cast(narrow, safe=False)


def _bools(array: pa.Array, target: ColumnTarget) -> InputColumn:
    if not kinds.is_boolean(array.type):
        raise _misfit(array.type, target, "booleans")
    return InputColumn(array)


def _blobs(array: pa.Array, target: ColumnTarget) -> InputColumn:
    if is_text(array.type):
        return cells_column(array.to_pylist(), target)
    found = array.type
    if not (kinds.is_binary(found) or kinds.is_large_binary(found) or kinds.is_binary_view(found)):
        if not kinds.is_fixed_size_binary(found):
            raise _misfit(found, target, "bytes, or text that begins with base64:")
        array = array.cast(pa.binary())
    return InputColumn(array.cast(pa.large_binary()))


# -- numbers -----------------------------------------------------------------------------------------


def _integers(array: pa.Array, target: ColumnTarget, whole_floats: bool) -> InputColumn:
    if kinds.is_floating(array.type) and whole_floats:
        return _from_whole_floats(array, target)
    whole = kinds.is_integer(array.type) or (kinds.is_decimal(array.type) and array.type.scale == 0)
    if not whole:  # decimals without a fraction are how others write integers beyond 63 bits
        raise _misfit(array.type, target, "integers")
    return _in_range(array, target, target.type.arrow, target.type.scalar.value)


def _in_range(array: pa.Array, target: ColumnTarget, stored: pa.DataType, name: str) -> InputColumn:
    """Convert between widths; what does not fit is refused."""
    if array.type == stored:
        return InputColumn(array)
    try:
        return InputColumn(array.cast(stored))
    except pa.ArrowInvalid:
        # Every integer type fits one of the two widest; Python compares the rest.
        limits = np.iinfo(stored.to_pandas_dtype())
        fits = np.fromiter(
            (value is None or limits.min <= value <= limits.max for value in array.to_pylist()),
            bool,
            len(array),
        )
        kept = pc.if_else(pa.array(fits), array, pa.scalar(None, array.type)).cast(stored)
        full_name = {"i": "Int", "u": "UInt"}[limits.kind] + str(limits.bits)
        return InputColumn(kept, (_refused(array, ~fits, target, f"{{}} exceeds {full_name} range"),))


def _from_whole_floats(array: pa.Array, target: ColumnTarget) -> InputColumn:
    numbers = array.cast(pa.float64(), safe=False)
    valid = pc.is_valid(numbers).to_numpy(zero_copy_only=False)
    values = pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False)
    limits = np.iinfo(target.type.arrow.to_pandas_dtype())
    # A power of two is exact as a double, and the largest integer of 64 bits is not.
    fits = (np.trunc(values) == values) & (values >= limits.min) & (values < float(limits.max + 1))
    integers = np.where(fits, values, 0).astype(target.type.arrow.to_pandas_dtype())
    stored = pa.array(integers, mask=~(valid & fits))
    if (fits | ~valid).all():
        return InputColumn(stored)
    text = f"expected an integer ({target.type.scalar.value}), found {{}}"
    return InputColumn(stored, (_refused(numbers, valid & ~fits, target, text),))


def _floats(array: pa.Array, target: ColumnTarget) -> InputColumn:
    if not (kinds.is_floating(array.type) or kinds.is_integer(array.type)):
        raise _misfit(array.type, target, "numbers")
    if array.type == target.type.arrow:
        return InputColumn(array)
    wide = array.cast(pa.float64(), safe=False)
    if target.type.scalar is Scalar.F64:
        return InputColumn(wide)
    narrow = wide.cast(pa.float32(), safe=False)
    overflow = pc.fill_null(pc.and_(pc.is_inf(narrow), pc.is_finite(wide)), False)
    if not pc.any(overflow).as_py():
        return InputColumn(narrow)
    mask = overflow.to_numpy(zero_copy_only=False)
    return InputColumn(narrow, (_refused(wide, mask, target, "{} exceeds Float32 range"),))


def _refused(array: pa.Array, mask: Any, target: ColumnTarget, text: str) -> Breach:
    def describe(row: int) -> tuple[str, str | None]:
        value = shown(array[row].as_py())
        return f"{target.place}: {text.format(value)}", value

    return Breach("type", target.name, pa.array(mask), describe)


# -- days and times ----------------------------------------------------------------------------------


def _days(array: pa.Array, target: ColumnTarget) -> InputColumn:
    if kinds.is_date32(array.type):
        return InputColumn(array)
    if is_text(array.type):
        return _read(array, target)
    if kinds.is_integer(array.type):
        return _as_stored(_in_range(array, target, pa.int32(), "I32"), pa.date32())
    if kinds.is_date64(array.type) or kinds.is_timestamp(array.type):
        per_day = _per_second(array.type) * (DAY_MS // 1000)
        days = _floored(array, per_day)
        return _as_stored(_in_range(days, target, pa.int32(), "I32"), pa.date32())
    raise _misfit(array.type, target, "days, timestamps, text or day numbers")


def _instants(array: pa.Array, target: ColumnTarget) -> InputColumn:
    kind = array.type
    if kinds.is_date64(kind):
        return InputColumn(array)
    if is_text(kind):
        return _read(array, target)
    if kinds.is_integer(kind):
        return _as_stored(_in_range(array, target, pa.int64(), "I64"), pa.date64())
    if kinds.is_date32(kind):
        wide = array.cast(pa.int32()).cast(pa.int64())
        return InputColumn(pc.multiply(wide, DAY_MS).cast(pa.date64()))
    if not kinds.is_timestamp(kind):
        raise _misfit(kind, target, "timestamps, days, text or numbers of milliseconds")
    per_second = _per_second(kind)
    if per_second > 1000:
        return InputColumn(_floored(array, per_second // 1000).cast(pa.date64()))
    numbers = array.cast(pa.int64())
    factor = 1000 // per_second
    limit = np.iinfo(np.int64).max // factor
    fits = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, -limit))
    if pc.all(fits).as_py() is not False:
        return InputColumn(pc.multiply(numbers, factor).cast(pa.date64()))
    mask = ~pc.fill_null(fits, True).to_numpy(zero_copy_only=False)
    kept = pc.multiply(pc.if_else(pa.array(~mask), numbers, pa.scalar(None, pa.int64())), factor)
    return InputColumn(kept.cast(pa.date64()), (_refused(numbers, mask, target, "{} s is out of range"),))


def _per_second(kind: pa.DataType) -> int:
    return _PER_SECOND["ms" if kinds.is_date64(kind) else kind.unit]


def _floored(array: pa.Array, divisor: int) -> pa.Array:
    """Divide the numbers behind times, towards the past; Arrow itself would cut towards 1970."""
    numbers = array.cast(pa.int64())
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    mask = pc.is_null(numbers).to_numpy(zero_copy_only=False) if numbers.null_count else None
    return pa.array(np.floor_divide(values, divisor), mask=mask)


def _as_stored(column: InputColumn, stored: pa.DataType) -> InputColumn:
    return InputColumn(column.values.cast(stored), column.breaches)


def _read(array: pa.Array, target: ColumnTarget) -> InputColumn:
    """Read text, each distinct one once: days and times repeat."""
    texts = _strings(array, target)
    encoded = texts.values.dictionary_encode()
    found = cells_column(encoded.dictionary.to_pylist(), target).taken(encoded.indices)
    return InputColumn(found.values, texts.breaches + found.breaches)


# -- lists and vectors -------------------------------------------------------------------------------


def _lists(array: pa.Array, target: ColumnTarget, whole_floats: bool) -> InputColumn:
    declared, found = target.type, array.type
    vector = declared.scalar is Scalar.VECTOR
    if not any(is_kind(found) for is_kind in _LISTS):
        raise _misfit(found, target, "lists of numbers" if vector else "lists")
    item = ColumnTarget(target.name, PropertyType(Scalar.F32 if vector else declared.scalar), target.place)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    absent = pc.is_null(array).to_numpy(zero_copy_only=False)
    lengths = np.where(absent, 0, lengths)
    flat = pc.list_flatten(array)
    items = arrow_column(flat, item, whole_floats=whole_floats)
    breaches = tuple(_of_lists(breach, array, flat) for breach in items.breaches)
    if not vector:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return InputColumn(list_array(offsets, items.values, absent, declared), breaches)
    wanted = declared.dimension or 0
    wrong = (lengths != wanted) & ~absent
    if not wrong.any():
        return InputColumn(vector_array(items.values, absent, declared), breaches)

    def describe(row: int) -> tuple[str, str | None]:
        return f"{target.place}: expected {wanted} numbers, found {lengths[row]}", None

    kept = items.values.filter(pa.array(np.repeat(~wrong, lengths)))
    mismatch = Breach("type", target.name, pa.array(wrong), describe)
    return InputColumn(vector_array(kept, absent | wrong, declared), (*breaches, mismatch))


def _of_lists(breach: Breach, array: pa.Array, flat: pa.Array) -> Breach:
    """Turn a breach of elements into one of the lists that hold them."""
    bad = breach.rows()
    parents = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[bad]
    first = {int(row): int(element) for row, element in zip(parents[::-1], bad[::-1], strict=True)}
    return Breach(
        breach.code, breach.property, rows_with(array, breach.mask), lambda row: breach.describe(first[row])
    )


_CONVERTERS: dict[Scalar, Callable[[pa.Array, ColumnTarget], InputColumn]] = {
    Scalar.STRING: _strings,
    Scalar.BOOL: _bools,
    **dict.fromkeys(FLOATS, _floats),
    Scalar.DATE: _days,
    Scalar.DATETIME: _instants,
    Scalar.BLOB: _blobs,
}
