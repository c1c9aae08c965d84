"""History: the commits that led to a state: newest first, oldest first, or a single one by id, age or time.

A branch's line is the commits of its own chain, then those of its parent's chain up to the fork, and so on to
the first commit of main. `_segments` walks it, and all that is here goes by that walk. Control writes are no
commits.

- `History` goes back in time. Every state names the last RECENT commits of its chain, so it reads one version
  for each RECENT commits; a page reads its own versions besides, side by side. A search by time is binary.
- `CommitLine` goes forward from a position that a feed remembers, with the state before each commit.
- `merge_bases` needs no walk: a state says how far it has taken in every chain.

What lies below a retention floor is `history_reclaimed`, what never was is `commit_not_found`. A listing ends
at the floor. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import overload

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import CommitNotFound, HistoryReclaimed, InvalidRequest
from omnigraph.base.ids import minted_us
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import MAIN, RECENT, ChainPosition, CommitRecord, ManifestState

LIMIT = 1000  # commits of one page at most


# -- the walk ------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Segment:
    """The part of one chain that belongs to a line: everything up to a version."""

    chain: Chain
    version: int
    floor: int = 0  # the oldest version that the chain still promises, where that was asked

    @cached_property
    def last(self) -> ManifestState:
        """The newest state of the part; raises when it is no longer stored."""
        return self.chain.at(self.version)

    def at(self, version: int) -> ManifestState:
        """Return the state of a version of the chain."""
        return self.last if version == self.version else self.chain.at(version)


def _segments(branches: Branches, head: ManifestState) -> Iterator[_Segment]:
    """Yield the parts of chains that led to a state, newest first; their states are read when used."""
    segment = _Segment(branches.chain(head.line.incarnation), head.version)
    segment.last = head
    while True:
        yield segment
        line = segment.last.line
        if line.parent is None or line.fork_version is None:
            return
        segment = _Segment(branches.chain(line.parent), line.fork_version)


# -- back in time --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """Some commits of a branch, newest first; `next` is where the following page starts, if there is more."""

    commits: tuple[CommitRecord, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[CommitRecord]:
        return iter(self.commits)

    def __len__(self) -> int:
        return len(self.commits)

    @overload
    def __getitem__(self, index: int) -> CommitRecord: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[CommitRecord, ...]: ...
    def __getitem__(self, index: int | slice) -> CommitRecord | tuple[CommitRecord, ...]:
        return self.commits[index]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A commit on the way back: its id, a version of a chain that has its record, and its own version."""

    commit_id: str
    chain: Chain
    version: int
    published_as: int


class History:
    """The past of one graph's branches."""

    def __init__(self, branches: Branches, pool: Executor) -> None:
        self._branches = branches
        self._pool = pool

    def page(self, head: ManifestState, *, limit: int = 50, before: str | None = None) -> Page:
        """Return the commits that led to a state, or those of them that came before one."""
        check_page(limit)
        start = head if before is None else self._on_line(head, before)
        skipped = 0 if before is None else 1  # a page starts after the commit that it is asked by
        entries = list(islice(self._until_floor(start), skipped, skipped + limit + 1))
        return self._read(head, entries, limit)

    def get(self, commit_id: str, first: str = MAIN) -> tuple[str, ManifestState]:
        """Return the branch and version that hold a commit, whichever live branch that is."""
        try:
            name, state = self._branches.find_commit(commit_id, first=first)
        except CommitNotFound:
            self._check_reclaimed(commit_id)
            raise
        return name, self._kept(state)

    def commits_like(self, prefix: str) -> list[str]:
        """Return the ids of the commits of all live branches that begin with a text, newest first."""
        ids: set[str] = set()
        for incarnation in (MAIN, *(ref.incarnation for ref in self._branches.list())):
            chain = self._branches.chain(incarnation)
            try:
                ids.update(entry.commit_id for entry in self._own(chain, chain.latest()))
            except HistoryReclaimed:
                continue  # up to the floor
        return sorted((commit_id for commit_id in ids if commit_id.startswith(prefix)), reverse=True)

    def published(self, incarnation: str, version: int, commit_id: str) -> ManifestState:
        """Return the state that a commit made, from the position it was published at."""
        chain = self._branches.chain(incarnation)
        head = chain.latest()
        if head.keeps(version):
            return chain.at(version)
        state = chain.at(head.floor)  # a control write may repeat a commit whose version is gone
        if state.head != commit_id:
            raise _reclaimed(head.floor)
        return state

    def ancestor(self, state: ManifestState, steps: int) -> ManifestState:
        """Return the state that a commit made, so many first parents back."""
        if steps == 0:
            return state
        entry = next(islice(self._walk(state), steps, None), None)
        if entry is None:
            raise CommitNotFound(
                f"commit {state.head} has fewer than {steps} commits before it",
                remedy="List the commits of the branch to see how far they go back",
                graph_commit_id=state.head,
            )
        return entry.chain.at(entry.version)

    def at_time(self, head: ManifestState, time_us: int) -> ManifestState:
        """Return the last state at a time, by the newest commit id that there was: it only ever rises."""
        oldest = head
        for segment in self._stored_segments(head):
            if minted_us(segment.last.newest_id) <= time_us:
                return self._kept(segment.last)
            chain = segment.chain
            low = max(1, self._floor(chain))
            if segment.version < low:  # a fork that is kept, and nothing before it
                raise _reclaimed(low)
            oldest = chain.at(low)
            if minted_us(oldest.newest_id) <= time_us:
                return _last_at(chain, low, segment.version, time_us)
            if low > 1:
                raise _reclaimed(low)
        raise CommitNotFound(
            f"the graph is younger than that: its first commit is of {_time(oldest)}",
            remedy="Choose a later time",
        )

    def heads(self, incarnations: Iterable[str]) -> dict[str, ManifestState]:
        """Return the newest state of several chains, read side by side."""
        chains = [self._branches.chain(incarnation) for incarnation in dict.fromkeys(incarnations)]
        states = self._pool.map(lambda chain: chain.latest(), chains)
        return {chain.incarnation: state for chain, state in zip(chains, states, strict=True)}

    def count_since(self, head: ManifestState, version: int) -> int:
        """Return how many commits a chain was given after a version, as far as its floor lets one see."""
        count = 0
        try:
            for entry in self._own(self._branches.chain(head.line.incarnation), head):
                if entry.published_as <= version:
                    return count
                count += 1
        except HistoryReclaimed:
            return count
        return count

    def own_commits(self, head: ManifestState) -> Iterator[tuple[int, str]]:
        """Yield the version and the id of each commit of a state's own chain, newest first, to the floor."""
        try:
            for entry in self._own(self._branches.chain(head.line.incarnation), head):
                if entry.version < head.floor:
                    return
                yield entry.version, entry.commit_id
        except HistoryReclaimed:
            return

    def line(self, head: ManifestState) -> CommitLine:
        """Return the commits that led to a state, to be read forward."""
        return CommitLine(self._branches, head)

    # -- walking -----------------------------------------------------------------------------------

    def _stored_segments(self, head: ManifestState) -> Iterator[_Segment]:
        """Yield the parts of a line, newest first; raise where a fork is below the floor of its parent."""
        for segment in _segments(self._branches, head):
            forked_from = segment.chain.incarnation != head.line.incarnation
            floor = self._floor(segment.chain)
            if forked_from and not segment.chain.keeps(segment.version):
                raise _reclaimed(floor)
            yield segment

    def _walk(self, state: ManifestState) -> Iterator[_Entry]:
        """Yield the commits from a state's own on, newest first; raise where the floor is reached."""
        segments = self._stored_segments(state)
        segment = next(segments)
        while True:
            yield from self._own(segment.chain, segment.last)
            try:
                following = next(segments, None)
            except HistoryReclaimed:
                first = segment.chain.at(1)  # the fork itself has the record of the commit it was made at
                yield _Entry(first.head, segment.chain, 1, 1)
                raise
            if following is None:
                return
            segment = following

    def _own(self, chain: Chain, state: ManifestState) -> Iterator[_Entry]:
        """Yield the commits of one chain up to a state."""
        floor, recent = self._floor(chain), state.recent
        while recent:
            for version, commit_id in recent:
                if version >= floor or chain.keeps(version):
                    yield _Entry(commit_id, chain, version, version)
                    continue
                kept = chain.at(floor)  # a control write may repeat a commit whose own version is gone
                if kept.head == commit_id:
                    yield _Entry(commit_id, chain, floor, version)
                raise _reclaimed(floor)
            if len(recent) < RECENT - 1:
                return  # it reaches back to the start of the chain
            recent = chain.at(recent[-1][0]).recent[1:]

    def _until_floor(self, state: ManifestState) -> Iterator[_Entry]:
        try:
            yield from self._walk(state)
        except HistoryReclaimed:
            return

    def _read(self, head: ManifestState, entries: list[_Entry], limit: int) -> Page:
        shown = entries[:limit]

        def record(entry: _Entry) -> CommitRecord:
            here = entry.chain.incarnation == head.line.incarnation and entry.version == head.version
            return head.commit if here else entry.chain.at(entry.version).commit

        commits = tuple(self._pool.map(record, shown))
        return Page(commits, commits[-1].id if len(entries) > limit else None)

    def _on_line(self, head: ManifestState, commit_id: str) -> ManifestState:
        """Return the version of a commit that led to a state."""
        for segment in self._stored_segments(head):
            state = segment.chain.find(commit_id, segment.last)
            if state is not None:
                return self._kept(state)
        raise CommitNotFound(
            f"commit {commit_id!r} did not lead to commit {head.head}",
            remedy="List the commits of the branch to see their ids",
            graph_commit_id=commit_id,
        )

    # -- floors ------------------------------------------------------------------------------------

    def _floor(self, chain: Chain) -> int:
        return (chain.known or chain.latest()).floor

    def _kept(self, state: ManifestState) -> ManifestState:
        """Return a state that is not below the floor of its chain; a control write may repeat its commit."""
        chain = self._branches.chain(state.line.incarnation)
        floor = self._floor(chain)
        if chain.keeps(state.version):
            return state
        repeated = chain.at(floor)
        if repeated.head != state.head:
            raise _reclaimed(floor)
        return repeated

    def _check_reclaimed(self, commit_id: str) -> None:
        """Raise if a commit that was not found is one that a floor has passed."""
        for incarnation in (MAIN, *(ref.incarnation for ref in self._branches.list())):
            chain = self._branches.chain(incarnation)
            head = chain.known or chain.latest()
            if head.floor <= 1 or commit_id > chain.at(head.floor).newest_id:
                continue
            try:
                state = chain.find(commit_id, replace(head, floor=0, kept=()))
            except HistoryReclaimed as error:  # versions that would tell are deleted: it may have been one
                raise _reclaimed(head.floor) from error
            if state is not None:
                raise _reclaimed(head.floor)


def check_page(limit: int) -> None:
    """Refuse pages of no or too many commits."""
    if not 1 <= limit <= LIMIT:
        raise InvalidRequest(f"a page has 1 to {LIMIT} commits, not {limit}", remedy="Ask for several pages")


def _last_at(chain: Chain, low: int, high: int, time_us: int) -> ManifestState:
    """Return the last version from `low` on that is not younger than a time; `low` is not, `high` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if minted_us(chain.at(middle).newest_id) <= time_us:
            low = middle
        else:
            high = middle
    return chain.at(low)


def _time(state: ManifestState) -> str:
    return datetime.fromtimestamp(minted_us(state.newest_id) / 1e6, UTC).isoformat(timespec="milliseconds")


def _reclaimed(floor: int) -> HistoryReclaimed:
    return HistoryReclaimed(
        f"what was asked for is below the retention floor, version {floor}",
        remedy="Choose a newer commit",
        floor=floor,
    )


# -- forward in time -----------------------------------------------------------------------------------


class Gap(HistoryReclaimed):
    """A commit that cannot be told: its id, if that is still known."""

    def __init__(self, commit_id: str | None) -> None:
        super().__init__("the state before a commit is no longer stored", commit=commit_id)
        self.commit_id = commit_id


class CommitLine:
    """The commits that led to a state, oldest first."""

    def __init__(self, branches: Branches, head: ManifestState) -> None:
        self._segments = tuple(reversed(list(_floored(branches, head))))
        # A fork at the start of the line: what it was forked from is gone.
        self._cut = self._segments[0].last.line.parent is not None

    def holds(self, position: ChainPosition, commit_id: str) -> bool:
        """Say whether a commit is on the line; one that is too old to be looked at is taken at its word."""
        for segment in self._segments:
            if segment.chain.incarnation == position[0]:
                if not 1 <= position[1] <= segment.last.version:
                    return False
                return position[1] < segment.floor or segment.at(position[1]).head == commit_id
        return self._cut

    def _begins_at(self, position: ChainPosition) -> bool:
        """Say whether the oldest chain that is left was forked at a commit, and is stored from there on."""
        try:
            return self._segments[0].at(1).position == position
        except HistoryReclaimed:
            return False

    def after(self, position: ChainPosition | None) -> Iterator[tuple[ManifestState, ManifestState]]:
        """Yield commits after one, or after the first of all, each as the states before and after it."""
        chains = [segment.chain.incarnation for segment in self._segments]
        reached = position or (MAIN, 1)
        begin = chains.index(reached[0]) if reached[0] in chains else 0
        if reached[0] not in chains and not self._begins_at(reached):
            raise Gap(None)
        for segment in self._segments[begin:]:
            here = segment.chain.incarnation
            version = reached[1] + 1 if reached[0] == here else 2
            version = _past_floor(segment, version, reached)
            for number in range(version, segment.last.version + 1):
                state = segment.at(number)
                if state.position == (here, number):  # else it is a control write, which repeats the head
                    yield segment.at(number - 1), state
                    reached = state.position


def _floored(branches: Branches, head: ManifestState) -> Iterator[_Segment]:
    """Yield the parts of a line with their floors, newest first, as far as they are stored."""
    for segment in _segments(branches, head):
        try:
            state = segment.last
        except HistoryReclaimed:
            return  # what was forked from is gone: the line begins here
        segment.floor = max(segment.chain.latest().floor, state.floor)
        yield segment


def _past_floor(segment: _Segment, version: int, reached: ChainPosition) -> int:
    """Return where to go on: behind the floor, if no commit is missed by that."""
    if version > segment.floor:
        return version
    floor = min(segment.floor, segment.last.version)
    kept = segment.at(floor)
    if kept.position == reached:
        return floor + 1
    raise Gap(_first_from(segment, version, kept))


def _first_from(segment: _Segment, version: int, kept: ManifestState) -> str | None:
    """Return the first commit from a version on, as far as what is stored still names it."""
    known = [(at, commit) for at, commit in kept.recent if at >= version]
    return min(known)[1] if known else None


# -- common ancestors ------------------------------------------------------------------------------
#
# Every chain is a line, so the ancestors of a state are, on each chain, everything up to one version; the
# state carries that version for every chain it took in, by fork or merge (`ancestry`). What two states share
# is then a comparison of two small maps, at any depth of history. More than one best common ancestor means
# that the branches were merged into each other crosswise.


def holds(state: ManifestState, commit: ManifestState) -> bool:
    """Say whether the head commit of one state is another state's head or among its ancestors."""
    chain, version = commit.position
    return state.ancestry.get(chain, 0) >= version


def merge_bases(branches: Branches, first: ManifestState, other: ManifestState) -> tuple[ManifestState, ...]:
    """Return the common ancestors that no other common ancestor holds, best first.

    If one of them is no longer stored, the others are worse: by them, what both sides have had since would
    count as new, and what one of them has deleted would come back. So nothing is merged then.
    """
    bases, lost = _best(branches, first, other, _promised)
    if lost is not None:
        raise HistoryReclaimed(
            "a common ancestor of the branches is no longer stored",
            remedy="Load the differences of one into the other instead of merging",
        ) from lost
    return tuple(sorted(bases, key=lambda state: _rank(state, first, other), reverse=True))


def stored_bases(branches: Branches, first: ManifestState, other: ManifestState) -> list[ManifestState]:
    """Return those common ancestors that are still stored, whether or not that is promised."""
    return _best(branches, first, other, Chain.at)[0]


def _best(
    branches: Branches,
    first: ManifestState,
    other: ManifestState,
    read: Callable[[Chain, int], ManifestState],
) -> tuple[list[ManifestState], HistoryReclaimed | None]:
    """Return the best common ancestors that can be read, and why one cannot, if no other holds it."""
    candidates: dict[tuple[str, int], ManifestState] = {}
    unreadable: dict[tuple[str, int], HistoryReclaimed] = {}
    for chain, version in _common(first, other):
        if _is_held(chain, version, candidates.values()):
            continue  # another candidate has it already: most often the first, whatever was merged before
        try:
            state = read(branches.chain(chain), version)
        except HistoryReclaimed as error:
            unreadable[chain, version] = error
            continue
        candidates.setdefault(state.position, state)
    lost = (error for at, error in unreadable.items() if not _is_held(*at, candidates.values()))
    states = candidates.values()
    best = [s for s in states if not any(s is not t and holds(t, s) for t in states)]
    return best, next(lost, None)


def _is_held(chain: str, version: int, states: Iterable[ManifestState]) -> bool:
    return any(state.ancestry.get(chain, 0) >= version for state in states)


def _promised(chain: Chain, version: int) -> ManifestState:
    """Return a state that is not below the floor of its chain, as far as this process knows."""
    if not chain.keeps(version):
        raise _reclaimed(0 if chain.known is None else chain.known.floor)
    return chain.at(version)


def _common(first: ManifestState, other: ManifestState) -> list[tuple[str, int]]:
    """Return how far both states have taken in each chain, those that lead furthest first."""
    left, right = first.ancestry, other.ancestry
    own = (first.line.incarnation, other.line.incarnation, first.line.parent, other.line.parent)
    shared = sorted(set(left) & set(right), key=lambda chain: (chain not in own, chain))
    return [(chain, min(left[chain], right[chain])) for chain in shared]


def _rank(state: ManifestState, first: ManifestState, other: ManifestState) -> tuple[int, int, str]:
    """Order candidates: the nearest to both, then the latest, then the greatest id (contract M-44)."""
    return -_distance(state, first) - _distance(state, other), state.commit.authored_at_us, state.commit.id


def _distance(ancestor: ManifestState, state: ManifestState) -> int:
    """Return how many versions a state has taken in since an ancestor, over all chains."""
    then = ancestor.ancestry
    return sum(version - then.get(chain, 0) for chain, version in state.ancestry.items())
