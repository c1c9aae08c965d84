"""Diagnose: why a graph cannot be opened or made here, said so that a person can act on it.

Room    storage. Runs only after something failed (or before a graph is made); looks at what is stored
        through the object client, whose errors are typed, instead of parsing anybody's message.
"""

from __future__ import annotations

from omnigraph.base.errors import (
    AlreadyInitialized,
    GraphError,
    GraphNotFound,
    IntegrityError,
    InvalidRequest,
    StorageError,
)
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.opener import MAX_VERSION, manifest_file
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS

TABLES = "tables"
PARTS = (SCHEMAS, REFS, TABLES)
SMALLEST_MANIFEST = 16  # a Lance manifest ends in a 16-byte footer; anything shorter was cut off


def why_not_open(location: Location) -> GraphError:
    """Explain a failed open."""
    try:
        versions = sorted(_versions(location))
        parts = [part for part in PARTS if _any(location, part)] if not versions else []
    except GraphError as error:
        return error
    if not versions:
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
    newest, size = versions[-1]
    if size < SMALLEST_MANIFEST:
        return IntegrityError(
            f"the newest manifest at {location.uri}, version {newest}, is cut off ({size} bytes), "
            "as after a power cut: it was never acknowledged to anybody",
            remedy=f"Delete {MANIFEST}/_versions/{manifest_file(newest)}; "
            f"version {newest - 1} is intact and becomes the head again",
            uri=location.uri,
            version=newest,
        )
    return StorageError(
        f"the manifest at {location.uri} cannot be read",
        remedy="Check storage and its permissions; if they are fine, version "
        f"{newest} is damaged: restore it from a copy",
        uri=location.uri,
        storage_kind="unknown",
    )


def check_free(location: Location, *, force: bool) -> None:
    """Refuse to make a graph over another one; with `force`, clear what a failed init left."""
    if any(_versions(location)):
        raise AlreadyInitialized(
            f"there is a graph at {location.uri} already",
            remedy="Open it, or choose another address",
            uri=location.uri,
        )
    leftovers = [part for part in PARTS if _any(location, part)]
    if not leftovers:
        return
    if not force:
        raise InvalidRequest(
            f"{location.uri} holds parts of a graph ({', '.join(leftovers)}) but no manifest: "
            "another init is running or did not finish, or a graph was partly deleted",
            remedy="If nothing there is needed and no init is running, init with force to clear it",
            uri=location.uri,
        )
    for part in leftovers:
        for key, _ in list(location.objects.list(part)):
            location.objects.delete(key)


def _versions(location: Location) -> list[tuple[int, int]]:
    found = []
    for key, size in location.objects.list(f"{MANIFEST}/_versions"):
        name = key.rsplit("/", 1)[-1].removesuffix(".manifest")
        if key.endswith(".manifest") and name.isdigit():
            found.append((MAX_VERSION - int(name), size))
    return found


def _any(location: Location, part: str) -> bool:
    return next(location.objects.list(part), None) is not None
