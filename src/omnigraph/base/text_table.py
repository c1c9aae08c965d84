"""Text table: rows of text as aligned columns, for messages and for results in a terminal.

Characters that a terminal shows two columns wide count as two, combining ones as none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

ELLIPSIS = "…"
GAP = "  "
LISTED = 20  # lines that a list in a message shows; then it says how many more there are


def table_lines(rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    """Return rows, the header first, as lines of aligned cells; the columns in `right` hold numbers.

    >>> table_lines([("name", "age"), ("Ada", "36")], right=[1])
    ['name  age', 'Ada    36']
    """
    numbers = frozenset(right)
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            _padded(cell, width, right=column in numbers)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def cut_text(text: str, width: int) -> str:
    """Return a text as one line of at most so many columns.

    >>> cut_text("a long line", 6)
    'a lon…'
    """
    line = "".join(char if char.isprintable() else " " for char in text)
    if text_width(line) <= width:
        return line
    kept, used = [], 0
    for char in line:
        used += text_width(char)
        if used >= width:
            break
        kept.append(char)
    return "".join(kept) + ELLIPSIS


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes.

    >>> text_width("Ada"), text_width("日本")
    (3, 4)
    """
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _padded(cell: str, width: int, *, right: bool) -> str:
    space = " " * (width - text_width(cell))
    return space + cell if right else cell + space


def at_most(lines: tuple[str, ...], total: int | None = None) -> tuple[str, ...]:
    """Return the first lines of a list, and how many there are besides."""
    more = (len(lines) if total is None else total) - min(len(lines), LISTED)
    return lines[:LISTED] + ((f"... and {more} more",) if more else ())
