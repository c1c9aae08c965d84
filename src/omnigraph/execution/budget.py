"""Budget: how much memory one query may take.

A ledger for one run: what the query holds to its end (columns and topologies, which stay in the caches) and
what it is about to make beside that. An operator asks before it makes anything that grows with the data, so
that a query ends with a typed error instead of taking the machine's memory. That is also when it notices that
it was cancelled. Where queries share an account (memory.py) it is asked for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.base.cancellation import NEVER, Cancellation
from omnigraph.base.errors import LimitExceeded
from omnigraph.execution.memory import Memory, counted_bytes

MEMORY_BYTES = 4 << 30


class TooManyAtOnce(LimitExceeded):
    """The rows of one step are too many to be made at once; from fewer rows it makes fewer."""


class Budget:
    """The memory of one run; `make_room` asks the caches to let go of what other queries left there."""

    def __init__(
        self,
        limit: int = MEMORY_BYTES,
        make_room: Callable[[int], None] = lambda needed: None,
        cancellation: Cancellation = NEVER,
        memory: Memory | None = None,
    ) -> None:
        self.limit = limit
        self._make_room = make_room
        self._cancellation = cancellation
        self._held = 0
        self._things: dict[Hashable, Any] = {}
        self._rows_at_most: int | None = None
        self._memory = memory
        self._shared: list[Any] = []  # of what it holds: counted there
        self._taken = 0  # from the memory, for rows

    def hold(self, key: Hashable, thing: Any, size: int, doing: str) -> None:
        """Keep something to the end of the query, whatever the caches let go; each thing counts once."""
        if key in self._things:
            return
        self._check(size, doing)
        self._held += size
        self._take(0, doing)  # there may be fewer rows now
        if self._memory is not None and counted_bytes(size):
            self._memory.hold(thing, size, doing)
            self._shared.append(thing)
        self._things[key] = thing

    def held(self, key: Hashable) -> Any:
        """Return what the query holds under a key, or None."""
        return self._things.get(key)

    def check(self, rows: int, columns: int, doing: str) -> None:
        """Refuse to make more rows than fit, or than may be made at once."""
        needed = rows * 8 * (columns + 1)
        if self._rows_at_most is not None and needed > self._rows_at_most:
            raise TooManyAtOnce(f"{doing} of {rows} rows needs {_mib(needed)}")
        self.check_bytes(needed, f"{doing} of {rows} rows")

    @contextmanager
    def rows_at_most(self, size: int) -> Iterator[None]:
        """Refuse, for a while, to make rows of more than so many bytes at once: with `TooManyAtOnce`."""
        before, self._rows_at_most = self._rows_at_most, size
        try:
            yield
        finally:
            self._rows_at_most = before

    def check_bytes(self, needed: int, doing: str) -> None:
        """Refuse to take more memory than is left for the query, or to go on when it was cancelled."""
        self._check(needed, doing)
        self._take(needed, doing)

    def close(self) -> None:
        """Give back what the query took from the memory of the process."""
        if self._memory is not None:
            while self._shared:
                self._memory.let_go(self._shared.pop())
            self._memory.take(-self._taken, "the end")
            self._taken = 0

    def _take(self, needed: int, doing: str) -> None:
        """Have the memory of the most rows that were asked for at once, within what the query may have."""
        most = min(max(self._taken, counted_bytes(needed)), self.limit - self._held)
        if self._memory is not None and most != self._taken:
            self._memory.take(most - self._taken, doing)
            self._taken = most

    def _check(self, needed: int, doing: str) -> None:
        self._cancellation.check()
        if self._held + needed > self.limit:
            held = f" beside {_mib(self._held)} already held" if self._held else ""
            raise LimitExceeded(
                f"{doing} needs {_mib(needed)}{held}; the limit is {_mib(self.limit)}",
                remedy="Filter earlier, count instead of listing, or raise the memory limit",
                resource="memory",
                limit=self.limit,
                actual=self._held + needed,
            )
        if needed:
            self._make_room(needed)


def _mib(size: int) -> str:
    return f"{-(-size >> 20)} MiB"
