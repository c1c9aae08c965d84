"""Cancellation: how long work is told to stop, by whoever no longer waits for it.

Work that may be stopped runs in a block `cancelled_by`; what it calls takes the `current` token where it
begins and asks it now and then. Queries ask whenever they ask for memory (execution/budget.py), comparisons
and exports with every batch of rows, loads with every block of their input and every question of their
checks. A load goes on once its checks are over: what it is about to publish outlives its caller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from omnigraph.base.errors import DeadlineExceeded

T = TypeVar("T")


class Cancelled(DeadlineExceeded):
    """The work was stopped because nobody waits for it any more: its deadline passed, or its caller left."""

    code = "cancelled"


class Cancellation:
    """A token that one side sets, and the other asks."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._goes_on = False
        self._lock = threading.Lock()

    def cancel(self, reason: str) -> bool:
        """Tell the work to stop, and return whether it will; the first reason stays."""
        with self._lock:
            if not self._goes_on:
                self._reason = self._reason or reason
            return not self._goes_on

    def check(self) -> None:
        """Raise `Cancelled` if the work is to stop."""
        if self._reason is not None:
            raise Cancelled(f"the work was stopped: {self._reason}", remedy="Ask again, for less at once")

    def go_on(self) -> None:
        """Ask for the last time: from here on the work ends by itself, whoever would stop it."""
        with self._lock:
            self.check()
            self._goes_on = True


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


def stoppable(items: Iterable[T]) -> Iterator[T]:
    """Yield the same items, and ask before each of them whether to stop."""
    token = current()
    token.check()
    for item in items:
        token.check()
        yield item
