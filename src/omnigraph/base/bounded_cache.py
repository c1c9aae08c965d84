"""Bounded cache: values by key, of which those used lately stay.

A key names one value for ever (a version of a table, a text under a schema), so what is there is never
replaced: of two threads that make the same value, both get the first one that was put.

Reading takes no lock: readers that met at one would wake each other up at every look-up, and four were slower
than one. A look-up marks its entry as used; whoever makes room gives used entries one more round.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Entry(Generic[V]):
    """A value, what it weighs, and whether it was looked up since room was last made."""

    __slots__ = ("used", "value", "weight")

    def __init__(self, value: V, weight: int) -> None:
        self.value = value
        self.weight = weight
        self.used = False


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
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        self._weight = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key, if it is there; that counts as a use."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = True
        return entry.value

    def put(self, key: K, value: V) -> V:
        """Keep a value, unless the key has one; return the one that it has now."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                return entry.value
            entry = self._entries[key] = _Entry(value, self._weigh(value) if self._weigh_all is None else 0)
            self._add(entry.weight)
            if self._weight > self._limit:
                self._shrink(self._limit, last=entry)
            return value

    def reweigh(self, key: K) -> None:
        """Weigh a value again that has grown or shrunk, if it is still there; that counts as a use."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return
            entry.used = True
            before, entry.weight = entry.weight, self._weigh(entry.value) if self._weigh_all is None else 0
            self._add(entry.weight - before)
            if self._weight > self._limit:
                self._shrink(self._limit, last=entry)

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; `make` gives it the first time, and other threads need not wait."""
        value = self.get(key)
        return self.put(key, make()) if value is None else value

    def items(self) -> list[tuple[K, V]]:
        """Return what is there by key."""
        with self._lock:
            return [(key, entry.value) for key, entry in self._entries.items()]

    def values(self) -> list[V]:
        """Return what is there."""
        with self._lock:
            return [entry.value for entry in self._entries.values()]

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
            if entry is not None:
                self._add(-entry.weight)

    def clear(self) -> None:
        """Let go of all values."""
        with self._lock:
            self._entries.clear()
            self._weight = 0

    def _shrink(self, limit: int, last: _Entry[V] | None = None) -> None:
        """Go through the entries in the order they came; those that were used go to the end instead."""
        while self._weight > limit and len(self._entries) > (last is not None):
            key, entry = self._entries.popitem(last=False)
            if entry.used or entry is last:
                entry.used = False
                self._entries[key] = entry
            else:
                self._add(-entry.weight)

    def _add(self, weight: int) -> None:
        if self._weigh_all is None:
            self._weight += weight
        else:
            self._weight = self._weigh_all([entry.value for entry in self._entries.values()])
