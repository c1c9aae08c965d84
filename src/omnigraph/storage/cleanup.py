"""Cleanup: delete what no retained version of any branch needs, over the whole graph.

    retention (what stays) -> **list, plan, announce, trace, delete** -> report

- The plan is traced before anything is announced: if a version that stays cannot be read, nothing happens.
- Then the floor is raised on every branch, which is when history is given up; versions that tags, forks and
  merges need are stored apart before that. A name that came up meanwhile is heeded before the first deletion.
- What is deleted was on the listing made before the announcement, is older than the grace period, and is
  named by no version that stays (sweep.py says why that is safe beside writers). Of each table versions go
  first. A table that fails is in the report; the others go on.
- Every step can be repeated: a cleanup that was killed leaves whole heads, and the next one finishes it.

A schema or a table may come up again under the same name, written by somebody who finds it there just before
it is deleted. So their names are announced too (`condemned`), and no writer begins to use them.

The last version of a deleted branch stays: it tells a writer that stalled for long that its branch is gone.
Without it the writer's commit would succeed, on a chain that nothing names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, HistoryReclaimed, PublishContention
from omnigraph.base.ids import Clock
from omnigraph.storage.checksums import Checksums
from omnigraph.storage.garbage import (
    Doomed,
    FilesOf,
    Garbage,
    Listing,
    Needs,
    condemned_by,
    ended,
    in_force,
)
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import check_kept
from omnigraph.storage.manifest.records import MAIN, ChainPosition, ManifestState, Sweep
from omnigraph.storage.manifest.refs import Refs
from omnigraph.storage.retention import ALL_LONG_AGO, GivenUp, Retainer, Retention, RetentionPlan
from omnigraph.storage.sweep import CLOCKS_DIFFER_US, Announcer, Sweeper

ROUNDS = 16  # of announcing, while names come up
Readers = Callable[[], Iterable[ManifestState]]  # the states that this process is reading


# -- the report --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CleanedPart:
    """What went of one table, or of one other part of the graph; `error` says what could not be deleted."""

    name: str  # of the type; the id of a table that no branch has any more; or what the part holds
    kind: str  # "node", "edge", "table" (of no type any more) or "system"
    files: int = 0
    bytes: int = 0
    versions: int = 0  # of the files, how many were versions of the table or of a branch
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "type_key": f"{self.kind}:{self.name}",
            "files_removed": self.files,
            "bytes_removed": self.bytes,
            "old_versions_removed": self.versions,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a cleanup deleted or, as a preview, would delete; parts of which nothing goes are left out.

    `given_up` says which history goes. That takes effect at once, also where files are too young to go.
    """

    dry_run: bool
    parts: tuple[CleanedPart, ...] = ()
    given_up: tuple[GivenUp, ...] = ()

    @property
    def files(self) -> int:
        """How many files went."""
        return sum(part.files for part in self.parts)

    @property
    def bytes(self) -> int:
        """How many bytes they had."""
        return sum(part.bytes for part in self.parts)

    @property
    def versions(self) -> int:
        """How many of the files were versions."""
        return sum(part.versions for part in self.parts)

    @property
    def ok(self) -> bool:
        """Say whether all that was to go is gone."""
        return all(part.error is None for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the public shape."""
        return {
            "dry_run": self.dry_run,
            "files_removed": self.files,
            "bytes_removed": self.bytes,
            "old_versions_removed": self.versions,
            "given_up": [branch.to_json() for branch in self.given_up],
            "datasets": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class CleanupProgress:
    """How far a cleanup is: versions of tables that were traced, or files that were deleted."""

    stage: Literal["tracing", "deleting"]
    done: int
    total: int


CleanupListener = Callable[[CleanupProgress], None]


def _reported(part: Doomed) -> CleanedPart:
    """Return what is deleted of a part if nothing fails."""
    return CleanedPart(
        part.name,
        part.kind,
        files=len(part.every) - len(part.logs),
        bytes=sum(file.size for file in part.every) - sum(len(log.content) for log in part.logs),
        versions=len(part.versions),
    )


# -- the run -----------------------------------------------------------------------------------------


class Cleaner:
    """Cleans one graph."""

    def __init__(
        self,
        location: Location,
        branches: Branches,
        refs: Refs,
        retainer: Retainer,
        announcer: Announcer,
        sweeper: Sweeper,
        checksums: Checksums,
        readers: Readers,
        pool: Executor,
        clock: Clock,
        stall_s: float,
    ) -> None:
        self._location = location
        self._branches = branches
        self._refs = refs
        self._retainer = retainer
        self._announcer = announcer
        self._sweeper = sweeper
        self._checksums = checksums
        self._readers = readers
        self._pool = pool
        self._clock = clock
        # A commit that stalls for longer is read back before it is believed. The age of files is reckoned
        # by two clocks, unless the disk is this machine's.
        apart_us = 0 if location.is_local or not stall_s else CLOCKS_DIFFER_US
        self._garbage = Garbage(sweeper, checksums, stall_us=round(stall_s * 2e6) + apart_us)

    def run(self, retention: Retention, *, dry_run: bool, progress: CleanupListener | None = None) -> Cleaned:
        """Delete what a retention gives up, and what nothing names; or say what that would be."""
        tell = progress or (lambda now: None)
        newest = self._retainer.newest(self._refs.latest()) if retention.grace_us else {}
        listing = Listing.of(self._location, self._clock.now_us(), retention.grace_us)
        recent = in_force(listing, newest) if retention.grace_us else ALL_LONG_AGO
        plan = self._retainer.plan(retention, self._refs.latest(), listing.now_us, recent)
        needs = self._trace([plan], tell)
        doomed = self._garbage.choose(listing, plan, needs)
        given_up = self._retainer.given_up(plan)
        if dry_run:
            return Cleaned(dry_run, tuple(map(_reported, doomed)), given_up)
        forgotten = self._retainer.forgotten(plan, ended(listing))
        if not (plan.gives_up or doomed or forgotten):
            return Cleaned(dry_run)
        plans = self._announce(plan, listing, condemned_by(doomed), forgotten)
        needs = self._trace(plans, tell, needs.by_version)
        chosen = {file.key for part in doomed for file in part.every}  # what came up since was not announced
        left = [part.only(chosen) for part in self._garbage.choose(listing, plans[-1], needs)]
        return Cleaned(dry_run, tuple(self._delete_all([part for part in left if part], tell)), given_up)

    # -- announcing --------------------------------------------------------------------------------

    def _announce(
        self, plan: RetentionPlan, listing: Listing, condemned: frozenset[str], forgotten: frozenset[str]
    ) -> list[RetentionPlan]:
        """Raise the floors, until no name is left that was not heeded; return what was in force then.

        Where there are several branches all are told twice (see sweep.py).
        """
        known = {name for head in plan.heads.values() for name in head.condemned}
        going = condemned | (known & listing.names)  # another cleanup may be deleting what it announced
        in_force: list[RetentionPlan] = []
        for _ in range(ROUNDS):
            for chain, versions in plan.kept.items():
                for version in versions:
                    self._branches.chain(chain).keep(version)
            announced = plan

            def sweep_of(chain: str, announced: RetentionPlan = announced) -> Sweep:
                return Sweep(
                    floor=announced.floors.get(chain, 0),
                    kept=announced.kept.get(chain),
                    condemned=tuple(sorted(going)),
                    before_us=listing.before_us,
                    forgotten=forgotten,
                )

            refs, _heads = self._announcer.tell(sweep_of)
            plan = self._retainer.renew(announced, refs)
            in_force.append(plan)
            heeded = all(plan.kept[chain] == head.kept for chain, head in plan.heads.items())
            if heeded and (len(in_force) > 1 or len(plan.heads) == 1):
                return in_force
        elapsed_us = self._clock.now_us() - listing.now_us  # names came up faster than they could be heeded
        raise PublishContention(MAIN, attempts=ROUNDS, elapsed_ms=elapsed_us // 1000)

    # -- tracing -----------------------------------------------------------------------------------

    def _trace(
        self, plans: Sequence[RetentionPlan], tell: CleanupListener, known: FilesOf | None = None
    ) -> Needs:
        """Find out what the versions that stay need; raise if one of them cannot be read."""
        states = list(self._states(plans))
        pinned_in: dict[tuple[str, int], list[ManifestState]] = {}
        names: dict[str, tuple[str, str]] = {}
        for state in states:
            for table_id, version in self._pins(state):
                pinned_in.setdefault((table_id, version), []).append(state)
                names[table_id] = (state.pins[table_id].name, state.pins[table_id].kind)
        for head in (head for plan in plans for head in plan.heads.values()):
            names.update({pin.table_id: (pin.name, pin.kind) for pin in head.pins.values()})
        by_version = {key: files for key, files in (known or {}).items() if key in pinned_in}
        missing = [key for key in pinned_in if key not in by_version]
        traced = zip(missing, self._pool.map(self._files_of, missing), strict=True)
        for done, (key, files) in enumerate(traced, 1):
            tell(CleanupProgress("tracing", done, len(missing)))
            if not isinstance(files, GraphError):
                by_version[key] = files
            elif any(self._is_promised(state) for state in pinned_in[key]):
                raise files
        tables: dict[str, set[str]] = {}
        for (table_id, _), files in {**by_version, **self._read_now(by_version)}.items():
            tables.setdefault(table_id, set()).update(files)
        return Needs(by_version, tables, frozenset(state.schema for state in states), names)

    def _states(self, plans: Iterable[RetentionPlan]) -> Iterator[ManifestState]:
        positions = dict.fromkeys(position for plan in plans for position in plan.positions())
        heads = {(chain, head.version): head for plan in plans for chain, head in plan.heads.items()}
        yield from (heads[position] for position in positions if position in heads)
        past = [position for position in positions if position not in heads]
        for (chain, version), state in zip(past, self._pool.map(self._state_at, past), strict=True):
            if not isinstance(state, HistoryReclaimed):
                yield state
            elif self._keeps(chain, version):
                raise state

    def _state_at(self, position: ChainPosition) -> ManifestState | HistoryReclaimed:
        chain, version = position
        try:
            return self._branches.chain(chain).at(version)
        except HistoryReclaimed as error:
            return error

    def _files_of(self, key: tuple[str, int]) -> frozenset[str] | GraphError:
        try:
            return self._sweeper.needs(*key)
        except GraphError as error:
            return error

    def _is_promised(self, state: ManifestState) -> bool:
        return self._keeps(state.line.incarnation, state.version)

    def _keeps(self, chain: str, version: int) -> bool:
        """Look whether a version is still promised: another cleanup may have given it up meanwhile."""
        head = self._branches.chain(chain).latest()
        return head.tombstone is None and head.keeps(version)

    def _read_now(self, known: FilesOf) -> dict[tuple[str, int], frozenset[str]]:
        """Return what readers of this process need besides; one whose files are gone gets its own error."""
        pins = (pin for state in self._readers() for pin in state.pins.values())
        keys = {(pin.table_id, pin.version) for pin in pins} - known.keys()
        answers = ((key, self._files_of(key)) for key in sorted(keys))
        return {key: files for key, files in answers if not isinstance(files, GraphError)}

    def _pins(self, state: ManifestState) -> Iterator[tuple[str, int]]:
        """Yield what a state pins, but for tables that a hard drop took away."""
        chain = self._branches.chain(state.line.incarnation)
        for table_id, pin in state.pins.items():
            with suppress(HistoryReclaimed):
                check_kept(chain, state, table_id)
                yield table_id, pin.version

    # -- deleting ----------------------------------------------------------------------------------

    def _delete_all(self, parts: Sequence[Doomed], tell: CleanupListener) -> Iterator[CleanedPart]:
        done, total = 0, sum(len(part.every) for part in parts)
        for part in parts:
            yield self._delete(part)
            done += len(part.every)
            tell(CleanupProgress("deleting", done, total))

    def _delete(self, part: Doomed) -> CleanedPart:
        """Delete one part; what fails is told, and the rest goes on."""
        try:
            for log in part.logs:
                self._checksums.put(log)
            refused = self._sweeper.try_delete(file.key for file in part.versions)
            if not refused:
                refused = self._sweeper.try_delete(file.key for file in part.files)
            elif part.files:
                part = replace(part, files=())  # files of a version that is still stored stay
        except GraphError as error:
            return CleanedPart(part.name, part.kind, error=str(error))
        if not refused:
            return _reported(part)
        left = replace(
            part,
            versions=tuple(file for file in part.versions if file.key not in refused),
            files=tuple(file for file in part.files if file.key not in refused),
        )
        first = str(next(iter(refused.values())))
        return replace(_reported(left), error=f"{len(refused)} files could not be deleted: {first}")
