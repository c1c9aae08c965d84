"""Turns: a write that others keep outrunning goes first in the end, and holds up nobody who lives on.

The rivals are stores of their own that share nothing but the address, as other processes would.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import pytest

from omnigraph.base.errors import PublishContention
from omnigraph.base.ids import SystemClock, new_id
from omnigraph.storage.manifest.chain import Chain
from omnigraph.storage.manifest.records import Precedence
from omnigraph.storage.publish import RetryPolicy
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Upsert
from omnigraph.storage.transaction import PublishPlan, WriteTxn
from omnigraph.storage.turns import Precedences
from tests.support.graphs import PERSON, people, persons, upsert_person
from tests.support.places import Place
from tests.support.stores import Scripted, again

SLOW_S = 0.1  # to prepare: longer than a commit takes
PATIENCE_S = 60.0  # for a rival on a busy machine


@dataclass
class Slow(Scripted):
    """A write that takes longer than passes between two commits of others."""

    outrun: int = 0  # times for sure, however busy the machine is
    passed: threading.Event = field(default_factory=threading.Event)  # a rival has committed
    took_s: float = SLOW_S  # the last time for sure; later ones take no longer, as who waits for them expects

    def prepare(self, txn: WriteTxn) -> PublishPlan:
        """Prepare, in no hurry."""
        for_sure, began = len(self.bases) < self.outrun, time.monotonic()
        for _ in range(2):  # the first may be of a commit that this one is based on
            self.passed.clear()
            assert self.passed.wait(PATIENCE_S if for_sure else self.took_s / 2) or not for_sure
        if for_sure:
            self.took_s = time.monotonic() - began
        return super().prepare(txn)


class Sleepless(SystemClock):
    """A clock that counts how long it was asked to sleep, and moves on at once."""

    slept_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Move on."""
        self.slept_s += seconds

    def monotonic(self) -> float:
        """Return the time, with what was slept."""
        return super().monotonic() + self.slept_s


@contextmanager
def tireless(rival: GraphStore, passed: threading.Event) -> Iterator[None]:
    """Keep a rival committing to the same table without a pause for as long as a block runs."""
    over = threading.Event()

    def run() -> None:
        for number in count():
            if over.is_set():
                return
            upsert_person(rival, f"r{number % 5}")
            passed.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def slow(outrun: int) -> Slow:
    return Slow({PERSON: Upsert(people(["slow"]))}, outrun=outrun)


def chain_of(store: GraphStore) -> Chain:
    return store.branches.chain("main")


def ask(store: GraphStore, commit_id: str, attempt_s: float = 0.0) -> None:
    Precedences(store.clock).ask(chain_of(store), commit_id, attempt_s)


# -- whoever asks


def test_a_write_that_is_outrun_every_time_asks_and_goes_first(place: Place, rival: GraphStore) -> None:
    patient, write = again(place, RetryPolicy(attempts=30, asks_after=4)), slow(outrun=4)

    with tireless(rival, write.passed):
        receipt = patient.publish("main", write)

    assert receipt.attempts > 4, "it was outrun at first"
    assert "slow" in persons(again(place))


def test_without_asking_it_would_have_lost_as_often_as_it_may(place: Place, rival: GraphStore) -> None:
    """What makes the test above one that can fail."""
    never, write = again(place, RetryPolicy(attempts=12, asks_after=1_000)), slow(outrun=12)

    with tireless(rival, write.passed), pytest.raises(PublishContention):
        never.publish("main", write)


def test_asking_changes_nothing_that_can_be_read(store: GraphStore) -> None:
    before = store.snapshot()
    ask(store, new_id())
    after = store.snapshot()

    assert after.state.version == before.state.version + 1
    assert (after.commit_id, after.state.pins) == (before.commit_id, before.state.pins)


def test_whoever_needs_longer_than_others_would_wait_does_not_ask(store: GraphStore) -> None:
    version = store.snapshot().state.version
    ask(store, new_id(), attempt_s=60.0)

    assert store.snapshot().state.version == version


# -- whoever is asked


def test_a_write_that_asked_and_died_holds_the_others_up_once_and_not_for_long(
    place: Place, store: GraphStore
) -> None:
    clock = Sleepless()
    ask(store, new_id(), attempt_s=1.0)
    other = GraphStore.open(place.address, durability="os", clock=clock, **place.kwargs)

    upsert_person(other, "c")
    assert 1.9 < clock.slept_s < 2.5, "twice its attempt, as it asked for"
    upsert_person(other, "d")
    assert clock.slept_s < 2.5, "the next version names nobody"
    assert {"c", "d"} <= set(persons(other))


def test_whoever_has_waited_for_it_in_vain_does_not_wait_again(store: GraphStore) -> None:
    clock = Sleepless()
    chain, precedences = chain_of(store), Precedences(clock)
    ask(store, new_id())
    state = chain.latest()

    assert precedences.has_waited(chain, state, new_id())
    assert not precedences.has_waited(chain, state, new_id())


def test_the_write_that_asked_does_not_wait_for_itself(store: GraphStore) -> None:
    mine = new_id()
    ask(store, mine)

    assert not Precedences(Sleepless()).has_waited(chain_of(store), chain_of(store).latest(), mine)


def test_two_that_ask_go_one_after_the_other(store: GraphStore) -> None:
    first, second = new_id(), new_id()
    ask(store, first)
    ask(store, second)

    state = store.snapshot().state
    assert state.precedence == Precedence(second, state.version, 50)
