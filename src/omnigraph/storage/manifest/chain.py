"""Chain: one line of graph versions, main's or one lifetime of a branch.

Turns the maps of a metadata dataset into `ManifestState` values and back: `latest` (one probe), `at` a
version, `find` by commit id, and `commit` (the compare-and-swap), which only publish.py, branches.py and the
retention floor may call. At the end, which pins of an old version a hard drop took away.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import HistoryReclaimed
from omnigraph.storage.failpoints import Step
from omnigraph.storage.manifest.metadata import MetadataDataset
from omnigraph.storage.manifest.records import RECENT, ChainIdentity, ManifestState, Pin, decode, encode
from omnigraph.storage.opener import OpenFailed

MANIFEST = "__manifest"
PAST_STATES = 128


def chain_path(incarnation: str) -> str:
    """Return where a chain is stored; main's is the manifest itself."""
    return MANIFEST if incarnation == "main" else f"{MANIFEST}/tree/{incarnation}"


class Chain:
    """The versions of one incarnation."""

    def __init__(self, incarnation: str, dataset: MetadataDataset) -> None:
        self.incarnation = incarnation
        self._dataset = dataset
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
        state = decode(version, content or {}, self._dataset.path)
        self._remember(state)
        return state

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
        while low <= head.version:  # each state names the commits of the last RECENT versions at least
            last = min(low + RECENT - 1, head.version)
            for version, recent_id in self.at(last).recent:
                if recent_id == commit_id:
                    return self.at(version)
            low = last + 1
        return None

    def may_have_forgotten(self, commit_id: str, head: ManifestState) -> bool:
        """Say whether a commit that is not found may have been below the retention floor."""
        return head.floor > 1 and commit_id <= self.at(head.floor).newest_id

    def _read(self, version: int) -> ManifestState:
        try:
            content = self._dataset.at(version)
        except OpenFailed as error:
            raise HistoryReclaimed(
                f"version {version} of {self._dataset.path} is no longer stored",
                remedy="Choose a newer commit; retention removed this one",
                version=version,
            ) from error
        return decode(version, content, self._dataset.path)


def main_line(created_us: int) -> ChainIdentity:
    """Return the identity of main's chain."""
    return ChainIdentity(incarnation="main", created_us=created_us)


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
