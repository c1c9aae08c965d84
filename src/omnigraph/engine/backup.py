"""Backup: `graph.backup`, `og.restore`: a graph with all its history, copied to another address.

A backup is a graph; restoring one is the same copy in the other direction. `graph.clone` makes a new graph
of one commit, without history. At the end each copy is looked at by the doctor: heads, tags, and the history
that leads to them. What it finds broken is in the report, and the copy stays: the source may be no better.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import count
from typing import Any

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import JsonFields, dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.times import At
from omnigraph.engine.doctor.doctor import examine
from omnigraph.engine.doctor.report import DoctorFinding
from omnigraph.engine.history.resolve_at import resolve
from omnigraph.storage.copy.backup import Backup, Copied
from omnigraph.storage.copy.clone import Clone
from omnigraph.storage.copy.transfer import Progress
from omnigraph.storage.cost import measured
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.durability import Durability
from omnigraph.storage.store import GraphStore


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a copy of a graph has, and what was written to bring it about."""

    source: str
    destination: str
    commits: FrozenMap[str, str]  # the commit that each branch is at, by name
    tags: int
    files: int
    bytes: int
    copied: int  # files that were written now
    copied_bytes: int
    attempts: int  # more than one: history was deleted meanwhile, and a newer state was copied
    seconds: float
    findings: tuple[DoctorFinding, ...] = ()  # what is broken in the copy, as the doctor says

    @property
    def ok(self) -> bool:
        """Say whether nothing is broken in the copy."""
        return not self.findings

    @property
    def skipped(self) -> int:
        """How many files were there already."""
        return max(self.files - self.copied, 0)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "source": self.source,
            "destination": self.destination,
            "commits": dict(self.commits),
            "tags": self.tags,
            "files": self.files,
            "bytes": self.bytes,
            "copied": self.copied,
            "copied_bytes": self.copied_bytes,
            "skipped": self.skipped,
            "attempts": self.attempts,
            "seconds": round(self.seconds, 3),
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
        }


def back_up(
    store: GraphStore,
    destination: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a graph that is open."""
    location = store.location.reach(destination, storage_options)
    started = store.clock.monotonic()
    with measured(), GraphStore(location, durability=durability, clock=store.clock) as target:
        copied = Backup(store, target, progress).run()
        findings = broken_in(target)
    return _report(store, location.uri, copied, findings, store.clock.monotonic() - started)


def broken_in(copy: GraphStore) -> tuple[DoctorFinding, ...]:
    """Return what the doctor finds broken in a copy."""
    return examine(copy).of("error")


@checked
def restore(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    progress: Progress | None = None,
) -> CopyReport:
    """Copy a backup to another address, with all branches, tags and history, while nobody need stop.

    The destination is empty, or holds an earlier state of the same graph, which is brought up to date. It is
    reached with `storage_options`, the backup with `source_options`: each by default as the other one is.
    """
    if source_options is None:
        source_options = storage_options if "://" in os.fspath(source) else None
    with GraphStore.open(source, storage_options=source_options) as store:
        return back_up(
            store, destination, storage_options=storage_options, durability=durability, progress=progress
        )


def _report(
    store: GraphStore, destination: str, copied: Copied, findings: tuple[DoctorFinding, ...], seconds: float
) -> CopyReport:
    return CopyReport(
        source=store.location.uri,
        destination=destination,
        commits=copied.commits,
        tags=copied.tags,
        files=copied.files,
        bytes=copied.bytes,
        copied=copied.copied,
        copied_bytes=copied.copied_bytes,
        attempts=copied.attempts,
        seconds=seconds,
        findings=findings,
    )


# -- clone -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CloneReport(JsonFields):
    """A new graph that begins with one commit of another."""

    source: str
    destination: str
    branch: str
    source_commit_id: str  # what was cloned
    graph_commit_id: str  # the first commit of the new graph
    rows: int
    files: int
    bytes: int
    seconds: float
    findings: tuple[DoctorFinding, ...] = ()  # what is broken in it, as the doctor says

    @property
    def ok(self) -> bool:
        """Say whether nothing is broken in the new graph."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        found = {"ok": self.ok, "findings": [finding.to_json() for finding in self.findings]}
        return JsonFields.to_json(self) | found


def clone(
    store: GraphStore,
    destination: str | os.PathLike[str],
    branch: str,
    at: At | None,
    *,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability = "sync",
    actor: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> CloneReport:
    """Make a new graph of one state of a graph that is open."""
    location = store.location.reach(destination, storage_options)
    started = store.clock.monotonic()
    tries = count()

    def made() -> CloneReport:
        snapshot = resolve(store, branch, at)
        with GraphStore(location, durability=durability, clock=store.clock) as target:
            # What a first try has left is ours: the state that it was of was reclaimed under it.
            clears = force or next(tries) > 0
            cloned = Clone(store, target, progress).run(snapshot, actor=actor, force=clears)
            findings = broken_in(target)
        return CloneReport(
            source=store.location.uri,
            destination=location.uri,
            branch=snapshot.branch,
            source_commit_id=snapshot.commit_id,
            graph_commit_id=cloned.state.head,
            rows=sum(pin.rows for pin in cloned.state.pins.values()),
            files=cloned.files,
            bytes=cloned.bytes,
            seconds=round(store.clock.monotonic() - started, 3),
            findings=findings,
        )

    with measured():
        return of_the_newest(made)
