"""Diagnose: why a graph cannot be opened, read or made here, said so that a person can act on it.

Runs only after something failed (or before a graph is made); looks at what is stored through the object
client, whose errors are typed, instead of parsing anybody's message.

A hard drop or a cleanup may take files away from under a reader. Lance, Arrow and DataFusion then raise what
they raise for any failure, so the error decides nothing: `Readability` looks at what became of the state. It
was reclaimed; or files are lost; or the error is what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar
from weakref import WeakSet

import pyarrow as pa

from omnigraph.base.errors import (
    AlreadyInitialized,
    GraphError,
    GraphNotFound,
    HistoryReclaimed,
    IntegrityError,
    InvalidRequest,
    StorageError,
)
from omnigraph.base.panics import panics_caught
from omnigraph.storage.checksums import FOLDER as CHECKSUMS
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.manifest.branches import Branches
from omnigraph.storage.manifest.chain import MANIFEST, check_kept, versions
from omnigraph.storage.manifest.records import ManifestState
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import Opener
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS
from omnigraph.storage.tables.files import TABLES, referenced, stored_files

T = TypeVar("T")
READS = 16  # of the newest state, when history is reclaimed under each of them
ROWS = ("data/", "_deletions/")  # what holds rows
PARTS = (SCHEMAS, REFS, TABLES, CHECKSUMS)


def why_not_open(location: Location, error: GraphError) -> GraphError:
    """Explain a failed open; what is known already stands, unless there is no graph at all."""
    try:
        if versions(location, MANIFEST):
            return error
        parts = [part for part in PARTS if _any(location, part)]
    except GraphError as refused:
        return refused
    if not parts:
        return GraphNotFound(
            f"there is no graph at {location.uri}",
            remedy="Check the address, or make a graph there with init",
            uri=location.uri,
        )
    return IntegrityError(
        f"{location.uri} holds parts of a graph ({', '.join(parts)}) but no manifest: "
        "it was partly deleted, or its init did not finish",
        remedy=f"Restore {MANIFEST}/ from a copy; if nothing here is needed, init with force",
        uri=location.uri,
    )


def check_free(location: Location, *, force: bool) -> list[str]:
    """Refuse to make a graph over another one, or over leftovers unless `force`; return the parts."""
    check_no_graph(location)
    leftovers = [part for part in PARTS if _any(location, part)]
    if leftovers and not force:
        raise InvalidRequest(
            f"{location.uri} holds parts of a graph ({', '.join(leftovers)}) but no manifest: "
            "another init is running or did not finish, or a graph was partly deleted",
            remedy="If nothing there is needed, init with force to clear it",
            uri=location.uri,
        )
    return leftovers


def check_no_graph(location: Location) -> None:
    """Refuse an address that has a graph."""
    if versions(location, MANIFEST):
        raise AlreadyInitialized(
            f"there is a graph at {location.uri} already",
            remedy="Open it, or choose another address",
            uri=location.uri,
        )


def left_tables(location: Location, table_id: str = "") -> list[str]:
    """Return the files of tables, or of one, that no graph holds.

    Their ids are never used again, so they may be deleted at any later time. Schema objects are not here:
    the new graph may put one of them again, under the same hash.
    """
    return [key for part in (TABLES, CHECKSUMS) for key, _ in location.objects.list(f"{part}/{table_id}")]


def clear(location: Location, keys: Iterable[str]) -> None:
    """Remove what a failed init, or a graph without a manifest, left."""
    for key in keys:
        location.objects.delete(key)


def registry_unreadable(location: Location) -> InvalidRequest:
    """Explain why an init does not take over a registry: deleting it might harm an init that is running."""
    return InvalidRequest(
        f"{location.uri} holds parts of a graph, and the registry of branches among them cannot be read",
        remedy=f"If nothing there is needed and no init is running, delete {REFS}/, then init with force",
        uri=location.uri,
    )


def _any(location: Location, part: str) -> bool:
    return next(location.objects.list(part), None) is not None


# -- reads -------------------------------------------------------------------------------------------


_OF_PROCESS: WeakSet[Readability] = WeakSet()  # a cleanup looks at the reads of every handle that there is


class Readability:
    """Judges reads that failed: the one place where a missing file gets its meaning."""

    def __init__(self, location: Location, opener: Opener, branches: Branches) -> None:
        self._location = location
        self._opener = opener
        self._branches = branches
        self._reading: dict[int, tuple[ManifestState, ...]] = {}  # one entry for each block that is open
        self._blocks = count()
        _OF_PROCESS.add(self)

    @contextmanager
    def judged(self, *states: ManifestState, tables: Collection[str] | None = None) -> Iterator[None]:
        """Read some tables of states, or all; raise `history_reclaimed` for what a reclaim took away.

        A cleanup by this process leaves alone what is being read in such a block.
        """
        block = next(self._blocks)
        self._reading[block] = states
        try:
            with panics_caught():
                yield
        except Exception as error:
            reason = self.reason(error, *states, tables=tables)
            if reason is error:
                raise
            raise reason from error
        finally:
            del self._reading[block]

    def being_read(self) -> tuple[ManifestState, ...]:
        """Return the states of this graph that this process is reading now, by whichever handle."""
        here = [other for other in list(_OF_PROCESS) if other._location.uri == self._location.uri]
        return tuple(state for one in here for states in list(one._reading.values()) for state in states)

    def reason(
        self, error: Exception, *states: ManifestState, tables: Collection[str] | None = None
    ) -> Exception:
        """Return why a read of some tables of states failed: `history_reclaimed`, or the error itself."""
        return self._why(states, tables, error) if _may_be_missing(error) else error

    def reclaimed(self, state: ManifestState, tables: Collection[str] | None = None) -> GraphError | None:
        """Look at a chain again; say why a state of it can no longer be read as it was captured, if so."""
        chain = self._branches.chain(state.line.incarnation)
        head = chain.latest()
        deleted = head.tombstone is not None
        if not head.keeps(state.version) and chain.at(head.floor).pins != state.pins:
            return _below(state, head.floor)
        try:
            for table_id in state.pins if tables is None else tables:
                check_kept(chain, state, table_id)
        except HistoryReclaimed as reason:
            return reason
        return _deleted(state) if deleted else None

    def _why(
        self, states: Collection[ManifestState], tables: Collection[str] | None, error: Exception
    ) -> Exception:
        try:
            for state in states:
                reason = self.reclaimed(state, tables)
                if reason is not None:
                    return reason
            if not isinstance(error, GraphError):
                for state in states:
                    self._check_stored(state, state.pins if tables is None else tables)
        except GraphError as reason:
            return error if isinstance(error, GraphError) else reason
        untyped = isinstance(error, OSError | pa.ArrowException) or type(error) is Exception
        return storage_failure("reading a table", error) if untyped else error

    def _check_stored(self, state: ManifestState, tables: Collection[str]) -> None:
        """Raise when a file that a state needs is not there."""
        for pin in (state.pins[table_id] for table_id in tables if table_id in state.pins):
            stored = stored_files(self._location, pin.table_id)
            needed = referenced(self._opener.table(pin.table_id, pin.version))
            lost = sorted(file for file in needed if file.startswith(ROWS) and file not in stored)
            lost = [file for file in lost if not file.endswith("/")]  # a folder may be empty
            if lost:
                raise IntegrityError(
                    f"{pin.name!r} at commit {state.head} needs {len(lost)} files that are not stored, "
                    f"{lost[0]} for one",
                    remedy="They are missing: restore tables/ from a copy of the graph",
                    table=pin.table_id,
                    version=str(pin.version),
                )


def of_the_newest(read: Callable[[], T]) -> T:
    """Read the newest state, which `read` captures: again, when its history is reclaimed meanwhile.

    A read of a state that was named fails a second time in the same way, and is refused.
    """
    before: HistoryReclaimed | None = None
    for _ in range(READS):
        try:
            return read()
        except HistoryReclaimed as error:
            if before is not None and before.fields == error.fields:
                raise  # not the newest state, but one that stays as it is
            before = error
    assert before is not None
    raise before


def _may_be_missing(error: Exception) -> bool:
    """Say whether an error is one of those that a missing file can cause."""
    if isinstance(error, GraphError):
        return isinstance(error, StorageError | IntegrityError)
    # Of Lance or Arrow, whose errors are ValueErrors; DataFusion raises nothing more specific than Exception.
    return isinstance(error, OSError | ValueError | RuntimeError) or type(error) is Exception


def _below(state: ManifestState, floor: int) -> HistoryReclaimed:
    return HistoryReclaimed(
        f"commit {state.head} is below the retention floor, version {floor}, and its data may be gone",
        remedy="Choose a newer commit",
        commit=state.head,
        version=state.version,
        floor=floor,
    )


def _deleted(state: ManifestState) -> HistoryReclaimed:
    """Return the reason for a state of a deleted branch: nobody tells that what is reclaimed."""
    return HistoryReclaimed(
        f"the branch that held commit {state.head} was deleted, and its data may be gone",
        remedy="Choose a commit of another branch",
        commit=state.head,
    )
