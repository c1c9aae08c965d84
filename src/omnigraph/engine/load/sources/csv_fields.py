"""CSV fields: lines as records of fields, with the line on which each record begins.

Room    engine.load.sources. RFC 4180 with any line end: a field in double quotes may hold delimiters, line
        ends and doubled quotes; elsewhere a quote is an error, not text.
Rule    lines without a quote, nearly all of them, are only split.
Why     Python's own reader limits the length of a field, and the limit is one for the whole process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from omnigraph.engine.load.sources.streams import LONGEST_RECORD


class BadCsv(ValueError):
    """The text is not CSV from this line on."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


class _Open(Exception):
    """A quoted field does not end in this text."""


def records(lines: Iterable[list[str]], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank, with its first line."""
    # Possessive: in a field that is not closed, a doubled quote must not be taken for its end.
    field = re.compile(f'"((?:[^"]+|"")*+)"|([^"{re.escape(delimiter)}]*)')
    pending: list[str] = []
    begun = size = quotes = 0
    for number, raw in enumerate((line for several in lines for line in several), start=1):
        if pending:
            pending.append(raw)
            size += len(raw)
            quotes += raw.count('"')
            if size > LONGEST_RECORD:  # an open quote would swallow the rest of the file
                raise BadCsv(
                    begun, f"the quoted field is longer than {LONGEST_RECORD >> 20} MiB, or never closed"
                )
            if quotes % 2:
                continue
            raw, pending = "\n".join(pending), []
            yield begun, _fields(raw, field, delimiter, begun)
            continue
        if '"' not in raw:
            line = raw[:-1] if raw.endswith("\r") else raw
            if line:
                yield number, line.split(delimiter)
            continue
        try:
            yield number, _fields(raw, field, delimiter, number)
        except _Open:
            pending, begun, size, quotes = [raw], number, len(raw), raw.count('"')
    if pending:
        raise BadCsv(begun, f"the quoted field that begins on line {begun} is never closed")


def _fields(raw: str, field: re.Pattern[str], delimiter: str, number: int) -> list[str]:
    line = raw[:-1] if raw.endswith("\r") else raw
    found = []
    position = 0
    while True:
        match = field.match(line, position)
        assert match is not None  # the second choice matches nothing at all
        quoted, plain = match.groups()
        if quoted is None and line.startswith('"', match.end()):
            if match.end() == position:
                raise _Open
            raise BadCsv(number, "a quote stands inside a field that does not begin with one")
        found.append(plain if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if position == len(line):
            return found
        if not line.startswith(delimiter, position):
            raise BadCsv(number, "a quoted field is followed by more than the delimiter")
        position += 1
