"""Budget: how much memory one query may take.

A ledger for one run: what the query holds to its end (columns and topologies, which stay in the caches) and
what it is about to make beside that. An operator asks before it makes anything that grows with the data, so
that a query ends with a typed error instead of taking the machine's memory. That is also when it notices that
it was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.base.cancellation import NEVER, Cancellation
from omnigraph.base.errors import LimitExceeded

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
    ) -> None:
        self.limit = limit
        self._make_room = make_room
        self._cancellation = cancellation
        self._held = 0
        self._things: dict[Hashable, Any] = {}
        self._rows_at_most: int | None = None

    def hold(self, key: Hashable, thing: Any, size: int, doing: str) -> None:
        """Keep something to the end of the query, whatever the caches let go; each thing counts once."""
        if key not in self._things:
            self.check_bytes(size, doing)
            self._things[key] = thing
            self._held += size

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
