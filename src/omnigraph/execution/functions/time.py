"""Time: parts of dates and times, differences, and durations added to them.

A date is a number of days, a time one of milliseconds since 1970. The calendar repeats after 400 years, so
two small tables tell the months of every day there is, also of years that Arrow and Python do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.base.times import (
    DAY_MS,
    FIRST_DAY,
    FIRST_INSTANT,
    LAST_DAY,
    LAST_INSTANT,
    YEARS,
    Period,
)
from omnigraph.execution.functions.columns import (
    Column,
    Kernel,
    Numbers,
    as_arrays,
    first_true,
    numbers_of,
    refuse,
    with_nulls_of,
)

_CYCLE_DAYS, _CYCLE_MONTHS = 146_097, 4_800
_ORIGIN = -719_528  # 0000-01-01, where month 0 begins
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_LENGTHS = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000}
_LENGTHS |= {"minute": 60_000, "second": 1_000, "millisecond": 1}
_MONDAY = 3  # days from a Monday to 1970-01-01


# -- the calendar ------------------------------------------------------------------------------------


@cache
def _calendar() -> tuple[Numbers, Numbers]:
    """Return the day on which each month of 400 years begins, and the month of each of their days."""
    months = np.arange("0000-01", "0400-02", dtype="M8[M]")
    begins = months.astype("M8[D]").astype(np.int64) - _ORIGIN
    return begins, np.repeat(np.arange(_CYCLE_MONTHS, dtype=np.int64), np.diff(begins))


def _months_of(days: Numbers) -> Numbers:
    """Return the month that each day lies in, counted from the year 0."""
    cycles, rest = np.divmod(days - _ORIGIN, _CYCLE_DAYS)
    months: Numbers = _calendar()[1][rest]
    return months if not cycles.any() else months + cycles * _CYCLE_MONTHS


def _first_days(months: Numbers) -> Numbers:
    """Return the first day of each month."""
    cycles, rest = np.divmod(months, _CYCLE_MONTHS)
    days: Numbers = _calendar()[0][rest] + (cycles * _CYCLE_DAYS + _ORIGIN)
    return days


def _units_of(times: Column) -> Numbers:
    """Return the stored numbers of dates or times, as I64."""
    if pa.types.is_date32(times.type):
        return np.asarray(numbers_of(times, np.int32).astype(np.int64))
    return np.asarray(numbers_of(times, np.int64))


def _days_of(times: pa.Array) -> Numbers:
    units = _units_of(times)
    return units if pa.types.is_date32(times.type) else units // DAY_MS


def _stored(units: Numbers, kind: pa.DataType, columns: Sequence[pa.Array]) -> pa.Array:
    width: Any = np.int32 if pa.types.is_date32(kind) else np.int64
    return with_nulls_of(units.astype(width, copy=False), kind, columns)


# -- parts -------------------------------------------------------------------------------------------


def _date_part(arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    unit, (times,) = arguments[0].as_py(), as_arrays(arguments[1])
    return with_nulls_of(_part(unit, times), kind, [times])


def _part(unit: str, times: pa.Array) -> Numbers:
    if unit in ("hour", "minute", "second", "millisecond", "epoch"):
        return _part_of_time(unit, _units_of(times), is_date=pa.types.is_date32(times.type))
    days = _days_of(times)
    match unit:
        case "year":
            return _months_of(days) // 12
        case "quarter":
            return _months_of(days) % 12 // 3 + 1
        case "month":
            return _months_of(days) % 12 + 1
        case "day":
            return days - _first_days(_months_of(days)) + 1
        case "yearday":
            return _day_of_year(days)
        case "weekday":
            return (days + _MONDAY) % 7 + 1
        case "week":
            thursdays = days - (days + _MONDAY) % 7 + 3  # a week is of the year that its Thursday is of
            return (_day_of_year(thursdays) - 1) // 7 + 1
        case _:
            raise AssertionError(f"{unit} is no unit")


def _part_of_time(unit: str, units: Numbers, *, is_date: bool) -> Numbers:
    if unit == "epoch":
        return units * 86_400 if is_date else units // 1_000
    if unit == "millisecond":
        return units % 1_000
    length, most = {"hour": (3_600_000, 24), "minute": (60_000, 60), "second": (1_000, 60)}[unit]
    return units // length % most


def _day_of_year(days: Numbers) -> Numbers:
    months = _months_of(days)
    return days - _first_days(months - months % 12) + 1


def _date_trunc(arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    unit, (times,) = arguments[0].as_py(), as_arrays(arguments[1])
    is_date = pa.types.is_date32(times.type)
    if unit in _MONTHS:
        months = _months_of(_days_of(times))
        days = _first_days(months - months % _MONTHS[unit])
    elif unit == "week":
        days = _days_of(times)
        days = days - (days + _MONDAY) % 7
    elif is_date:
        return times
    else:
        units = _units_of(times)
        return _stored(units - units % _LENGTHS[unit], kind, [times])
    return _stored(days if is_date else days * DAY_MS, kind, [times])


# -- differences and durations -----------------------------------------------------------------------


def _date_diff(arguments: Sequence[Column], kind: pa.DataType) -> pa.Array:
    """Count whole units: as many as can be added to the first without passing the second."""
    unit, (first, second) = arguments[0].as_py(), as_arrays(*arguments[1:])
    is_date = pa.types.is_date32(first.type)
    begins, ends = _units_of(first), _units_of(second)
    if unit not in _MONTHS:
        length = _LENGTHS[unit] // (DAY_MS if is_date else 1)
        return with_nulls_of(_truncated(ends - begins, length), kind, [first, second])
    months = _months_of(_days_of(second)) - _months_of(_days_of(first))
    reached = _moved(begins, months, is_date=is_date)
    months = months - ((ends >= begins) & (reached > ends)) + ((ends < begins) & (reached < ends))
    return with_nulls_of(_truncated(months, _MONTHS[unit]), kind, [first, second])


def _truncated(numbers: Numbers, length: int) -> Numbers:
    """Divide towards zero."""
    if length == 1:
        return numbers
    whole: Numbers = np.abs(numbers) // length * np.sign(numbers)
    return whole


def _moved(units: Numbers, months: Numbers | int, *, is_date: bool) -> Numbers:
    """Add months to dates or times; a day that the month has not is its last."""
    days, time = (units, 0) if is_date else np.divmod(units, DAY_MS)
    own = _months_of(days)
    firsts, nexts = _first_days(own + months), _first_days(own + months + 1)
    moved = np.minimum(firsts + (days - _first_days(own)), nexts - 1)
    return np.asarray(moved if is_date else moved * DAY_MS + time)


def shift(times: Column, period: Period, sign: int) -> pa.Array:
    """Return times with a duration added (1) or taken away (-1): months first, then days and less."""
    (array,) = as_arrays(times)
    is_date = pa.types.is_date32(array.type)
    units = _units_of(array)
    if period.months:
        units = _moved(units, sign * period.months, is_date=is_date)
    rest = period.milliseconds // DAY_MS if is_date else period.milliseconds
    units = units + sign * rest
    low, high = (FIRST_DAY, LAST_DAY) if is_date else (FIRST_INSTANT, LAST_INSTANT)
    row = first_true((units < low) | (units > high), [array])
    if row is not None:
        shown = f"{{}} {'+' if sign > 0 else '-'} duration({period.text!r})".replace("'", '"')
        why, remedy = f"the result is outside {YEARS}", "Use a shorter duration"
        refuse(shown, [array], row, reason="overflow", why=why, remedy=remedy)
    return _stored(units, array.type, [array])


KERNELS: dict[str, Kernel] = {
    "date_part": _date_part,
    "date_trunc": _date_trunc,
    "date_diff": _date_diff,
}
