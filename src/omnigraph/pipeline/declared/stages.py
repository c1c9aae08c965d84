"""Stages: the steps of a run, timed and told.

Room    pipeline.declared. What Spark does in a step can be watched and stopped (progress.py), and what
        fails in it is an error of ours that names the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.base.errors import InvalidRequest
from omnigraph.base.times import Clock
from omnigraph.pipeline.bulk.load_task import cause_of
from omnigraph.pipeline.declared.report import Kind, StageRun
from omnigraph.pipeline.progress import watched
from omnigraph.storage.cost import process_totals


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: which step of how many, and within it the tasks of Spark and rows, where known."""

    kind: Kind
    name: str
    step: int
    steps: int
    detail: str = ""  # what a load is doing
    rows: int | None = None
    tasks_done: int = 0
    tasks: int = 0


Tell = Callable[[RunProgress], None]  # may be called from a thread of its own


class PipelineFailed(InvalidRequest):
    """A step of a run failed on Spark; nothing was published. The message has the first cause."""

    code = "pipeline_failed"


class Stage:
    """A step that is going on."""

    def __init__(self, tell: Tell, kind: Kind, name: str, step: int, steps: int) -> None:
        self.rows: int | None = None
        self._tell = tell
        self._what = (kind, name, step, steps)

    def tell(self, *, detail: str = "", rows: int | None = None) -> None:
        """Say how far the step is."""
        self._tell(RunProgress(*self._what, detail, rows))

    def tell_tasks(self, done: int, known: int) -> None:
        """Say how many tasks of Spark are done."""
        self._tell(RunProgress(*self._what, tasks_done=done, tasks=known))


class Stages:
    """The steps of one run."""

    def __init__(self, session: SparkSession, clock: Clock, name: str, steps: int, tell: Tell | None) -> None:
        self.started_at_us = clock.now_us()
        self._session = session
        self._clock = clock
        self._name = name
        self._steps = steps
        self._tell = tell
        self._started = clock.monotonic()
        self._done: list[StageRun] = []

    @property
    def done(self) -> tuple[StageRun, ...]:
        """The steps that are over, the failed one included."""
        return tuple(self._done)

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return self._clock.monotonic() - self._started

    @contextmanager
    def stage(self, kind: Kind, name: str = "") -> Iterator[Stage]:
        """Run one step."""
        stage = Stage(self._tell or (lambda _: None), kind, name, len(self._done) + 1, self._steps)
        stage.tell()
        started, before = self._clock.monotonic(), process_totals().requests
        label = f"{self._name}: {kind} {name}".strip()
        try:
            with watched(self._session, label, None if self._tell is None else stage.tell_tasks):
                yield stage
        except PySparkException as error:
            raise PipelineFailed(
                f"{label} failed: {cause_of(error)}",
                remedy="Nothing was published; mend the cause and run again",
                stage=kind,
                name=name,
            ) from error
        finally:
            seconds = self._clock.monotonic() - started
            requests = process_totals().requests - before
            self._done.append(StageRun(kind, name, seconds, stage.rows, requests))
