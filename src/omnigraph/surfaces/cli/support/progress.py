"""How far a long command is, shown to a person who watches; and the Spark session of commands that use one.

On a terminal only: what reads from a pipe gets nothing but errors and notes. Rich's progress bars and PySpark
are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.base.errors import InvalidRequest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

    from omnigraph.engine.load.assembly import LoadProgress, Report
    from omnigraph.pipeline.declared import RunProgress

# -- bars --------------------------------------------------------------------------------------------


@contextmanager
def load_bar(console: Console | None) -> Iterator[Report | None]:
    """Show the stages of a load: bytes read of the total, rows, and then what is being done with them."""
    if console is None:
        yield None
        return
    with _bar(console, "{task.description}", "{task.fields[read]}", "{task.fields[rows]:,} rows") as bar:
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
    from rich.filesize import decimal

    read = decimal(now.bytes_read)
    return read if now.bytes_total is None else f"{read} of {decimal(now.bytes_total)}"


@contextmanager
def task_bar(console: Console | None, doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how many tasks are done, on a terminal only."""
    if console is None:
        yield None
        return
    with _bar(console, doing, "{task.percentage:>3.0f}%") as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def stage_bar(console: Console | None) -> Iterator[Callable[[str, int, int], None] | None]:
    """Show what is being done, and how much of it, on a terminal only."""
    if console is None:
        yield None
        return
    with _bar(console, "{task.description}", "{task.completed:.0f} of {task.total}") as bar:
        task = bar.add_task("", total=1)
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)


@contextmanager
def pipeline_bar(console: Console | None) -> Iterator[Callable[[RunProgress], None] | None]:
    """Show the step that is going on, with the tasks of Spark."""
    if console is None:
        yield None
        return
    with _bar(console, "{task.description}", "{task.fields[far]}") as bar:
        steps: dict[int, TaskID] = {}

        def report(now: RunProgress) -> None:
            if now.step not in steps:
                for earlier in steps.values():
                    bar.update(earlier, visible=False)
                title = f"{now.step}/{now.steps} {now.kind} {now.name}".strip()
                steps[now.step] = bar.add_task(title, total=None, far="")
            if now.tasks:
                far = f"{now.tasks_done} of {now.tasks} tasks"
                bar.update(steps[now.step], completed=now.tasks_done, total=now.tasks, far=far)
            elif now.detail:
                rows = f", {now.rows:,} rows" if now.rows else ""
                bar.update(steps[now.step], far=f"{now.detail}{rows}")
            bar.refresh()

        yield report


def _bar(console: Console, *fields: str) -> Progress:
    """Return a bar with text on both sides, which goes away when it ends."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    first, *others = (TextColumn(field) for field in fields)
    return Progress(first, BarColumn(), *others, TimeElapsedColumn(), console=console, transient=True)


# -- Spark -------------------------------------------------------------------------------------------


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
