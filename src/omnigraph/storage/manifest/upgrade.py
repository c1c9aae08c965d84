"""Upgrade: bring a graph of an older format to that of this release, in place, with all its history.

    look at everything -> **the registry, then each branch, main last** -> report

- Only newest versions change: each gets one version more that says what the one before it said, in the new
  format. Past versions are read through the same steps (manifest/formats.py). No commit is added.
- Each is one compare-and-swap, so whoever of the older release writes there at that moment was first, and the
  upgrade builds on what it wrote; or loses its swap, looks again, and is told that the format is too new.
- The registry comes first: from then on the older release gives no branch a name, so the list of branches is
  complete. Main comes last: a graph is opened by its head, so this release refuses the graph until all of it
  is upgraded, while the older one goes on reading and writing main.
- Whoever dies on the way leaves a graph in which nothing is lost, and the next upgrade finishes it. Several
  at once do each other no harm. If anything cannot be read, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.ids import Clock
from omnigraph.storage.durability import Step
from omnigraph.storage.manifest.chain import (
    CommitInDoubt,
    ControlRetry,
    HeadMoved,
    MetadataDataset,
    chain_path,
)
from omnigraph.storage.manifest.formats import (
    FORMAT,
    Content,
    chain_of_today,
    format_of,
    registry_of_today,
)
from omnigraph.storage.manifest.records import MAIN, decode
from omnigraph.storage.manifest.refs import REFS, decode_refs

Progress = Callable[[int, int], None]  # parts done, of how many


@dataclass(frozen=True, slots=True)
class UpgradedBranch:
    """A branch that is, or in a dry run will be, of the format of this release."""

    name: str
    from_format: int  # that it had when the upgrade looked first
    commit_id: str  # its newest commit, which stays what it is

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {"branch": self.name, "from_format": self.from_format, "graph_commit_id": self.commit_id}


@dataclass(frozen=True, slots=True)
class UpgradeReport:
    """What an upgrade did or, in a dry run, would do."""

    uri: str
    from_format: int  # the oldest that was found
    to_format: int
    dry_run: bool
    branches: tuple[UpgradedBranch, ...]  # main, then the others by name

    @property
    def needed(self) -> bool:
        """Say whether anything was of an older format."""
        return self.from_format < self.to_format

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "uri": self.uri,
            "from_format": self.from_format,
            "to_format": self.to_format,
            "dry_run": self.dry_run,
            "upgraded": self.needed and not self.dry_run,
            "branches": [branch.to_json() for branch in self.branches],
        }


@dataclass(frozen=True, slots=True)
class _Part:
    """The newest version of the registry or of a chain, as it was found and as it is of today."""

    version: int
    from_format: int
    found: Content
    today: Content

    @property
    def changes(self) -> dict[str, str | None]:
        """What leads from the one to the other."""
        keys = sorted({*self.found, *self.today})
        return {key: self.today.get(key) for key in keys if self.found.get(key) != self.today.get(key)}


OfToday = Callable[[Content, str], Content]


class _Upgradable:
    """The registry or a chain, which is looked at or rewritten."""

    def __init__(self, dataset: MetadataDataset, of_today: OfToday, clock: Clock) -> None:
        self._dataset = dataset
        self._of_today = of_today
        self._clock = clock

    def look(self) -> _Part:
        """Read the newest version."""
        path = self._dataset.path
        version, content = self._dataset.latest()
        found = content or {}
        return _Part(version, format_of(found, path), found, self._of_today(found, path))

    def rewrite(self) -> _Part:
        """Add a version that is of today, unless the newest is; one of an older release may come first."""
        path = self._dataset.path
        retry = ControlRetry(f"upgrading {path}", path, self._clock)
        first = part = self.look()
        while part.from_format < FORMAT:
            try:
                return replace(part, version=self._dataset.commit(part.version, part.changes, Step.UPGRADE))
            except (HeadMoved, CommitInDoubt) as error:
                part = self.look()
                if part.from_format < FORMAT:
                    retry.lose(error)
        return replace(part, from_format=first.from_format)


class Upgrader:
    """Upgrades one graph."""

    def __init__(self, uri: str, dataset_of: Callable[[str], MetadataDataset], clock: Clock) -> None:
        self._uri = uri
        self._dataset_of = dataset_of
        self._clock = clock

    def run(self, *, dry_run: bool, progress: Progress | None = None) -> UpgradeReport:
        """Upgrade everything, or say what that would be."""
        looked = self._each(_Upgradable.look, None)
        if dry_run:
            return replace(looked, dry_run=True)
        return self._each(_Upgradable.rewrite, progress) if looked.needed else looked

    def _each(self, act: Callable[[_Upgradable], _Part], progress: Progress | None) -> UpgradeReport:
        """Do something with the registry, then with each branch that it names, last with main."""
        registry = act(self._part(REFS, registry_of_today))
        named = [
            (ref.name, ref.incarnation) for ref in decode_refs(registry.version, registry.today).branches
        ]
        oldest, branches = registry.from_format, []
        for done, (name, incarnation) in enumerate([*named, (MAIN, MAIN)], start=1):
            if progress is not None:
                progress(done, len(named) + 2)
            part = act(self._part(chain_path(incarnation), chain_of_today))
            oldest = min(oldest, part.from_format)
            state = decode(part.version, part.today, chain_path(incarnation))
            if state.tombstone is None:
                branches.append(UpgradedBranch(name, part.from_format, state.head))
        if progress is not None:
            progress(len(named) + 2, len(named) + 2)
        return UpgradeReport(self._uri, oldest, FORMAT, False, (*branches[-1:], *branches[:-1]))

    def _part(self, path: str, of_today: OfToday) -> _Upgradable:
        return _Upgradable(self._dataset_of(path), of_today, self._clock)
