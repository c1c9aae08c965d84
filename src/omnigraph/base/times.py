"""Times: days and instants as the numbers that are stored, as Python values and as text.

The one reading and the one writing of dates for every surface: schemas, queries, parameters, loads,
results, histories.

Without an offset a time is UTC, a day alone is its midnight. Anything finer than a millisecond is cut off,
which rounds towards the past: the same on either side of 1970, in text and in Arrow. What is written stays
within the years that Python, and most other readers, have; what is read may lie beyond them, since older
graphs hold such values: it is then text with a signed year.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.base.ids import is_id

DAY_MS = 86_400_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
FIRST_INSTANT, LAST_INSTANT = FIRST_DAY * DAY_MS, (LAST_DAY + 1) * DAY_MS - 1
YEARS = "the years 1 to 9999"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MILLISECOND = timedelta(milliseconds=1)
_CALENDAR_YEARS, _CALENDAR_DAYS = 400, 146_097  # after these the calendar repeats
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_INSTANT = re.compile(
    r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?([Zz]|[+-]\d{2}:\d{2})?)?", re.ASCII
)
_FAR = re.compile(r"([+-]\d{4,9}|0000)-\d{2}-\d{2}([Tt ].{1,40})?", re.ASCII)


class OutsideYears(ValueError):
    """The date is one, and cannot be stored: it is before year 1 or after year 9999."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text} is outside {YEARS}")


# -- Python values -----------------------------------------------------------------------------------


def day_of(value: date | datetime) -> int:
    """Return the stored day; an instant is cut to its day in UTC."""
    if isinstance(value, datetime):
        return instant_of(value) // DAY_MS
    return value.toordinal() - _EPOCH_DAY


def instant_of(value: date | datetime) -> int:
    """Return the stored millisecond; a day is its midnight in UTC."""
    if not isinstance(value, datetime):
        return day_of(value) * DAY_MS
    if value != value:
        raise ValueError("the missing time of pandas is no time")
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    milliseconds = (aware - _EPOCH) // _MILLISECOND
    if not FIRST_INSTANT <= milliseconds <= LAST_INSTANT:  # an offset may lead over the edge
        raise OutsideYears(write_instant(milliseconds))
    return milliseconds


def python_day(days: int) -> date | str:
    """Return a stored day as Python's, or as text where Python has no such year."""
    return date.fromordinal(days + _EPOCH_DAY) if FIRST_DAY <= days <= LAST_DAY else write_day(days)


def python_instant(milliseconds: int) -> datetime | str:
    """Return a stored instant as an aware datetime, or as text where Python has no such year."""
    if FIRST_INSTANT <= milliseconds <= LAST_INSTANT:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    return write_instant(milliseconds)


# -- text --------------------------------------------------------------------------------------------


def read_day(text: str) -> int:
    """Return the stored day that a text means, or raise ValueError.

    >>> read_day("1970-01-02"), read_day("1970-01-02T23:00:00-02:00")
    (1, 2)
    """
    if _DAY.fullmatch(text) and not _FAR.fullmatch(text):
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    return read_instant(text) // DAY_MS


def read_instant(text: str) -> int:
    """Return the stored millisecond that a text means, or raise ValueError.

    >>> read_instant("1970-01-01T00:00:01.0009Z"), read_instant("1969-12-31 23:59:59.9995")
    (1000, -1)
    """
    if _FAR.fullmatch(text):
        raise OutsideYears(text)
    if not _INSTANT.fullmatch(text):
        raise ValueError(f"not a time: {text[:40]!r}")
    return instant_of(datetime.fromisoformat(text.upper()))


def write_day(days: int) -> str:
    """Return a stored day as text.

    >>> write_day(0), write_day(-719_162), write_day(20_000_000), write_day(-720_000)
    ('1970-01-01', '0001-01-01', '+56728-02-22', '-0002-09-16')
    """
    cycles, rest = divmod(days, _CALENDAR_DAYS)
    near = date.fromordinal(_EPOCH_DAY + rest)
    year = near.year + cycles * _CALENDAR_YEARS
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{near.month:02}-{near.day:02}"


def write_instant(milliseconds: int) -> str:
    """Return a stored instant as text: UTC, with three digits of a second's fraction.

    >>> write_instant(1500), write_instant(-62_135_596_800_000)
    ('1970-01-01T00:00:01.500Z', '0001-01-01T00:00:00.000Z')
    """
    days, rest = divmod(milliseconds, DAY_MS)
    seconds, fraction = divmod(rest, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{write_day(days)}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z"


# -- moment --------------------------------------------------------------------------------------
#
# The ways to name a state of a graph in the past, told apart by their spelling alone.
# Pure: what a text means, not whether there is such a thing.
# Forms   a commit id; a manifest version (a number); `name~n`, n commits before a branch or tag; a time
# in
# ISO 8601, in UTC where it names no zone; anything else is the name of a tag.
# Rule    a tag may not be named in one of the other forms, so no text has two meanings.


FORMS = "a commit id, a version number, a tag, BRANCH~N, or a time such as 2026-05-01T12:00:00Z"
# Stricter than what Python reads: a date with dashes, so that a number is never a time.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:?\d\d(:?\d\d([.,]\d{1,6})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
_ANCESTOR = re.compile(r"(?P<name>.+)~(?P<steps>\d{1,9})", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class CommitAt:
    """The commit with this id."""

    commit_id: str


@dataclass(frozen=True, slots=True)
class VersionAt:
    """A version of the branch that is read."""

    version: int


@dataclass(frozen=True, slots=True)
class AncestorAt:
    """So many commits before the head of a branch, or before a tag."""

    name: str
    steps: int


@dataclass(frozen=True, slots=True)
class TimeAt:
    """The last state of the branch that is read at a time, in microseconds since 1970."""

    time_us: int


@dataclass(frozen=True, slots=True)
class TagAt:
    """The commit that a tag names."""

    name: str


Moment = CommitAt | VersionAt | AncestorAt | TimeAt | TagAt
At = str | int | datetime


def read_moment(at: At) -> Moment:
    """Return what `at` names.

    >>> read_moment("main~2")
    AncestorAt(name='main', steps=2)
    >>> read_moment("1970-01-01 00:00:01")
    TimeAt(time_us=1000000)
    """
    if isinstance(at, datetime):
        return TimeAt(_microseconds(at))
    if isinstance(at, int):
        return VersionAt(at)
    text = at.strip()
    if is_id(text):
        return CommitAt(text)
    if _NUMBER.fullmatch(text):
        return VersionAt(int(text))
    if ancestor := _ANCESTOR.fullmatch(text):
        return AncestorAt(ancestor["name"], int(ancestor["steps"]))
    if _TIME.fullmatch(text) and (time := _time(text)) is not None:
        return TimeAt(_microseconds(time))
    return TagAt(text)


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _microseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    elapsed = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


# -- lengths of time -------------------------------------------------------------------------------


SECOND_US = 1_000_000
DURATION_US = {
    unit: SECOND_US * n for unit, n in (("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800))
}
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")


def read_duration(value: timedelta | str) -> int:
    """Return how long a time is in microseconds; texts are a whole number and one of s, m, h, d and w.

    >>> read_duration("7d") == read_duration(timedelta(days=7))
    True
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    parts = _DURATION.fullmatch(value.strip())
    if parts is None:
        raise InvalidRequest(
            f"{value!r} is not a length of time", remedy="Give a number and a unit: 90s, 30m, 12h, 7d or 4w"
        )
    return int(parts[1]) * DURATION_US[parts[2]]


@dataclass(frozen=True, slots=True)
class Period:
    """A length of time on the calendar: months are of different lengths, so they are kept apart."""

    months: int
    milliseconds: int
    text: str  # as it was written

    @property
    def whole_days(self) -> bool:
        """Say whether it has no time of day, so that a date can be moved by it."""
        return self.milliseconds % DAY_MS == 0


_PERIOD = re.compile(
    r"(-?)P(?=[0-9T])(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)(?:[.]([0-9]{1,3}))?S)?)?",
    re.ASCII,
)
LONGEST_PERIOD = 10_000  # years: farther than any two stored times are apart
_LONGEST_MS = LONGEST_PERIOD * 366 * DAY_MS


def read_period(text: str) -> Period:
    """Return what a duration of ISO 8601 means, or raise ValueError.

    >>> read_period("P1Y2M"), read_period("-PT1M0.5S").milliseconds, read_period("P1W").whole_days
    (Period(months=14, milliseconds=0, text='P1Y2M'), -60500, True)
    """
    parts = _PERIOD.fullmatch(text) if len(text) <= 100 else None
    if parts is None:
        raise ValueError(f"not a duration such as P1Y2M3DT4H5M6S: {text[:40]!r}")
    sign, *numbers, fraction = parts.groups()
    years, months, weeks, days, hours, minutes, seconds = (int(number or 0) for number in numbers)
    milliseconds = (weeks * 7 + days) * DAY_MS + hours * 3_600_000 + minutes * 60_000 + seconds * 1_000
    milliseconds += int((fraction or "").ljust(3, "0"))
    months += years * 12
    if months > LONGEST_PERIOD * 12 or milliseconds > _LONGEST_MS:
        raise ValueError(f"longer than {LONGEST_PERIOD} years: {text[:40]!r}")
    factor = -1 if sign else 1
    return Period(factor * months, factor * milliseconds, text)
