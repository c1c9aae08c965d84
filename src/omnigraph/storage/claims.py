"""Claims: the commit id that belongs to an idempotency key, whoever asks first.

One small object for each key, created if absent before the write begins. Every call with the key then
publishes under the same commit id, and the chain itself says whether it landed.

A write that is about to go out with others claims two ids: that of the common commit, and that of a commit of
its own. At most one of them lands: whoever publishes under one looks for the other first.

A key belongs to one request of one actor on one branch: another request under it is refused, not answered.
The branch is its chain, not its name: no two chains may get a commit of one id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import ConflictError, IntegrityError, InvalidRequest
from omnigraph.base.ids import new_id
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.location import Location
from omnigraph.storage.transaction import PinnedSnapshot

FOLDER = "__claims"
LONGEST_KEY = 128
FORMAT = 2  # 1 had no number, and told loads apart by their rows as they were stored
SHARED_FORMAT = 3  # with two ids: earlier releases, which know of one, refuse it


class KeyReused(ConflictError):
    """The idempotency key was used for another request."""

    code = "idempotency_mismatch"


@dataclass(frozen=True, slots=True)
class Claim:
    """A key, whose it is, and what it stands for, in any stable spelling."""

    key: str
    base: PinnedSnapshot  # any state of the branch
    actor: str | None
    request: bytes

    def __post_init__(self) -> None:
        if not 0 < len(self.key) <= LONGEST_KEY or not self.key.isprintable():
            raise InvalidRequest(f"an idempotency key has 1 to {LONGEST_KEY} visible characters")

    @property
    def chain(self) -> str:
        """The chain of the branch."""
        return self.base.state.line.incarnation

    @property
    def path(self) -> str:
        """Where the claim is stored."""
        return self._path(self.chain)

    @property
    def named_path(self) -> str:
        """Where earlier releases stored it: under the name of the branch."""
        return self._path(self.base.branch)

    def _path(self, branch: str) -> str:
        owner = json.dumps([self.key, branch, self.actor]).encode()
        return f"{FOLDER}/{hashlib.sha256(owner).hexdigest()}.json"

    @property
    def digest(self) -> str:
        """What tells one request from another."""
        return hashlib.sha256(self.request).hexdigest()


@dataclass(frozen=True, slots=True)
class Claimed:
    """The ids that a key stands for."""

    chain: str  # whose commits they are
    alone: str  # of a commit of its own
    shared: str | None = None  # of the commit of several writes that it was to be in
    fresh: bool = False  # this call claimed it

    @property
    def ids(self) -> tuple[str, ...]:
        """All of them, the likeliest first."""
        return (self.alone,) if self.shared is None else (self.shared, self.alone)


def spelling(request: Any) -> str:
    """Return a value in a stable spelling: what differs is spelt otherwise, whatever it prints like.

    >>> spelling({"b": (1, 2.5), "a": None})
    '{"a": null, "b": [1, 2.5]}'
    """
    try:
        return _ENCODER.encode(request)
    except (TypeError, ValueError, RecursionError):  # keys without an order, values that hold themselves
        return repr(request)


def _plain(value: Any) -> Any:
    """Return what stands for a value that JSON has not; arrays print with fewer digits than they have."""
    if isinstance(value, Mapping):
        return dict(value)
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else repr(value)


_ENCODER = json.JSONEncoder(sort_keys=True, default=_plain)


class Claims:
    """The claims of one graph."""

    def __init__(self, location: Location, syncer: Syncer) -> None:
        self._location = location
        self._syncer = syncer

    def find(self, claim: Claim) -> Claimed | None:
        """Return the ids of a key that was claimed before, or None."""
        known = self._stored(claim)
        return None if known is None else self._known(claim, known)

    def ids_of(self, key: str, base: PinnedSnapshot, actor: str | None) -> tuple[str, ...]:
        """Return the ids of a key, whatever it was claimed for; none if it was not."""
        claim = Claim(key, base, actor, b"")
        known = self._stored(claim)
        return () if known is None else _claimed(claim, known).ids

    def take(self, claim: Claim, shared: str | None = None) -> Claimed:
        """Return the ids of a key: fresh ones, `shared` among them, unless it was claimed before."""
        earlier = self._named(claim)
        if earlier is not None:
            return self._known(claim, earlier)
        mine = Claimed(claim.chain, new_id(), shared, fresh=True)
        with durable(Step.CLAIM):
            created = self._location.objects.create(claim.path, _text(mine, claim.digest))
        if self._location.is_local:  # also another's claim: whoever publishes under it must not lose it
            self._syncer.files([self._location.join(claim.path)])
        if created:
            return mine
        return self._known(claim, _read(claim, self._location.objects.read(claim.path) or b""))

    def _stored(self, claim: Claim) -> dict[str, Any] | None:
        stored = self._location.objects.read(claim.path)
        return self._named(claim) if stored is None else _read(claim, stored)

    def _named(self, claim: Claim) -> dict[str, Any] | None:
        """Return the claim that an earlier release made; the main branch has one path for both."""
        if claim.named_path == claim.path:
            return None
        stored = self._location.objects.read(claim.named_path)
        known = None if stored is None else _read(claim, stored)
        return None if known is None or "format" in known else known

    def _known(self, claim: Claim, known: dict[str, Any]) -> Claimed:
        claimed = _claimed(claim, known)
        if known["request"] == claim.digest:
            return claimed
        commit = claimed.ids[0]
        remedy = "Use a new key for a new request; repeat one with exactly the same arguments"
        if "format" not in known:
            remedy = (
                "An earlier release claimed the key, and told loads apart in another way: if the history has "
                f"commit {commit}, the first request has landed; use a new key only for another request"
            )
        raise KeyReused(
            f"idempotency key {claim.key!r} was used for another request",
            remedy=remedy,
            key=claim.key,
            first_commit_id=commit,
        )


def _text(claimed: Claimed, request: str) -> bytes:
    if claimed.shared is None:
        return json.dumps({"commit": claimed.alone, "request": request, "format": FORMAT}).encode()
    ids = {"alone": claimed.alone, "shared": claimed.shared}
    return json.dumps({**ids, "request": request, "format": SHARED_FORMAT}).encode()


def _claimed(claim: Claim, known: Mapping[str, Any]) -> Claimed:
    if "commit" in known:
        return Claimed(claim.chain, str(known["commit"]))
    return Claimed(claim.chain, str(known["alone"]), str(known["shared"]))


def _read(claim: Claim, stored: bytes) -> dict[str, Any]:
    try:
        known: dict[str, Any] = json.loads(stored)
        complete = "request" in known and ("commit" in known or {"alone", "shared"} <= known.keys())
    except (ValueError, AttributeError, TypeError):
        complete = False
    if not complete:
        raise IntegrityError(
            f"the claim of idempotency key {claim.key!r} cannot be read", remedy="Use another key"
        )
    return known
