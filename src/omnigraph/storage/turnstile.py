"""Turnstile: writers of one process that lost a race go on one at a time, first come first served.

Room    storage. Only a courtesy: correctness is the compare-and-swap's. Without it the threads of a
        process would keep beating each other and stage the same rows over and over.
"""

from __future__ import annotations

import threading
from collections import deque


class Turn:
    """One writer's place in the line; entered at most once."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._inside = False

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Wait until every writer that entered before has left."""
        if not self._inside:
            self._line.enter()
            self._inside = True

    def leave(self) -> None:
        """Let the next one in."""
        if self._inside:
            self._line.leave()
            self._inside = False


class Turnstiles:
    """One line for each chain."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._lock = threading.Lock()

    def at(self, key: str) -> Turn:
        """Give a writer its place, to be entered only if it loses, and left at the end of a block."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line()
        return Turn(line)


class _Line:
    """A lock that is handed over in order of arrival."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: deque[threading.Event] = deque()

    def enter(self) -> None:
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        mine.wait()

    def leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()  # stays busy: handed to the next in line
            else:
                self._busy = False
