"""Lineage: which commits two states have in common.

Room    storage. Every chain is a line, so the ancestors of a state are, on each chain, everything up to one
        version; the state carries that version for every chain it took in, by fork or merge (`ancestry`).
        What two states share is then a comparison of two small maps, at any depth of history.
Gives   `merge_bases`: the best common ancestors, best first. More than one means that the branches were
        merged into each other crosswise.
"""

from __future__ import annotations

from omnigraph.base.errors import GraphError, HistoryReclaimed
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.records import ManifestState


def holds(state: ManifestState, commit: ManifestState) -> bool:
    """Say whether the head commit of one state is another state's head or among its ancestors."""
    chain, version = commit.place
    return state.ancestry.get(chain, 0) >= version


def merge_bases(branches: Branches, one: ManifestState, other: ManifestState) -> tuple[ManifestState, ...]:
    """Return the common ancestors that no other common ancestor holds, best first."""
    found: dict[tuple[str, int], ManifestState] = {}
    unreadable: GraphError | None = None
    for chain, version in _common(one, other):
        if any(state.ancestry.get(chain, 0) >= version for state in found.values()):
            continue  # another candidate has it already: most often the first, whatever was merged before
        try:
            state = branches.chain(chain).at(version)
        except HistoryReclaimed as error:  # a chain that is gone has nothing to offer
            unreadable = error
            continue
        found.setdefault(state.place, state)
    best = [s for s in found.values() if not any(s is not t and holds(t, s) for t in found.values())]
    if not best:
        raise HistoryReclaimed(
            "the branches have no common ancestor that is still stored",
            remedy="Load the differences of one into the other instead of merging",
        ) from unreadable
    return tuple(sorted(best, key=lambda state: _rank(state, one, other), reverse=True))


def _common(one: ManifestState, other: ManifestState) -> list[tuple[str, int]]:
    """Return how far both states have taken in each chain, those that lead furthest first."""
    left, right = one.ancestry, other.ancestry
    own = (one.line.incarnation, other.line.incarnation, one.line.parent, other.line.parent)
    shared = sorted(set(left) & set(right), key=lambda chain: (chain not in own, chain))
    return [(chain, min(left[chain], right[chain])) for chain in shared]


def _rank(state: ManifestState, one: ManifestState, other: ManifestState) -> tuple[int, int, str]:
    """Order candidates: the nearest to both, then the latest, then the greatest id (contract M-44)."""
    return -_distance(state, one) - _distance(state, other), state.commit.authored_at_us, state.commit.id


def _distance(ancestor: ManifestState, state: ManifestState) -> int:
    """Return how many versions a state has taken in since an ancestor, over all chains."""
    then = ancestor.ancestry
    return sum(version - then.get(chain, 0) for chain, version in state.ancestry.items())
