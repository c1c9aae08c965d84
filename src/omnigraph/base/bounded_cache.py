"""Bounded cache: values by key, of which those used lately stay.

A key names one value for ever (a version of a table, a text under a schema), so what is there is never
replaced: of two threads that make the same value, both get the first one that was put.

Reading takes no lock: readers that met at one would wake each other up at every look-up, and four were slower
than one. A look-up notes its key as used; whoever makes room gives used entries one more round.
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
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()  # a value, and what it weighs
        self._used: set[K] = set()  # since room was last made
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is there; that counts as a use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._used.add(key)
        return entry[0]

    def put(self, key: K, value: V) -> V:
        """Keep a value, unless the key has one; return the one that it has now."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                return entry[0]
            if self._weigh_all is None:
                weight = self._weigh(value)
                self._entries[key] = (value, weight)
                self._weight += weight
            else:
                self._entries[key] = (value, 0)
                self._add(0)
            if self._weight > self._limit:
                self._shrink(self._limit, last=key)
            return value

    def reweigh(self, key: K) -> None:
        """Weigh a value again that has grown or shrunk, if it is still there; that counts as a use."""
        with self._lock:
            if key not in self._entries:
                return
            value, before = self._entries[key]
            weight = self._weigh(value) if self._weigh_all is None else 0
            self._entries[key] = (value, weight)
            self._used.add(key)
            self._add(weight - before)
            if self._weight > self._limit:
                self._shrink(self._limit, last=key)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; `make` gives it the first time, and other threads need not wait."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def items(self) -> list[tuple[K, V]]:
        """Return what is there by key."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._entries.items()]

    def values(self) -> list[V]:
        """Return what is there."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    @property
    def weight(self) -> int:
        """What all values weigh together."""
        return self._weight

    def shrink(self, limit: int) -> None:
        """Let go of values that were not used lately, until they weigh no more than this."""
        with self._lock:
            self._shrink(limit)

    def drop(self, key: K) -> None:
        """Let go of one value."""
        with self._lock:
            entry = self._entries.pop(key, None)
            self._used.discard(key)
            if entry is not None:
                self._add(-entry[1])

    def clear(self) -> None:
        """Let go of all values."""
        with self._lock:
            self._entries.clear()
            self._used.clear()
            self._weight = 0

    def _shrink(self, limit: int, last: K | None = None) -> None:
        """Go through the entries in the order they came; those that were used go to the end instead."""
        while self._weight > limit and len(self._entries) > (last is not None):
            key, entry = self._entries.popitem(last=False)
            if key in self._used or key == last:
                self._entries[key] = entry
            else:
                self._add(-entry[1])
            self._used.discard(key)

    def _add(self, weight: int) -> None:
        if self._weigh_all is None:
            self._weight += weight
        else:
            self._weight = self._weigh_all([value for value, _ in self._entries.values()])
