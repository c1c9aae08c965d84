"""Moments: which state of the graph an `at` means, for every read.

Room    engine.history. The spelling is told apart in base.moment; here it is looked up.
Given   a branch and `at`: a commit id, a version, a tag, `name~n`, a time, or nothing for the head.
Gives   a snapshot. Its branch is the one that holds the state, which for an older state of a branch is the
        branch that it was forked from. With it, for reads, the schema to read it by (catalog/past.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from omnigraph.base.errors import (
    BadBranchName,
    BadMoment,
    BadTagName,
    BranchNotFound,
    GraphError,
    HistoryReclaimed,
    TableNotFound,
    TagNotFound,
)
from omnigraph.base.times import (
    FORMS,
    AncestorAt,
    At,
    CommitAt,
    Moment,
    TagAt,
    TimeAt,
    VersionAt,
    read_moment,
)
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import Catalogs
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot


def resolve(store: GraphStore, branch: str = "main", at: At | None = None) -> PinnedSnapshot:
    """Return the state that `at` names; the head of the branch if it names none."""
    if at is None:
        return store.snapshot(branch)
    return _find(store, branch, read_moment(at))


def read_state(
    store: GraphStore, catalogs: Catalogs, branch: str = "main", at: At | None = None
) -> tuple[PinnedSnapshot, Catalog]:
    """Return a state and the schema that every read of it uses: names of today, types of the state."""
    snapshot = resolve(store, branch, at)
    if at is None:
        return snapshot, catalogs.get(snapshot.schema)
    head = store.snapshot(snapshot.branch)
    return snapshot, catalogs.past(head.schema, snapshot.schema)


def check_existed(snapshot: PinnedSnapshot, declared: TableType) -> None:
    """Refuse to read a type that a state does not have."""
    if declared.table_id not in snapshot.state.pins:
        raise TableNotFound(
            f"type {declared.name!r} did not exist at commit {snapshot.commit_id}",
            remedy="Choose a later state",
            name=declared.name,
        )


def _find(store: GraphStore, branch: str, moment: Moment) -> PinnedSnapshot:
    match moment:
        case VersionAt(version):
            return store.snapshot(branch, at=version)
        case CommitAt(commit_id):
            return PinnedSnapshot(*store.history.get(commit_id, first=branch))
        case TagAt(name):
            return _tagged(store, name)
        case TimeAt(time_us):
            head = store.snapshot(branch)
            return _held(store, head, store.history.at_time(head.state, time_us))
        case AncestorAt(name, steps):
            start = _named(store, name)
            return _held(store, start, store.history.ancestor(start.state, steps))
        case _:
            assert_never(moment)


def _tagged(store: GraphStore, name: str) -> PinnedSnapshot:
    try:
        tag = store.tags.get(name)
    except BadTagName as error:
        raise BadMoment(f"{name!r} names no state", remedy=f"Give {FORMS}", at=name) from error
    except TagNotFound as error:
        raise TagNotFound(
            f"there is no tag {name!r}, and it names a state in no other way",
            remedy=f"Give {FORMS}",
            tag=name,
        ) from error
    holder = store.branches.name_of(tag.incarnation)
    return PinnedSnapshot(holder, store.history.published(tag.incarnation, tag.version, tag.commit_id))


def _named(store: GraphStore, name: str) -> PinnedSnapshot:
    """Return the head of a branch, or the commit of a tag."""
    try:
        return store.snapshot(name)
    except BadBranchName as error:
        raise BadMoment(
            f"{name!r} is not the name of a branch or tag", remedy=f"Give {FORMS}", at=name
        ) from error
    except BranchNotFound as missing:
        try:
            return _tagged(store, name)
        except GraphError:
            raise missing from None


def _held(store: GraphStore, near: PinnedSnapshot, state: ManifestState) -> PinnedSnapshot:
    """Return a state as a snapshot of the branch that holds it."""
    if state.line.incarnation == near.state.line.incarnation:
        return PinnedSnapshot(near.branch, state)
    return PinnedSnapshot(store.branches.name_of(state.line.incarnation), state)


# -- line ----------------------------------------------------------------------------------------
#
# The commits that led to a state, oldest first, each with the state before it.
# The counterpart of storage/history.py, which goes back in time: a feed goes forward,
# from a place that it remembers. A branch's line is its parent's up to the fork, then its own chain.
# Rule    a commit can be told only if the state before it is stored. Where that is gone there is a gap,
# unless
# nothing but control writes is missing.


Place = tuple[str, int]  # a chain, and the version that a commit was published as


class Gap(HistoryReclaimed):
    """A commit that cannot be told: its id, if that is still known."""

    def __init__(self, commit_id: str | None) -> None:
        super().__init__("the state before a commit is no longer stored", commit=commit_id)
        self.commit_id = commit_id


@dataclass(frozen=True, eq=False)
class _Segment:
    """The part of one chain that belongs to a line."""

    chain: Chain
    last: ManifestState
    floor: int

    @property
    def forked(self) -> bool:
        return self.last.line.parent is not None

    def at(self, version: int) -> ManifestState:
        return self.last if version == self.last.version else self.chain.at(version)


class CommitLine:
    """The first parents of a state."""

    def __init__(self, store: GraphStore, head: ManifestState) -> None:
        self._segments = tuple(reversed(list(_segments(store, head))))
        self._cut = self._segments[0].forked  # what the oldest chain was forked from is gone

    def holds(self, place: Place, commit_id: str) -> bool:
        """Say whether a commit is on the line; one that is too old to be looked at is taken at its word."""
        for segment in self._segments:
            if segment.chain.incarnation == place[0]:
                if not 1 <= place[1] <= segment.last.version:
                    return False
                return place[1] < segment.floor or segment.at(place[1]).head == commit_id
        return self._cut

    def after(self, place: Place | None) -> Iterator[tuple[ManifestState, ManifestState]]:
        """Yield commits after one, or after the first of all, each as the states before and after it."""
        chains = [segment.chain.incarnation for segment in self._segments]
        reached = place or (MAIN, 1)
        begin = chains.index(reached[0]) if reached[0] in chains else 0
        if reached[0] not in chains and self._segments[0].at(1).place != reached:
            raise Gap(None)
        for segment in self._segments[begin:]:
            here = segment.chain.incarnation
            version = reached[1] + 1 if reached[0] == here else 2
            version = _past_floor(segment, version, reached)
            for number in range(version, segment.last.version + 1):
                state = segment.at(number)
                if state.place == (here, number):  # else it is a control write, which repeats the head
                    yield segment.at(number - 1), state
                    reached = state.place


def _segments(store: GraphStore, head: ManifestState) -> Iterator[_Segment]:
    """Yield the parts of a line, newest first."""
    state = head
    while True:
        chain = store.branches.chain(state.line.incarnation)
        floor = max(chain.latest().floor, state.floor)
        yield _Segment(chain, state, floor)
        if state.line.parent is None or state.line.fork_version is None:
            return
        parent = store.branches.chain(state.line.parent)
        try:
            state = parent.at(state.line.fork_version)
        except HistoryReclaimed:
            return  # what was forked from is gone: the line begins here


def _past_floor(segment: _Segment, version: int, reached: Place) -> int:
    """Return where to go on: behind the floor, if no commit is missed by that."""
    if version > segment.floor:
        return version
    floor = min(segment.floor, segment.last.version)
    kept = segment.at(floor)
    if kept.place == reached:
        return floor + 1
    raise Gap(_first_from(segment, version, kept))


def _first_from(segment: _Segment, version: int, kept: ManifestState) -> str | None:
    """Return the first commit from a version on, as far as what is stored still names it."""
    known = [(at, commit) for at, commit in kept.recent if at >= version]
    return min(known)[1] if known else None
