"""Opener: opens every Lance dataset.

Shares a Lance session among tables (index pages, file footers), and a small one among manifests: of these
Lance keeps every version that is committed, and nobody reads them again. Table handles are kept by (table id,
version). Tables
are opened by pinned version only; "latest" exists for manifests. `opens` counts the datasets that were really
opened: the cost tests assert on it. A source check (tests/storage/test_source_rules.py) refuses
`lance.dataset` anywhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import lance
from lance.lance import _Session

from omnigraph.base.bounded_cache import BoundedCache
from omnigraph.base.errors import GraphClosed, GraphError, IntegrityError, StorageError
from omnigraph.base.panics import panics_caught
from omnigraph.storage.cost import asks_lance
from omnigraph.storage.location import Location

Handle = Any  # lance.LanceDataset: untyped upstream
MAX_VERSION = 2**64 - 1
DETACHED = 2**63  # detached versions are random numbers from here up
HANDLES = 512
INDEX_CACHE_BYTES = 512 << 20
METADATA_CACHE_BYTES = 256 << 20
MANIFEST_CACHE_BYTES = 2 << 20  # measured: 7 KB for each commit, without an end that would be met
# On an object store, rows that lie this close are fetched by one request (measured: a hop to 20 neighbours
# among 1,000,000 nodes takes 18 requests instead of 27, and 1.1 MB more).
FETCHED_TOGETHER = 192 << 10


def manifest_file(version: int) -> str:
    """Return the file name of a version: numbered ones sort newest first, detached ones have a `d`."""
    return f"d{version}.manifest" if version >= DETACHED else f"{MAX_VERSION - version:020d}.manifest"


class FirstReadCheck(Protocol):
    """Whoever looks at the files of a version before anybody reads them."""

    def opened(self, table_id: str, version: int, open_table: Callable[[], Handle]) -> Handle:
        """Return a version that was opened, if its files are what was written."""
        ...


class OpenFailed(StorageError):
    """Lance could not open a dataset; the cause is attached. Whoever can find out more says more."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"cannot read {uri}",
            remedy="Check the address, the network and the storage service, then try again",
            storage_kind="unknown",
        )


class Opener:
    """Opens datasets below one root."""

    def __init__(self, location: Location, first_reads: FirstReadCheck | None = None) -> None:
        self._location = location
        self._first_reads = first_reads
        self._session = _Session(
            index_cache_size_bytes=INDEX_CACHE_BYTES, metadata_cache_size_bytes=METADATA_CACHE_BYTES
        )
        self._manifest_session = _Session(
            index_cache_size_bytes=MANIFEST_CACHE_BYTES, metadata_cache_size_bytes=MANIFEST_CACHE_BYTES
        )
        self._tables = BoundedCache[tuple[str, int], Handle](HANDLES)
        self._lock = threading.Lock()
        self.opens = 0
        self._closed = False

    def close(self) -> None:
        """Let go of all handles; from now on every question is refused, also by whoever is on the way."""
        with self._lock:
            self._closed = True
            self._tables.clear()

    def check_open(self) -> None:
        """Refuse what comes after `close`."""
        if self._closed:
            raise GraphClosed(self._location.uri)

    def latest(self, path: str) -> Handle:
        """Open a metadata dataset at its newest version (2 requests)."""
        return self._open(path, None, self._manifest_session)

    def at(self, path: str, version: int) -> Handle:
        """Open a metadata dataset at one version (2 requests)."""
        return self._open(path, version, self._manifest_session)

    def refresh(self, handle: Handle) -> Handle:
        """Return the newest version as a new handle (1 request if unchanged, else 2)."""
        self.check_open()
        asks_lance()
        try:
            with panics_caught():
                return handle.checkout_version((None, None))
        except (OSError, ValueError) as error:
            raise OpenFailed(handle.uri) from error

    def table(self, table_id: str, version: int, *, remember: bool = True) -> Handle:
        """Return a table at its pinned version, from the cache when it was opened before.

        Whoever looks at many versions once does not ask for them to be remembered.
        """
        self.check_open()
        handle = self._tables.get((table_id, version))
        if handle is not None:
            return handle
        try:
            handle = self._open_table(table_id, version)
        except OpenFailed as error:
            raise self._why_no_table(table_id, version, error) from error
        if remember:
            self.adopt(table_id, handle)
        return handle

    def _open_table(self, table_id: str, version: int) -> Handle:
        def opened() -> Handle:
            return self._open(f"tables/{table_id}", version, self._session)

        return opened() if self._first_reads is None else self._first_reads.opened(table_id, version, opened)

    def adopt(self, table_id: str, handle: Handle) -> None:
        """Remember a handle that a commit returned, so that nobody has to open it."""
        with self._lock:
            if not self._closed:
                self._tables.put((table_id, handle.version), handle)

    def _why_no_table(self, table_id: str, version: int, error: OpenFailed) -> GraphError:
        """Tell a lost table from a store that does not answer."""
        stored = self._location.objects.list(f"tables/{table_id}/_versions")
        if any(key.endswith(f"/{manifest_file(version)}") for key, _ in stored):
            return error
        return IntegrityError(
            f"table {table_id!r} is pinned at version {version}, which is not stored",
            remedy="Its files are missing: restore tables/ from a copy of the graph",
            table=table_id,
            version=str(version),
        )

    def _open(self, path: str, version: int | None, session: _Session) -> Handle:
        self.check_open()
        uri = self._location.join(path)
        with self._lock:
            self.opens += 1
        asks_lance()
        try:
            with panics_caught():
                return lance.dataset(
                    uri,
                    version=version,
                    block_size=None if self._location.is_local else FETCHED_TOGETHER,
                    storage_options=self._location.lance_options,
                    session=session,
                )
        except (OSError, ValueError) as error:
            raise OpenFailed(uri) from error
