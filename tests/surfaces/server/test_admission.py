"""Admission under load: bounds that hold, turns that are fair, slots that are never lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from omnigraph.base.errors import Busy, GraphError, LimitExceeded, Unavailable
from omnigraph.surfaces.server.admission import HEAVY_KINDS, Admission, FairGate, Place, retry_seconds
from omnigraph.surfaces.server.limits import Limits
from tests.surfaces.server.clocks import HandClock


async def settled() -> None:
    """Let every task go on until all of them wait."""
    for _ in range(8):
        await asyncio.sleep(0)


class Job:
    """A request that holds its slot until it is told to end."""

    def __init__(self, slot: AbstractAsyncContextManager[Any]) -> None:
        self.running = False
        self.ending = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(slot))

    async def _run(self, slot: AbstractAsyncContextManager[Any]) -> None:
        async with slot:
            self.running = True
            try:
                await self.ending.wait()
            finally:
                self.running = False

    async def end(self) -> None:
        """End, and let the others go on."""
        self.ending.set()
        await settled()

    async def cancel(self) -> None:
        """Be cancelled, and let the others go on."""
        self.task.cancel()
        await settled()

    @property
    def refusal(self) -> GraphError | None:
        """What it was turned away with."""
        if not self.task.done() or self.task.cancelled():
            return None
        error = self.task.exception()
        assert error is None or isinstance(error, GraphError)
        return error


async def jobs(*slots: AbstractAsyncContextManager[Any]) -> list[Job]:
    """Start requests in this order."""
    started = []
    for slot in slots:
        started.append(Job(slot))
        await settled()
    return started


@asynccontextmanager
async def write(admission: Admission, actor: str, graph: str, size: int = 0) -> AsyncIterator[Place]:
    """Have the place of a write whose body is here at once."""
    with admission.upload(actor, graph, size) as upload:
        async with admission.write(actor, graph, upload) as place:
            yield place


def states(started: list[Job]) -> str:
    """Return for each request whether it runs, waits, was turned away or has ended."""
    marks = (
        "r" if job.running else "x" if job.refusal else "." if job.task.done() else "w" for job in started
    )
    return "".join(marks)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


# -- bounds -------------------------------------------------------------------------------------------


def test_reads_run_up_to_the_bound_then_wait_up_to_another_then_are_turned_away() -> None:
    async def work() -> None:
        admission = Admission(Limits(reads=2, read_queue=2), clock=HandClock())
        started = await jobs(*(admission.read("ada") for _ in range(6)))
        assert states(started) == "rrwwxx"
        assert isinstance(started[-1].refusal, Unavailable)
        assert (admission.rejected["read"], admission.waiting["read"], admission.running["read"]) == (2, 2, 2)
        for number, after in ((0, ".rrwxx"), (2, ".r.rxx"), (1, "...rxx"), (3, "....xx")):
            await started[number].end()
            assert states(started) == after
        assert (admission.waiting["read"], admission.running["read"]) == (0, 0)

    run(work())


def test_nobody_waits_for_an_export() -> None:
    async def work() -> None:
        admission = Admission(Limits(exports=2), clock=HandClock())
        started = await jobs(*(admission.export(name) for name in "abc"))
        assert states(started) == "rrx"
        await started[0].end()
        assert states(await jobs(admission.export("c"))) == "r"

    run(work())


def test_writes_of_an_actor_are_bounded_by_number_whatever_the_graph() -> None:
    async def work() -> None:
        admission = Admission(Limits(actor_writes=3), clock=HandClock())
        started = await jobs(*(write(admission, "ada", graph) for graph in ("g", "g", "h", "h")))
        assert states(started) == "rrrx"
        refusal = started[-1].refusal
        assert isinstance(refusal, Busy)
        assert (refusal.retry_after, refusal.fields["scope"]) == (1, "actor_writes")
        assert states(await jobs(write(admission, "bo", "g"))) == "r"
        await started[0].end()
        assert states(await jobs(write(admission, "ada", "g"))) == "r"

    run(work())


def test_writes_of_an_actor_are_bounded_by_their_bytes() -> None:
    async def work() -> None:
        admission = Admission(Limits(actor_bytes=10), clock=HandClock())
        started = await jobs(*(write(admission, "ada", "g", size) for size in (6, 4, 1, 11)))
        assert states(started) == "rrxx"
        assert isinstance(started[2].refusal, Busy)
        assert isinstance(started[3].refusal, LimitExceeded)
        assert states(await jobs(write(admission, "bo", "g", 10))) == "r"
        await started[1].end()
        assert states(await jobs(write(admission, "ada", "g", 4))) == "r"

    run(work())


def test_the_queue_of_a_graph_is_its_own() -> None:
    async def work() -> None:
        limits = Limits(graph_writes=1, graph_write_queue=1)
        admission = Admission(limits, clock=HandClock())
        started = await jobs(*(write(admission, name, "g") for name in "abc"), write(admission, "c", "h"))
        assert states(started) == "rwxr"
        assert isinstance(started[2].refusal, Unavailable)
        assert admission.rejected == {"actor": 0, "read": 0, "export": 0, "listener": 0, "write": 1}
        # What was turned away no longer counts for its actor.
        assert admission._actor_writes._count == {"a": 1, "b": 1, "c": 1}

    run(work())


def test_reads_and_listeners_of_an_actor_are_bounded_where_actors_are_known() -> None:
    async def work() -> None:
        limits = Limits(reads=1, actor_reads=2, listeners=2, actor_listeners=1)
        admission = Admission(limits, clock=HandClock())
        mine = await jobs(*(admission.read("ada") for _ in range(3)))
        assert states(mine) == "rwx"
        assert isinstance(mine[-1].refusal, Busy)
        assert states(await jobs(*(admission.read(None) for _ in range(3)))) == "www"
        heard = await jobs(*(admission.listener(name) for name in ("ada", "ada", None, None)))
        assert states(heard) == "rxrx"
        assert [type(job.refusal) for job in heard if job.refusal] == [Busy, Unavailable]

    run(work())


# -- fairness -----------------------------------------------------------------------------------------


def test_slots_go_round_the_actors_whatever_each_has_waiting() -> None:
    async def work() -> None:
        gate = FairGate("read", 1, 100, HandClock())
        (first,) = await jobs(gate.slot("greedy"))
        waiting = await jobs(*(gate.slot(name) for name in ["greedy"] * 6 + ["ada"] * 2 + ["bo"]))
        names = ["greedy"] * 6 + ["ada"] * 2 + ["bo"]
        order = []
        current = first
        while gate.waiting:
            await current.end()
            number = states(waiting).index("r")
            current = waiting[number]
            order.append(names[number])
        assert order[:5] == ["greedy", "ada", "bo", "greedy", "ada"]
        assert order[5:] == ["greedy"] * 4

    run(work())


def test_a_full_queue_makes_room_for_an_actor_with_less_in_it() -> None:
    async def work() -> None:
        gate = FairGate("read", 1, 4, HandClock())
        running = await jobs(gate.slot("greedy"))  # held: a loop keeps no task alive that nobody refers to
        greedy = await jobs(*(gate.slot("greedy") for _ in range(5)))
        assert states(greedy) == "wwwwx"
        ada = await jobs(*(gate.slot("ada") for _ in range(3)))
        assert states(greedy) == "wwxxx"  # the newest ones went
        assert states(ada) == "wwx"  # both have two now: nobody has more to give
        assert gate.waiting == 4
        assert states(running) == "r"

    run(work())


ACTORS = st.sampled_from(["ada", "bo", "cy", None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), ACTORS),
        st.tuples(st.sampled_from(["end", "cancel", "both", "two"]), st.integers(0, 30)),
    ),
    max_size=40,
)


@given(STEPS, st.integers(1, 3), st.integers(0, 4))
def test_whatever_happens_slots_are_used_kept_within_bounds_and_given_back(
    steps: list[tuple[str, Any]], slots: int, queue: int
) -> None:
    async def work() -> None:
        gate = FairGate("read", slots, queue, HandClock())
        started: list[tuple[str | None, Job]] = []
        for step, value in steps:
            alive = [job for _, job in started if not job.task.done()]
            if step == "start":
                before = Counter(name for name, job in started if not job.task.done() and not job.running)
                (job,) = await jobs(gate.slot(value))
                started.append((value, job))
                if job.refusal is not None:
                    assert gate.waiting == queue
                    assert max(before.values(), default=0) <= before[value] + 1
            elif alive:
                job = alive[value % len(alive)]
                if step in ("end", "both"):
                    job.ending.set()
                if step in ("cancel", "both"):
                    job.task.cancel()
                if step == "two":  # one ends while another is cancelled: a slot may be on its way
                    job.ending.set()
                    await asyncio.sleep(0)
                    alive[(value + 1) % len(alive)].task.cancel()
                await settled()
            running = sum(job.running for _, job in started)
            waiting = sum(not job.running and not job.task.done() for _, job in started)
            assert (gate.running, gate.waiting) == (running, waiting)
            assert running <= slots
            assert waiting <= queue
            assert running == slots or not waiting
        for _, job in started:
            job.task.cancel()
        await settled()
        assert (gate.running, gate.waiting, len(gate._turns)) == (0, 0, 0)

    run(work())


def test_a_slot_that_was_handed_to_a_cancelled_request_goes_to_the_next() -> None:
    async def work() -> None:
        gate = FairGate("read", 1, 9, HandClock())
        first, second, third = await jobs(*(gate.slot(name) for name in "abc"))
        first.ending.set()
        await asyncio.sleep(0)  # the slot is on its way to the second
        second.task.cancel()
        await settled()
        assert states([first, second, third]) == "..r"
        await third.end()
        assert gate.running == 0

    run(work())


# -- heavy reads -----------------------------------------------------------------------------------------


def test_reads_that_were_heavy_leave_places_to_others() -> None:
    async def work() -> None:
        clock = HandClock()
        admission = Admission(Limits(reads=3, heavy_reads=1), clock=clock)
        (first,) = await jobs(admission.read("ada", "scan"))
        clock.seconds += 2
        await first.end()
        heavy = await jobs(*(admission.read(name, "scan") for name in ("ada", "bo", "cy")))
        assert states(heavy) == "rww"
        light = await jobs(*(admission.read("ada", "look-up") for _ in range(3)))
        assert states(light) == "rrw"
        await light[0].end()
        assert states(light) == ".rr"
        await heavy[0].end()  # at once, this time
        assert states(heavy) == ".rw"
        for job in light[1:]:
            await job.end()
        assert states(heavy) == ".rw"  # there are places, and none for another heavy one
        assert (admission.running["read"], admission.waiting["read"]) == (1, 1)
        assert states(await jobs(admission.read("ada", "scan"))) == "r"  # it is heavy no more

    run(work())


def test_only_so_many_kinds_of_heavy_reads_are_known() -> None:
    async def work() -> None:
        clock = HandClock()
        admission = Admission(clock=clock)
        for kind in range(HEAVY_KINDS + 5):
            async with admission.read("ada", kind):
                clock.seconds += 2
        assert len(admission._heavy_kinds) == HEAVY_KINDS
        assert 0 not in admission._heavy_kinds

    run(work())


# -- what still runs ----------------------------------------------------------------------------------


def test_a_place_is_kept_until_the_work_in_it_has_ended() -> None:
    async def work() -> None:
        admission = Admission(Limits(reads=1, read_queue=9, actor_reads=2), clock=HandClock())
        heavy: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with admission.read("ada") as place:
            place.lasts(heavy)
        (after,) = await jobs(admission.read("ada"))
        refused, other = await jobs(admission.read("ada"), admission.read("bo"))
        assert states([after, refused, other]) == "wxw"  # what was given up still counts for its actor
        heavy.set_result(None)
        await settled()
        assert states([after, other]) == "rw"

    run(work())


def test_a_write_that_goes_on_keeps_the_share_of_its_actor_and_the_slot_of_its_graph() -> None:
    async def work() -> None:
        admission = Admission(Limits(actor_writes=1, graph_writes=1), clock=HandClock())
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with write(admission, "ada", "g", 7) as place:
            place.lasts(going)
        ada, bo = await jobs(write(admission, "ada", "h"), write(admission, "bo", "g"))
        assert states([ada, bo]) == "xw"
        going.cancel()
        await settled()
        assert states([bo, *await jobs(write(admission, "ada", "h"))]) == "rr"
        assert admission._actor_writes._bytes == {"ada": 0, "bo": 0}

    run(work())


def test_an_upload_holds_no_slot_of_its_graph_while_its_body_arrives() -> None:
    async def work() -> None:
        admission = Admission(Limits(actor_writes=2, graph_writes=1), clock=HandClock())
        with admission.upload("slow", "g", 10), admission.upload("slow", "g", 10):
            assert states(await jobs(write(admission, "ada", "g"))) == "r"
            assert states(await jobs(write(admission, "slow", "h"))) == "x"

    run(work())


# -- when to come again -------------------------------------------------------------------------------


def test_the_time_to_come_again_follows_how_long_the_last_ones_took() -> None:
    async def work() -> None:
        clock = HandClock()
        gate = FairGate("read", 2, 8, clock)
        assert gate.retry_after == 1
        for _ in range(4):
            async with gate.slot("ada"):
                clock.seconds += 6
        assert gate.retry_after == 3  # two slots, six seconds each
        held = await jobs(*(gate.slot("ada") for _ in range(6)))
        assert (gate.waiting, gate.retry_after) == (4, 15)
        for _ in range(60):
            gate._note(1_000.0)
        assert gate.retry_after == 30
        assert states(held) == "rrwwww"

    run(work())


def test_the_time_to_come_again_is_from_1_to_30_whole_seconds() -> None:
    assert [retry_seconds(seconds) for seconds in (0, 0.2, 1.0, 1.1, 29.5, 31, 1e12)] == [
        1,
        1,
        1,
        2,
        30,
        30,
        30,
    ]


def test_a_refusal_tells_when_to_come_again_in_a_field_too() -> None:
    async def work() -> None:
        admission = Admission(Limits(exports=1), clock=HandClock())
        _, refused = await jobs(admission.export("a"), admission.export("b"))
        assert refused.refusal is not None
        assert refused.refusal.fields == {"scope": "export", "retry_after": 1}

    run(work())
