"""Retention: which versions of every chain stay, as a plan. Nothing is written here.

A branch keeps its newest commits, those younger than an age, and its head, whatever was asked; and every
commit that was its head at some time within the grace period, for another process may be reading it. What
lies below that is given up, but for versions that something else names: tags, the points that live branches
were forked from, and what a merge of two live branches would start from. A chain that belongs to no live
branch keeps nothing but such starting points, and what it had within the grace period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, HistoryReclaimed, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import minted_us
from omnigraph.storage.history import History, stored_bases
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import MAIN, ChainPosition, ManifestState
from omnigraph.storage.manifest.refs import RefsState

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
GRACE_US = 7 * DAY_US
InForce = Mapping[str, range]  # chain -> its versions that were the newest at some time within the grace
ALL_LONG_AGO: InForce = FrozenMap[str, range]()


@dataclass(frozen=True, slots=True)
class Retention:
    """What to keep: the newest commits of each branch, and all that are younger than an age.

    Files younger than the grace period stay, whoever wrote them, and so do commits that were superseded
    within it. `branch` names the one branch that gives up commits; without it all do.
    """

    keep: int | None = None
    older_than_us: int | None = None
    grace_us: int = GRACE_US
    branch: str | None = None

    def __post_init__(self) -> None:
        if self.keep is None and self.older_than_us is None:
            raise InvalidRequest(
                "a cleanup needs to know what to keep",
                remedy="Give keep, a number of commits; older_than, an age such as '30d'; or both",
            )
        for name, value in (
            ("keep", self.keep),
            ("older_than", self.older_than_us),
            ("grace", self.grace_us),
        ):
            if value is not None and value < 0:
                raise InvalidRequest(f"{name} cannot be less than nothing", remedy="Give 0 or more")


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What stays of every chain."""

    heads: Mapping[str, ManifestState]  # of live chains, by incarnation
    names: Mapping[str, str]  # of their branches
    floors: Mapping[str, int]
    kept: Mapping[str, tuple[int, ...]]  # below the floor
    retired: Mapping[str, tuple[int, ...]]  # of chains that no live branch has
    in_force: InForce

    def positions(self) -> Iterator[ChainPosition]:
        """Yield every version that stays."""
        for incarnation, head in sorted(self.heads.items()):
            first = max(1, self.floors[incarnation])
            yield from ((incarnation, version) for version in self.kept[incarnation])
            yield from ((incarnation, version) for version in range(first, head.version + 1))
        for incarnation, versions in sorted(self.retired.items()):
            yield from ((incarnation, version) for version in versions)
        for incarnation, recent in sorted(self.in_force.items()):
            if incarnation not in self.heads:
                yield from ((incarnation, version) for version in recent)

    @property
    def gives_up(self) -> bool:
        """Whether any branch promises less than it did."""
        return any(
            self.floors[chain] > head.floor or self.kept[chain] != head.kept
            for chain, head in self.heads.items()
        )


@dataclass(frozen=True, slots=True)
class GivenUp:
    """What a branch gives up for good: from then on its older commits answer `history_reclaimed`."""

    branch: str
    commits: int
    oldest_kept: str  # the oldest commit of those that stay without anything else naming them

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"branch": self.branch, "commits": self.commits, "oldest_kept": self.oldest_kept}


class Retainer:
    """Finds out what stays."""

    def __init__(
        self, branches: Branches, history: History, is_whole: Callable[[ManifestState], bool]
    ) -> None:
        self._branches = branches
        self._history = history
        self._is_whole = is_whole  # whether all tables of a state are still stored

    def newest(self, refs: RefsState) -> dict[str, int]:
        """Return the newest version of every live chain."""
        heads, _ = self._heads(refs)
        return {chain: head.version for chain, head in heads.items()}

    def plan(
        self, retention: Retention, refs: RefsState, now_us: int, in_force: InForce = ALL_LONG_AGO
    ) -> RetentionPlan:
        """Return what a retention keeps, as the registry and the heads are now."""
        heads, names = self._heads(refs)
        if retention.branch is not None and retention.branch not in names.values():
            raise BranchNotFound(
                f"there is no branch {retention.branch!r}",
                remedy="List the branches to see their names",
                branch=retention.branch,
            )
        floors = {
            chain: max(head.floor, min(self._oldest(retention, head, now_us), _first(in_force, head)))
            if retention.branch in (None, names[chain])
            else head.floor
            for chain, head in heads.items()
        }
        return self._protected(refs, heads, names, floors, in_force)

    def renew(self, plan: RetentionPlan, refs: RefsState) -> RetentionPlan:
        """Return a plan with the floors of another, for the names and heads that there are by now."""
        heads, names = self._heads(refs)
        floors = {chain: max(head.floor, plan.floors.get(chain, 0)) for chain, head in heads.items()}
        return self._protected(refs, heads, names, floors, plan.in_force)

    def given_up(self, plan: RetentionPlan) -> tuple[GivenUp, ...]:
        """Return what branches lose by a plan, by name; to be asked before the plan is announced."""
        told = []
        for chain, head in plan.heads.items():
            floor = plan.floors[chain]
            lost = set(head.kept)
            if floor > head.floor:
                lost |= {version for version, _ in self._history.own_commits(head) if version < floor}
            lost -= set(plan.kept[chain])
            if lost:
                oldest = self._branches.chain(chain).at(max(1, floor)).head
                told.append(GivenUp(plan.names[chain], len(lost), oldest))
        return tuple(sorted(told, key=lambda one: one.branch))

    def forgotten(self, plan: RetentionPlan, ended: Callable[[str], bool]) -> frozenset[str]:
        """Return chains that have ended and that lineage need not name any longer.

        A chain could be what a merge starts from, for two states that took it in apart from each other. It
        cannot once all states that branches and tags can start from, and that took it in, have a state of
        main in common that had it before: then that one, or a newer one, is where such a merge starts. Of
        each branch the oldest state that stays is looked at, since later ones have what it has.
        """
        named = {chain for head in plan.heads.values() for chain in head.seen}
        candidates = sorted(c for c in named if c not in plan.heads and c not in plan.retired and ended(c))
        if not candidates:
            return frozenset()
        oldest = [(chain, max(1, floor)) for chain, floor in plan.floors.items()]
        apart = [
            (c, v) for kept in (plan.kept, plan.retired) for c, versions in kept.items() for v in versions
        ]
        firsts = {at: self._branches.chain(at[0]).at(at[1]) for at in (*oldest, *apart)}
        return frozenset(
            chain
            for chain in candidates
            if all(
                head.seen.get(chain) == firsts[of, max(1, plan.floors[of])].seen.get(chain)
                for of, head in plan.heads.items()
            )
            and self._shared_before(chain, firsts.values())
        )

    def _shared_before(self, chain: str, states: Iterable[ManifestState]) -> bool:
        """Say whether all states that took a chain in have a state of main in common that had it, too."""
        having = [state for state in states if chain in state.seen]
        versions = {state.seen[chain] for state in having}
        if len(versions) != 1:
            return not having
        main = self._branches.chain(MAIN)
        shared = min(state.ancestry.get(MAIN, 0) for state in having)
        return main.keeps(shared) and main.at(shared).seen.get(chain) in versions

    def _heads(self, refs: RefsState) -> tuple[dict[str, ManifestState], dict[str, str]]:
        names = {MAIN: MAIN, **{ref.incarnation: ref.name for ref in self._branches.live(refs)}}
        heads = self._history.heads(names)
        live = {chain: state for chain, state in heads.items() if state.tombstone is None}
        return live, {chain: names[chain] for chain in live}

    def _oldest(self, retention: Retention, head: ManifestState, now_us: int) -> int:
        """Return the oldest version of a chain that its own commits need."""
        chain = self._branches.chain(head.line.incarnation)
        oldest: int | None = None
        for number, (version, commit_id) in enumerate(self._history.own_commits(head)):
            if not _stays(retention, number, version, commit_id, chain, now_us):
                return version if oldest is None else oldest  # the head stays in any case
            oldest = version
        return head.floor

    def _protected(
        self,
        refs: RefsState,
        heads: Mapping[str, ManifestState],
        names: Mapping[str, str],
        floors: Mapping[str, int],
        in_force: InForce,
    ) -> RetentionPlan:
        kept: dict[str, set[int]] = {chain: set() for chain in heads}
        retired: dict[str, set[int]] = {}
        for chain, version in self._named(refs, heads):
            if chain not in heads:
                retired.setdefault(chain, set()).add(version)
            elif version < floors[chain] and self._is_stored(chain, version):
                kept[chain].add(version)
        for chain, versions in kept.items():
            # What is left of a table that a hard drop took away is said by the version that announced it.
            notes = (since for since in heads[chain].reclaimed.values() if since < floors[chain])
            versions.update(since for since in notes if versions and since > min(versions))
        return RetentionPlan(
            heads,
            names,
            floors,
            {chain: tuple(sorted(versions)) for chain, versions in kept.items()},
            {chain: tuple(sorted(versions)) for chain, versions in retired.items()},
            in_force,
        )

    def _named(self, refs: RefsState, heads: Mapping[str, ManifestState]) -> set[ChainPosition]:
        """Return the versions that tags, forks and merges need."""
        positions = {(tag.incarnation, tag.version) for tag in refs.tags}
        forks = (head.line for head in heads.values())
        positions |= {(line.parent, line.fork_version) for line in forks if line.parent and line.fork_version}
        for first, other in combinations(_distinct(heads.values()), 2):
            bases = stored_bases(self._branches, first, other)
            positions |= {(state.line.incarnation, state.version) for state in bases}
        return positions

    def _is_stored(self, incarnation: str, version: int) -> bool:
        """Say whether a version can be kept; one that was given up before may be gone.

        One that is given up just now is kept again: a merge that took it in may have landed since.
        """
        chain = self._branches.chain(incarnation)
        try:
            state = chain.at(version)
        except HistoryReclaimed:
            if chain.latest().keeps(version):
                raise
            return False
        return chain.latest().keeps(version) or self._is_whole(state)


def _first(in_force: InForce, head: ManifestState) -> int:
    """Return the first version of a live chain that was in force within the grace period."""
    versions = in_force.get(head.line.incarnation)
    young = 1 if in_force else head.version  # with a grace, whoever is not known came up just now
    first = versions.start if versions else young
    return first if first > 1 else 0  # a floor at the first version gives up nothing


def _stays(
    retention: Retention, number: int, version: int, commit_id: str, chain: Chain, now_us: int
) -> bool:
    if retention.keep is not None and number < retention.keep:
        return True
    if retention.older_than_us is None:
        return False
    since_us = now_us - retention.older_than_us
    # A slow writer publishes an old id late: what came before it may be younger, and must not go with it.
    return minted_us(commit_id) >= since_us or minted_us(chain.at(version).newest_id) >= since_us


def _distinct(heads: Iterable[ManifestState]) -> list[ManifestState]:
    """Return heads, two at most for each set of ancestors that others can share with them."""
    states = list(heads)
    shared = {chain for state in states for chain in state.seen}
    by_ancestors: dict[frozenset[ChainPosition], list[ManifestState]] = {}
    for state in states:
        ancestors = frozenset(item for item in state.ancestry.items() if item[0] in shared)
        by_ancestors.setdefault(ancestors, []).append(state)
    return [state for alike in by_ancestors.values() for state in alike[:2]]
