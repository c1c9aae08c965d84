"""Cut: which version of each chain, and of the registry, a copy of a graph ends at.

Writers go on while a graph is copied, so the copy is of the versions up to a cut that is chosen first. It is
one that a reader of the source could have seen, and nothing in it points outside:

- The registry is read first. A branch has its chain before it has its name, and a tag comes after its commit,
  so the chains that are read later hold all that the registry names.
- A version says how far it has taken in each other chain, by fork or merge. Where that is past the cut of
  such a chain, the cut is raised, until nothing is. All of these versions existed when the last chain was
  read, so this ends.
- A branch that was deleted after the registry was read ends before its tombstone: the copy still has it.

Chains of deleted branches that something was merged from are in the cut too: merges go by them. So are those
that the destination has, for it must be told that they have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import HistoryReclaimed
from omnigraph.base.frozen import FrozenMap
from omnigraph.storage.manifest.chain import Chain, chain_path, versions
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.manifest.refs import REFS, BranchRef, RefsState
from omnigraph.storage.opener import OpenFailed
from omnigraph.storage.store import GraphStore


@dataclass(frozen=True, slots=True)
class Cut:
    """The newest version of everything that a copy has."""

    registry: RefsState
    heads: FrozenMap[str, ManifestState]  # by chain

    @property
    def last_versions(self) -> dict[str, int]:
        """The newest version of each metadata dataset, by its path."""
        chains = {chain_path(incarnation): state.version for incarnation, state in self.heads.items()}
        return {REFS: self.registry.version, **chains}

    @property
    def branches(self) -> Iterator[tuple[str, ManifestState]]:
        """The live branches and their heads: main, then the others by name."""
        yield MAIN, self.heads[MAIN]
        for ref in self.registry.branches:
            state = self.heads[ref.incarnation]
            if state.tombstone is None:
                yield ref.name, state

    @property
    def ended(self) -> tuple[str, ...]:
        """The chains that end with a tombstone."""
        return tuple(sorted(i for i, state in self.heads.items() if state.tombstone is not None))

    def has_given_up(self, path: str, version: int) -> bool:
        """Say whether a version of a chain is below its floor, so that it need not be stored."""
        return any(
            chain_path(incarnation) == path and version < state.floor
            for incarnation, state in self.heads.items()
        )


def choose_cut(store: GraphStore, also: Iterable[str] = ()) -> Cut:
    """Choose the newest cut of a graph; `history_reclaimed` when retention is under way: choose again.

    Of the chains in `also`, those that have ended are in it, whether or not something needs them.
    """
    registry = store.registry()
    refs = {ref.incarnation: ref for ref in registry.branches}
    heads = store.history.heads([MAIN, *refs])
    for incarnation, ref in refs.items():
        heads[incarnation] = _as_registered(ref, store.branches.chain(incarnation), heads[incarnation])
    for incarnation in sorted(set(also) - heads.keys()):
        ended = _unnamed(store, store.branches.chain(incarnation), None)
        if ended is not None:
            heads[incarnation] = ended
    unseen = list(heads)
    while unseen:
        for other, version in heads[unseen.pop()].seen.items():
            known = heads.get(other)
            if known is not None and known.version >= version:
                continue
            chain = store.branches.chain(other)
            state = chain.at(version) if known is not None else _unnamed(store, chain, version)
            if state is not None:
                heads[other] = state
                unseen.append(other)
    return Cut(registry, FrozenMap(heads))


def is_swept(store: GraphStore, cut: Cut) -> bool:
    """Say whether files that a cut needs may have been deleted since: whoever deletes announces it before."""
    named = [MAIN, *(ref.incarnation for ref in cut.registry.branches)]
    return any(
        state.swept > cut.heads[incarnation].version
        for incarnation, state in store.history.heads(named).items()
    )


def _as_registered(ref: BranchRef, chain: Chain, state: ManifestState) -> ManifestState:
    """Return the newest state of a branch that fits what the registry says of it."""
    if ref.deleting:
        return state  # a name that counts as absent if there is a tombstone
    while state.tombstone is not None:
        state = chain.at(state.version - 1)
    return state


def _unnamed(store: GraphStore, chain: Chain, version: int | None) -> ManifestState | None:
    """Return where a chain ends that the registry does not name; None if it is no longer stored.

    That of a deleted branch changes no more. One that is younger than the registry we read is needed as far
    as something was merged from it, up to a version, if anything was.
    """
    try:
        newest = chain.latest()
        if newest.tombstone is not None:
            return newest
        return None if version is None else chain.at(version)
    except HistoryReclaimed:
        return None
    except OpenFailed:
        if versions(store.location, chain_path(chain.incarnation)):
            raise
        return None
