"""Admission: how much a server does at once, who waits, and who is told to come again.

For one process and one event loop; nothing here knows HTTP. What is admitted has a place until its block has
ended, and the threads that it began have: work that was given up, and still runs, counts. A request that is
cancelled while it waits gives its slot back, also when it was handed over at that moment.

Fair    slots that become free go round the actors that wait, one each, whatever each of them has waiting.
        When a queue is full, the newest request of the actor with most of it makes room for an actor with
        fewer. So an actor is turned away only if no other has more waiting than it would have.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from omnigraph.base.errors import Busy, LimitExceeded, NoRoomNow, Unavailable
from omnigraph.base.ids import Clock, SystemClock
from omnigraph.surfaces.server.limits import Limits

SOONEST, LATEST = 1, 30  # seconds after which a caller is told to come again
RECENT = 0.2  # the weight of the newest service time in the mean
HEAVY_SECONDS, HEAVY_KINDS = 1.0, 1024  # a read that took longer is heavy; so many kinds of them are known
Actor = str | None  # None is everybody, on a server in open mode


class Place:
    """What was admitted: given back once its block has ended, and all work that was begun in it has."""

    def __init__(self, give_back: Callable[[], None], inside: Place | None = None) -> None:
        self._give_back = give_back
        self._inside = inside
        self._users = 1

    def lasts(self, work: asyncio.Future[Any]) -> None:
        """Keep the place until some work has ended, whoever still waits for it."""
        self._users += 1
        work.add_done_callback(lambda _: self.leave())
        if self._inside is not None:
            self._inside.lasts(work)

    def leave(self) -> None:
        """Let go of it: the block has ended, or a piece of work."""
        self._users -= 1
        if not self._users:
            self._give_back()


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
    async def slot(
        self, actor: Actor, inside: Place | None = None, took: Callable[[float], None] = lambda _: None
    ) -> AsyncIterator[Place]:
        """Hold a slot while the block and its work run; raise Unavailable if the queue is full.

        In the end `took` is told how many seconds that was.
        """
        await self._enter(actor)
        began = self._clock.monotonic()

        def end() -> None:
            seconds = self._clock.monotonic() - began
            took(seconds)
            self._note(seconds)
            self._leave()

        place = Place(end, inside)
        try:
            yield place
        finally:
            place.leave()

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


class ActorShare:
    """What one actor may have of something, in number and in bytes."""

    def __init__(
        self, scope: str, most: int, most_bytes: int | None = None, *, known_only: bool = False
    ) -> None:
        self.scope = scope
        self._known_only = known_only  # no bound for everybody together, where nobody says who he is
        self.rejected = 0
        self._most = most
        self._most_bytes = most_bytes
        self._count: defaultdict[Actor, int] = defaultdict(int)
        self._bytes: defaultdict[Actor, int] = defaultdict(int)

    @contextmanager
    def of(self, actor: Actor, gate: FairGate, size: int = 0) -> Iterator[Place]:
        """Count one more of an actor while a block and its work run; raise Busy if he has enough."""
        self._check(actor, size, gate)
        self._count[actor] += 1
        self._bytes[actor] += size

        def end() -> None:
            self._count[actor] -= 1
            self._bytes[actor] -= size
            if not self._count[actor]:
                del self._count[actor], self._bytes[actor]

        place = Place(end)
        try:
            yield place
        finally:
            place.leave()

    def _check(self, actor: Actor, size: int, gate: FairGate) -> None:
        most_bytes = size if self._most_bytes is None else self._most_bytes
        if size > most_bytes:
            raise LimitExceeded(
                f"a {self.scope} of {size} bytes is larger than all of an actor may be together",
                remedy="Send it in parts",
                resource=f"{self.scope}_bytes",
                limit=most_bytes,
                actual=size,
            )
        count, pending = self._count.get(actor, 0), self._bytes.get(actor, 0)
        if actor is None and self._known_only:
            return
        if count < self._most and pending + size <= most_bytes:
            return
        self.rejected += 1
        many = count >= self._most
        raise Busy(
            f"this actor has {count} {self.scope}s in flight"
            if many
            else f"the {self.scope}s of this actor in flight have {pending} bytes, and this one {size}",
            remedy=f"Nothing was begun; let earlier ones end, or try again in {gate.retry_after} s",
            scope=f"actor_{self.scope}s" if many else "actor_bytes",
            retry_after=gate.retry_after,
        )


class Admission:
    """The gates of one process."""

    def __init__(self, limits: Limits | None = None, *, clock: Clock | None = None) -> None:
        self.limits = limits = limits or Limits()
        self._clock = clock or SystemClock()
        self._reads = FairGate("read", limits.reads, limits.read_queue, self._clock)
        self._heavy = FairGate("heavy read", limits.heavy_reads, limits.read_queue, self._clock)
        self._heavy_kinds: OrderedDict[Hashable, None] = OrderedDict()
        self._exports = FairGate("export", limits.exports, 0, self._clock)
        self._listeners = FairGate("listener", limits.listeners, 0, self._clock)
        self._writes: dict[str, FairGate] = {}
        self._actor_reads = ActorShare("read", limits.actor_reads, known_only=True)
        self._actor_listeners = ActorShare("listener", limits.actor_listeners, known_only=True)
        self._actor_writes = ActorShare("write", limits.actor_writes, limits.actor_bytes)

    @asynccontextmanager
    async def read(self, actor: Actor, kind: Hashable = None) -> AsyncIterator[Place]:
        """Have the place of a read; raise Busy if the actor has too many, Unavailable if too many wait.

        Reads of a kind that was heavy the last time take a part of the places only, and leave the others to
        look-ups.
        """
        took = partial(self._took, kind)
        with self._actor_reads.of(actor, self._reads) as share:
            if kind not in self._heavy_kinds:
                async with self._reads.slot(actor, share, took) as place:
                    yield place
                return
            async with self._heavy.slot(actor, share) as lane, self._reads.slot(actor, lane, took) as place:
                yield place

    def _took(self, kind: Hashable, seconds: float) -> None:
        """Remember whether a kind of reads is heavy, by the last one."""
        self._heavy_kinds.pop(kind, None)
        if seconds > HEAVY_SECONDS and kind is not None:
            self._heavy_kinds[kind] = None
            if len(self._heavy_kinds) > HEAVY_KINDS:
                self._heavy_kinds.popitem(last=False)

    def later(self, error: NoRoomNow) -> NoRoomNow:
        """Say when a read may find the memory that the reads of now have."""
        error.fields["retry_after"] = self._reads.retry_after
        return error

    @asynccontextmanager
    async def export(self, actor: Actor) -> AsyncIterator[Place]:
        """Have the place of an export; nobody waits for one: raise Unavailable if all are taken."""
        async with self._exports.slot(actor) as place:
            yield place

    @asynccontextmanager
    async def listener(self, actor: Actor) -> AsyncIterator[Place]:
        """Have the place of a long poll or a stream of events; nobody waits for one."""
        with self._actor_listeners.of(actor, self._listeners) as share:
            async with self._listeners.slot(actor, share) as place:
                yield place

    @contextmanager
    def upload(self, actor: Actor, graph: str, size: int = 0) -> Iterator[Place]:
        """Count a write of this many bytes for its actor, while its body arrives and afterwards.

        Raises Busy if the actor has too much in flight, and LimitExceeded if it is more than an actor may
        ever have.
        """
        with self._actor_writes.of(actor, self._gate(graph), size) as share:
            yield share

    @asynccontextmanager
    async def write(self, actor: Actor, graph: str, upload: Place) -> AsyncIterator[Place]:
        """Have the place of a write whose body is here; raise Unavailable if too many of the graph wait."""
        async with self._gate(graph).slot(actor, upload) as place:
            yield place

    @property
    def rejected(self) -> Mapping[str, int]:
        """How many were turned away since the start, by what they asked for."""
        shares = (self._actor_reads, self._actor_listeners, self._actor_writes)
        return {
            "actor": sum(share.rejected for share in shares),
            "read": self._reads.rejected + self._heavy.rejected,
            "export": self._exports.rejected,
            "listener": self._listeners.rejected,
            "write": sum(gate.rejected for gate in self._writes.values()),
        }

    @property
    def running(self) -> Mapping[str, int]:
        """How many run now, by what they are."""
        return {
            "read": self._reads.running,
            "export": self._exports.running,
            "listener": self._listeners.running,
            "write": sum(gate.running for gate in self._writes.values()),
        }

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many wait now, by what they are."""
        return {
            "read": self._reads.waiting + self._heavy.waiting,
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
