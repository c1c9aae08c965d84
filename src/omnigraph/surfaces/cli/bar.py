"""Bar: how far a long command is, shown to a person who watches.

Room    surfaces.cli. On a terminal only: what reads from a pipe gets nothing but errors and notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from omnigraph.engine.load.door import LoadProgress, Report


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
