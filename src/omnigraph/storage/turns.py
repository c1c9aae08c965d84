"""Turns: who goes first after lost races, so that nobody loses for ever.

Among the threads of a process, by a fair lock: the losers go on one at a time, in order of arrival. Among
processes, the compare-and-swap decides, and whoever needs more time than passes between two commits of
others would lose every race. So a write that lost often asks for precedence: a version of the branch that
changes nothing but to name it. Making that takes a moment, where preparing anew takes longer. Whoever finds
such a version at the head waits until the branch has moved on, at most for the time that it says. It is a
courtesy: a write that does not know of it, or that waited in vain, publishes as ever.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import field

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StorageError
from omnigraph.base.ids import Clock
from omnigraph.storage.durability import Step
from omnigraph.storage.manifest.chain import Chain, CommitInDoubt, HeadMoved
from omnigraph.storage.manifest.records import ManifestState, Precedence, control

# -- among the threads of a process --------------------------------------------------------------------
#
# Those who wait get their turn in order of arrival, also when some of them give up.
#
# Every turn has a plain lock of its own, held from before it lines up until it is over. Whoever comes next
# waits for that lock. Nobody hands anything over, so there is nobody who could fail to. An exception may come
# anywhere (Ctrl-C, a second Ctrl-C), so the end of a turn must not be code of ours: `with turn.held` lets go
# inside the interpreter, where nothing can come in between.


@dataclass(eq=False)
class FairLock:
    """A lock for one at a time, first come, first served."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    last: Turn | None = None  # the end of the line


@dataclass(eq=False)
class Turn:
    """One thread's turn; it begins when `wait` returns and is over at the end of `with turn.held`.

    >>> turn = Turn(FairLock())
    >>> with turn.held:
    ...     turn.wait()
    """

    lock: FairLock
    held: threading.Lock = field(default_factory=threading.Lock)
    before: Turn | None = None  # the last one that may still be in front of this one
    lined_up: bool = False

    def wait(self) -> None:
        """Wait until all who came before have had their turn or given up; the second time, do nothing."""
        if self.lined_up:
            return
        if not self.held.locked():
            raise AssertionError("a turn must be held before it lines up: nobody would wait for it")
        self.lined_up = True
        with self.lock.guard:
            self.before = self.lock.last  # first: whoever comes next must find it, however this ends
            self.lock.last = self
        while (before := self.before) is not None:
            with before.held:
                pass
            self.before = before.before  # whoever gave up leaves us to those it was waiting for


# -- among processes -----------------------------------------------------------------------------------


LONGEST_MS = 2_000  # that others wait for a write that died, or that needs more than it said
LEAST_MS = 50
LOOKS = 10  # at the head, while waiting
TRIES = 32  # each that fails is a commit of somebody else


class Precedences:
    """Asks the writes of other processes for precedence, and lets those go first that ask for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waited: dict[str, int] = {}  # chain -> the version that was waited at in vain

    def ask(self, chain: Chain, commit_id: str, attempt_s: float) -> None:
        """Ask that a write goes first, given how long an attempt takes; without success nothing is lost."""
        wait_ms = LEAST_MS + int(2_000 * attempt_s)
        if attempt_s * 1_000 > LONGEST_MS:
            return  # others would wait, and it would lose all the same
        with suppress(StorageError, CommitInDoubt):  # the next look at the branch says what there is
            for _ in range(TRIES):
                state = chain.latest()
                if state.tombstone is not None:
                    return
                if self.has_waited(chain, state, commit_id):
                    continue
                first = Precedence(commit_id, state.version + 1, min(wait_ms, LONGEST_MS))
                with suppress(HeadMoved):
                    chain.commit(*control(state, precedence=first), Step.TURN)
                    return

    def has_waited(self, chain: Chain, state: ManifestState, commit_id: str) -> bool:
        """Wait if another write is to go first; say whether that took time, so that the state is old."""
        first, version = state.precedence, state.version
        if first is None or first.version != version or first.commit_id == commit_id:
            return False
        if self._waited.get(chain.incarnation) == version:
            return False
        wait_s = min(first.wait_ms, LONGEST_MS) / 1_000
        until = self._clock.monotonic() + wait_s
        while self._clock.monotonic() < until:
            self._clock.sleep(wait_s / LOOKS)
            if chain.latest().version != version:
                return True
        self._waited[chain.incarnation] = version
        return True
