"""Patience: how long a control write goes on trying.

Room    storage.manifest. Used by everything that swaps a chain or the registry and may lose.
"""

from __future__ import annotations

from omnigraph.base.clock import Clock
from omnigraph.base.errors import PublishContention
from omnigraph.storage.location import storage_failure
from omnigraph.storage.manifest.metadata import CommitInDoubt, HeadMoved

ATTEMPTS = 64  # each lost attempt means that somebody else's change landed
FAILURES = 3  # attempts that the store itself refused


class Patience:
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
