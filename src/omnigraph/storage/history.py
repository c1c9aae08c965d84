"""History: the commits that led to a state, newest first, and single ones by id, position or time.

Room    storage. Reads chains, writes nothing. A branch's first parents are the commits of its own chain, then
        those of its parent's chain up to the fork, and so on to genesis; control writes are no commits.
Cost    every state names the last RECENT commits of its chain, so a walk reads one version for each RECENT
        commits; a page reads its own versions besides, side by side. A search by time is binary.
Rule    what lies below a retention floor is `history_reclaimed`, what never was is `commit_not_found`. A
        listing ends at the floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from omnigraph.base.errors import CommitNotFound, GraphError, HistoryReclaimed, InvalidRequest
from omnigraph.base.ids import minted_us
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import MAIN, RECENT, CommitRecord, ManifestState

LIMIT = 1000  # commits of one page at most


@dataclass(frozen=True, slots=True)
class Page:
    """Some commits of a branch, newest first; `next` is where the following page starts, if there is more."""

    commits: tuple[CommitRecord, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[CommitRecord]:
        return iter(self.commits)

    def __len__(self) -> int:
        return len(self.commits)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A commit on the way back: its id, a version of a chain that has its record, and the one it made."""

    commit_id: str
    chain: Chain
    version: int
    made: int


class History:
    """The past of one graph's branches."""

    def __init__(self, branches: Branches, pool: Executor) -> None:
        self._branches = branches
        self._pool = pool

    def page(self, head: ManifestState, *, limit: int = 50, before: str | None = None) -> Page:
        """Return the commits that led to a state, or those of them that came before one."""
        if not 1 <= limit <= LIMIT:
            raise InvalidRequest(
                f"a page has 1 to {LIMIT} commits, not {limit}", remedy="Ask for several pages"
            )
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

    def published(self, incarnation: str, version: int, commit_id: str) -> ManifestState:
        """Return the state that a commit made, from the place it was published at."""
        chain = self._branches.chain(incarnation)
        floor = chain.latest().floor
        state = chain.at(max(version, floor))  # a control write may repeat a commit whose version is gone
        if state.head != commit_id:
            raise _reclaimed(floor)
        return state

    def ancestor(self, state: ManifestState, steps: int) -> ManifestState:
        """Return the state that a commit made, so many first parents back."""
        if steps == 0:
            return state
        found = next(islice(self._walk(state), steps, None), None)
        if found is None:
            raise CommitNotFound(
                f"commit {state.head} has fewer than {steps} commits before it",
                remedy="List the commits of the branch to see how far they go back",
                graph_commit_id=state.head,
            )
        return found.chain.at(found.version)

    def at_time(self, head: ManifestState, time_us: int) -> ManifestState:
        """Return the last state at a time, by the newest commit id that there was: it only ever rises."""
        state = head
        while True:
            if minted_us(state.newest_id) <= time_us:
                return self._kept(state)
            chain = self._branches.chain(state.line.incarnation)
            low = max(1, self._floor(chain))
            if minted_us(chain.at(low).newest_id) <= time_us:
                return _last_at(chain, low, state.version, time_us)
            if low > 1:
                raise _reclaimed(low)
            if state.line.parent is None:
                raise CommitNotFound(
                    f"the graph is younger than that: its first commit is of {_time(chain.at(low))}",
                    remedy="Choose a later time",
                )
            state = self._fork_point(state)

    def heads(self, incarnations: Iterable[str]) -> dict[str, ManifestState]:
        """Return the newest state of several chains, read side by side."""
        chains = [self._branches.chain(one) for one in dict.fromkeys(incarnations)]
        states = self._pool.map(lambda chain: chain.latest(), chains)
        return {chain.incarnation: state for chain, state in zip(chains, states, strict=True)}

    def count_since(self, head: ManifestState, version: int) -> int:
        """Return how many commits a chain was given after a version, as far as its floor lets one see."""
        count = 0
        try:
            for entry in self._own(self._branches.chain(head.line.incarnation), head):
                if entry.made <= version:
                    return count
                count += 1
        except HistoryReclaimed:
            return count
        return count

    # -- walking -----------------------------------------------------------------------------------

    def _walk(self, state: ManifestState) -> Iterator[_Entry]:
        """Yield the commits from a state's own on, newest first; raise where the floor is reached."""
        while True:
            chain = self._branches.chain(state.line.incarnation)
            yield from self._own(chain, state)
            if state.line.parent is None or state.line.fork_version is None:
                return
            parent = self._branches.chain(state.line.parent)
            floor = self._floor(parent)
            if state.line.fork_version < floor:
                first = chain.at(1)  # the fork itself still has the record of the commit it was made at
                yield _Entry(first.head, chain, 1, 1)
                raise _reclaimed(floor)
            state = parent.at(state.line.fork_version)

    def _own(self, chain: Chain, state: ManifestState) -> Iterator[_Entry]:
        """Yield the commits of one chain up to a state."""
        floor, recent = self._floor(chain), state.recent
        while recent:
            for version, commit_id in recent:
                if version < floor:
                    kept = chain.at(floor)  # a control write may repeat a commit whose own version is gone
                    if kept.head == commit_id:
                        yield _Entry(commit_id, chain, floor, version)
                    raise _reclaimed(floor)
                yield _Entry(commit_id, chain, version, version)
            if len(recent) < RECENT - 1:
                return  # it reaches back to the start of the chain
            recent = chain.at(recent[-1][0]).recent[1:]

    def _until_floor(self, state: ManifestState) -> Iterator[_Entry]:
        try:
            yield from self._walk(state)
        except HistoryReclaimed:
            return

    def _read(self, head: ManifestState, entries: list[_Entry], limit: int) -> Page:
        wanted = entries[:limit]

        def record(entry: _Entry) -> CommitRecord:
            here = entry.chain.incarnation == head.line.incarnation and entry.version == head.version
            return head.commit if here else entry.chain.at(entry.version).commit

        commits = tuple(self._pool.map(record, wanted))
        return Page(commits, commits[-1].id if len(entries) > limit else None)

    def _on_line(self, head: ManifestState, commit_id: str) -> ManifestState:
        """Return the version of a commit that led to a state."""
        state = head
        while True:
            chain = self._branches.chain(state.line.incarnation)
            found = chain.find(commit_id, state)
            if found is not None:
                return self._kept(found)
            if state.line.parent is None:
                raise CommitNotFound(
                    f"commit {commit_id!r} did not lead to commit {head.head}",
                    remedy="List the commits of the branch to see their ids",
                    graph_commit_id=commit_id,
                )
            state = self._fork_point(state)

    def _fork_point(self, state: ManifestState) -> ManifestState:
        """Return the version of the parent's chain that a chain was forked at."""
        assert state.line.parent is not None
        assert state.line.fork_version is not None
        parent = self._branches.chain(state.line.parent)
        floor = self._floor(parent)
        if state.line.fork_version < floor:
            raise _reclaimed(floor)
        return parent.at(state.line.fork_version)

    # -- floors ------------------------------------------------------------------------------------

    def _floor(self, chain: Chain) -> int:
        return (chain.known or chain.latest()).floor

    def _kept(self, state: ManifestState) -> ManifestState:
        """Return a state that is not below the floor of its chain; a control write may repeat its commit."""
        chain = self._branches.chain(state.line.incarnation)
        floor = self._floor(chain)
        if state.version >= floor:
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
            if chain.find(commit_id, replace(head, floor=0)) is not None:
                raise _reclaimed(head.floor)


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
        f"that is below the retention floor, version {floor}", remedy="Choose a newer commit", floor=floor
    )


# -- lineage -------------------------------------------------------------------------------------
#
# Which commits two states have in common.
# Every chain is a line, so the ancestors of a state are, on each chain, everything up to one
# version; the state carries that version for every chain it took in, by fork or merge (`ancestry`).
# What two states share is then a comparison of two small maps, at any depth of history.
# Gives   `merge_bases`: the best common ancestors, best first. More than one means that the branches were
# merged into each other crosswise.


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
