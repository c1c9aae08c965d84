"""Options: what calls have in common, as values that are handed down whole.

The façade has typed keyword arguments; below it a write takes one `WriteOptions`, a merge one
`MergeOptions` besides, and whoever reads asks its `View` which state is meant.
"""

from __future__ import annotations

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, PastState
from omnigraph.base.times import At
from omnigraph.engine.access import Access, Action
from omnigraph.engine.history.resolve_at import full_commit_id, side
from omnigraph.engine.merge.conflicts import Granularity, Resolutions, Take
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where a write goes, under which condition, and what its commit says of it."""

    branch: str = MAIN
    if_commit: str | None = None
    idempotency_key: str | None = None  # a rehearsal claims none
    message: str | None = None
    actor: str | None = None
    dry_run: bool = False

    @property
    def intent(self) -> Intent:
        """What the publisher is told."""
        return Intent(self.actor, self.message, self.if_commit)


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """How a merge decides, and what becomes of the branch that was merged."""

    resolutions: Resolutions | None = None
    strategy: Take | None = None
    granularity: Granularity = "property"
    delete_branch: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Which state a call means that names none: the head of a branch, or a commit of the past.

    Whatever a call of the façade names passes here, so here is asked whether it may (access.py): nothing on
    a graph without a guard.
    """

    branch: str = MAIN
    commit_id: str | None = None
    access: Access | None = None

    # -- what is meant -----------------------------------------------------------------------------

    def named(self, branch: str | None, at: At | None) -> tuple[str, At | None]:
        """Return the branch and moment that a call means; what it names itself comes first."""
        if branch is None and at is None:
            return self.branch, self.commit_id
        return self.branch if branch is None else branch, at

    def end(self, named: At | None) -> At:
        """Return the state that a diff leads to."""
        return named if named is not None else self.commit_id or self.branch

    def line_named(self, branch: str | None) -> str:
        """Return the branch whose history is meant."""
        return self.branch if branch is None else branch

    def writable(self, branch: str | None) -> str:
        """Return the branch to write; the past cannot be written."""
        if self.commit_id is not None:
            raise self.refusal()
        return self.branch if branch is None else branch

    def by(self, actor: str | None) -> str | None:
        """Return who writes: a graph that acts for somebody writes for nobody else."""
        if self.access is None:
            return actor
        if actor not in (None, self.access.actor):
            raise InvalidRequest(
                f"this graph acts for {self.access.actor!r}, and cannot write as {actor!r}",
                remedy="Leave out the actor",
                actor=actor,
            )
        return self.access.actor

    def refusal(self) -> PastState:
        """Return why a view of the past refuses a write."""
        return PastState(
            f"this is a view of the past, of commit {self.commit_id}, and only reads",
            remedy=f"Write to a branch: graph.branch({self.branch!r}); or fork one from here: "
            "branches.create(name)",
            graph_commit_id=self.commit_id,
        )

    # -- whether it may ----------------------------------------------------------------------------

    def allow(self, action: Action, branch: str | None = None, target: str | None = None) -> None:
        """Raise PermissionDenied unless the action is allowed."""
        if self.access is not None:
            self.access.check(action, branch=branch, target=target)

    def read(self, branch: str | None, at: At | None, action: Action = Action.READ) -> tuple[str, At | None]:
        """Return the branch and moment to read, if they may be read."""
        named = self.named(branch, at)
        if self.access is None:
            return named
        if at is None:  # the state that a view is bound to was asked for when it was bound
            self.access.check(action, branch=named[0])
            return named
        return self.access.state(action, named[0], at)

    def line(self, branch: str | None, action: Action = Action.READ) -> str:
        """Return the branch whose history is asked for, if it may be read."""
        named = self.line_named(branch)
        self.allow(action, named)
        return named

    def write(self, branch: str | None) -> str:
        """Return the branch to write, if it may be changed."""
        target = self.writable(branch)
        self.allow(Action.CHANGE, target)
        return target

    def administer(self, branch: str | None) -> str:
        """Return the branch to maintain, if this may be done at all."""
        self.allow(Action.ADMIN)
        return self.writable(branch)

    def merge(self, source: str, into: str | None, *, preview: bool, delete_branch: bool) -> str:
        """Return the branch to merge into, if it may be done; a preview reads both."""
        target = self.writable(into)
        if preview:
            self.allow(Action.READ, source)
            self.allow(Action.READ, target)
        else:
            self.allow(Action.BRANCH_MERGE, source, target)
        if delete_branch:
            self.allow(Action.BRANCH_DELETE, target=source)
        return target

    def side(self, store: GraphStore, named: At | None) -> PinnedSnapshot:
        """Return one end of a diff, if it may be read; none that is named is where this graph is bound to."""
        if named is None and self.commit_id is None:
            return store.snapshot(self.line(None))
        if named is None or self.access is None:
            at = self.commit_id if named is None else named
            assert at is not None
            self.allow(Action.READ, self.branch)
            return side(store, at, self.branch)
        return self.access.end(self.branch, named)

    def write_options(
        self,
        store: GraphStore,
        target: str,
        if_commit: str | None,
        idempotency_key: str | None,
        message: str | None,
        actor: str | None,
        *,
        dry_run: bool,
    ) -> WriteOptions:
        """Return the options of a write to a branch."""
        by = self.by(actor)
        expected = None if if_commit is None else self.full_id(store, target, if_commit)
        return WriteOptions(target, expected, None if dry_run else idempotency_key, message, by, dry_run)

    def full_id(self, store: GraphStore, branch: str, text: str) -> str:
        """Return the id of the commit that a text means; what means none comes back as it is."""
        return full_commit_id(store, text) if self.access is None else self.access.full_id(branch, text)

    def readable_commit(self, store: GraphStore, branch: str, text: str) -> str:
        """Return the id of the commit that a text means, if its branch may be read."""
        if self.access is None:
            return full_commit_id(store, text)
        return self.access.readable_commit(branch, text)
