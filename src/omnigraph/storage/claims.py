"""Claims: the commit id that belongs to an idempotency key, whoever asks first.

Room    storage. One small object for each key, created if absent before the write begins. Every call with
        the key then publishes under the same commit id, and the chain itself says whether it landed.
Rule    a key belongs to one request: another request under it is refused, not answered.
"""

from __future__ import annotations

import hashlib
import json

from omnigraph.base.errors import IntegrityError, InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.storage.durability import Syncer
from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.location import Location

FOLDER = "__claims"
LONGEST_KEY = 200


class KeyReused(InvalidRequest):
    """The idempotency key was used for another request."""

    code = "idempotency_key_reused"


class Claims:
    """The claims of one graph."""

    def __init__(self, location: Location, syncer: Syncer) -> None:
        self._location = location
        self._syncer = syncer

    def claim(self, key: str, request: bytes) -> str:
        """Return the commit id of a key; `request` is what the key stands for, in any stable spelling."""
        if not 0 < len(key) <= LONGEST_KEY:
            raise InvalidRequest(f"an idempotency key has 1 to {LONGEST_KEY} characters, not {len(key)}")
        path = f"{FOLDER}/{hashlib.sha256(key.encode()).hexdigest()}.json"
        digest = hashlib.sha256(request).hexdigest()
        mine = {"commit": new_id(), "request": digest}
        with durable(Step.CLAIM):
            created = self._location.objects.create(path, json.dumps(mine).encode())
        if created:
            if self._location.is_local:
                self._syncer.files([self._location.join(path)])
            return mine["commit"]
        return self._known(key, path, digest)

    def _known(self, key: str, path: str, digest: str) -> str:
        try:
            found = json.loads(self._location.objects.read(path) or b"")
            commit, request = str(found["commit"]), found["request"]
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                f"the claim of idempotency key {key!r} cannot be read", remedy="Use another key"
            ) from error
        if request != digest:
            raise KeyReused(
                f"idempotency key {key!r} was used for another request",
                remedy="Use a new key for a new request; repeat one with exactly the same arguments",
                key=key,
            )
        return commit
