"""What functions and operators give, a row at a time in plain Python: the other implementation."""

from __future__ import annotations

import math
import operator as python_operators
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

import re2

from omnigraph.base.times import DAY_MS, read_day, read_instant, write_day, write_instant

_NAMES = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
EPOCH = date(1970, 1, 1)
LIMITS = {"I64": (-(2**63), 2**63 - 1), "U64": (0, 2**64 - 1), "I32": (-(2**31), 2**31 - 1)}


class Fails(Exception):
    """The value cannot be computed; the argument is the reason."""


def whole(value: int, name: str = "I64") -> int:
    """Return an integer that a type holds."""
    low, high = LIMITS[name]
    if not low <= value <= high:
        raise Fails("overflow")
    return value


def finite(compute: Callable[[], float]) -> float:
    """Return a float that is one."""
    try:
        value = compute()
    except (OverflowError, ValueError):
        raise Fails("not_finite") from None
    except ZeroDivisionError:
        raise Fails("not_finite") from None
    if isinstance(value, complex) or not math.isfinite(value):
        raise Fails("not_finite")
    return value


# -- arithmetic ----------------------------------------------------------------------------------------


def integer_arithmetic(operator: str, a: int, b: int, name: str = "I64") -> int:
    """Compute without bounds, then look at them."""
    if operator in "/%" and b == 0:
        raise Fails("division_by_zero")
    if operator == "/":
        return whole(abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1), name)
    if operator == "%":
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    return whole({"+": a + b, "-": a - b, "*": a * b}[operator], name)


def float_arithmetic(operator: str, a: float, b: float) -> float:
    """Compute as IEEE does."""
    a, b = float(a), float(b)
    if operator in "/%" and b == 0:
        raise Fails("division_by_zero")
    if operator == "%":
        return math.fmod(a, b)
    return finite(lambda: {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0.0}[operator])


def compared(operator: str, a: Any, b: Any) -> bool:
    """Compare exactly; text by its bytes."""
    if isinstance(a, str):
        a, b = a.encode(), b.encode()
    elif not isinstance(a, bool):
        a, b = Fraction(a), Fraction(b)
    truth: bool = getattr(python_operators, _NAMES[operator])(a, b)
    return truth


# -- numbers -------------------------------------------------------------------------------------------


def floor(x: float) -> float:
    """Return the next whole number below; both zeros stay."""
    return x if x.is_integer() else float(math.floor(x))


def rounded(x: float, digits: int = 0) -> float:
    """Shift the point, round a half away from zero, and shift it back."""
    if not 0 <= digits <= 15:
        raise Fails("bad_value")
    if isinstance(x, int):
        return x
    shifted = x * 10.0**digits
    if not math.isfinite(shifted) or shifted == math.floor(shifted):
        return x
    near = (
        math.floor(abs(shifted) + 0.5)
        if abs(shifted) % 1 != 0.49999999999999994
        else math.floor(abs(shifted))
    )
    return math.copysign(near, x) / 10.0**digits


def power(x: float, y: float) -> float:
    """Raise to a power; what Python refuses is infinite or imaginary."""
    return finite(lambda: math.pow(x, y))


# -- text ----------------------------------------------------------------------------------------------


def by_letter(change: Callable[[str], str]) -> Callable[[str], str]:
    """Change the case of each letter that stays one letter."""
    return lambda text: "".join(change(c) if len(change(c)) == 1 else c for c in text)


def substring(s: str, start: int, n: int | None = None) -> str:
    """Cut code points out."""
    if start < 0 or (n is not None and n < 0):
        raise Fails("bad_value")
    return s[start:] if n is None else s[start : start + n]


def split(s: str, separator: str) -> list[str]:
    """Cut at separators."""
    if not separator:
        raise Fails("bad_value")
    return s.split(separator)


def matches(s: str, pattern: str) -> bool:
    """Search for a pattern of RE2."""
    return re2.search(pattern, s) is not None


# -- times: days, or milliseconds -----------------------------------------------------------------------


def parts(t: int, is_date: bool) -> tuple[date, int]:
    """Return the day, and the milliseconds since its midnight."""
    days, rest = (t, 0) if is_date else divmod(t, DAY_MS)
    return EPOCH + timedelta(days), rest


def date_part(unit: str, t: int, is_date: bool) -> int:
    """Ask Python's calendar."""
    day, rest = parts(t, is_date)
    return {
        "year": day.year,
        "quarter": (day.month + 2) // 3,
        "month": day.month,
        "week": day.isocalendar().week,
        "day": day.day,
        "weekday": day.isoweekday(),
        "yearday": day.timetuple().tm_yday,
        "hour": rest // 3_600_000,
        "minute": rest // 60_000 % 60,
        "second": rest // 1_000 % 60,
        "millisecond": rest % 1_000,
        "epoch": t * 86_400 if is_date else t // 1_000,
    }[unit]


def date_trunc(unit: str, t: int, is_date: bool) -> int:
    """Return the beginning of a unit."""
    day, _ = parts(t, is_date)
    if unit in ("hour", "minute", "second", "millisecond"):
        return t - t % {"hour": 3_600_000, "minute": 60_000, "second": 1_000, "millisecond": 1}[unit]
    begins = {
        "year": day.replace(month=1, day=1),
        "quarter": day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "month": day.replace(day=1),
        "day": day,
    }
    days = (day - EPOCH).days - day.weekday() if unit == "week" else (begins[unit] - EPOCH).days
    return days if is_date else days * DAY_MS


def moved(t: int, months: int, is_date: bool) -> int:
    """Add months; a day that the month has not is its last."""
    day, rest = parts(t, is_date)
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise Fails("overflow")
    for last in range(day.day, 0, -1):
        try:
            days = (date(year, month + 1, last) - EPOCH).days
        except ValueError:
            continue
        return days if is_date else days * DAY_MS + rest
    raise AssertionError


def date_diff(unit: str, a: int, b: int, is_date: bool) -> int:
    """Count units by adding them."""
    if unit in ("year", "quarter", "month"):
        per = {"year": 12, "quarter": 3, "month": 1}[unit]
        (first, _), (second, _) = parts(a, is_date), parts(b, is_date)
        months = (second.year - first.year) * 12 + second.month - first.month
        if b >= a and moved(a, months, is_date) > b:
            months -= 1
        if b < a and moved(a, months, is_date) < b:
            months += 1
        return int(months / per)
    length = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "second": 1_000}
    length["millisecond"] = 1
    between = (b - a) * (DAY_MS if is_date else 1)
    return abs(between) // length[unit] * (1 if between >= 0 else -1)


# -- casts ---------------------------------------------------------------------------------------------


def read(text: str, reader: Callable[[str], Any]) -> Any:
    """Read a text."""
    try:
        return reader(text)
    except ValueError:
        raise Fails("bad_value") from None


def to_int(x: str | float) -> int:
    """Read digits, or cut a fraction."""
    if isinstance(x, str):
        if not x.removeprefix("-").isascii() or not x.removeprefix("-").isdigit():
            raise Fails("bad_value")
        if not LIMITS["I64"][0] <= int(x) <= LIMITS["I64"][1]:
            raise Fails("bad_value")
        return int(x)
    return whole(math.trunc(x))


def to_string(x: Any, kind: str) -> str:
    """Spell a value as JSON results do."""
    if kind == "Date":
        return write_day(x)
    if kind == "DateTime":
        return write_instant(x)
    return {True: "true", False: "false"}[x] if kind == "Bool" else x if kind == "String" else repr(x)


def to_bool(x: str) -> bool:
    """Read a boolean."""
    if x not in ("true", "false"):
        raise Fails("bad_value")
    return x == "true"


def day(text: str) -> int:
    """Read a date."""
    found: int = read(text, read_day)
    return found


def instant(text: str) -> int:
    """Read a time."""
    found: int = read(text, read_instant)
    return found


# -- lists ---------------------------------------------------------------------------------------------


def piece(items: list[Any], start: int, stop: int | None = None) -> list[Any]:
    """Cut items out; a negative place is the beginning."""
    return items[max(start, 0) : None if stop is None else max(stop, 0)]


def element(items: list[Any], place: int) -> Any:
    """Return an item, None outside."""
    return items[place] if -len(items) <= place < len(items) else None


def contained(x: Any, items: list[Any] | None) -> bool | None:
    """`x = e1 or x = e2 ...`."""
    if items is None:
        return None
    return any_of([None if x is None or item is None else compared("=", x, item) for item in items])


def any_of(truths: Sequence[bool | None]) -> bool | None:
    """Three-valued or."""
    return True if True in truths else None if None in truths else False
