"""Packing: how much goes on a page of changes.

Room    engine.history. The bounds are targets, not walls: a change that is larger than a page goes alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.base.errors import InvalidRequest
from omnigraph.engine.history.change import Change

LIMIT, MAX_LIMIT = 1_000, 8_192  # changes of a page, by default and at most
COMMITS = 1_000
BYTES = 8 << 20  # of images, as text


def check_limit(limit: int) -> None:
    """Refuse pages of no or too many changes."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(
            f"a page has 1 to {MAX_LIMIT} changes, not {limit}", remedy="Ask for several pages"
        )


class Packer:
    """What is left of a page."""

    def __init__(self, limit: int) -> None:
        self._changes = limit
        self._commits = COMMITS
        self._bytes = BYTES

    @property
    def has_room(self) -> bool:
        """Say whether another commit may begin."""
        return self._changes > 0 and self._commits > 0 and self._bytes > 0

    def take(self, changes: Iterator[Change]) -> tuple[tuple[Change, ...], bool]:
        """Return the changes of one commit that fit, one at least, and whether there are more."""
        taken: list[Change] = []
        self._commits -= 1
        for change in changes:
            if taken and not (self._changes > 0 and self._bytes > 0):
                return tuple(taken), True
            taken.append(change)
            self._changes -= 1
            self._bytes -= len(str(change.before)) + len(str(change.after))
        return tuple(taken), False
