"""Tags: names for commits, which never move.

A tag is one key of the registry: made, read and removed by the same compare-and-swap as the names of
branches, so no name is ever both.

A tag names the chain and the version that its commit was published on. While it does, the branch of that
chain cannot be deleted, and retention keeps the version, so what is tagged can be read.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.base.errors import (
    BadBranchName,
    BadTagName,
    BranchExists,
    BranchNotFound,
    GraphError,
    HistoryReclaimed,
    OutcomeUnknown,
    TagExists,
    TagNotFound,
)
from omnigraph.base.ids import Clock
from omnigraph.base.times import FORMS, TagAt, read_moment
from omnigraph.storage.durability import Step
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import CommitInDoubt, ControlRetry, HeadMoved
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.manifest.refs import TAG_PREFIX, Refs, RefsState, TagRef, check_name


class Tags:
    """All tags of one graph."""

    def __init__(self, refs: Refs, branches: Branches, clock: Clock) -> None:
        self._refs = refs
        self._branches = branches
        self._clock = clock

    def list(self) -> tuple[TagRef, ...]:
        """Return all tags, by name."""
        return self._refs.latest().tags

    def get(self, name: str) -> TagRef:
        """Return the tag of a name."""
        clean = _check(name)
        tag = self._refs.latest().tag(clean)
        if tag is None:
            raise _missing(clean)
        return tag

    def create(
        self, name: str, state: ManifestState, *, actor: str | None = None, message: str | None = None
    ) -> TagRef:
        """Name the commit of a state."""
        tag = self._wanted(name, state, actor, message)

        def decide(refs: RefsState) -> TagRef:
            self._check(refs, tag)
            self._check_kept(tag)  # after the registry was read: a sweep that comes later moves it
            return tag

        self._change(tag.name, decide, Step.TAG_CREATE)
        return tag

    def rehearse(self, name: str, state: ManifestState) -> None:
        """Raise what naming the commit of a state would raise."""
        self._check(self._refs.latest(), self._wanted(name, state, None, None))

    def _wanted(self, name: str, state: ManifestState, actor: str | None, message: str | None) -> TagRef:
        incarnation, version = state.position
        now = self._clock.now_us()
        return TagRef(_check_free(name), state.head, incarnation, version, now, actor, message)

    def _check(self, refs: RefsState, tag: TagRef) -> None:
        """Refuse a name that is taken, and a commit that is going."""
        clean = tag.name
        if refs.tag(clean) is not None:
            raise TagExists(
                f"there is already a tag {clean!r}",
                remedy="Tags do not move: choose another name",
                tag=clean,
            )
        if any(ref.name == clean for ref in self._branches.live(refs)):
            raise BranchExists(
                f"there is a branch {clean!r}", remedy="Choose another name for the tag", branch=clean
            )
        _check_held(refs, tag)

    def _check_kept(self, tag: TagRef) -> None:
        """Refuse a commit that retention has given up."""
        chain = self._branches.chain(tag.incarnation)
        head = chain.latest()
        if not head.keeps(tag.version) and chain.at(head.floor).head != tag.commit_id:
            raise HistoryReclaimed(
                f"commit {tag.commit_id} is below the retention floor, version {head.floor}",
                remedy="Tag a newer commit",
                commit=tag.commit_id,
                floor=head.floor,
            )

    def delete(self, name: str) -> TagRef:
        """Take a name away; the commit stays. Returns what the tag was."""
        clean = _check(name)
        deleted: list[TagRef] = []

        def decide(refs: RefsState) -> None:
            tag = refs.tag(clean)
            if tag is None:
                raise _missing(clean)
            deleted[:] = [tag]

        self._change(clean, decide, Step.TAG_DELETE)
        return deleted[0]

    def _change(self, name: str, decide: Callable[[RefsState], TagRef | None], step: Step) -> None:
        """Decide on the newest registry and publish the decision; None removes the tag."""
        retry = ControlRetry(f"changing tag {name!r}", MAIN, self._clock)
        refs = self._refs.latest()
        while True:
            decision = decide(refs)
            try:
                self._refs.change_many(refs, {TAG_PREFIX + name: decision}, step)
                return
            except (HeadMoved, CommitInDoubt) as error:
                refs = self._read_back(name, error)
                if isinstance(error, CommitInDoubt) and refs.tag(name) == decision:
                    return  # it had landed after all
                retry.lose(error)

    def _read_back(self, name: str, error: HeadMoved | CommitInDoubt) -> RefsState:
        try:
            return self._refs.latest()
        except GraphError as unreadable:
            if isinstance(error, HeadMoved):
                raise
            raise OutcomeUnknown(f"tag {name}", branch="(registry)") from (error.__cause__ or unreadable)


def _check(name: str) -> str:
    try:
        return check_name(name)
    except BadBranchName as error:
        reason = error.fields["reason"]
        raise BadTagName(f"bad tag name {name!r}: {reason}", name=name, reason=reason) from error


def _check_free(name: str) -> str:
    """Return a name that a tag may have: by the rules of branches, and no other way to name a commit."""
    clean = _check(name)
    reason = None
    if clean == MAIN or clean.startswith("__"):
        reason = "it is reserved"
    elif not isinstance(read_moment(clean), TagAt):
        reason = "it reads as another way to name a commit"
    if reason is not None:
        raise BadTagName(
            f"bad tag name {clean!r}: {reason}",
            remedy=f"A state is named by {FORMS}; choose a name that can only be a tag",
            name=clean,
            reason=reason,
        )
    return clean


def _check_held(refs: RefsState, tag: TagRef) -> None:
    """Refuse to tag a commit whose branch is gone, or on its way."""
    holder = refs.branch_of(tag.incarnation)
    if tag.incarnation != MAIN and (holder is None or holder.deleting):
        raise BranchNotFound(
            f"the branch that holds commit {tag.commit_id} is deleted, or being deleted",
            remedy="Tag a commit of a live branch",
            graph_commit_id=tag.commit_id,
        )


def _missing(name: str) -> TagNotFound:
    return TagNotFound(f"there is no tag {name!r}", remedy="List the tags to see their names", tag=name)
