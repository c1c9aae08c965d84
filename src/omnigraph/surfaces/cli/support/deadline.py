"""`--timeout`: an overall time limit for a command.

A call to storage cannot be broken off half way, so a command with a limit runs in a thread of its own while
the first one watches the clock. When time is up the first one answers, and the console script ends the
process: to the graph that is a crash, which it is made to survive.

A command says that it begins to write before it does, and claims the right to answer. After the deadline both
are refused: "nothing was written" stays true, and there is one answer only.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from enum import Enum

from omnigraph.base.errors import DeadlineExceeded, InvalidRequest

SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])")
FLAG = "--timeout"


class Stage(Enum):
    """How far a command has come."""

    READING = "reading"
    WRITING = "writing"
    ANSWERED = "answered"


class TimedOut(DeadlineExceeded):
    """The command did not end within its `--timeout`."""

    def __init__(self, seconds: float, stage: Stage) -> None:
        writing = stage is Stage.WRITING
        super().__init__(
            f"the command was stopped after {seconds:g} s while {stage.value}",
            remedy="The write took effect as a whole or not at all: look at the graph before you repeat it"
            if writing
            else "Nothing was written; try again, or allow more time",
            stage=stage.value,
            timeout_s=seconds,
            may_have_written=writing,
        )


class Expired(Exception):
    """The deadline has passed: the command has nothing more to say or do."""


class DeadlineProgress:
    """Where a command is, shared by the command and the thread that watches the clock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stage = Stage.READING
        self._expired = False

    def reach(self, stage: Stage) -> None:
        """Begin to write, or claim the right to answer."""
        with self._lock:
            if self._expired:
                raise Expired
            self._stage = stage

    def expire(self) -> Stage:
        """Forbid everything further, unless the command is answering already; return where it is."""
        with self._lock:
            self._expired = self._stage is not Stage.ANSWERED
            return self._stage


def within(seconds: float | None, command: Callable[[], int], progress: DeadlineProgress) -> int:
    """Run a command to its end and return its exit code, or raise TimedOut and leave it behind."""
    if seconds is None:
        return command()
    ended: Future[int] = Future()

    def run() -> None:
        try:
            ended.set_result(command())
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the thread that watches
            ended.set_exception(error)

    threading.Thread(target=run, name="omnigraph-command", daemon=True).start()
    try:
        return ended.result(seconds)
    except TimeoutError:
        if ended.done():
            raise
    stage = progress.expire()
    if stage is Stage.ANSWERED:
        return ended.result()
    raise TimedOut(seconds, stage)


def timeout_in(flags: Iterable[str]) -> float | None:
    """Return the limit that global flags ask for, in seconds.

    >>> timeout_in(["--json", "--timeout", "1.5m"])
    90.0
    """
    words = iter(flags)
    duration: str | None = None
    for word in words:
        name, has_value, value = word.partition("=")
        if name == FLAG:
            duration = value if has_value else next(words, None)
    return None if duration is None else seconds_of(duration)


def seconds_of(text: str) -> float:
    """Read a duration.

    >>> seconds_of("2h")
    7200.0
    """
    duration = DURATION.fullmatch(text.strip())
    seconds = 0.0 if duration is None else float(duration[1]) * SECONDS[duration[2]]
    if seconds <= 0:
        raise InvalidRequest(
            f"{text!r} is not a duration", remedy="Give a positive number and a unit: 30s, 5m or 1h"
        )
    return seconds
