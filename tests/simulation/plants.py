"""Defects to plant: each takes one guard of the engine away, and the simulation must find it.

Room    tests.simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from omnigraph.storage import publish
from omnigraph.storage.cleanup import Cleaned, Cleaner, CleanupListener
from omnigraph.storage.durability import Step
from omnigraph.storage.garbage import Listing, condemned_by
from omnigraph.storage.manifest import branches
from omnigraph.storage.manifest.chain import Chain, HeadMoved, MetadataDataset
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.publish import Publisher, decide
from omnigraph.storage.retention import Retainer, Retention
from omnigraph.storage.sweep import Announcer

Plant = Callable[[pytest.MonkeyPatch], None]


def ignored_sweep(patch: pytest.MonkeyPatch) -> None:
    """A writer that lost publishes what it staged, though a sweep may have deleted it."""

    def careless(base: ManifestState, now: ManifestState, **rest: Any) -> Any:
        return decide(base, replace(now, swept=0), **rest)

    patch.setattr(publish, "decide", careless)


def ignored_reads(patch: pytest.MonkeyPatch) -> None:
    """A writer that lost does not ask again what it had read of other tables."""

    def careless(base: ManifestState, now: ManifestState, **rest: Any) -> Any:
        return decide(base, now, **{**rest, "consulted": frozenset()})

    patch.setattr(publish, "decide", careless)


def ignored_head(patch: pytest.MonkeyPatch) -> None:
    """A publish lands on whatever the head is: what came in between is lost."""
    honest = Chain.commit

    def careless(self: Chain, state: ManifestState, updates: Mapping[str, str | None], step: Any) -> Any:
        newest = self.latest().version
        return honest(self, replace(state, version=newest + 1), updates, step)

    patch.setattr(Chain, "commit", careless)


def late_listing(patch: pytest.MonkeyPatch) -> None:
    """A cleanup lists what it deletes after it was announced: files staged since are on the list."""

    def careless(
        self: Cleaner, retention: Retention, *, dry_run: bool, progress: CleanupListener | None = None
    ) -> Cleaned:
        tell = progress or (lambda now: None)
        listing = Listing.of(self._location, self._clock.now_us(), retention.grace_us)
        plan = self._retainer.plan(retention, self._refs.latest(), listing.now_us)
        doomed = self._garbage.choose(listing, plan, self._trace([plan], tell))
        if not (plan.gives_up or doomed):
            return Cleaned(dry_run)
        plans = self._announce(plan, listing, condemned_by(doomed), frozenset())
        late = Listing.of(self._location, self._clock.now_us(), retention.grace_us)
        left = self._garbage.choose(late, plans[-1], self._trace(plans, tell))
        return Cleaned(dry_run, tuple(self._delete(part) for part in left if part))

    patch.setattr(Cleaner, "run", careless)


def one_announcement(patch: pytest.MonkeyPatch) -> None:
    """A sweep is announced on main alone."""

    def careless(self: Announcer, sweep_of: Any) -> Any:
        while True:
            refs = self._refs.latest()
            told = {MAIN: self._announce(MAIN, sweep_of(MAIN), MAIN)}
            with suppress(HeadMoved):
                return self._refs.fence(refs, Step.RECLAIM_FENCE), told

    patch.setattr(Announcer, "tell", careless)


def forgotten_names(patch: pytest.MonkeyPatch) -> None:
    """A cleanup does not keep what tags, forks and merges need."""
    patch.setattr(Retainer, "_named", lambda self, refs, heads: set())


def stale_cache(patch: pytest.MonkeyPatch) -> None:
    """A head that is known is taken for the newest."""
    honest = MetadataDataset._still_newest
    patch.setattr(
        MetadataDataset, "_still_newest", lambda self, version: honest(self, version) or version % 2
    )


def mistaken_lifetime(patch: pytest.MonkeyPatch) -> None:
    """A branch made anew is taken for the one that a write was prepared on."""
    honest = Publisher._attempt

    def careless(
        self: Publisher, chain: Chain, txn: Any, write: Any, intent: Any, *, lost: Any = None
    ) -> Any:
        return honest(self, chain, txn, write, intent, lost=lost and replace(lost, chain=chain))

    patch.setattr(Publisher, "_attempt", careless)


def unread_tombstone(patch: pytest.MonkeyPatch) -> None:
    """A chain that a name led to once is taken for that of a branch for ever."""
    patch.setattr(branches, "_is_live", lambda state, name: True)


def unmade_branch(patch: pytest.MonkeyPatch) -> None:
    """A fork is acknowledged without a name in the registry."""
    honest = branches.Branches._change

    def careless(self: branches.Branches, name: str, decide: Any, step: Step) -> Any:
        if step is not Step.BRANCH_REGISTER:
            return honest(self, name, decide, step)
        decide(self._refs.latest())
        return self._refs.latest()

    patch.setattr(branches.Branches, "_change", careless)


def hasty_floor(patch: pytest.MonkeyPatch) -> None:
    """The oldest version that is promised is refused as if it had been given up."""
    patch.setattr(ManifestState, "keeps", lambda self, version: version > self.floor or version in self.kept)


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        ignored_sweep,
        ignored_reads,
        ignored_head,
        late_listing,
        one_announcement,
        forgotten_names,
        stale_cache,
        mistaken_lifetime,
        unread_tombstone,
        unmade_branch,
        hasty_floor,
    )
}
