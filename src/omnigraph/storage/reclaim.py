"""Reclaim: take away what no live branch's head needs of some tables, whatever history says (a hard drop).

How that is announced, traced and deleted is in sweep.py. If any head cannot be traced, nothing is deleted. A
crash at any point leaves whole heads, history that says it was reclaimed, and at worst files that nothing
names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, IntegrityError, StorageError
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import kept_pin
from omnigraph.storage.manifest.records import ManifestState, Sweep
from omnigraph.storage.opener import Handle
from omnigraph.storage.sweep import CLOCKS_DIFFER_US, Announcer, Sweeper
from omnigraph.storage.tables.files import TABLES, VERSIONS, manifest_path, stored_files


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
        self, location: Location, branches: Branches, announcer: Announcer, sweeper: Sweeper, clock: Clock
    ) -> None:
        self._location = location
        self._clock = clock
        self._branches = branches
        self._announcer = announcer
        self._sweeper = sweeper

    def run(self, tables: Iterable[str]) -> tuple[Reclaimed, ...]:
        """Sweep tables, down to what the heads of the live branches pin."""
        listed = {table_id: stored_files(self._location, table_id) for table_id in sorted(set(tables))}
        first = self.announce(listed.keys())
        announced = self.announce(listed.keys()) if len(first) > 1 else first
        needs = self._trace(listed.keys(), announced, first)
        return tuple(self._sweep(table_id, files, needs[table_id]) for table_id, files in listed.items())

    def announce(self, tables: Collection[str]) -> dict[str, ManifestState]:
        """Announce a sweep of tables on every live branch; return the heads that say so, by branch name."""
        sweep = Sweep(tables=tuple(sorted(tables)), before_us=self._clock.now_us() + CLOCKS_DIFFER_US)
        return self._announcer.tell(lambda _: sweep)[1]

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
                files |= self._sweeper.needs(table_id, version)
            except (IntegrityError, StorageError):
                if version not in kept and not self._is_stored(table_id, version):
                    continue  # another sweep has taken it, one that was announced after our first round
                raise
        return _Needs(pinned, frozenset(files))

    def _is_stored(self, table_id: str, version: int) -> bool:
        return manifest_path(version) in stored_files(self._location, table_id)

    # -- deleting ----------------------------------------------------------------------------------

    def _sweep(self, table_id: str, files: Mapping[str, int], needs: _Needs) -> Reclaimed:
        doomed = self._sweeper.unneeded(table_id, files, needs.files)
        versions = [file for file in doomed if file.startswith(VERSIONS)]
        self._delete(table_id, versions)  # first: a version that is still stored is whole
        self._delete(table_id, [file for file in doomed if not file.startswith(VERSIONS)])
        freed = sum(files[file] for file in doomed)
        return Reclaimed(table_id, len(doomed), freed, len(versions), needs.pinned_by)

    def _delete(self, table_id: str, files: Iterable[str]) -> None:
        self._sweeper.delete(f"{TABLES}/{table_id}/{file}" for file in files)


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
