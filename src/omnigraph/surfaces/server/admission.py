"""Admission: how much a server does at once, who waits, and who is told to come again.

For one process and one event loop; nothing here knows HTTP. What is admitted runs until its block ends. A
request that is cancelled while it waits gives its slot back, also when it was handed over at that moment.

Fair    slots that become free go round the actors that wait, one each, whatever each of them has waiting.
        When a queue is full, the newest request of the actor with most of it makes room for an actor with
        fewer. So an actor is turned away only if no other has more waiting than it would have.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import Busy, InvalidRequest, LimitExceeded, Unavailable
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.surfaces.environment import variable

GIB = 1 << 30
SOONEST, LATEST = 1, 30  # seconds after which a caller is told to come again
RECENT = 0.2  # the weight of the newest service time in the mean
Actor = str | None  # None is everybody, on a server in open mode


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much a process takes on."""

    actor_writes: int = 16  # of one actor, waiting ones included
    actor_bytes: int = 4 * GIB  # bodies of the writes of one actor
    graph_writes: int = 8  # of one graph that run
    graph_write_queue: int = 64
    reads: int = 64
    read_queue: int = 256
    exports: int = 16

    def __post_init__(self) -> None:
        for limit in fields(self):
            least = 0 if limit.name.endswith("queue") else 1
            if getattr(self, limit.name) < least:
                raise InvalidRequest(f"{limit.name} is below {least}", remedy="Give a larger limit")

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> AdmissionLimits:
        """Return the limits that the environment asks for."""
        usual = AdmissionLimits()
        return AdmissionLimits(
            actor_writes=_whole("PER_ACTOR_INFLIGHT_MAX", environment, usual.actor_writes),
            actor_bytes=_whole("PER_ACTOR_BYTES_MAX", environment, usual.actor_bytes),
        )


def _whole(name: str, environment: Mapping[str, str], default: int) -> int:
    text = variable(name, environment)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise InvalidRequest(f"{name} is not a whole number", remedy="Give digits only, bytes without a unit")
    return int(text)


# -- one bounded resource ------------------------------------------------------------------------------


class FairGate:
    """So many slots, a bounded queue before them, and one turn for each actor that waits."""

    def __init__(self, scope: str, slots: int, queue: int, clock: Clock) -> None:
        self.scope = scope
        self.running = 0
        self.waiting = 0
        self.rejected = 0
        self._slots = slots
        self._queue = queue
        self._clock = clock
        self._turns: OrderedDict[Actor, deque[asyncio.Future[None]]] = OrderedDict()  # the next one first
        self._mean_seconds = 0.0

    @asynccontextmanager
    async def slot(self, actor: Actor) -> AsyncIterator[None]:
        """Hold a slot while the block runs; raise Unavailable if the queue is full."""
        await self._enter(actor)
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._note(self._clock.monotonic() - began)
            self._leave()

    @property
    def retry_after(self) -> int:
        """In how many seconds a slot should be free for one more, by how long the last ones took."""
        ahead = self.waiting + 1
        return retry_seconds(self._mean_seconds * ahead / self._slots)

    async def _enter(self, actor: Actor) -> None:
        if self.running < self._slots:
            self.running += 1
            return
        if self.waiting >= self._queue and not self._make_room(actor):
            raise self._full()
        turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(actor, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            self._give_back(actor, turn)
            raise

    def _give_back(self, actor: Actor, turn: asyncio.Future[None]) -> None:
        """Undo the waiting of a request that was cancelled."""
        if turn.cancelled():
            self._turns[actor].remove(turn)
            self._forget(actor)
        elif turn.exception() is None:
            self._leave()  # the slot had just been handed over

    def _leave(self) -> None:
        """Give a slot to the next actor, or keep it free."""
        turn = self._next()
        if turn is None:
            self.running -= 1
        else:
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        for actor in list(self._turns):
            waiting = self._turns[actor]
            turn = next((turn for turn in waiting if not turn.done()), None)  # done: it is being cancelled
            if turn is not None:
                waiting.remove(turn)
                self._turns.move_to_end(actor)
                self._forget(actor)
                return turn
        return None

    def _forget(self, actor: Actor) -> None:
        self.waiting -= 1
        if not self._turns[actor]:
            del self._turns[actor]

    def _make_room(self, actor: Actor) -> bool:
        """Turn away the newest request of whoever has most waiting, if that is more than this actor would."""
        greediest = max(self._turns, key=lambda other: len(self._turns[other]), default=None)
        mine = len(self._turns.get(actor, ()))
        if not self._turns or len(self._turns[greediest]) <= mine + 1:
            return False
        newest = next((turn for turn in reversed(self._turns[greediest]) if not turn.done()), None)
        if newest is None:
            return False
        self._turns[greediest].remove(newest)
        self._forget(greediest)
        newest.set_exception(self._full())
        return True

    def _full(self) -> Unavailable:
        self.rejected += 1
        return Unavailable(
            f"the server has as many {self.scope}s to do as it takes on",
            remedy=f"Nothing was begun; try again in {self.retry_after} s",
            scope=self.scope,
            retry_after=self.retry_after,
        )

    def _note(self, seconds: float) -> None:
        known = self._mean_seconds
        self._mean_seconds = seconds if known == 0 else known + RECENT * (seconds - known)


def retry_seconds(expected: float) -> int:
    """Return the seconds to tell a caller, from those that are expected.

    >>> retry_seconds(0), retry_seconds(2.1), retry_seconds(1e9)
    (1, 3, 30)
    """
    return min(max(math.ceil(expected), SOONEST), LATEST)


# -- a process -----------------------------------------------------------------------------------------


class Admission:
    """The gates of one process."""

    def __init__(self, limits: AdmissionLimits | None = None, *, clock: Clock | None = None) -> None:
        self.limits = limits or AdmissionLimits()
        self._clock = clock or SystemClock()
        self._reads = FairGate("read", self.limits.reads, self.limits.read_queue, self._clock)
        self._exports = FairGate("export", self.limits.exports, 0, self._clock)
        self._writes: dict[str, FairGate] = {}
        self._actor_writes: defaultdict[Actor, int] = defaultdict(int)
        self._actor_bytes: defaultdict[Actor, int] = defaultdict(int)
        self._rejected_actors = 0

    @asynccontextmanager
    async def read(self, actor: Actor) -> AsyncIterator[None]:
        """Hold the slot of a read; raise Unavailable if too many wait."""
        async with self._reads.slot(actor):
            yield

    @asynccontextmanager
    async def export(self, actor: Actor) -> AsyncIterator[None]:
        """Hold the slot of an export; nobody waits for one: raise Unavailable if all are taken."""
        async with self._exports.slot(actor):
            yield

    @asynccontextmanager
    async def write(self, actor: Actor, graph: str, size: int = 0) -> AsyncIterator[None]:
        """Hold the slot of a write of this many bytes.

        Raises Busy if the actor has too much in flight, LimitExceeded if it is more than an actor may ever
        have, and Unavailable if too many writes of the graph wait.
        """
        gate = self._gate(graph)
        self._check(actor, size, gate)
        self._actor_writes[actor] += 1
        self._actor_bytes[actor] += size
        try:
            async with gate.slot(actor):
                yield
        finally:
            self._actor_writes[actor] -= 1
            self._actor_bytes[actor] -= size
            if not self._actor_writes[actor]:
                del self._actor_writes[actor], self._actor_bytes[actor]

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many were turned away since the start, by what they asked for."""
        return {
            "actor": self._rejected_actors,
            "read": self._reads.rejected,
            "export": self._exports.rejected,
            "write": sum(gate.rejected for gate in self._writes.values()),
        }

    @property
    def running(self) -> Mapping[str, int]:
        """How many run now, by what they are."""
        return {
            "read": self._reads.running,
            "export": self._exports.running,
            "write": sum(gate.running for gate in self._writes.values()),
        }

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many wait now, by what they are."""
        return {
            "read": self._reads.waiting,
            "write": sum(gate.waiting for gate in self._writes.values()),
        }

    def _gate(self, graph: str) -> FairGate:
        """Return the gate of a graph; there are as many as the server has graphs."""
        if graph not in self._writes:
            limits = self.limits
            self._writes[graph] = FairGate(
                "write", limits.graph_writes, limits.graph_write_queue, self._clock
            )
        return self._writes[graph]

    def _check(self, actor: Actor, size: int, gate: FairGate) -> None:
        limits = self.limits
        if size > limits.actor_bytes:
            raise LimitExceeded(
                f"a write of {size} bytes is larger than all writes of an actor may be together",
                remedy="Send it in parts",
                resource="write_bytes",
                limit=limits.actor_bytes,
                actual=size,
            )
        writes = self._actor_writes.get(actor, 0)
        pending = self._actor_bytes.get(actor, 0)
        if writes < limits.actor_writes and pending + size <= limits.actor_bytes:
            return
        self._rejected_actors += 1
        many = writes >= limits.actor_writes
        raise Busy(
            f"this actor has {writes} writes in flight"
            if many
            else f"the writes of this actor in flight have {pending} bytes, and this one {size}",
            remedy=f"Nothing was begun; let earlier writes end, or try again in {gate.retry_after} s",
            scope="actor_writes" if many else "actor_bytes",
            retry_after=gate.retry_after,
        )
