"""Run one function in several processes at once and learn how each of them ended.

Room    test support. Used for races between writers, and for writers that die.
Given   a module-level function and one tuple of arguments for each process.
Gives   an `Outcome` for each: its value, its error, or the signal that ended it.
Why     Lance's threads and its random generator do not survive a fork of a process that used it. Children
        come from a server that has imported what they need and used none of it, which saves each of them
        more than a second; one with an environment of its own is spawned.
"""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess, SpawnContext, SpawnProcess
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_Call = tuple[Callable[..., Any], tuple[Any, ...]]

READY = b"ready"
GO = b"go"
EXIT_GRACE_S = 5.0  # between a child's answer and its exit


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How one process ended.

    There is a value only with exit code 0. A process that raised has the exception's type name, its `code`
    attribute if it had one, and exit code 1; one that ran too long has "TimeoutError" and -9; one that died
    has a text but no type, and minus the signal's number. `seconds` is the time spent in the target.
    """

    index: int
    value: T | None
    error_type: str | None
    error_code: str | None
    error_text: str | None
    exit_code: int | None
    seconds: float
    trace: str = field(default="", repr=False)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.error_type is None


@dataclass(frozen=True, slots=True)
class _Report:
    """What a child says about itself before it exits."""

    seconds: float
    value: Any = None
    error_type: str | None = None
    error_code: str | None = None
    error_text: str | None = None
    trace: str = ""

    @classmethod
    def of_error(cls, error: Exception, seconds: float) -> _Report:
        code = getattr(error, "code", None)
        return cls(
            seconds=seconds,
            error_type=type(error).__name__,
            error_code=None if code is None else str(code),
            error_text=str(error),
            trace="".join(traceback.format_exception(error)),
        )


def run_processes(
    target: Callable[..., T],
    argument_lists: Sequence[tuple[Any, ...]],
    *,
    timeout_s: float = 120,
    start_together: bool = True,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[list[int]], None] | None = None,
) -> list[Outcome[T]]:
    """Call `target` once for each tuple of arguments, in a process of its own; return the outcomes in order.

    With `start_together`, no call begins before every process has imported what it needs (or died trying).
    `env` is set in each child before the module of `target` is imported there. The time limit covers
    everything from the first start on; processes that exceed it are killed. `meanwhile` is called with the
    process ids while they run: the place to kill one of them.
    """
    deadline = time.perf_counter() + timeout_s
    children: list[_Child] = []
    try:
        for arguments in argument_lists:
            children.append(_Child((target, arguments), dict(env or {}), start_together))
        if start_together:
            _listen(children, deadline)
            for child in children:
                child.go()
        if meanwhile is not None:
            meanwhile([child.pid for child in children])
        _listen([child for child in children if child.expected], deadline)
        return [_outcome(index, child, deadline) for index, child in enumerate(children)]
    finally:
        for child in children:
            child.end()


class _Child:
    """The parent's view of one process."""

    def __init__(self, call: _Call, env: dict[str, str], wait: bool) -> None:
        context: SpawnContext | ForkServerContext = get_context("spawn") if env else _server()
        self.channel, theirs = context.Pipe()
        self.process: SpawnProcess | ForkServerProcess = context.Process(
            target=_child, args=(theirs, pickle.dumps(call), env, wait), daemon=True
        )
        self.report: _Report | None = None
        self.expected = True  # whether it may still say something
        self.process.start()
        theirs.close()  # from here on, the end of the process is the end of the channel
        self.began = self.ended = time.perf_counter()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def hear(self) -> None:
        """Take the next message, or note that there will be none."""
        try:
            message = self.channel.recv_bytes()
        except (EOFError, OSError):
            self.expected = False
            self.ended = time.perf_counter()
            return
        if message != READY:
            self.report = pickle.loads(message)
            self.expected = False

    def go(self) -> None:
        self.began = time.perf_counter()
        with suppress(OSError):  # it may have died while it waited
            self.channel.send_bytes(GO)

    def end(self) -> int | None:
        """Make sure that the process is over, and return its exit code."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.channel.close()
        return self.process.exitcode


def _server() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(["tests.support.preloaded"])
    return context


def _listen(children: list[_Child], deadline: float) -> None:
    """Hear one message from each child, or its end, unless the deadline comes first."""
    waiting = {child.channel: child for child in children}
    while waiting and (left := deadline - time.perf_counter()) > 0:
        for channel in connection.wait(list(waiting), left):
            assert isinstance(channel, Connection)
            waiting.pop(channel).hear()


def _outcome(index: int, child: _Child, deadline: float) -> Outcome[Any]:
    late = child.expected
    if not late:
        child.process.join(max(EXIT_GRACE_S, deadline - time.perf_counter()))
        late = child.process.is_alive()
    if late:
        child.ended = time.perf_counter()
    exit_code = child.end()
    seconds = child.ended - child.began
    report = child.report
    if late:
        when = "before" if report is None else "after"
        text = f"killed: still running at the time limit, {when} its answer"
        return Outcome(index, None, "TimeoutError", None, text, exit_code, seconds)
    if report is None or (exit_code != 0 and report.error_type is None):
        return Outcome(index, None, None, None, f"died with exit code {exit_code}", exit_code, seconds)
    return Outcome(
        index,
        report.value,
        report.error_type,
        report.error_code,
        report.error_text,
        exit_code,
        report.seconds,
        report.trace,
    )


def _child(channel: Connection, call: bytes, env: dict[str, str], wait: bool) -> None:
    """The whole life of a child process."""
    os.environ.update(env)
    report = _attempt(channel, call, wait)
    try:
        message = pickle.dumps(report)
    except Exception as error:  # noqa: BLE001 - a value that cannot travel is the target's error
        report = _Report.of_error(error, report.seconds)
        message = pickle.dumps(report)
    channel.send_bytes(message)
    channel.close()
    if report.error_type is not None:
        raise SystemExit(1)


def _attempt(channel: Connection, call: bytes, wait: bool) -> _Report:
    began = time.perf_counter()
    try:
        # Unpickling imports the target's module: hence here, after `env`, and not with the other arguments.
        target, arguments = pickle.loads(call)
        if wait:
            channel.send_bytes(READY)
            channel.recv_bytes()
        began = time.perf_counter()
        value = target(*arguments)
        return _Report(time.perf_counter() - began, value)
    except Exception as error:  # noqa: BLE001 - whatever was raised is the outcome
        return _Report.of_error(error, time.perf_counter() - began)
