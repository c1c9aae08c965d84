"""What can go wrong between a client and its store: scripted failures, held requests, limited concurrency.

Room    test support; used by `proxy.py` only, which owns the thread all of this runs in.
Touch   `FaultPlan` is called from any thread. `Gate` and `Slots` belong to the event loop: other threads may
        only read their counters and set their public attributes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

Match = Callable[[str, str], bool]  # (method, key)


class Fault(Enum):
    """One way to fail a request."""

    ERROR_503 = "answer 503 SlowDown; the store never sees the request"
    DENY_403 = "answer 403 AccessDenied; the store never sees the request"
    EXPIRED = "answer 400 ExpiredToken, as S3 does when temporary credentials have run out"
    SKEWED = (
        "answer 403 RequestTimeTooSkewed, as S3 does when the client's clock is off by a quarter of an hour"
    )
    CUT_BEFORE = "close the connection; the store never sees the request"
    CUT_AFTER = "let the request take effect in the store, then close the connection without an answer"
    TWICE = "let the store see the request twice, as when its first answer is lost; pass on the second answer"
    HANG = "say nothing until the client gives up or a time limit passes; the store never sees the request"


REFUSALS = {
    Fault.ERROR_503: (503, "SlowDown"),
    Fault.DENY_403: (403, "AccessDenied"),
    Fault.EXPIRED: (400, "ExpiredToken"),
    Fault.SKEWED: (403, "RequestTimeTooSkewed"),
}


@dataclass(slots=True)
class _Rule:
    match: Match
    action: Fault
    left: int


class FaultPlan:
    """Failures waiting for the request they are meant for; the earliest matching rule is used up first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []

    def add(self, match: Match, action: Fault, times: int) -> None:
        with self._lock:
            self._rules.append(_Rule(match, action, times))

    def take(self, method: str, key: str) -> Fault | None:
        """Return the fault for this request, if one is due, and count it as used."""
        with self._lock:
            for rule in self._rules:
                if rule.left > 0 and rule.match(method, key):
                    rule.left -= 1
                    return rule.action
        return None

    @property
    def pending(self) -> int:
        with self._lock:
            return sum(rule.left for rule in self._rules)

    def clear(self) -> None:
        with self._lock:
            self._rules = []


class Gate:
    """Holds matching requests at the proxy until they are released."""

    def __init__(self) -> None:
        self.match: Match | None = None
        self.changed = threading.Condition()
        self._held: list[asyncio.Future[bool]] = []

    @property
    def parked(self) -> int:
        return len(self._held)

    async def pass_through(self, method: str, key: str) -> bool:
        """Wait while the request is held; return whether it may go on to the store."""
        match = self.match
        if match is None or not match(method, key):
            return True
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self.changed:
            self._held.append(turn)
            self.changed.notify_all()
        return await turn

    def release(self, deliver: bool) -> None:
        """Let the held requests go: on to the store, or nowhere."""
        with self.changed:
            held, self._held = self._held, []
            self.changed.notify_all()
        for turn in held:
            if not turn.done():
                turn.set_result(deliver)


class Slots:
    """A limit on requests in flight, first come first served, that may be changed while requests wait."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.taken = 0
        self.peak = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        self.admit()
        await turn

    async def __aexit__(self, *_: object) -> None:
        self.taken -= 1
        self.admit()

    def admit(self) -> None:
        """Start as many waiting requests as the limit allows."""
        while self._queue and (self.limit is None or self.taken < self.limit):
            turn = self._queue.popleft()
            if not turn.done():
                self.taken += 1
                self.peak = max(self.peak, self.taken)
                turn.set_result(None)
