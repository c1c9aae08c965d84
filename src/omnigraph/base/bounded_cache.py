"""Bounded cache: values by key, of which those used last stay.

A key names one value for ever (a version of a table, a text under a schema), so what is there is never
replaced: of two threads that make the same value, both get the first one that was put.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Values whose weights sum up to no more than a limit; safe for many threads.

    Each value weighs 1, or what `weight` says of it when it is put; of one that has grown, `reweigh` asks
    again. Where values share memory, `total` says what all of them weigh together. The value that was used
    last stays, however heavy it is.

    >>> squares = BoundedCache[int, int](2)
    >>> [squares.get_or_make(n, lambda: n * n) for n in (1, 2, 1, 3)]
    [1, 4, 1, 9]
    >>> squares.get(1), squares.get(2)
    (1, None)
    """

    def __init__(
        self,
        limit: int,
        weight: Callable[[V], int] = lambda value: 1,
        *,
        total: Callable[[Collection[V]], int] | None = None,
    ) -> None:
        self._limit = limit
        self._weigh = weight
        self._weigh_all = total
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is there; that counts as a use."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> V:
        """Keep a value, unless the key has one; return the one that it has now."""
        with self._lock:
            if key in self._values:
                return self._values[key]
            self._values[key] = value
            if self._weigh_all is None:
                self._weights[key] = self._weigh(value)
                self._weight += self._weights[key]
            else:
                self._weight = self._weigh_all(self._values.values())
            if self._weight > self._limit:
                self._shrink(self._limit, keep=1)
            return value

    def reweigh(self, key: K) -> None:
        """Weigh a value again that has grown or shrunk, if it is still there; that counts as a use."""
        with self._lock:
            if key not in self._values:
                return
            self._values.move_to_end(key)
            if self._weigh_all is None:
                before, self._weights[key] = self._weights[key], self._weigh(self._values[key])
                self._weight += self._weights[key] - before
            else:
                self._weight = self._weigh_all(self._values.values())
            if self._weight > self._limit:
                self._shrink(self._limit, keep=1)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; `make` gives it the first time, and other threads need not wait."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def items(self) -> list[tuple[K, V]]:
        """Return what is there by key, the value that was not used for longest first."""
        with self._lock:
            return list(self._values.items())

    def values(self) -> list[V]:
        """Return what is there, the value that was not used for longest first."""
        with self._lock:
            return list(self._values.values())

    @property
    def weight(self) -> int:
        """What all values weigh together."""
        return self._weight

    def shrink(self, limit: int) -> None:
        """Let go of the values that were not used for longest, until they weigh no more than this."""
        with self._lock:
            self._shrink(limit, keep=0)

    def drop(self, key: K) -> None:
        """Let go of one value."""
        with self._lock:
            if self._values.pop(key, None) is None:
                return
            if self._weigh_all is None:
                self._weight -= self._weights.pop(key)
            else:
                self._weight = self._weigh_all(self._values.values())

    def clear(self) -> None:
        """Let go of all values."""
        with self._lock:
            self._values.clear()
            self._weights.clear()
            self._weight = 0

    def _shrink(self, limit: int, keep: int) -> None:
        while self._weight > limit and len(self._values) > keep:
            key, _ = self._values.popitem(last=False)
            if self._weigh_all is None:
                self._weight -= self._weights.pop(key)
            else:
                self._weight = self._weigh_all(self._values.values())
