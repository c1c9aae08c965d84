"""Progress: how far Spark is with some work, and the end of that work when the caller is interrupted.

Around every block of Spark actions that somebody may watch or stop.

Given   a session, words for Spark's own pages, and a function of (tasks done, tasks known so far).
Gives   nothing: the work runs as it would without. The number of known tasks grows while Spark plans.
Rule    the actions run in the thread that enters the block, because Spark keeps job groups by thread. An
        error that leaves it, Ctrl-C above all, cancels them; what the thread had set is set again afterwards.
        Behind Spark Connect, which has no job groups, nothing is counted or cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from omnigraph.base.ids import new_id

if TYPE_CHECKING:
    from pyspark import SparkContext  # not there where only the client of Spark Connect is installed

POLL_SECONDS = 0.5
GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
PREFIX = "omnigraph-"
Report = Callable[[int, int], None]  # tasks done, tasks known so far


class StageProgress:
    """Counts the tasks of one job group. What Spark forgets of old stages stays counted."""

    def __init__(self, context: SparkContext, group: str) -> None:
        self._tracker = context.statusTracker()
        self._group = group
        self._over: set[int] = set()
        self._stages: dict[int, tuple[int, int]] = {}

    def count(self) -> tuple[int, int]:
        """Return how many tasks are done, and how many are known so far."""
        for job in self._tracker.getJobIdsForGroup(self._group):
            if job not in self._over:
                self._look_at(job)
        return sum(done for done, _ in self._stages.values()), sum(n for _, n in self._stages.values())

    def _look_at(self, job: int) -> None:
        info = self._tracker.getJobInfo(job)
        if info is None:
            return
        over = info.status == "SUCCEEDED"
        for number in info.stageIds:
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                done = min(stage.numCompletedTasks, stage.numTasks)  # a stage may run some of them again
                self._stages[number] = (done, done if over else stage.numTasks)  # stages may be skipped
        if over:
            self._over.add(job)


@contextmanager
def watched(
    spark: SparkSession, label: str, report: Report | None = None, *, every: float = POLL_SECONDS
) -> Iterator[None]:
    """Run the Spark actions of a block as one group that is reported on and can be stopped.

    `report` is called in a thread of its own when the numbers change, and at the end; if it raises, the work
    is cancelled and its error is raised here.
    """
    context: SparkContext | None = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = {name: context.getLocalProperty(name) for name in GROUP}
    if report is None and (before[GROUP[0]] or "").startswith(PREFIX):
        yield  # part of some work that is watched already
        return
    group = f"{PREFIX}{new_id()}"
    context.setJobGroup(group, label, interruptOnCancel=True)
    poller = None if report is None else _Poller(context, group, report, every)
    try:
        yield
        if poller is not None:
            poller.finish()
    except BaseException as error:
        with suppress(Exception):  # Spark may be gone, and the error is what counts
            context.cancelJobGroup(group)
        if poller is not None and poller.failure not in (None, error):
            raise poller.failure from error
        raise
    finally:
        if poller is not None:
            poller.stop()
        with suppress(Exception):
            for name, value in before.items():
                context.setLocalProperty(name, value)  # type: ignore[arg-type]  # None takes it away


class _Poller:
    """Asks twice a second, in a thread of its own."""

    def __init__(self, context: SparkContext, group: str, report: Report, every: float) -> None:
        self.failure: BaseException | None = None
        self._context, self._group, self._report, self._every = context, group, report, every
        self._progress = StageProgress(context, group)
        self._told: tuple[int, int] | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omnigraph-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()
        self._thread.join()

    def finish(self) -> None:
        """Report the end: whatever Spark was asked to do in the block is done."""
        self.stop()
        if self.failure is not None:
            raise self.failure
        known = self._count()[1]  # the last tasks may not be counted yet, though they are done
        self._tell(known, known)

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self._tell(*self._count())
            except BaseException as error:  # noqa: BLE001 - it is raised again, in the thread that works
                self.failure = error
                with suppress(Exception):
                    self._context.cancelJobGroup(self._group)
                return

    def _count(self) -> tuple[int, int]:
        with suppress(Exception):  # if Spark is gone, the work itself says so
            return self._progress.count()
        return 0, 0

    def _tell(self, done: int, known: int) -> None:
        if known and (done, known) != self._told:
            self._told = done, known
            self._report(done, known)
