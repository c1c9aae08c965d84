"""Chain: one line of graph versions, main's or one lifetime of a branch, and the dataset that holds it.

`Chain` turns the maps of a metadata dataset into `ManifestState` values and back: `latest` (one probe), `at`
a version, `find` by commit id, and `commit` (the compare-and-swap), which only publish.py, turns.py,
branches.py and the retention floor may call.

`MetadataDataset` is a map of text keys, changed only by compare-and-swap: a Lance dataset with zero rows
whose schema metadata is the map. Creating it carries the first map, so there is never a half-made one; every
change is one `UpdateConfig` commit of the schema metadata. Any two such changes made from the same version
conflict, whichever keys they touch (guarded by tests/storage/test_lance_guards.py), so a stale writer can
never slip through. Requests: read 1 when unchanged, else 2; commit 3; create 4, however long the history is.
The reasons are in docs/decisions/0002-metadata-only-manifest.md.

At the end: how long control writes go on trying, and which pins of an old version a hard drop took away.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.commit import CommitConflictError

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import FormatTooOld, HistoryReclaimed, IntegrityError, PublishContention
from omnigraph.base.ids import Clock, Stopwatch
from omnigraph.storage.cost import count_object_request, stage
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location, storage_failure
from omnigraph.storage.manifest.formats import check_served
from omnigraph.storage.manifest.records import RECENT, ChainIdentity, ManifestState, Pin, decode, encode
from omnigraph.storage.opener import MAX_VERSION, Handle, Opener, OpenFailed, manifest_file

# -- damaged manifests -----------------------------------------------------------------------------
#
# What a dataset that cannot be read looks like, said so that a person can act on it. Runs only after Lance
# failed to open a version, and looks at the files themselves. Lance does not sync: after a power cut the
# newest manifest may be empty, cut off or full of zeros. With our syncing it was then never acknowledged to
# anybody, so deleting it loses nothing.


MAGIC = b"LANC"  # every complete Lance file ends with it


def versions(location: Location, path: str) -> list[int]:
    """Return the numbered versions stored below a path, oldest first."""
    numbers = []
    for key, _ in location.objects.list(f"{path}/_versions"):
        name = key.rsplit("/", 1)[-1].removesuffix(".manifest")
        if key.endswith(".manifest") and name.isdigit():
            numbers.append(MAX_VERSION - int(name))
    return sorted(numbers)


def find_damage(location: Location, path: str) -> IntegrityError | None:
    """Say what is wrong with the newest version of a dataset, if it is the file itself."""
    stored = versions(location, path)  # a refusal of the store comes out typed here
    if not stored:
        return None
    newest = stored[-1]
    file = f"{path}/_versions/{manifest_file(newest)}"
    content = location.objects.read(file)
    if content is None or content.endswith(MAGIC):
        return None
    what = f"{file} at {location.uri} is cut off ({len(content)} bytes), as after a power cut"
    if len(stored) == 1:
        return IntegrityError(
            f"{what}, and there is no version before it",
            remedy=f"Restore {path}/ from a copy; if the graph was only just made, make it anew with force",
            version=newest,
        )
    return IntegrityError(
        f"{what}: it was never acknowledged to anybody",
        remedy=f"Delete {file} below {location.uri}; "
        f"version {stored[-2]} is intact and becomes the newest again",
        version=newest,
    )


# -- metadata dataset ----------------------------------------------------------------------------


_NO_COLUMNS = pa.field("unused", pa.int8())  # Lance needs a column; no row ever has a value for it


class HeadMoved(Exception):
    """Another writer committed first. Nothing was written."""


class CommitInDoubt(Exception):
    """The commit failed in a way that leaves open whether it landed; the cause is attached."""


_PAUSES = (0.01, 0.05, 0.2)  # of a second, while another process finishes what it began


class AlreadyThere(Exception):
    """The dataset to be created exists."""


REOPENED_AT = 256  # the version at which a dataset that was made by this process is opened again


class MetadataDataset:
    """One zero-row dataset and its newest known handle. Thread-safe."""

    def __init__(
        self,
        path: str,
        *,
        location: Location,
        opener: Opener,
        syncer: Syncer,
        clock: Clock,
        confirm_after_s: float,
    ) -> None:
        self.path = path
        self._clock = clock
        self._confirm_after_s = confirm_after_s
        self._location = location
        self._opener = opener
        self._syncer = syncer
        self._lock = threading.Lock()
        self._handle: Handle | None = None
        self._is_there = _QuickPresence()
        self._listed = -math.inf  # when the handle was last known to be the newest without the quick probe
        self._made_here = False  # Lance gives the handle of a dataset that it creates a session of its own

    @property
    def address(self) -> str:
        """Where its graph is."""
        return self._location.uri

    def create(self, content: Mapping[str, str], step: Step) -> None:
        """Make the dataset with its first map; exactly one of several racing callers succeeds."""
        schema = pa.schema([_NO_COLUMNS], metadata=dict(content))
        stage()
        began = self._clock.monotonic()
        try:
            with durable(step):
                handle = LanceDataset.commit(
                    self._location.join(self.path),
                    LanceOperation.Overwrite(schema, []),
                    max_retries=0,
                    storage_options=self._location.lance_options,
                )
        except OSError as error:
            handle = self._landed_after_all(content, error)
        self._synced(handle.version)
        self._handle, self._listed = handle, began
        self._made_here = True

    def _landed_after_all(self, content: Mapping[str, str], error: OSError) -> Handle:
        """Find our own dataset behind a lost reply; else say whether somebody else's is there."""
        if not self._appears():
            raise storage_failure(f"creating {self.path}", error) from error
        handle = self._opener.latest(self.path)
        if _content(handle) != dict(content):
            raise AlreadyThere(self.path) from error
        return handle

    def _appears(self) -> bool:
        """Say whether there is a version. One that is being made refuses a second one before it is there."""
        for pause in _PAUSES:
            if any(self._location.objects.list(f"{self.path}/_versions")):
                return True
            self._clock.sleep(pause)
        return False

    def latest(self, known_version: int | None = None) -> tuple[int, dict[str, str] | None]:
        """Return the newest version and its map (the freshness probe); no map if the version is known."""
        self._opener.check_open()
        stage(of_lance=False)
        newest = self._handle
        if newest is not None and newest.version == known_version and self._still_newest(newest.version):
            return newest.version, None
        began = self._clock.monotonic()
        try:
            handle = self._opener.latest(self.path) if newest is None else self._opener.refresh(newest)
        except OpenFailed as error:
            raise find_damage(self._location, self.path) or error from error
        with self._lock:
            if self._handle is None or handle.version >= self._handle.version:
                self._handle = handle  # never go back: a slower thread may hold an older answer
                self._listed = max(self._listed, began)
        if handle.version == known_version:
            return handle.version, None
        content = _content(handle)
        if not content and (damage := find_damage(self._location, self.path)) is not None:
            raise damage  # Lance takes a manifest full of zeros for one that says nothing
        return handle.version, content

    def is_unchanged(self, version: int) -> bool:
        """Say whether a version is certainly still the newest, where local disk tells that at once."""
        self._opener.check_open()
        newest = self._handle
        return newest is not None and newest.version == version and self._still_newest(version)

    def _still_newest(self, version: int) -> bool:
        """Answer the probe on local disk without listing every version there is, which Lance does.

        Versions have no gaps, and retention removes them oldest first: while this one is there and the
        next is not, no later one exists. Anything else is for Lance to find out.

        A commit that stalled may put a version back that retention removed. Versions stay for longer than a
        listing is trusted here, so until then the one after ours is there if it was ever made.
        """
        if not self._location.is_local or self._clock.monotonic() - self._listed > self._confirm_after_s:
            return False
        count_object_request()
        folder = f"{self._location.uri}/{self.path}/_versions"
        next_file, this_file = manifest_file(version + 1), manifest_file(version)
        return not self._is_there(f"{folder}/{next_file}") and self._is_there(f"{folder}/{this_file}")

    def at(self, version: int) -> dict[str, str]:
        """Return the map as it was at one version."""
        return _content(self._opener.at(self.path, version))

    def commit(self, base: int, updates: Mapping[str, str | None], step: Step) -> int:
        """Change keys (None removes one) if the newest version is still `base`; return the new version."""
        handle = self._handle
        if handle is None or handle.version != base:
            raise HeadMoved(self.path)  # known to be stale already: no request needed
        change = LanceOperation.UpdateConfig(
            schema_metadata_updates=LanceOperation.UpdateMap(dict(updates), replace=False)
        )
        stage()
        began, watch = self._clock.monotonic(), Stopwatch(self._clock)
        try:
            with durable(step):
                done = LanceDataset.commit(handle, change, read_version=base, max_retries=0)
        except CommitConflictError as error:
            raise HeadMoved(self.path) from error
        except OSError as error:
            raise CommitInDoubt(self.path) from error
        if watch.seconds() > self._confirm_after_s:
            self._confirm(done.version)
        if self._made_here and done.version >= REOPENED_AT:
            done = self._in_our_session(done)
        with self._lock:
            if self._handle is None or done.version >= self._handle.version:
                self._handle = done
                self._listed = max(self._listed, began)
        self._synced(done.version)
        return int(done.version)

    def _confirm(self, version: int) -> None:
        """Look whether a commit that stalled is the newest version.

        It may have taken the name of a version that others had made and a cleanup deleted meanwhile, and
        then no reader will ever see it; whoever made it reads back what became of it.
        """
        try:
            newest = self._opener.latest(self.path).version
        except OpenFailed as error:
            raise CommitInDoubt(self.path) from error
        if newest != version:
            raise CommitInDoubt(self.path)

    def _in_our_session(self, handle: Handle) -> Handle:
        """Open a version again, once: where it was made, each further commit would stay in memory."""
        self._made_here = False
        with suppress(OpenFailed):  # the commit has landed, whatever comes of this
            return self._opener.at(self.path, handle.version)
        return handle

    def _synced(self, version: int) -> None:
        with durable(Step.HEAD_SYNC):
            self._syncer.files([f"{self._location.uri}/{self.path}/_versions/{manifest_file(version)}"])


class _QuickPresence:
    """Says whether a local file is there, without letting other threads of Python in meanwhile.

    A look at a quick disk takes a microsecond. `os.stat` lets the interpreter go for it, and getting it back
    costs a wake-up each time: four reader threads were half as fast as one. A disk that is slow (a network
    file system) is asked in the usual way after a few slow answers in a row.
    """

    SLOW_NS = 200_000
    MOST_SLOW = 8

    def __init__(self) -> None:
        self._slow = 0

    def __call__(self, path: str) -> bool:
        """Look."""
        if _access is None or self._slow >= self.MOST_SLOW:
            return os.path.exists(path)
        began = time.perf_counter_ns()
        there = bool(_access(os.fsencode(path), os.F_OK) == 0)
        self._slow = self._slow + 1 if time.perf_counter_ns() - began > self.SLOW_NS else 0
        return there


def _access_of_libc() -> Any:
    """Return `access` of the C library, called with the interpreter held; None on a system that has none."""
    try:
        access = ctypes.PyDLL(None).access
    except (OSError, TypeError, AttributeError):
        return None
    access.argtypes = [ctypes.c_char_p, ctypes.c_int]
    return access


_access = _access_of_libc()


def _content(handle: Handle) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (handle.schema.metadata or {}).items()}


# -- chain -------------------------------------------------------------------------------------------


MANIFEST = "__manifest"
KEPT = "__kept"
PAST_STATES = 128


def chain_path(incarnation: str) -> str:
    """Return where a chain is stored; main's is the manifest itself."""
    return MANIFEST if incarnation == "main" else f"{MANIFEST}/tree/{incarnation}"


class KeptStates:
    """States of versions that retention keeps below the floor of their chain, each as an object of its own.

    The versions of a chain have no gaps, and whoever probes for a newer one relies on that. So what is kept
    below the floor is not kept in the chain.
    """

    def __init__(self, location: Location, syncer: Syncer) -> None:
        self._location = location
        self._syncer = syncer

    def put(self, incarnation: str, state: ManifestState) -> None:
        """Store a state; storing it again changes nothing."""
        key, content = kept_path(incarnation, state.version), json.dumps(encode(state))
        with durable(Step.KEPT):
            self._location.objects.create(key, content.encode())
            if self._location.is_local:
                self._syncer.files([self._location.join(key)])

    def get(self, incarnation: str, version: int) -> ManifestState | None:
        """Return a state that was kept, or None."""
        key = kept_path(incarnation, version)
        content = self._location.objects.read(key)
        return None if content is None else decode(version, _parsed_map(content, key), key)


def kept_path(incarnation: str, version: int) -> str:
    """Return where the state of a version is stored that is kept below its chain's floor."""
    return f"{KEPT}/{incarnation}/{version}.json"


def _parsed_map(content: bytes, key: str) -> dict[str, str]:
    try:
        return dict(json.loads(content))
    except (TypeError, ValueError) as error:
        raise IntegrityError(
            f"{key} is not a graph version: {error!r}", remedy="It was damaged: restore it from a copy"
        ) from error


class Chain:
    """The versions of one incarnation."""

    def __init__(self, incarnation: str, dataset: MetadataDataset, kept: KeptStates) -> None:
        self.incarnation = incarnation
        self._dataset = dataset
        self._kept = kept
        self._latest: ManifestState | None = None
        self._past = BoundedCache[int, ManifestState](PAST_STATES)
        self._lock = threading.Lock()

    def create(self, state: ManifestState, step: Step) -> None:
        """Start the chain with a complete first state."""
        self._dataset.create(encode(state), step)
        self._remember(state)

    def latest(self) -> ManifestState:
        """Return the newest state: one request when nothing changed since the last call."""
        known = self._latest
        version, content = self._dataset.latest(None if known is None else known.version)
        if known is not None and content is None:
            return known
        state = self._decode_head(version, content or {})
        self._remember(state)
        return state

    def _decode_head(self, version: int, content: Mapping[str, str]) -> ManifestState:
        """Read the newest state, which is of our format: versions of older formats are past ones.

        A chain that has ended keeps the format it had. Nobody writes there, whatever their release.
        """
        try:
            check_served(content, self._dataset.path, self._dataset.address)
        except FormatTooOld:
            state = decode(version, content, self._dataset.path)
            if state.tombstone is None:
                raise
            return state
        return decode(version, content, self._dataset.path)

    def _remember(self, state: ManifestState) -> None:
        self._past.put(state.version, state)
        with self._lock:
            known = self._latest
            if known is None or state.version > known.version:  # a slower thread may hold an older answer
                self._latest = state

    @property
    def known(self) -> ManifestState | None:
        """The newest state seen so far: a hint that costs nothing."""
        return self._latest

    def is_unchanged(self, state: ManifestState) -> bool:
        """Say whether a state is certainly still the newest, where local disk tells that at once."""
        return self._dataset.is_unchanged(state.version)

    def at(self, version: int) -> ManifestState:
        """Return the state of one version, or say that it was reclaimed."""
        state = self._past.get(version)
        if state is None:
            state = self._read(version)
            self._remember(state)
        return state

    def commit(self, state: ManifestState, updates: Mapping[str, str | None], step: Step) -> ManifestState:
        """Publish `state` if the chain is still at the version before it; else raise HeadMoved."""
        version = self._dataset.commit(state.version - 1, updates, step)
        if version != state.version:  # any two updates of the map conflict, so Lance cannot have rebased
            raise AssertionError(f"manifest commit landed as version {version}, expected {state.version}")
        self._remember(state)
        return state

    def find(self, commit_id: str, head: ManifestState) -> ManifestState | None:
        """Return the version that a commit made on this chain, or None.

        Ids sort by the time they were minted, but a slow writer may publish late, so ids along the
        chain are not sorted. `newest_id` is: binary search for the first version at or past the id,
        then go on from there in strides. Cost: 2 log2(depth) requests, plus 2 for each 32 versions walked.
        """
        for version, recent_id in head.recent:
            if recent_id == commit_id:
                return self.at(version) if version != head.version else head
        if commit_id > head.newest_id:
            return None
        low, high = max(1, head.floor), head.version
        while low < high:
            middle = (low + high) // 2
            if self.at(middle).newest_id >= commit_id:
                high = middle
            else:
                low = middle + 1
        if head.kept and commit_id <= self.at(head.floor).newest_id:
            older = self._find_kept(commit_id, head)
            if older is not None:
                return older
        while low <= head.version:  # each state names the commits of the last RECENT versions at least
            last = min(low + RECENT - 1, head.version)
            for version, recent_id in self.at(last).recent:
                if recent_id == commit_id:
                    return self.at(version)
            low = last + 1
        return None

    def _find_kept(self, commit_id: str, head: ManifestState) -> ManifestState | None:
        """Return the version below the floor that a commit made, if it is one of those that were kept."""
        first = bisect_left(head.kept, commit_id, key=lambda version: self.at(version).newest_id)
        for version in head.kept[first:]:
            state = self.at(version)
            if state.head == commit_id:
                return state
            if any(recent_id == commit_id for _, recent_id in state.recent):
                return None  # it was published before this one, and not kept
        return None

    def may_have_forgotten(self, commit_id: str, head: ManifestState) -> bool:
        """Say whether a commit that is not found may have been below the retention floor."""
        return head.floor > 1 and commit_id <= self.at(head.floor).newest_id

    def keeps(self, version: int) -> bool:
        """Say whether retention promises a version, as far as this process knows."""
        known = self._latest
        return known is None or known.keeps(version)

    def keep(self, version: int) -> None:
        """Store the state of a version apart, so that it can be read when the chain is trimmed past it."""
        self._kept.put(self.incarnation, self.at(version))

    def _read(self, version: int) -> ManifestState:
        """Read one version; what is kept below the floor goes before what lies in the chain there.

        A commit that stalled may have put another version back in the place of one that was trimmed.
        """
        known = self._latest
        trimmed = known is not None and version < known.floor
        state = self._kept.get(self.incarnation, version) if trimmed else None
        if state is not None:
            return state
        try:
            content = self._dataset.at(version)
        except OpenFailed as error:
            state = self._kept.get(self.incarnation, version)
            if state is not None:
                return state
            raise HistoryReclaimed(
                f"version {version} of {self._dataset.path} is no longer stored",
                remedy="Choose a newer commit; retention removed this one",
                version=version,
            ) from error
        return decode(version, content, self._dataset.path)


def main_line(created_us: int) -> ChainIdentity:
    """Return the identity of main's chain."""
    return ChainIdentity(incarnation="main", created_us=created_us)


# -- retries of control writes ---------------------------------------------------------------------
#
# How long a write of a chain or of the registry that may lose its swap goes on trying.


ATTEMPTS = 64  # each lost attempt means that somebody else's change landed
FAILURES = 3  # attempts that the store itself refused


class ControlRetry:
    """How long a control write goes on trying: others may come first often, the store may refuse rarely."""

    def __init__(self, doing: str, branch: str, clock: Clock) -> None:
        self._doing = doing
        self._branch = branch
        self._clock = clock
        self._started = clock.monotonic()
        self._lost = self._failed = 0

    def lose(self, error: HeadMoved | CommitInDoubt) -> None:
        """Note a lost attempt; raise when there have been too many."""
        self._lost += 1
        self._failed += isinstance(error, CommitInDoubt)
        if self._failed >= FAILURES:
            raise storage_failure(self._doing, error.__cause__ or error) from error
        if self._lost >= ATTEMPTS:
            elapsed = self._clock.monotonic() - self._started
            raise PublishContention(self._branch, attempts=self._lost, elapsed_ms=int(elapsed * 1000))


# -- reclaimed pins --------------------------------------------------------------------------------
#
# A hard drop takes a table's history away and leaves the other tables theirs, so the floor cannot say it:
# each chain notes the version that announced the reclaim of a table. Of the versions before that note, a pin
# is readable only if it is the one that was in force then. While no table was reclaimed, looking costs
# nothing.


def kept_pin(chain: Chain, head: ManifestState, table_id: str) -> Pin | None:
    """Return the one pin that the newest reclaim of a table left in force on a chain, if it left any."""
    since = head.reclaimed[table_id]
    return (head if since == head.version else chain.at(since)).pins.get(table_id)


def check_kept(chain: Chain, state: ManifestState, table_id: str) -> None:
    """Raise when the table as this state pins it was reclaimed, as far as this process knows."""
    pin, known = state.pins.get(table_id), chain.known
    since = None if known is None else known.reclaimed.get(table_id)
    if pin is None or known is None or since is None or state.version >= since:
        return
    kept = kept_pin(chain, known, table_id)
    if kept is None or kept.version != pin.version:
        raise HistoryReclaimed(
            f"the history of {pin.name!r} before version {since} was reclaimed by a hard drop; "
            f"version {state.version} needs it",
            remedy="Choose a newer commit; other types of this one can still be read",
            commit=state.head,
            type_name=pin.name,
            version=state.version,
            floor=since,
        )


def check_whole(chain: Chain, state: ManifestState) -> None:
    """Raise when any table that this state pins was reclaimed."""
    for table_id in state.pins:
        check_kept(chain, state, table_id)
