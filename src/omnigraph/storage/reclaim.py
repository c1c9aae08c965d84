"""Reclaim: take away what no live branch's head needs of some tables.

Lance's own cleanup must never run on our datasets: it deletes files that only detached versions name. So
files are listed through the object client, what a version needs is traced through Lance's own metadata, and
the rest is deleted.

- Order: list, announce, trace, delete. What is written after the listing is not on the list. The announcement
  moves every live branch and then the registry, so a writer that staged a listed file stages again, and a
  fork that was under way looks at its source again; both before the first deletion.
- Twice: a merge may take a version over from a branch, after it looked at that branch's own announcement. So
  where there are several branches all are told, and then all again: a merge that looked before the first
  round was over loses its swap in the second, and looks again. What was in force in either round is kept, for
  all that is published later rests on that.

Derived files go with the data files that they are derived from, so nothing that a hard drop took away can be
worked out from what is left.

If any head cannot be traced, nothing is deleted. A crash at any point leaves whole heads, history that says
it was reclaimed, and at worst files that nothing names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Executor, wait

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, GraphError, IntegrityError
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock
from omnigraph.storage.derived.adjacency import cover_in, is_adjacency
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.files import DerivedFiles, is_derived, is_unfinished
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import CommitInDoubt, ControlRetry, HeadMoved, kept_pin
from omnigraph.storage.manifest.records import MAIN, ManifestState
from omnigraph.storage.manifest.refs import Refs
from omnigraph.storage.opener import Handle, Opener
from omnigraph.storage.tables.files import (
    TABLES,
    VERSIONS,
    covers,
    manifest_path,
    referenced,
    stored_files,
)

Announce = Callable[[str, Collection[str]], ManifestState]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What was taken away of one table, and which branches' heads still pin it, at which version."""

    table_id: str
    files: int
    bytes: int
    versions: int  # of the files, how many were versions of the table
    pinned_by: FrozenMap[str, int]


@dataclass(frozen=True, slots=True)
class _Needs:
    """What must stay of one table."""

    pinned_by: FrozenMap[str, int]
    files: frozenset[str]  # a trailing "/" means everything below


class Reclaimer:
    """Sweeps tables of one graph."""

    def __init__(
        self,
        location: Location,
        opener: Opener,
        branches: Branches,
        refs: Refs,
        announce: Announce,
        pool: Executor,
        clock: Clock,
    ) -> None:
        self._location = location
        self._derived = DerivedFiles(location)
        self._opener = opener
        self._branches = branches
        self._refs = refs
        self._announce = announce
        self._pool = pool
        self._clock = clock

    def run(self, tables: Iterable[str]) -> tuple[Reclaimed, ...]:
        """Sweep tables, down to what the heads of the live branches pin."""
        listed = {table_id: stored_files(self._location, table_id) for table_id in sorted(set(tables))}
        first = self.announce(listed.keys())
        announced = self.announce(listed.keys()) if len(first) > 1 else first
        needs = self._trace(listed.keys(), announced, first)
        return tuple(self._sweep(table_id, files, needs[table_id]) for table_id, files in listed.items())

    def announce(self, tables: Collection[str]) -> dict[str, ManifestState]:
        """Announce a sweep of tables on every live branch; return the heads that say so, by branch name.

        The registry is moved last: when that succeeds, no branch can come up that was not told, and a
        create that has not registered its branch yet must look at its source again.
        """
        announced: dict[str, ManifestState] = {}
        retry = ControlRetry("announcing a sweep", MAIN, self._clock)
        while True:
            refs = self._refs.latest()
            live = {MAIN: MAIN, **{ref.name: ref.incarnation for ref in self._branches.live(refs)}}
            announced = {
                name: state for name, state in announced.items() if live.get(name) == state.line.incarnation
            }
            for name in sorted(live.keys() - announced.keys()):
                try:
                    announced[name] = self._announce(name, tables)
                except BranchNotFound:
                    continue  # deleted just now: the registry has moved, or will
            try:
                self._refs.fence(refs, Step.RECLAIM_FENCE)
            except (HeadMoved, CommitInDoubt) as error:
                retry.lose(error)
                continue
            return announced

    # -- tracing -----------------------------------------------------------------------------------

    def _trace(
        self,
        tables: Collection[str],
        announced: Mapping[str, ManifestState],
        first: Mapping[str, ManifestState],
    ) -> dict[str, _Needs]:
        """Find out what all tables must keep. Another sweep may come later and keep something newer."""
        pinned = {table_id: self._pinned(table_id, announced) for table_id in tables}
        try:
            return {
                table_id: self._needs(table_id, pinned[table_id], _versions(table_id, first))
                for table_id in tables
            }
        except GraphError:
            for state in announced.values():
                self._branches.chain(state.line.incarnation).latest()
            if pinned == {table_id: self._pinned(table_id, announced) for table_id in tables}:
                raise
        return self._trace(tables, announced, first)

    def _pinned(self, table_id: str, announced: Mapping[str, ManifestState]) -> FrozenMap[str, int]:
        """Return the version of a table that each branch keeps. What is published later rests on it."""
        versions: dict[str, int] = {}
        for name, state in sorted(announced.items()):
            chain = self._branches.chain(state.line.incarnation)
            newest = chain.known or state
            newer = newest.reclaimed.get(table_id, 0) > state.reclaimed[table_id]
            pin = kept_pin(chain, newest if newer else state, table_id)
            if pin is not None and newest.tombstone is None:
                versions[name] = pin.version
        return FrozenMap(versions)

    def _needs(self, table_id: str, pinned: FrozenMap[str, int], first: frozenset[int]) -> _Needs:
        files: set[str] = set()
        kept = frozenset(pinned.values())
        for version in sorted(kept | first):
            try:
                files |= referenced(self._opener.table(table_id, version))
            except (IntegrityError, OSError) as error:
                if version not in kept and not self._is_stored(table_id, version):
                    continue  # another sweep has taken it, one that was announced after our first round
                if isinstance(error, IntegrityError):
                    raise
                raise storage_failure(f"tracing what table {table_id!r} needs", error) from error
        return _Needs(pinned, frozenset(files))

    def _is_stored(self, table_id: str, version: int) -> bool:
        return manifest_path(version) in stored_files(self._location, table_id)

    # -- deleting ----------------------------------------------------------------------------------

    def _sweep(self, table_id: str, files: Mapping[str, int], needs: _Needs) -> Reclaimed:
        doomed = sorted(file for file in files if not self._is_needed(table_id, file, needs))
        versions = [file for file in doomed if file.startswith(VERSIONS)]
        self._delete(table_id, versions)  # first: a version that is still stored is whole
        self._delete(table_id, [file for file in doomed if not file.startswith(VERSIONS)])
        freed = sum(files[file] for file in doomed)
        return Reclaimed(table_id, len(doomed), freed, len(versions), needs.pinned_by)

    def _is_needed(self, table_id: str, file: str, needs: _Needs) -> bool:
        if is_adjacency(file):
            return self._is_of_kept_files(table_id, file, needs)
        return covers(needs.files, file) and not (is_derived(file) and is_unfinished(file))

    def _is_of_kept_files(self, table_id: str, file: str, needs: _Needs) -> bool:
        """Say whether all edges of an adjacency file are in data files that stay; a damaged one goes."""
        try:
            edge_files = cover_in(self._derived.open(table_id, file)).edge_files
        except Unusable:
            return False
        return all(f"data/{name}" in needs.files for name in edge_files)

    def _delete(self, table_id: str, files: Iterable[str]) -> None:
        futures = [self._pool.submit(self._delete_one, f"{TABLES}/{table_id}/{file}") for file in files]
        wait(futures)  # no straggler goes on deleting after an error was told
        for future in futures:
            future.result()

    def _delete_one(self, key: str) -> None:
        with durable(Step.RECLAIM_FILE):
            self._location.objects.delete(key)


def _versions(table_id: str, states: Mapping[str, ManifestState]) -> frozenset[int]:
    pins = (state.pins.get(table_id) for state in states.values())
    return frozenset(pin.version for pin in pins if pin is not None)


def field_ids(handle: Handle, column: str) -> frozenset[int]:
    """Return the numbers under which a version's files hold a column, those of its items included."""
    field = handle.lance_schema.field(column)
    return frozenset() if field is None else frozenset(_field_ids(field))


def carries(handle: Handle, column: str, ids: frozenset[int]) -> bool:
    """Say whether a version's files hold a column, shown or left behind there by a soft drop.

    `ids` are its numbers where it was dropped; a column that both lines inherited has the same on both.
    """
    names = handle.schema.names
    shown = {name: field_ids(handle, name) for name in names}
    stored = {
        number
        for fragment in handle.get_fragments()
        for file in fragment.metadata.files
        for number in file.fields
    }
    if column in shown:
        return not stored.isdisjoint(shown[column])
    return not stored.difference(*shown.values()).isdisjoint(ids)


def _field_ids(field: Handle) -> Iterator[int]:
    yield field.id()
    for child in field.children():
        yield from _field_ids(child)
