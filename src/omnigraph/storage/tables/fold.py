"""Fold: which small fragments a write takes up into its own, so that the tail stays short.

Room    storage.tables. Pure. Every small commit adds a fragment, and each fragment costs a request
        to whoever looks for a key or scans; so a writer that finds too many small ones rewrites
        them with its own rows in the same commit (tiers, as in an LSM tree).
Bound   at most PER_TIER fragments in each tier; fragments past the last tier are settled and only
        maintenance rewrites them. Tiny rows are rewritten once for every few writes while the first tier
        fills (26 times a byte for rows of 900 bytes, measured); it does not grow with history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KIB = 1024
TIERS = (256 * KIB, 2048 * KIB)  # ceilings by weight
PER_TIER = 6
REWRITE_BELOW = 64 * KIB  # a fragment this small that loses rows is rewritten: cheaper than a deletion file
FOLD_AT_ONCE = 8  # bounds the requests of a single write after a mass delete shrank many fragments
ROW_WEIGHT = 64  # well-compressed rows still cost memory and time to rewrite


@dataclass(frozen=True, slots=True)
class FragmentSize:
    """What is left alive of a fragment."""

    rows: int
    bytes: int

    @property
    def weight(self) -> int:
        """One number for "how much is it to rewrite"."""
        return self.bytes + ROW_WEIGHT * self.rows


def settled(size: FragmentSize) -> bool:
    """Say whether a fragment is past the first tier: those are covered by the key index."""
    return size.weight >= TIERS[0]


def plan_fold(sizes: Mapping[int, FragmentSize], incoming: FragmentSize) -> frozenset[int]:
    """Choose the fragments that a write of this size should take up.

    >>> tiny = FragmentSize(rows=1, bytes=900)
    >>> sorted(plan_fold({i: tiny for i in range(5)}, tiny))
    []
    >>> sorted(plan_fold({i: tiny for i in range(6)}, tiny))
    [0, 1, 2, 3, 4, 5]
    """
    chosen: set[int] = set()
    weight, floor = incoming.weight, 0
    for ceiling in TIERS:
        members = sorted((s.weight, i) for i, s in sizes.items() if floor <= s.weight < ceiling)
        if weight < ceiling:
            if len(members) < PER_TIER:
                break
            room = FOLD_AT_ONCE - len(chosen)
            taken = members[: max(room, 0)]
            chosen.update(i for _, i in taken)
            weight += sum(w for w, _ in taken)
        floor = ceiling
    return frozenset(chosen)
