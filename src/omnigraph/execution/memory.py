"""Memory: what all queries of a process take together, where several graphs and many callers share it.

An account of what the budgets (budget.py) of the queries that run have asked for: rows, by what each asked
for at once at most, and columns and topologies that they hold, which count once however many hold the same.
Caches of all graphs give way to rows; a query for which there is no room ends with an error that says so.
Small asks are not counted: a look-up by key goes through whatever heavy queries have.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import ref

from omnigraph.base.errors import NoRoomNow

SMALL_BYTES = 1 << 20  # rows of a query, or one thing that it holds, up to which nothing is counted


def counted_bytes(size: int) -> int:
    """Return how much of a need is counted: small ones are not."""
    return size if size > SMALL_BYTES else 0


class Shrinks(Protocol):
    """Caches that can let go of what they have."""

    @property
    def nbytes(self) -> int:
        """How much they have."""
        ...

    def keep_at_most(self, size: int) -> None:
        """Let go of what is beyond so many bytes."""
        ...


class Memory:
    """The account of one process; safe for many threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._rows = 0
        self._things: dict[int, tuple[int, int]] = {}  # by identity: users and bytes
        self._held = 0
        self._caches: list[ref[Any]] = []

    @property
    def taken(self) -> int:
        """How much the queries that run have."""
        return self._rows + self._held

    def serves(self, caches: Shrinks) -> None:
        """Let caches give way to the queries of the process."""
        with self._lock:
            self._caches = [known for known in self._caches if known() is not None] + [ref(caches)]

    def take(self, size: int, doing: str) -> None:
        """Take bytes for rows, or give some back; raise NoRoomNow if others have them."""
        with self._lock:
            self._check(size, doing)
            self._rows += size
        if size > 0:
            self._make_room()

    def hold(self, thing: object, size: int, doing: str) -> None:
        """Count something that a query holds to its end; it lives until `let_go`."""
        with self._lock:
            users, _ = self._things.get(id(thing), (0, size))
            if not users:
                self._check(size, doing)
                self._held += size
            self._things[id(thing)] = (users + 1, size)

    def let_go(self, thing: object) -> None:
        """Note that a query has ended that held something."""
        with self._lock:
            users, size = self._things[id(thing)]
            if users > 1:
                self._things[id(thing)] = (users - 1, size)
            else:
                del self._things[id(thing)]
                self._held -= size

    @contextmanager
    def taking(self, size: int, doing: str) -> Iterator[None]:
        """Take bytes for a block."""
        self.take(size, doing)
        try:
            yield
        finally:
            self.take(-size, doing)

    def _check(self, size: int, doing: str) -> None:
        if size > 0 and self.taken + size > self.limit:
            raise NoRoomNow(
                f"{doing} needs {size >> 20} MiB more; all queries together have {self.taken >> 20} of "
                f"{self.limit >> 20} MiB",
                remedy="Try again when others have ended; ask for less, or serve with more memory_bytes",
                resource="memory",
                limit=self.limit,
                actual=self.taken + size,
            )

    def _make_room(self) -> None:
        """Let caches keep what rows leave them, each its part of it."""
        caches = [known for known in (known() for known in self._caches) if known is not None]
        cached = sum(known.nbytes for known in caches)
        allowed = max(self.limit - self._rows, 0)
        if cached > allowed:
            for known in caches:
                known.keep_at_most(known.nbytes * allowed // cached)
