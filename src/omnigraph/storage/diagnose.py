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
)
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.chain import MANIFEST
from omnigraph.storage.manifest.damage import versions
from omnigraph.storage.manifest.refs import REFS
from omnigraph.storage.schema_objects import FOLDER as SCHEMAS

TABLES = "tables"
PARTS = (SCHEMAS, REFS, TABLES)


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
    """Refuse to make a graph over another one, or over leftovers unless `force`; return the leftovers."""
    if versions(location, MANIFEST):
        raise AlreadyInitialized(
            f"there is a graph at {location.uri} already",
            remedy="Open it, or choose another address",
            uri=location.uri,
        )
    leftovers = [part for part in PARTS if _any(location, part)]
    if leftovers and not force:
        raise InvalidRequest(
            f"{location.uri} holds parts of a graph ({', '.join(leftovers)}) but no manifest: "
            "another init is running or did not finish, or a graph was partly deleted",
            remedy="If nothing there is needed and no init is running, init with force to clear it",
            uri=location.uri,
        )
    return leftovers


def clear(location: Location, leftovers: list[str]) -> None:
    """Remove what a failed init left."""
    for part in leftovers:
        for key, _ in list(location.objects.list(part)):
            location.objects.delete(key)


def _any(location: Location, part: str) -> bool:
    return next(location.objects.list(part), None) is not None
