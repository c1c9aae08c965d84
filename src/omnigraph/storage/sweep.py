"""Sweep: how files of a graph are deleted, by a hard drop (reclaim.py) and by a cleanup (cleanup.py).

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

Derived files go with the data files that they are derived from, so nothing that was taken away can be worked
out from what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor, wait

from omnigraph.base.errors import BranchNotFound, GraphError
from omnigraph.base.ids import Clock
from omnigraph.storage.derived.adjacency import cover_in, is_adjacency
from omnigraph.storage.derived.blocks import Unusable
from omnigraph.storage.derived.files import DerivedFiles, is_derived, is_unfinished
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import CommitInDoubt, ControlRetry, HeadMoved
from omnigraph.storage.manifest.records import MAIN, ManifestState, Sweep
from omnigraph.storage.manifest.refs import Refs, RefsState
from omnigraph.storage.opener import Opener
from omnigraph.storage.tables.files import covers, referenced

Announce = Callable[[str, Sweep, str], ManifestState]  # on one branch, by name and incarnation
CLOCKS_DIFFER_US = 3_600_000_000  # how far this machine's clock and the store's may be apart
SweepOf = Callable[[str], Sweep]  # of one chain, by incarnation


class Announcer:
    """Tells every live branch and the registry that files will be deleted."""

    def __init__(self, branches: Branches, refs: Refs, announce: Announce, clock: Clock) -> None:
        self._branches = branches
        self._refs = refs
        self._announce = announce
        self._clock = clock

    def tell(self, sweep_of: SweepOf) -> tuple[RefsState, dict[str, ManifestState]]:
        """Announce a sweep on every live branch; return the registry and the heads that say so, by name.

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
                    announced[name] = self._announce(name, sweep_of(live[name]), live[name])
                except BranchNotFound:
                    continue  # deleted just now, perhaps made anew: the registry has moved, or will
            try:
                return self._refs.fence(refs, Step.RECLAIM_FENCE), announced
            except (HeadMoved, CommitInDoubt) as error:
                retry.lose(error)


class Sweeper:
    """Traces and deletes files of one graph."""

    def __init__(self, location: Location, opener: Opener, pool: Executor) -> None:
        self._location = location
        self._derived = DerivedFiles(location)
        self._opener = opener
        self._pool = pool

    def needs(self, table_id: str, version: int) -> frozenset[str]:
        """Return the files that a version of a table needs; raise if that cannot be found out."""
        try:
            return referenced(self._opener.table(table_id, version, remember=False))
        except OSError as error:
            raise storage_failure(f"tracing what table {table_id!r} needs", error) from error

    def is_whole(self, state: ManifestState) -> bool:
        """Say whether the tables of a state are stored; of what is deleted, versions go first."""
        try:
            for table_id, pin in state.pins.items():
                self.needs(table_id, pin.version)
        except GraphError:
            return False
        return True

    def unneeded(self, table_id: str, files: Iterable[str], needed: Collection[str]) -> list[str]:
        """Return those of a table's files that nothing needs, in order."""
        return sorted(file for file in files if not self._is_needed(table_id, file, needed))

    def _is_needed(self, table_id: str, file: str, needed: Collection[str]) -> bool:
        if is_adjacency(file):
            return self._is_of_kept_files(table_id, file, needed)
        return covers(needed, file) and not (is_derived(file) and is_unfinished(file))

    def _is_of_kept_files(self, table_id: str, file: str, needed: Collection[str]) -> bool:
        """Say whether all edges of an adjacency file are in data files that stay; a damaged one goes."""
        try:
            edge_files = cover_in(self._derived.open(table_id, file)).edge_files
        except Unusable:
            return False
        return all(f"data/{name}" in needed for name in edge_files)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; raise the first error after all were tried."""
        for error in self.try_delete(keys).values():
            raise error

    def try_delete(self, keys: Iterable[str]) -> dict[str, GraphError]:
        """Delete objects side by side; return those that could not be, with the reason."""
        futures = {key: self._pool.submit(self._delete_one, key) for key in keys}
        wait(futures.values())  # no straggler goes on deleting after an error was told
        refused: dict[str, GraphError] = {}
        for key, future in futures.items():
            try:
                future.result()
            except GraphError as error:
                refused[key] = error
        return refused

    def _delete_one(self, key: str) -> None:
        with durable(Step.RECLAIM_FILE):
            self._location.objects.delete(key)
