"""Whoever stops waiting for a turn, wherever it stands at that moment, holds nobody else up."""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from omnigraph.storage import turns
from omnigraph.storage.durability import armed
from omnigraph.storage.store import GraphStore
from omnigraph.storage.turns import FairLock, Turn
from tests.support.graphs import make_graph, persons, upsert_person
from tests.support.places import Place

PATIENCE_S = 20.0
# After these the interpreter looks whether a signal came; it never does so anywhere else.
LOOKS = {"CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.001)


def is_waiting(thread: threading.Thread) -> bool:
    """Say whether a thread waits for its turn."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_filename == turns.__file__


class Taker:
    """A thread that takes one turn, and keeps it until it is let go."""

    def __init__(self, lock: FairLock, order: list[str], name: str) -> None:
        self._go = threading.Event()
        self._lock, self._order, self._name = lock, order, name
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        turn = Turn(self._lock)
        with turn.held:
            turn.wait()
            self._order.append(self._name)
            self._go.wait()
            self._order.append(f"{self._name} left")

    def let_go(self) -> None:
        self._go.set()

    def ended(self) -> bool:
        """Let it go, and say whether it came to its end."""
        self.let_go()
        self.thread.join(PATIENCE_S)
        return not self.thread.is_alive()


def test_turns_come_in_the_order_of_arrival_and_one_at_a_time() -> None:
    lock, order = FairLock(), list[str]()
    first = Taker(lock, order, "0")
    wait_until(lambda: order == ["0"])
    others = []
    for number in range(1, 6):
        others.append(Taker(lock, order, str(number)))
        wait_until(lambda: is_waiting(others[-1].thread))
    for other in others:
        other.let_go()
    assert order == ["0"]

    assert all(taker.ended() for taker in (first, *others))
    assert order == [text for n in range(6) for text in (f"{n}", f"{n} left")]


def test_a_turn_that_is_waited_for_twice_is_one_turn() -> None:
    lock = FairLock()
    turn = Turn(lock)
    with turn.held:
        turn.wait()
        turn.wait()
    second = Turn(lock)
    with second.held:
        second.wait()


class Interrupted(BaseException):
    """Comes from outside, at any time."""


class InterruptAt:
    """Raises at the n-th place of the lock's code where a signal can come in."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._ops = dict[Any, dict[int, str]]()
        self._before = dict[FrameType, str]()
        self.raised = False

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != turns.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            code = frame.f_code
            if code not in self._ops:
                self._ops[code] = {op.offset: op.opname for op in dis.get_instructions(code)}
            looked, self._before[frame] = self._before.get(frame, "RESUME"), self._ops[code][frame.f_lasti]
            if looked in LOOKS:
                self._left -= 1
                if self._left < 0 and not self.raised:
                    self.raised = True
                    raise Interrupted
        return self


def test_whoever_is_interrupted_anywhere_in_the_lock_leaves_the_others_their_turns() -> None:
    """One is inside, one is interrupted at the n-th place, one comes after it: for every n there is."""
    places = 0
    while interrupted_at(places):
        places += 1
    assert places > 3, "the interpreter looks for signals in other places than this test knows of"


def interrupted_at(number: int) -> bool:
    """Check one place; say whether there is one."""
    lock, order, interrupt = FairLock(), list[str](), InterruptAt(number)
    inside = Taker(lock, order, "inside")
    wait_until(lambda: order == ["inside"])

    def take_interrupted() -> None:
        sys.settrace(interrupt)
        try:
            turn = Turn(lock)
            with turn.held:
                turn.wait()
        except Interrupted:
            pass
        finally:
            sys.settrace(None)

    stopped = threading.Thread(target=take_interrupted, daemon=True)
    stopped.start()
    wait_until(lambda: is_waiting(stopped) or not stopped.is_alive())
    after = Taker(lock, order, "after")
    wait_until(lambda: is_waiting(after.thread))
    assert order == ["inside"], "let in beside the one that is inside"
    assert inside.ended()
    stopped.join(PATIENCE_S)
    assert after.ended(), f"place {number}: the next one never got its turn"
    assert order == ["inside", "inside left", "after", "after left"]
    return interrupt.raised


# -- in a publish ------------------------------------------------------------------------------------


class LosesOnce:
    """At its first publish each thread is overtaken by another store; its second one may be held up."""

    def __init__(self, overtaking: GraphStore) -> None:
        self._overtaking = overtaking
        self._publishes = dict[str, int]()
        self.inside, self.go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        me = threading.current_thread().name
        self._publishes[me] = self._publishes.get(me, 0) + 1
        if me.startswith("overtaking"):
            return
        if self._publishes[me] == 1:
            name = f"overtaking {me}"
            other = threading.Thread(target=upsert_person, args=(self._overtaking, name), name=name)
            other.start()
            other.join()
        elif me == "inside":
            self.inside.set()
            self.go.wait()


@pytest.mark.usefixtures("interruptible")
def test_a_loser_that_is_interrupted_in_line_does_not_hold_up_later_ones(local_place: Place) -> None:
    with (
        make_graph(local_place.address, durability="os") as store,
        GraphStore.open(local_place.address, durability="os") as overtaking,
    ):
        loses = LosesOnce(overtaking)
        with armed({"publish.before": loses}):
            inside, later = (
                threading.Thread(target=upsert_person, args=(store, name), name=name, daemon=True)
                for name in ("inside", "later")
            )
            inside.start()
            assert loses.inside.wait(PATIENCE_S)

            heard = threading.Event()

            def interrupt() -> None:
                wait_until(lambda: is_waiting(threading.main_thread()))
                while not heard.is_set():  # one that comes just before a thread sleeps does not wake it up
                    os.kill(os.getpid(), signal.SIGINT)
                    heard.wait(1)

            sender = threading.Thread(target=interrupt)
            sender.start()
            with pytest.raises(KeyboardInterrupt):
                upsert_person(store, "interrupted")
            heard.set()
            sender.join()
            later.start()
            wait_until(lambda: is_waiting(later))
            loses.go.set()
            inside.join(PATIENCE_S)
            later.join(PATIENCE_S)
            assert not later.is_alive(), "waits for one that is not there any more"
        assert {"inside", "later"} < set(persons(store))
        assert "interrupted" not in persons(store)
