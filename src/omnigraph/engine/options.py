"""Options: what calls have in common, as values that are handed down whole.

The façade has typed keyword arguments; below it a write takes one `WriteOptions`, a merge one
`MergeOptions` besides, and whoever reads asks its `View` which state is meant.
"""

from __future__ import annotations

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import PastState
from omnigraph.base.times import At
from omnigraph.engine.merge.conflicts import Granularity, Resolutions, Take
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.publish import Intent


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
    """Which state a call means that names none: the head of a branch, or a commit of the past."""

    branch: str = MAIN
    commit_id: str | None = None

    def read(self, branch: str | None, at: At | None) -> tuple[str, At | None]:
        """Return the branch and moment to read; what the call names itself comes first."""
        if branch is None and at is None:
            return self.branch, self.commit_id
        return self.branch if branch is None else branch, at

    def end(self, named: At | None) -> At:
        """Return the state that a diff leads to."""
        return named if named is not None else self.commit_id or self.branch

    def line(self, branch: str | None) -> str:
        """Return the branch whose history is asked for."""
        return self.branch if branch is None else branch

    def write(self, branch: str | None) -> str:
        """Return the branch to write; the past cannot be written."""
        if self.commit_id is not None:
            raise self.refusal()
        return self.branch if branch is None else branch

    def refusal(self) -> PastState:
        """Return why a view of the past refuses a write."""
        return PastState(
            f"this is a view of the past, of commit {self.commit_id}, and only reads",
            remedy=f"Write to a branch: graph.branch({self.branch!r}); or fork one from here: "
            "branches.create(name)",
            graph_commit_id=self.commit_id,
        )
