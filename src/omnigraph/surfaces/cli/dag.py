"""Dag: commits and their parents as lines of text.

Room    surfaces.cli. Pure. Every commit is a `*` in a lane; a lane leads down to the next commit that it
        waits for, two that wait for the same one join above it, and a merge opens one for its second parent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from omnigraph.storage.manifest.records import CommitRecord

Lanes = list[str | None]  # the commit that each lane leads to; None where a lane has ended


def draw(commits: Sequence[CommitRecord]) -> Iterator[tuple[str, CommitRecord | None]]:
    """Yield lines from the top: the drawing, and the commit that stands on it, if one does."""
    shown = {commit.id for commit in commits}
    lanes: Lanes = []
    for commit in newest_first(commits):
        waiting = [at for at, wanted in enumerate(lanes) if wanted == commit.id]
        here = waiting[0] if waiting else _free(lanes, 0)
        for other in waiting[1:]:
            yield _joint(lanes, here, other, "/"), None
            lanes[other] = None
        lanes[here] = commit.id
        yield _row(lanes, here), commit
        lanes[here] = commit.parent if commit.parent in shown else None
        if commit.merged_parent in shown:
            aside = _free(lanes, here + 1)
            lanes[aside] = commit.merged_parent
            yield _joint(lanes, here, aside, "\\"), None
        while lanes and lanes[-1] is None:
            lanes.pop()


def newest_first(commits: Iterable[CommitRecord]) -> Iterator[CommitRecord]:
    """Yield every commit before its parents; of those that may come next, the one with the greatest id."""
    known = {commit.id: commit for commit in commits}
    children = dict.fromkeys(known, 0)
    for commit in known.values():
        for parent in _parents(commit, known):
            children[parent] += 1
    ready = [_Newer(one) for one, count in children.items() if count == 0]
    heapq.heapify(ready)
    while ready:
        commit = known[heapq.heappop(ready)]
        yield commit
        for parent in _parents(commit, known):
            children[parent] -= 1
            if children[parent] == 0:
                heapq.heappush(ready, _Newer(parent))


class _Newer(str):
    """An id that sorts before older ones."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


def _parents(commit: CommitRecord, known: dict[str, CommitRecord]) -> set[str]:
    return {one for one in (commit.parent, commit.merged_parent) if one is not None and one in known}


def _free(lanes: Lanes, start: int) -> int:
    """Return the first lane from `start` on that leads nowhere, making one if need be."""
    while len(lanes) <= start:
        lanes.append(None)
    for at in range(start, len(lanes)):
        if lanes[at] is None:
            return at
    lanes.append(None)
    return len(lanes) - 1


def _row(lanes: Lanes, here: int) -> str:
    marks = ["*" if at == here else " " if wanted is None else "|" for at, wanted in enumerate(lanes)]
    return " ".join(marks).rstrip()


def _joint(lanes: Lanes, here: int, other: int, bend: str) -> str:
    """Draw the line between a lane and another one to its right that ends or begins."""
    marks = list(
        _row([None if at == other else one for at, one in enumerate(lanes)], -1).ljust(2 * other + 1)
    )
    marks[2 * here] = "|"
    for at in range(2 * here + 1, 2 * other - 1, 2):
        marks[at] = "_"
    marks[2 * other - 1] = bend
    return "".join(marks).rstrip()
