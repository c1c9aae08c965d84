"""Fair lock: those who wait get their turn in order of arrival, also when some of them give up.

For threads of one process; between processes the compare-and-swap decides.

Every turn has a plain lock of its own, held from before it lines up until it is over. Whoever comes next
waits for that lock. Nobody hands anything over, so there is nobody who could fail to.

An exception may come anywhere (Ctrl-C, a second Ctrl-C), so the end of a turn must not be code of ours:
`with turn.held` lets go inside the interpreter, where nothing can come in between.
"""

from __future__ import annotations

import threading


class FairLock:
    """A lock for one at a time, first come, first served."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last: Turn | None = None

    def turn(self) -> Turn:
        """Return a turn, which lines up only when it is told to wait.

        >>> lock = FairLock()
        >>> turn = lock.turn()
        >>> with turn.held:
        ...     turn.wait()

        """
        return Turn(self)

    def line_up(self, turn: Turn) -> None:
        """Put a turn at the end of the line."""
        with self._guard:
            turn.before = self._last  # first: whoever comes next must find it, however this ends
            self._last = turn


class Turn:
    """One thread's turn; it begins when `wait` returns and is over at the end of `with turn.held`."""

    def __init__(self, lock: FairLock) -> None:
        self.held = threading.Lock()
        self._lock = lock
        self._lined_up = False
        self.before: Turn | None = None  # the last one that may still be in front of this one

    def wait(self) -> None:
        """Wait until all who came before have had their turn or given up; the second time, do nothing."""
        if self._lined_up:
            return
        if not self.held.locked():
            raise AssertionError("a turn must be held before it lines up: nobody would wait for it")
        self._lined_up = True
        self._lock.line_up(self)
        while (before := self.before) is not None:
            with before.held:
                pass
            self.before = before.before  # whoever gave up leaves us to those it was waiting for
