"""The scheduler: actors as threads of which one runs at a time, chosen at every point.

Room    tests.simulation. A killed actor gets an exception at its point that nothing catches, and its handle
        is never used again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

STUCK_S = 120  # an actor that does not come back holds something that another one waits for


class Killed(BaseException):
    """An actor dies here."""


class Stuck(AssertionError):
    """An actor does not come to its next point."""


@dataclass(frozen=True)
class Decision:
    """Who goes on from where."""

    actor: int
    point: str  # where it stood
    kill: bool = False

    def __str__(self) -> str:
        return f"actor {self.actor} {'is killed at' if self.kill else 'goes on from'} {self.point}"


class Actor:
    """One thread, which runs only while it has the turn."""

    def __init__(self, number: int, work: Callable[[Actor], None]) -> None:
        self.number = number
        self.point = "start"
        self.done = self.killed = False
        self.error: BaseException | None = None
        self.lifetimes: dict[str, str] = {}  # of branches that the operation under way writes, as first seen
        self._work = work
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"actor-{number}", daemon=True)
        self._thread.start()

    def pause(self, point: str) -> None:
        """Give the turn back, and wait for it."""
        if not self.killed:  # else this is said while it dies
            self.point = point
            self._back.release()
            self._turn.acquire()
        if self.killed:
            raise Killed

    def captured(self, branch: str, incarnation: str) -> None:
        """Note which lifetime of a branch is about to be written."""
        self.lifetimes.setdefault(branch, incarnation)

    def go_on(self, *, kill: bool) -> None:
        """Let it run to its next point, or to its end."""
        self.killed = kill
        self._turn.release()
        if not self._back.acquire(timeout=STUCK_S):
            raise Stuck(f"actor {self.number} went on from {self.point} and came to no other point")

    def _run(self) -> None:
        self._turn.acquire()
        try:
            if not self.killed:
                self._work(self)
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 (raised by the scheduler)
            self.error = error
        finally:
            self.done = True
            self._back.release()


def run(
    actors: Sequence[Actor],
    choose: Callable[[Sequence[Actor]], Decision],
    after_step: Callable[[Decision], None],
) -> None:
    """Run actors to their ends, one step at a time."""
    try:
        while alive := [actor for actor in actors if not actor.done]:
            decision = choose(alive)
            actor = actors[decision.actor]
            actor.go_on(kill=decision.kill)
            if actor.error is not None:
                raise actor.error
            after_step(decision)
    except Stuck:
        raise
    except BaseException:
        for actor in actors:
            if not actor.done:
                actor.go_on(kill=True)
        raise
