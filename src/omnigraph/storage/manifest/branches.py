"""Branches: finding a branch's chain, and the crash-safe create, rename, delete and list.

A branch is a name in the registry that points at an anonymous chain. A chain's id is never used twice, so a
branch that was deleted and made again cannot be confused with the first.

- Create: the chain first (complete, but nothing names it), then the name. A crash between leaves an
  unreferenced chain; the name is absent and free.
- Delete: mark the name (no more forks from it), tombstone the chain by the ordinary compare-and-swap (from
  here on every writer on it fails), then take the name away. A crash after the mark leaves a complete branch;
  after the tombstone, a name that counts as absent: `list` hides it, `create` takes it over, `delete`
  finishes the job.
- Rename: note the new name on the chain (a handle that remembers the old name looks it up again), then swap
  both names in one step of the registry. A crash between leaves a complete branch under its old name; the
  next write on it takes the note back, after making sure that no rename can still land.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from omnigraph.base.errors import (
    BranchExists,
    BranchHasDescendants,
    BranchHasTags,
    BranchNotFound,
    CommitNotFound,
    GraphError,
    HistoryReclaimed,
    OutcomeUnknown,
    TagExists,
)
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock, new_id
from omnigraph.storage.durability import Step
from omnigraph.storage.manifest.chain import Chain, CommitInDoubt, ControlRetry, HeadMoved, check_whole
from omnigraph.storage.manifest.records import MAIN, ChainIdentity, ManifestState, control
from omnigraph.storage.manifest.refs import (
    PREFIX,
    BranchRef,
    Refs,
    RefsState,
    check_free_name,
    check_name,
)


class Branches:
    """All branches of one graph."""

    def __init__(self, refs: Refs, make_chain: Callable[[str], Chain], clock: Clock) -> None:
        self._refs = refs
        self._make_chain = make_chain
        self._clock = clock
        self._chains: dict[str, Chain] = {}
        self._lock = threading.Lock()

    def chain(self, incarnation: str) -> Chain:
        """Return the chain with this id; one object for each, so that its cache is shared."""
        chain = self._chains.get(incarnation)  # reading a dictionary needs no lock
        if chain is None:
            with self._lock:
                chain = self._chains.get(incarnation)
                if chain is None:
                    chain = self._chains[incarnation] = self._make_chain(incarnation)
        return chain

    def head(self, name: str) -> tuple[Chain, ManifestState]:
        """Return a live branch's chain and newest state: one probe when the name is known already."""
        clean = check_name(name)
        if clean == MAIN:
            chain = self.chain(MAIN)
            return chain, chain.latest()
        ref = self._refs.known().get(clean)  # a name seen before needs no look-up ...
        if ref is not None:
            chain = self.chain(ref.incarnation)
            state = chain.latest()
            if _is_live(state, clean):
                return chain, state  # ... because a branch deleted or renamed says so on its own chain
        while True:
            refs = self._refs.latest()
            ref = refs.get(clean)
            if ref is None:
                raise no_such_branch(clean)
            chain = self.chain(ref.incarnation)
            state = chain.latest()
            if state.tombstone is not None:
                raise no_such_branch(clean)
            if state.name in (None, clean) or self._refs.latest().version == refs.version:
                return chain, state  # a rename may be under way: the registry decides

    def known_head(self, name: str) -> ManifestState | None:
        """Return the newest head of a branch seen so far, without asking storage."""
        if name == MAIN:
            return self.chain(MAIN).known
        ref = self._refs.known().get(name)
        state = None if ref is None else self.chain(ref.incarnation).known
        return state if state is not None and _is_live(state, name) else None

    def is_unchanged(self, head: ManifestState) -> bool:
        """Say whether a known head is certainly still the head, where local disk tells that at once."""
        return self.chain(head.line.incarnation).is_unchanged(head)

    def writable(self, name: str, incarnation: str | None = None) -> tuple[Chain, ManifestState]:
        """Return the head of a branch to write on: no rename that has begun can land under the write.

        Moving the registry makes every rename under way begin again, and it begins on the chain, where
        the write would lose its swap. A branch of another incarnation than the one named is not found.
        """
        retry: ControlRetry | None = None
        while True:
            chain, state = self.head(name)
            if incarnation not in (None, chain.incarnation):
                raise no_such_branch(name)
            if state.name is None:
                return chain, state
            clean = check_name(name)
            if state.name == clean:
                return chain, state
            refs = self._refs.known()
            ref = refs.get(clean)
            if ref is None or ref.incarnation != chain.incarnation:
                continue  # another thread has read a newer registry meanwhile
            try:
                self._refs.fence(refs, Step.BRANCH_RENAME)
                return chain, chain.commit(*control(state, name=clean), Step.BRANCH_NAME)
            except (HeadMoved, CommitInDoubt) as error:
                retry = retry or ControlRetry("taking back an interrupted rename", name, self._clock)
                retry.lose(error)

    def list(self) -> tuple[BranchRef, ...]:
        """Return the live branches other than main, by name."""
        return self.live(self._refs.latest())

    def live(self, refs: RefsState) -> tuple[BranchRef, ...]:
        """Return the live branches of one version of the registry."""
        return tuple(ref for ref in refs.branches if not self._gone(ref))

    def name_of(self, incarnation: str) -> str:
        """Return the name that a chain has now."""
        if incarnation == MAIN:
            return MAIN
        ref = self._refs.latest().branch_of(incarnation)
        if ref is not None:
            return ref.name
        raise BranchNotFound("the branch that held this state was deleted", incarnation=incarnation)

    def find_commit(self, commit_id: str, first: str = MAIN) -> tuple[str, ManifestState]:
        """Return the branch and version that hold a commit, whichever live branch that is."""
        names = {MAIN: MAIN, **{ref.name: ref.incarnation for ref in self.list()}}
        for name in sorted(names, key=lambda n: (n != first, n != MAIN, n)):
            chain = self.chain(names[name])
            state = chain.find(commit_id, chain.latest())
            if state is not None:
                return name, state
        raise no_such_commit(commit_id)

    def create(self, name: str, source: str, state: ManifestState | None = None) -> BranchRef:
        """Fork a branch from another one's head, or from an older version of it."""
        clean = check_free_name(name)
        if self._taken(self._refs.known(), clean):
            self._check_free(self._refs.latest(), clean)
        seen = self._refs.known()  # before the source: a sweep that comes later moves the registry
        source_chain, head = self.head(source)
        origin = state or head
        try:
            _check_origin(source, source_chain, origin, head)
        except HistoryReclaimed:
            if state is not None or source_chain.known is head:
                raise
            return self.create(name, source)  # another thread has seen a newer one meanwhile
        now = self._clock.now_us()
        ref = BranchRef(clean, new_id(), source_chain.incarnation, origin.version, now)
        line = ChainIdentity(ref.incarnation, ref.parent, ref.fork_version, now)
        chain = self.chain(ref.incarnation)
        first = replace(
            origin,
            version=1,
            line=line,
            recent=(),
            floor=0,
            kept=(),
            swept=0,
            swept_us=None,
            condemned=head.condemned,
            reclaimed=FrozenMap[str, int](),
            # What lineage no longer names (a cleanup saw to that) does not come back with an older version.
            seen=FrozenMap({c: v for c, v in origin.ancestry.items() if c in head.ancestry}),
            name=None,
            precedence=None,
        )
        chain.create(first, Step.BRANCH_CHAIN)

        def decide(refs: RefsState) -> BranchRef:
            self._check_free(refs, clean)
            self._check_source(refs, source, source_chain.incarnation)
            if refs.version != seen.version:
                _check_origin(source, source_chain, origin, source_chain.latest())
            if refs.fence != seen.fence:
                raise _Swept  # what no name led to may be gone, and the new chain is such
            return ref

        try:
            self._change(clean, decide, Step.BRANCH_REGISTER)
        except HistoryReclaimed:
            if state is not None:
                raise
            return self.create(name, source)  # the head that it was to be forked from is no longer whole
        except _Swept:
            return self.create(name, source, state)
        return ref

    def delete(self, name: str) -> None:
        """Delete a branch that no live branch was forked from."""
        clean = check_free_name(name)

        def mark(refs: RefsState) -> BranchRef | None:
            ref = refs.get(clean)
            if ref is None:
                raise no_such_branch(clean)
            self._check_unused(refs, ref)
            return None if ref.deleting else replace(ref, deleting=True)

        marked = self._change(clean, mark, Step.BRANCH_MARK)
        doomed = marked.get(clean)
        if doomed is None:
            raise no_such_branch(clean)
        was_ours = self._tombstone(clean, self.chain(doomed.incarnation), new_id())
        self._unregister(clean, doomed.incarnation)
        if not was_ours:
            raise no_such_branch(clean)  # another delete got there first; this one only finished its work

    def rename(self, old: str, new: str) -> BranchRef:
        """Give a branch another name, at one instant for everybody."""
        was, clean = check_free_name(old), check_free_name(new)
        retry = ControlRetry(f"renaming branch {was!r}", was, self._clock)
        while True:
            refs = self._refs.latest()  # before the chain: whoever moves the registry later undoes the note
            ref = refs.get(was)
            if ref is None or self._gone(ref):
                raise no_such_branch(was)
            self._check_source(refs, was, ref.incarnation)
            self._check_free(refs, clean)
            renamed = replace(ref, name=clean)
            chain = self.chain(ref.incarnation)
            try:
                chain.commit(*control(chain.latest(), name=clean), Step.BRANCH_NAME)
                names = {PREFIX + was: None, PREFIX + clean: renamed}
                self._refs.change_many(refs, names, Step.BRANCH_RENAME)
                return renamed
            except (HeadMoved, CommitInDoubt) as error:
                if self._read_back(ref.incarnation, error).get(clean) == renamed:
                    return renamed  # it had landed after all
                retry.lose(error)

    # -- rehearsals --------------------------------------------------------------------------------

    def check_free(self, name: str) -> str:
        """Return a name as it would be stored, if a branch could be given it."""
        clean = check_free_name(name)
        self._check_free(self._refs.latest(), clean)
        return clean

    def check_deletable(self, name: str) -> None:
        """Raise what deleting a branch would raise."""
        clean, refs = check_free_name(name), self._refs.latest()
        ref = refs.get(clean)
        if ref is None or self._gone(ref):
            raise no_such_branch(clean)
        self._check_unused(refs, ref)

    # -- the steps ---------------------------------------------------------------------------------

    def _change(self, name: str, decide: Callable[[RefsState], BranchRef | None], step: Step) -> RefsState:
        """Decide on the registry and publish the decision; None means that there is nothing to do."""
        refs, fresh = self._refs.known(), False
        retry = ControlRetry(f"changing branch {name!r}", name, self._clock)
        while True:
            try:
                decision = decide(refs)
            except (GraphError, _Swept):
                if fresh:
                    raise
                decision = None
            if decision is None and not fresh:
                refs, fresh = self._refs.latest(), True  # only a change may rest on an old list
                continue
            if decision is None:
                return refs
            try:
                return self._refs.change(refs, name, decision, step)
            except (HeadMoved, CommitInDoubt) as error:
                refs, fresh = self._read_back(decision.incarnation, error), True
                if refs.get(name) == decision:
                    return refs  # it had landed after all
                retry.lose(error)

    def _tombstone(self, name: str, chain: Chain, mine: str) -> bool:
        """Mark a chain as deleted; say whether it was this call that did it."""
        state = chain.known or chain.latest()
        retry = ControlRetry("deleting a branch", name, self._clock)
        while True:
            if state.tombstone is not None:
                return state.tombstone == mine  # ours, when the reply was lost but the mark landed
            try:
                chain.commit(*control(state, tombstone=mine), Step.BRANCH_TOMBSTONE)
                return True
            except (HeadMoved, CommitInDoubt) as error:
                state = chain.latest()
                if state.tombstone is None:
                    retry.lose(error)

    def _unregister(self, name: str, incarnation: str) -> None:
        refs = self._refs.known()
        retry = ControlRetry(f"removing the name {name!r}", name, self._clock)
        while True:
            ref = refs.get(name)
            if ref is None or ref.incarnation != incarnation:
                return
            try:
                self._refs.change(refs, name, None, Step.BRANCH_UNREGISTER)
                return
            except (HeadMoved, CommitInDoubt) as error:
                refs = self._refs.latest()
                retry.lose(error)

    def _read_back(self, incarnation: str, error: HeadMoved | CommitInDoubt) -> RefsState:
        try:
            return self._refs.latest()
        except GraphError as unreadable:
            if isinstance(error, HeadMoved):
                raise
            raise OutcomeUnknown(incarnation, branch="(branch registry)") from (error.__cause__ or unreadable)

    def _descendants(self, refs: RefsState, incarnation: str) -> tuple[str, ...]:
        """Return the names of all live branches forked from a chain, directly or through others."""
        names: list[str] = []
        for ref in refs.branches:
            if ref.parent == incarnation and not self._gone(ref):
                names += [ref.name, *self._descendants(refs, ref.incarnation)]
        return tuple(sorted(names))

    def _check_unused(self, refs: RefsState, ref: BranchRef) -> None:
        """Refuse to delete a branch that other names depend on."""
        children = self._descendants(refs, ref.incarnation)
        if children:
            raise BranchHasDescendants(
                f"branch {ref.name!r} has branches forked from it: {', '.join(children)}",
                remedy="Delete those first",
                branch=ref.name,
                descendants=list(children),
            )
        tags = [tag.name for tag in refs.tags if tag.incarnation == ref.incarnation]
        if tags:
            raise BranchHasTags(
                f"branch {ref.name!r} holds commits that are tagged: {', '.join(tags)}",
                remedy="Delete those tags first",
                branch=ref.name,
                tags=tags,
            )

    def _check_free(self, refs: RefsState, name: str) -> None:
        """Refuse a name that a branch or a tag has."""
        ref = refs.get(name)
        if ref is not None and not self._gone(ref):
            raise BranchExists(
                f"there is already a branch {name!r}", remedy="Choose another name", branch=name
            )
        if refs.tag(name) is not None:
            raise TagExists(f"there is already a tag {name!r}", remedy="Choose another name", tag=name)

    def _taken(self, refs: RefsState, name: str) -> bool:
        return refs.get(name) is not None or refs.tag(name) is not None

    def _gone(self, ref: BranchRef) -> bool:
        """Say whether a branch is deleted though its name is still registered (only while `deleting`)."""
        return ref.deleting and self.chain(ref.incarnation).latest().tombstone is not None

    def _check_source(self, refs: RefsState, name: str, incarnation: str) -> None:
        if incarnation == MAIN:
            return
        ref = refs.get(check_name(name))
        if ref is None or ref.incarnation != incarnation:
            raise no_such_branch(name)
        if ref.deleting:
            raise BranchNotFound(
                f"branch {name!r} is being deleted",
                remedy="If that delete was interrupted, delete the branch again to finish it",
                branch=name,
            )


class _Swept(Exception):
    """A sweep was announced since the registry was read: begin again."""


def _check_origin(source: str, chain: Chain, origin: ManifestState, head: ManifestState) -> None:
    """Refuse to fork from a version that is no longer stored whole."""
    if not head.keeps(origin.version):
        raise HistoryReclaimed(
            f"version {origin.version} of {source!r} is below the retention floor, {head.floor}",
            remedy="Fork from a newer commit",
            branch=source,
            floor=head.floor,
        )
    check_whole(chain, origin)


def _is_live(state: ManifestState, name: str) -> bool:
    """Say whether a chain is that of a branch of this name: neither deleted nor being renamed."""
    return state.tombstone is None and state.name in (None, name)


def no_such_branch(name: str) -> BranchNotFound:
    """Return the error about a name that no live branch has."""
    return BranchNotFound(
        f"there is no branch {name!r}", remedy="List the branches to see their names", branch=name
    )


def no_such_commit(commit_id: str) -> CommitNotFound:
    """Return the error about a commit that no live branch holds."""
    return CommitNotFound(
        f"no live branch holds a commit {commit_id!r}",
        remedy="List the commits of the branch to see their ids",
        graph_commit_id=commit_id,
    )
