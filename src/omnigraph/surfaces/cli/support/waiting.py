"""Deadline: an overall time limit for a command, kept honestly.

Room    surfaces.cli. A call to storage cannot be broken off half way, so a command with a limit runs in a
        thread of its own while the first one watches the clock. When time is up the first one answers, and
        the console script ends the process: to the graph that is a crash, which it is made to survive.
Rule    a command says that it begins to write before it does, and claims the right to answer. After the
        deadline both are refused: "nothing was written" stays true, and there is one answer only.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum, StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from omnigraph.base.errors import GraphError, InvalidRequest, Kind
from omnigraph.engine.load.assembly import LoadProgress, Report

SECONDS = {"s": 1, "m": 60, "h": 3600}
DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smh])")
FLAG = "--timeout"


class Stage(Enum):
    """How far a command has come."""

    READING = "reading"
    WRITING = "writing"
    ANSWERED = "answered"


class TimedOut(GraphError):
    """The command did not end within its `--timeout`."""

    code = "timeout"
    kind = Kind.UNAVAILABLE
    retryable = True

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
    """Where a command is, shared by the command and the one who watches the clock."""

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
    waiting = iter(flags)
    found: str | None = None
    for one in waiting:
        name, has_value, value = one.partition("=")
        if name == FLAG:
            found = value if has_value else next(waiting, None)
    return None if found is None else seconds_of(found)


def seconds_of(text: str) -> float:
    """Read a duration.

    >>> seconds_of("2h")
    7200.0
    """
    found = DURATION.fullmatch(text.strip())
    seconds = 0.0 if found is None else float(found[1]) * SECONDS[found[2]]
    if seconds <= 0:
        raise InvalidRequest(
            f"{text!r} is not a duration", remedy="Give a positive number and a unit: 30s, 5m or 1h"
        )
    return seconds


# -- bar -----------------------------------------------------------------------------------------
#
# How far a long command is, shown to a person who watches.
# On a terminal only: what reads from a pipe gets nothing but errors and notes.


@contextmanager
def load_bar(console: Console | None) -> Iterator[Report | None]:
    """Show the stages of a load: bytes read of the total, rows, and then what is being done with them."""
    if console is None:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[read]}"),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        stages: dict[str, TaskID] = {}

        def report(now: LoadProgress) -> None:
            reading = now.stage == "reading"
            read = _read(now, reading=reading)
            if now.stage not in stages:
                for earlier in stages.values():
                    bar.update(earlier, visible=False)
                total = now.bytes_total if reading else None  # of the other stages nobody knows the end
                stages[now.stage] = bar.add_task(now.stage, total=total, rows=now.rows, read=read)
            bar.update(stages[now.stage], completed=now.bytes_read, rows=now.rows, read=read)
            if now.tasks:
                bar.update(stages[now.stage], completed=now.tasks_done, total=now.tasks)

        yield report


def _read(now: LoadProgress, *, reading: bool) -> str:
    if now.tasks:
        return f"{now.tasks_done} of {now.tasks} tasks"
    if not reading:
        return ""
    read = decimal(now.bytes_read)
    return read if now.bytes_total is None else f"{read} of {decimal(now.bytes_total)}"


@contextmanager
def task_bar(console: Console | None, doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how many tasks are done, on a terminal only."""
    if console is None:
        yield None
        return
    columns = (
        TextColumn(doing),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# -- spark ---------------------------------------------------------------------------------------
#
# The session that a command works with, when it is asked to work on Spark.
# PySpark is an extra, so nothing is imported before somebody asks.


class Worker(StrEnum):
    """Who does the work."""

    LOCAL = "local"
    SPARK = "spark"


WorkerFlag = Annotated[
    Worker, typer.Option("--engine", help="Who does the work: this process, or Spark, for many rows.")
]


def spark_here() -> Any:
    """Return a session in this process."""
    try:
        from omnigraph.pipeline.session import spark_session
    except ImportError as error:
        raise InvalidRequest("PySpark is not installed", remedy="pip install 'omnigraph[spark]'") from error
    spark = spark_session()
    context = getattr(spark, "sparkContext", None)  # behind Spark Connect there is none
    if context is not None:
        context.setLogLevel("ERROR")
    return spark
