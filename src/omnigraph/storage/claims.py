"""Claims: the commit id that belongs to an idempotency key, whoever asks first.

Room    storage. One small object for each key, created if absent before the write begins. Every call with
        the key then publishes under the same commit id, and the chain itself says whether it landed.
Rule    a key belongs to one request of one actor on one branch: another request under it is refused, not
        answered.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from omnigraph.base.errors import Conflict, IntegrityError, InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.storage.durability import Syncer
from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.location import Location

FOLDER = "__claims"
LONGEST_KEY = 128


class KeyReused(Conflict):
    """The idempotency key was used for another request."""

    code = "idempotency_mismatch"


@dataclass(frozen=True, slots=True)
class Claim:
    """A key, whose it is, and what it stands for, in any stable spelling."""

    key: str
    branch: str
    actor: str | None
    request: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.key) <= LONGEST_KEY or not self.key.isprintable():
            raise InvalidRequest(f"an idempotency key has 1 to {LONGEST_KEY} visible characters")

    @property
    def path(self) -> str:
        """Where the claim is stored."""
        owner = json.dumps([self.key, self.branch, self.actor]).encode()
        return f"{FOLDER}/{hashlib.sha256(owner).hexdigest()}.json"

    @property
    def digest(self) -> str:
        """What tells one request from another."""
        return hashlib.sha256(self.request).hexdigest()


class Claims:
    """The claims of one graph."""

    def __init__(self, location: Location, syncer: Syncer) -> None:
        self._location = location
        self._syncer = syncer

    def find(self, claim: Claim) -> str | None:
        """Return the commit id of a key that was claimed before, or None."""
        found = self._location.objects.read(claim.path)
        return None if found is None else self._known(claim, found)

    def take(self, claim: Claim) -> str:
        """Return the commit id of a key: a fresh one, unless it was claimed before."""
        mine = {"commit": new_id(), "request": claim.digest}
        with durable(Step.CLAIM):
            created = self._location.objects.create(claim.path, json.dumps(mine).encode())
        if self._location.is_local:  # also another's claim: whoever publishes under it must not lose it
            self._syncer.files([self._location.join(claim.path)])
        if created:
            return mine["commit"]
        return self._known(claim, self._location.objects.read(claim.path) or b"")

    def _known(self, claim: Claim, stored: bytes) -> str:
        try:
            found = json.loads(stored)
            commit, request = str(found["commit"]), found["request"]
        except (ValueError, KeyError, TypeError) as error:
            raise IntegrityError(
                f"the claim of idempotency key {claim.key!r} cannot be read", remedy="Use another key"
            ) from error
        if request != claim.digest:
            raise KeyReused(
                f"idempotency key {claim.key!r} was used for another request",
                remedy="Use a new key for a new request; repeat one with exactly the same arguments",
                key=claim.key,
                first_commit_id=commit,
            )
        return commit
