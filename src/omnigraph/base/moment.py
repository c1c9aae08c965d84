"""Moment: the ways to name a state of a graph in the past, told apart by their spelling alone.

Room    base. Pure: what a text means, not whether there is such a thing.
Forms   a commit id; a manifest version (a number); `name~n`, n commits before a branch or tag; a time in
        ISO 8601, in UTC where it names no zone; anything else is the name of a tag.
Rule    a tag may not be named in one of the other forms, so no text has two meanings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from omnigraph.base.ids import is_id

FORMS = "a commit id, a version number, a tag, BRANCH~N, or a time such as 2026-05-01T12:00:00Z"
# Stricter than what Python reads: a date with dashes, so that a number is never a time.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d(:?\d\d(:?\d\d([.,]\d{1,6})?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?")
_ANCESTOR = re.compile(r"(?P<name>.+)~(?P<steps>\d{1,9})", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
    if found := _ANCESTOR.fullmatch(text):
        return AncestorAt(found["name"], int(found["steps"]))
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
    elapsed = aware - _EPOCH
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
