"""Schema objects: accepted schemas, stored once under the hash of their content, never changed.

A manifest names a schema by hash, so a cached object can never be stale: a warm process reads each schema
once, and a write after it not at all.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection

from omnigraph.base.errors import IntegrityError
from omnigraph.storage.cost import stage
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location

FOLDER = "__schema"


class SchemaObjects:
    """The schema objects of one graph."""

    def __init__(self, location: Location, syncer: Syncer) -> None:
        self._location = location
        self._syncer = syncer
        self._cache: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put(self, content: bytes, avoid: Collection[str] = ()) -> str:
        """Store a schema and return its hash; storing the same one again changes nothing.

        A cleanup may be deleting those to avoid: the same schema then gets another hash, by a space more.
        """
        digest = hashlib.sha256(content).hexdigest()
        while digest in avoid:
            content += b" "
            digest = hashlib.sha256(content).hexdigest()
        stage()
        with durable(Step.SCHEMA_PUT):
            self._location.objects.create(_key(digest), content)
        if self._location.is_local:
            self._syncer.files([self._location.join(_key(digest))])
        with self._lock:
            self._cache[digest] = content
        return digest

    def get(self, digest: str) -> bytes:
        """Return a schema by hash; the content is checked against it."""
        cached = self._cache.get(digest)
        if cached is not None:
            return cached
        stage()
        content = self._location.objects.read(_key(digest))
        if content is None:
            problem = "is missing"
        elif hashlib.sha256(content).hexdigest() != digest:
            problem = "is damaged: its content does not match its name"
        else:
            with self._lock:
                self._cache[digest] = content
            return content
        raise IntegrityError(
            f"schema object {_key(digest)} at {self._location.uri} {problem}",
            remedy="Restore the file from a copy of the graph; its name is the SHA-256 of its content",
            schema=digest,
        )


def _key(digest: str) -> str:
    return f"{FOLDER}/{digest}.json"
