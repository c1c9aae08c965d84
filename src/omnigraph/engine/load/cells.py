"""Cells: JSON and Python values of one property, as a column of the stored type.

    record -> **cells** -> column -> block

The rules for each type are those of data files (schema language, section 16).

Given   the values of one property in many records; None stands for null and for an absent member.
Rule    if the Python types of all values allow it, Arrow converts them at once; only otherwise is each one
        looked at, to convert what Arrow will not and to find the culprits. Both ways agree.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.times import OutsideYears, day_of, instant_of, read_day, read_instant
from omnigraph.catalog.types import FLOATS, INTEGERS, LARGEST_ROW, PropertyType, Scalar, row_too_large
from omnigraph.engine.validate.values import Breach, shown
from omnigraph.language.literals import RANGES

# -- column ------------------------------------------------------------------------------------------
#
# The values of one property, converted to how they are stored, and the rows that could not be. What every
# converter returns, whether it read JSON values (cells.py), Arrow columns (arrow.py) or text fields
# (texts.py). A value that does not fit is null here, and its row stands in a breach with the reason.


class CellMisfit(ValueError):
    """The value is not of the type; the text says why not. `value` is as shown to people."""

    def __init__(self, reason: str, value: object = None) -> None:
        super().__init__(reason)
        self.value = None if value is None else shown(value)


class ColumnMisfit(ValueError):
    """No value of the Arrow type fits the property; the text says what does."""


@dataclass(frozen=True, slots=True)
class ColumnTarget:
    """Where values go: the name that the input has for it, its type, and how messages call it."""

    name: str
    type: PropertyType
    place: str  # "Person.age"


@dataclass(frozen=True, eq=False)
class InputColumn:
    """Values of the stored type, one for each row of the input."""

    values: pa.Array
    breaches: tuple[Breach, ...] = ()

    @classmethod
    def with_misfits(
        cls, values: pa.Array, target: ColumnTarget, misfits: Mapping[int, CellMisfit]
    ) -> InputColumn:
        """Return values with what is wrong with some of the rows."""
        if not misfits:
            return cls(values)
        mask = np.zeros(len(values), bool)
        mask[list(misfits)] = True

        def describe(row: int) -> tuple[str, str | None]:
            return f"{target.place}: {misfits[row]}", misfits[row].value

        return cls(values, (Breach("type", target.name, pa.array(mask), describe),))

    def taken(self, indices: pa.Array) -> InputColumn:
        """Return the column whose rows are rows of this one, by number."""
        return InputColumn(self.values.take(indices), tuple(_spread(b, indices) for b in self.breaches))


def _spread(breach: Breach, indices: pa.Array) -> Breach:
    mask = pc.fill_null(breach.mask.take(indices), False)
    return Breach(breach.code, breach.property, mask, lambda row: breach.describe(indices[row].as_py()))


# -- cells -------------------------------------------------------------------------------------------


BASE64 = "base64:"
_ARROW_NAMES = {"I32": "Int32", "I64": "Int64", "U32": "UInt32", "U64": "UInt64"}
_WIDEST_F32 = float(np.finfo(np.float32).max)
_NONE = type(None)
_TIMES = {
    Scalar.DATE: (pa.date32(), pa.int32(), read_day),
    Scalar.DATETIME: (pa.date64(), pa.int64(), read_instant),
}


def cells_column(values: Sequence[Any], target: ColumnTarget) -> InputColumn:
    """Return the values as a column."""
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    if not kinds:
        return InputColumn(pa.nulls(len(values), target.type.arrow))
    try:
        converted = _at_once(values, kinds, target.type)
    except (pa.ArrowException, ValueError, OverflowError):  # one of the values, or several: see which
        converted = None
    return InputColumn(converted) if converted is not None else one_by_one(values, target, cell)


def cell(value: Any, declared: PropertyType) -> Any:
    """Return one value as it is stored (days and milliseconds as numbers), or raise `Misfit`."""
    if isinstance(value, np.generic):
        value = value.item()
    if declared.scalar is Scalar.VECTOR:
        return _vector(value, declared)
    if declared.is_list:
        items = _items(value, f"an array of {declared.scalar.value}")
        return [_item(item, declared.scalar, position) for position, item in enumerate(items)]
    return _CELLS[declared.scalar](value, declared.scalar)


# -- all values at once ------------------------------------------------------------------------------


def _at_once(values: Sequence[Any], kinds: set[type], declared: PropertyType) -> pa.Array | None:
    if declared.is_list or declared.scalar is Scalar.VECTOR:
        return _lists(values, declared) if kinds == {list} else None
    return _scalars(values, kinds, declared.scalar)


def _scalars(values: Sequence[Any], kinds: set[type], scalar: Scalar) -> pa.Array | None:
    if scalar is Scalar.STRING and kinds == {str}:
        return pa.array(values, pa.string())
    if scalar is Scalar.BOOL and kinds == {bool}:
        return pa.array(values, pa.bool_())
    if scalar in INTEGERS and kinds == {int}:
        return pa.array(values, PropertyType(scalar).arrow)
    if scalar in FLOATS and kinds <= {int, float}:
        return _floats(values, kinds, scalar)
    if scalar in _TIMES:
        return _times(values, kinds, scalar)
    return None


def _times(values: Sequence[Any], kinds: set[type], scalar: Scalar) -> pa.Array | None:
    stored, number, read = _TIMES[scalar]
    if kinds == {int}:
        return pa.array(values, number).cast(stored)
    if kinds != {str}:
        return None
    known = {text: read(text) for text in set(values) if text is not None}  # they repeat
    return pa.array([None if text is None else known[text] for text in values], stored)


def _floats(values: Sequence[Any], kinds: set[type], scalar: Scalar) -> pa.Array | None:
    if int in kinds:
        values = [None if value is None else float(value) for value in values]
    wide = pa.array(values, pa.float64())
    if scalar is Scalar.F64:
        return wide
    narrow = wide.cast(pa.float32(), safe=False)
    overflow = pc.and_(pc.is_inf(narrow), pc.is_finite(wide))
    return None if pc.any(overflow).as_py() else narrow


def _lists(values: Sequence[Any], declared: PropertyType) -> pa.Array | None:
    lengths = [0 if value is None else len(value) for value in values]
    flat = list(chain.from_iterable(value for value in values if value is not None))
    vector = declared.scalar is Scalar.VECTOR
    scalar = Scalar.F32 if vector else declared.scalar
    items = pa.array([], PropertyType(scalar).arrow) if not flat else _flat(flat, scalar)
    if items is None:
        return None
    absent = np.fromiter((value is None for value in values), bool, len(values))
    if not vector:
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return list_array(offsets, items, absent, declared)
    wanted = declared.dimension or 0
    if any(length != wanted for length, none in zip(lengths, absent, strict=True) if not none):
        return None
    return vector_array(items, absent, declared)


def _flat(flat: list[Any], scalar: Scalar) -> pa.Array | None:
    kinds = set(map(type, flat))
    return None if _NONE in kinds else _scalars(flat, kinds, scalar)


def list_array(offsets: Any, items: pa.Array, absent: Any, declared: PropertyType) -> pa.Array:
    """Return lists from their items; `absent` masks the null ones."""
    mask = pa.array(absent) if absent.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=declared.arrow, mask=mask)


def vector_array(items: pa.Array, absent: Any, declared: PropertyType) -> pa.Array:
    """Return vectors from the numbers of those that are not null, which `absent` masks."""
    dense = pa.FixedSizeListArray.from_arrays(items, type=declared.arrow)
    if not absent.any():
        return dense
    order = np.cumsum(~absent) - 1
    return dense.take(pa.array(order, mask=absent))


# -- one value at a time -----------------------------------------------------------------------------


def one_by_one(
    values: Sequence[Any], target: ColumnTarget, read: Callable[[Any, PropertyType], Any]
) -> InputColumn:
    """Return the values as a column; `read` makes a stored value of each, or raises `Misfit`."""
    stored: list[Any] = [None] * len(values)
    misfits: dict[int, CellMisfit] = {}
    for row, value in enumerate(values):
        if value is not None:
            try:
                stored[row] = read(value, target.type)
            except CellMisfit as misfit:
                misfits[row] = misfit
    return InputColumn.with_misfits(_stored_array(stored, target.type), target, misfits)


def _stored_array(stored: list[Any], declared: PropertyType) -> pa.Array:
    if declared.scalar is Scalar.F32 and not declared.is_list:
        return pa.array(stored, pa.float64()).cast(pa.float32(), safe=False)
    return pa.array(stored, declared.arrow)


def _items(value: Any, wanted: str) -> Sequence[Any]:
    if isinstance(value, np.ndarray):
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, list | tuple):
        return value
    raise CellMisfit(f"expected {wanted}, found {shown(value)}", value)


def _item(item: Any, scalar: Scalar, position: int) -> Any:
    if item is None:
        raise CellMisfit(f"item {position} is null")
    try:
        return _CELLS[scalar](item.item() if isinstance(item, np.generic) else item, scalar)
    except CellMisfit as misfit:
        raise CellMisfit(f"item {position}: {misfit}", item) from None


def _vector(value: Any, declared: PropertyType) -> list[float]:
    items = _items(value, f"an array of {declared.dimension} numbers")
    if len(items) != declared.dimension:
        raise CellMisfit(f"expected {declared.dimension} numbers, found {len(items)}")
    return [_item(item, Scalar.F32, position) for position, item in enumerate(items)]


def _string(value: Any, scalar: Scalar) -> str:
    if not isinstance(value, str):
        raise _wrong(value, "a string")
    _check_size(len(value))
    try:
        value.encode()
    except UnicodeEncodeError:
        raise CellMisfit("the string holds half of a surrogate pair, which is no character") from None
    return value


def _check_size(size: int) -> None:
    if size > LARGEST_ROW:
        raise CellMisfit(row_too_large(size))


def _bool(value: Any, scalar: Scalar) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, "true or false")
    return value


def _integer(value: Any, scalar: Scalar) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(value, f"an integer ({scalar.value})")
    return in_range(value, scalar.value)


def in_range(value: int, name: str) -> int:
    """Return an integer that the type of this name holds."""
    low, high = RANGES[name]
    if not low <= value <= high:
        raise CellMisfit(f"{shown(value)} exceeds {_ARROW_NAMES[name]} range", value)
    return value


def _float(value: Any, scalar: Scalar) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _wrong(value, f"a number ({scalar.value})")
    try:
        number = float(value)
    except OverflowError:
        raise CellMisfit(f"{shown(value)} exceeds Float64 range", value) from None
    if scalar is Scalar.F32 and np.isfinite(number):
        with np.errstate(over="ignore"):
            rounded = float(np.float32(number))
        if not np.isfinite(rounded):
            raise CellMisfit(f"{shown(value)} exceeds Float32 range (to {_WIDEST_F32:g})", value)
        return rounded
    return number


def _day(value: Any, scalar: Scalar) -> int:
    return _time(value, read_day, day_of, "I32", 'a day such as "2026-01-31" (or a day number)')


def _instant(value: Any, scalar: Scalar) -> int:
    wanted = 'a time such as "2026-01-31T09:00:00Z" (or a number of milliseconds)'
    return _time(value, read_instant, instant_of, "I64", wanted)


def _time(
    value: Any,
    read: Callable[[str], int],
    convert: Callable[[date | datetime], int],
    number: str,
    wanted: str,
) -> int:
    try:
        match value:
            case bool():
                pass
            case int():
                return in_range(value, number)
            case str():
                return read(value)
            case date():
                return convert(value)
    except CellMisfit:
        raise
    except OutsideYears as error:
        raise CellMisfit(str(error), value) from None
    except (ValueError, OverflowError):
        pass
    raise _wrong(value, wanted)


def _blob(value: Any, scalar: Scalar) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        _check_size(memoryview(value).nbytes)
        return bytes(value)
    if not isinstance(value, str) or not value:
        raise _wrong(value, f'"{BASE64}..." with the bytes in standard base64')
    if not value.startswith(BASE64):
        # The URI itself may carry credentials, so it is not shown.
        raise CellMisfit(
            "external blob URIs are not allowed: this graph has no allow-list of URI bases; "
            f'give the bytes as "{BASE64}..."'
        )
    try:
        return base64.b64decode(value[len(BASE64) :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise CellMisfit(f"malformed base64: {error}") from None


def _wrong(value: Any, wanted: str) -> CellMisfit:
    return CellMisfit(f"expected {wanted}, found {shown(value)}", value)


_CELLS: dict[Scalar, Callable[[Any, Scalar], Any]] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _bool,
    **dict.fromkeys(INTEGERS, _integer),
    **dict.fromkeys(FLOATS, _float),
    Scalar.DATE: _day,
    Scalar.DATETIME: _instant,
    Scalar.BLOB: _blob,
}
