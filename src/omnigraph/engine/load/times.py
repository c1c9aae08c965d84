"""Times: days and instants in data, as the numbers that are stored.

Room    engine.load. The one reading of date text for every input: JSON, CSV and text columns.
Rule    without an offset a time is UTC, a day alone is its midnight. Anything finer than a millisecond is
        cut off, which rounds towards the past: the same on either side of 1970, in text and in Arrow.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MILLISECOND = timedelta(milliseconds=1)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(
    r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:\d{2})?)?", re.ASCII
)


def day_of(value: date | datetime) -> int:
    """Return the stored day; an instant is cut to its day in UTC."""
    if isinstance(value, datetime):
        return instant_of(value) // DAY_MS
    return value.toordinal() - _EPOCH_DAY


def instant_of(value: date | datetime) -> int:
    """Return the stored millisecond; a day is its midnight in UTC."""
    if not isinstance(value, datetime):
        return day_of(value) * DAY_MS
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def read_day(text: str) -> int:
    """Return the stored day that a text means, or raise ValueError.

    >>> read_day("1970-01-02"), read_day("1970-01-02T23:00:00-02:00")
    (1, 2)
    """
    if _DAY.fullmatch(text):
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    return read_instant(text) // DAY_MS


def read_instant(text: str) -> int:
    """Return the stored millisecond that a text means, or raise ValueError.

    >>> read_instant("1970-01-01T00:00:01.0009Z"), read_instant("1969-12-31 23:59:59.9995")
    (1000, -1)
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError(f"not a time: {text[:40]!r}")
    return instant_of(datetime.fromisoformat(text.upper()))
