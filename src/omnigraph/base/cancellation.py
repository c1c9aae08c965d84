"""Cancellation: how long work is told to stop, by whoever no longer waits for it.

Work that may be stopped runs in a block `cancelled_by`; what it calls takes the `current` token where it
begins and asks it now and then. Queries ask whenever they ask for memory (execution/budget.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from omnigraph.base.errors import DeadlineExceeded


class Cancelled(DeadlineExceeded):
    """The work was stopped because nobody waits for it any more: its deadline passed, or its caller left."""

    code = "cancelled"


class Cancellation:
    """A token that one side sets, and the other asks."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def cancel(self, reason: str) -> None:
        """Tell the work to stop; the first reason stays."""
        self._reason = self._reason or reason

    def check(self) -> None:
        """Raise `Cancelled` if the work is to stop."""
        if self._reason is not None:
            raise Cancelled(f"the work was stopped: {self._reason}", remedy="Ask again, for less at once")


NEVER = Cancellation()
_current: ContextVar[Cancellation] = ContextVar("cancellation", default=NEVER)


def current() -> Cancellation:
    """Return the token of the work that is running here."""
    return _current.get()


@contextmanager
def cancelled_by(cancellation: Cancellation) -> Iterator[None]:
    """Let work in a block be stopped by a token."""
    before = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(before)
