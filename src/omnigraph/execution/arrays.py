"""Arrays: what operators do to arrays of numbers again and again, in the way that is quickest here.

`np.unique` hashes and is forty times slower than sorting; where numbers are dense, a map with a byte for each
of them is quicker still. Gathers of many values go through Arrow, whose `take` is twice as quick as indexing.
Large work is cut into blocks, which stay in the processor's caches and run on all of its cores: numpy and
Arrow do not hold the interpreter while they work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from omnigraph.execution.columns import Ordinals
from omnigraph.storage.derived.adjacency import take as take

DENSE = 50  # a byte map pays where there is at least one number for so many that there could be
FEW_ITEMS = 4_096
LARGEST_KEPT = (32 << 20) - (1 << 16)  # the largest block that glibc learns to keep for the next one
_FIRST = np.arange(1_024)
_FIRST.flags.writeable = False
Mask = NDArray[np.bool_]
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@cache
def keep_freed_memory() -> None:
    """Let glibc keep large blocks that are freed, as it does once it has seen one of 32 MiB freed.

    Until then it gives each back to the system, and the next one is made of new pages, which threads of a
    process wait for each other to get: that was a quarter to a half of the time of large queries. At most
    64 MiB of free memory stay with the process. Nothing is touched, so this takes no time; elsewhere than on
    Linux it does nothing.
    """
    np.empty(LARGEST_KEPT, np.uint8)


def distinct(values: Ordinals, span: int) -> Ordinals:
    """Return each number once, ascending; all are from 0 up to `span`.

    >>> distinct(np.array([7, 3, 7]), 10).tolist()
    [3, 7]
    """
    if len(values) <= 1:
        return values
    if len(values) * DENSE > span:
        present = np.zeros(span, dtype=bool)
        present[values] = True
        return np.flatnonzero(present)
    return sorted_distinct(np.sort(values))


def sorted_distinct(ascending: Ordinals) -> Ordinals:
    """Return each number of a sorted array once."""
    if len(ascending) <= 1:
        return ascending
    return ascending[first_of_runs(ascending)]


def first_of_runs(values: NDArray[Any]) -> Mask:
    """Return where a value differs from the one before it."""
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


def numbered(values: Ordinals, span: int) -> tuple[Ordinals, Ordinals]:
    """Return the distinct numbers, ascending, and the place of each value among them."""
    members = distinct(values, span)
    if len(values) * DENSE > span:
        places = np.zeros(span, dtype=np.int64)
        places[members] = np.arange(len(members))
        return members, places[values]
    return members, np.searchsorted(members, values)


def repeats(values: Ordinals) -> bool:
    """Say whether any number stands there more than once."""
    if len(values) <= 1:
        return False
    ascending = np.sort(values)
    return bool((ascending[1:] == ascending[:-1]).any())


def is_member(values: Ordinals, members: Ordinals, span: int) -> Mask:
    """Return which values are among `members`; both are from 0 up to `span`, values may be missing (-1)."""
    if not len(members) or not len(values):
        return np.zeros(len(values), dtype=bool)
    if (len(values) + len(members)) * DENSE > span:
        present = np.zeros(span + 1, dtype=bool)  # the last is what -1 reads
        present[members] = True
        there: Mask = present[values]
        return there
    return in_sorted(values, np.sort(members))


def in_sorted(values: NDArray[np.integer[Any]], ascending: Ordinals) -> Mask:
    """Return which values stand in a sorted array."""
    if not len(ascending):
        return np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    there: Mask = ascending[at] == values
    return there


def repeated(counts: Ordinals, starts: Ordinals) -> tuple[Ordinals, Ordinals]:
    """Lay out lists one after another: return for each item whose list it is of, and its place.

    >>> [part.tolist() for part in repeated(np.array([2, 0, 1]), np.array([10, 20, 40]))]
    [[0, 0, 2], [10, 11, 40]]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    if total > FEW_ITEMS:
        return _repeated_many(counts, starts, ends - counts, total)
    owners = np.repeat(_first_numbers(len(counts)), counts)
    return owners, _first_numbers(total) + np.repeat(starts - (ends - counts), counts)


def _repeated_many(
    counts: Ordinals, starts: Ordinals, begins: Ordinals, total: int
) -> tuple[Ordinals, Ordinals]:
    """Do as `repeated` by running sums: `np.repeat` holds the interpreter, and other threads would wait."""
    some = np.flatnonzero(counts)  # lists that are not empty
    firsts, starts, counts = begins[some], starts[some], counts[some]
    owners, places = np.zeros(total, np.int64), np.ones(total, np.int64)
    owners[firsts] = np.diff(some, prepend=0)
    places[firsts[0]] = starts[0]
    places[firsts[1:]] = starts[1:] - (starts[:-1] + counts[:-1] - 1)
    return np.cumsum(owners, out=owners), np.cumsum(places, out=places)


def _first_numbers(count: int) -> Ordinals:
    """Return 0, 1, 2 and so on; few of them without a call that lets the interpreter go."""
    return _FIRST[:count] if count <= len(_FIRST) else np.arange(count)


def starts_of(counts: Ordinals) -> Ordinals:
    """Return where each of several lists begins that lie one after another."""
    return np.cumsum(counts) - counts


def blocks_of(sizes: Ordinals, most: int) -> list[tuple[int, int]]:
    """Cut items into stretches whose sizes add up to about `most`; one that is larger stands alone."""
    if not len(sizes):
        return []
    ends = np.cumsum(sizes)
    stretch = (ends - sizes) // max(most, 1)
    firsts = np.flatnonzero(first_of_runs(stretch))
    return list(zip(firsts.tolist(), [*firsts[1:].tolist(), len(sizes)], strict=True))


# -- both cores ------------------------------------------------------------------------------------


_inside = threading.local()


def in_threads(function: Callable[[Item], Outcome], items: Iterable[Item]) -> list[Outcome]:
    """Call a function with each item, side by side; the outcomes are in the order of the items.

    For work of milliseconds in numpy or Arrow. Inside such a call items are done one after another: a thread
    that waited for others of the same few could wait forever.
    """
    listed = list(items)
    if len(listed) <= 1 or getattr(_inside, "busy", False):
        return [function(item) for item in listed]

    def run(item: Item) -> Outcome:
        _inside.busy = True
        try:
            return function(item)
        finally:
            _inside.busy = False

    return list(_threads().map(run, listed))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(os.cpu_count() or 1, 1), thread_name_prefix="omnigraph-operators")


os.register_at_fork(after_in_child=_threads.cache_clear)  # its threads are not in the child
