"""Branches: `graph.branches`: create, list, rename, delete.

Names and heads as people see them; the protocol is in storage.manifest.branches.

A list is one read of the registry. Heads and counts are read only when asked for: a request or two for each
branch, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import ClassVar

from omnigraph.base.arguments import checked_methods
from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.errors import BranchNotFound
from omnigraph.base.times import At
from omnigraph.engine.access import Action
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.engine.options import View
from omnigraph.storage.cost import measured
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.manifest.refs import BranchRef, check_free_name
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


@dataclass(frozen=True, slots=True)
class Branch(JsonFields):
    """A branch; the last three are None where they were not asked for.

    `ahead` are its own commits since the fork, `behind` those of its parent since then, along first parents.
    """

    json_names: ClassVar = {"created_us": "created_at", "head": "graph_commit_id"}
    json_if_known = frozenset({"head", "ahead", "behind"})

    name: str
    created_us: int
    parent: str | None = None  # the branch it was forked from; None for main
    head: str | None = None
    ahead: int | None = None
    behind: int | None = None


@checked_methods
class GraphBranches:
    """The branches of one graph."""

    def __init__(self, store: GraphStore, view: View) -> None:
        self._store = store
        self._view = view

    def create(
        self, name: str, from_: str | None = None, *, at: At | None = None, dry_run: bool = False
    ) -> Branch:
        """Fork a branch from another one's head, or from any state that `at` names."""
        asked, (from_, at) = at, self._view.named(from_, at)
        self._view.allow(Action.BRANCH_CREATE, from_, name)
        with measured():
            if asked is not None:
                named = from_
                from_, at = self._view.read(from_, asked)
                if from_ != named:  # a state of another branch than the one that was named
                    self._view.allow(Action.BRANCH_CREATE, from_, name)
            origin = None if at is None and not dry_run else resolve(self._store, from_, at)
            if dry_run:
                assert origin is not None
                clean = self._store.branches.check_free(name)
                return Branch(clean, self._store.clock.now_us(), origin.branch, origin.commit_id)
            source, state = (from_, None) if origin is None else (origin.branch, origin.state)
            ref = self._store.branches.create(name, source, state)
            known = self._store.branches.chain(ref.incarnation).known
            return self._shown(ref, {}, known)

    def list(self, *, counts: bool = False) -> tuple[Branch, ...]:
        """Return main and then the other branches by name; with `counts` also heads, ahead and behind."""
        self._view.allow(Action.READ, MAIN)
        with measured():
            refs = self._store.branches.list()
            names = {ref.incarnation: ref.name for ref in refs}
            main = self._main()
            if not counts:
                return (main, *(self._shown(ref, names) for ref in refs))
            heads = self._store.history.heads([MAIN, *names])
            return (
                self._main(heads[MAIN]),
                *(
                    self._counted(ref, names, heads) if self._reads(ref.name) else self._shown(ref, names)
                    for ref in refs
                ),
            )

    def get(self, name: str) -> Branch:
        """Return one branch with its head and counts."""
        self._view.allow(Action.READ, name)
        return self._get(name)

    def _get(self, name: str) -> Branch:
        with measured():
            chain, state = self._store.branches.head(name)
            if chain.incarnation == MAIN:
                return self._main(state)
            refs = self._store.branches.list()
            ref = next((ref for ref in refs if ref.incarnation == chain.incarnation), None)
            if ref is None:
                return self._get(name)  # deleted just now: there is none of this name, or another one
            heads = {chain.incarnation: state, **self._store.history.heads([ref.parent])}
            return self._counted(ref, {other.incarnation: other.name for other in refs}, heads)

    def rename(self, old: str, new: str, *, dry_run: bool = False) -> Branch:
        """Give a branch another name; whoever uses the old one gets `branch_not_found` from then on."""
        self._view.allow(Action.BRANCH_DELETE, target=old)
        self._view.allow(Action.BRANCH_CREATE, old, new)
        with measured():
            if dry_run:
                branch = self._get(check_free_name(old))
                return Branch(
                    self._store.branches.check_free(new), branch.created_us, branch.parent, branch.head
                )
            return self._shown(self._store.branches.rename(old, new), {})

    def delete(self, name: str, *, dry_run: bool = False) -> Branch:
        """Delete a branch that nothing was forked from and nothing of which is tagged; return what it was."""
        self._view.allow(Action.BRANCH_DELETE, target=name)
        with measured():
            self._store.branches.check_deletable(name)
            branch = self._get(name)
            if not dry_run:
                self._store.branches.delete(name)
            return branch

    def _reads(self, name: str) -> bool:
        access = self._view.access
        return access is None or access.allows(Action.READ, branch=name)

    def _main(self, head: ManifestState | None = None) -> Branch:
        known = head or self._store.branches.chain(MAIN).known or self._store.snapshot().state
        return Branch(MAIN, known.line.created_us, None, None if head is None else head.head)

    def _shown(self, ref: BranchRef, names: Mapping[str, str], head: ManifestState | None = None) -> Branch:
        parent = names.get(ref.parent) or self._store.branches.name_of(ref.parent)
        return Branch(ref.name, ref.created_us, parent, None if head is None else head.head)

    def _counted(
        self, ref: BranchRef, names: Mapping[str, str], heads: Mapping[str, ManifestState]
    ) -> Branch:
        history, head = self._store.history, heads[ref.incarnation]
        shown = self._shown(ref, names, head)
        ahead = history.count_since(head, 1)
        behind = history.count_since(heads[ref.parent], ref.fork_version)
        return Branch(shown.name, shown.created_us, shown.parent, shown.head, ahead, behind)


def heads(store: GraphStore) -> Iterator[PinnedSnapshot]:
    """Yield the newest state of every branch."""
    for name in (MAIN, *(ref.name for ref in store.branches.list())):
        with suppress(BranchNotFound):  # deleted meanwhile
            yield store.snapshot(name)
