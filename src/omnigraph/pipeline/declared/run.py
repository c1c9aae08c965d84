"""Run: a pipeline from its sources to one commit, and what follows it.

    check -> sources -> transforms -> expectations -> **one load** -> merge -> report

Gives   a report. A run that fails raises, with nothing published unless the error says what was; its report
        is written all the same, if one was asked for.
Rule    all targets are one load, so one commit, judged together. With `since`, the branch must not have moved
        since its last watermark was read: of two such runs at once, one is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import BranchNotFound, ConstraintViolation, GraphError, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import Clock
from omnigraph.catalog.model import TableType
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.assembly import LoadProgress
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.engine.validate.relation import Violation
from omnigraph.engine.write import Receipt
from omnigraph.language.diagnostics import Reporter
from omnigraph.pipeline.bulk.load import load
from omnigraph.pipeline.bulk.load_task import cause_of
from omnigraph.pipeline.declared.check import examine, refuse, replacing
from omnigraph.pipeline.declared.frames import Frames, FrameUnavailable, read_sources
from omnigraph.pipeline.declared.report import (
    ExpectationRun,
    RunOutcome,
    RunReport,
    SourceRun,
    StageKind,
    StageRun,
    TargetRun,
    write_report,
)
from omnigraph.pipeline.declared.spec import ExpectationSpec, Pipeline, TargetSpec
from omnigraph.pipeline.declared.watermark import LastRun, SourceSlice, labels, last_run, slice_source
from omnigraph.pipeline.progress import watched
from omnigraph.pipeline.session import own_session
from omnigraph.storage.cost import process_totals

SHOWN_ROWS = 5
SHOWN_CHARACTERS = 300


# == stages ========================================================================================


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is: which step of how many, and within it the tasks of Spark and rows, where known."""

    kind: StageKind
    name: str
    step: int
    steps: int
    detail: str = ""  # what a load is doing
    rows: int | None = None
    tasks_done: int = 0
    tasks: int = 0


OnProgress = Callable[[RunProgress], None]  # may be called from a thread of its own


class PipelineFailed(InvalidRequest):
    """A step of a run failed on Spark; nothing was published. The message has the first cause."""

    code = "pipeline_failed"


class RunningStage:
    """A step that is going on."""

    def __init__(self, tell: OnProgress, kind: StageKind, name: str, step: int, steps: int) -> None:
        self.rows: int | None = None
        self._tell = tell
        self._what = (kind, name, step, steps)

    def tell(self, *, detail: str = "", rows: int | None = None) -> None:
        """Say how far the step is."""
        self._tell(RunProgress(*self._what, detail, rows))

    def tell_tasks(self, done: int, known: int) -> None:
        """Say how many tasks of Spark are done."""
        self._tell(RunProgress(*self._what, tasks_done=done, tasks=known))


class RunStages:
    """The steps of one run."""

    def __init__(
        self, session: SparkSession, clock: Clock, name: str, steps: int, tell: OnProgress | None
    ) -> None:
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
    def stage(self, kind: StageKind, name: str = "") -> Iterator[RunningStage]:
        """Run one step."""
        stage = RunningStage(self._tell or (lambda _: None), kind, name, len(self._done) + 1, self._steps)
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


# == expectations ==================================================================================


class ExpectationFailed(ConstraintViolation):
    """Rows break an expectation of a pipeline; nothing was published. `fields["violations"]` has some."""

    @classmethod
    def raise_for(cls, pipeline: Pipeline, expectations: Sequence[ExpectationRun]) -> None:
        """Raise if an expectation is broken."""
        broken = {expectation.name: expectation for expectation in expectations if expectation.broken}
        if not broken:
            return
        violations = [
            _violation(pipeline.source.file, spec.spans["sql"].line, spec.name, row)
            for spec in pipeline.expectations
            if spec.name in broken
            for row in broken[spec.name].first
        ]
        lines = "".join(f"\n  {violation.text}" for violation in violations)
        names = ", ".join(repr(name) for name in broken)
        raise cls(
            f"pipeline {pipeline.name!r} is not as expected: {names}{lines}",
            remedy="Nothing was published; mend the rows or the expectation, then run again",
            violations=[violation.to_json() for violation in violations],
            total=sum(expectation.broken for expectation in broken.values()),
        )


def broken_rows(spec: ExpectationSpec, frame: DataFrame) -> ExpectationRun:
    """Ask one expectation; rows are counted only where there are any."""
    first = frame.limit(SHOWN_ROWS).collect()
    if not first:
        return ExpectationRun(spec.name, 0)
    return ExpectationRun(
        spec.name, frame.count(), tuple(_shown(row.asDict(recursive=True)) for row in first)
    )


def _shown(row: dict[str, object]) -> str:
    text = json.dumps(row, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _violation(file: str, line: int, name: str, row: str) -> Violation:
    return Violation("expectation", "row", "", f"{name}: {row}", origin=file, position=line)


# == the run =======================================================================================


def run(
    spark: SparkSession,
    graph: Graph,
    pipeline: Pipeline,
    *,
    since: bool = False,
    report: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    progress: OnProgress | None = None,
    dry_run: bool = False,
) -> RunReport:
    """Run a pipeline: everything that it reads and makes goes to the graph in one commit, or nothing does.

    `since` reads only what is above the watermarks that the last run on the branch left in its commit.
    `report` is a folder for the report as JSON and as a page. `dry_run` does everything but write.
    """
    running = _Run(spark, graph, pipeline, since=since, actor=actor, tell=progress, dry_run=dry_run)
    try:
        outcome = running.go()
    except GraphError as error:
        if report is not None:
            write_report(running.report("failed", error), report)
        raise
    finished = running.report(outcome)
    if report is not None:
        write_report(finished, report)
    return finished


class _Run:
    """One run on its way, and what is known of it so far."""

    def __init__(
        self,
        spark: SparkSession,
        graph: Graph,
        pipeline: Pipeline,
        *,
        since: bool,
        actor: str | None,
        tell: OnProgress | None,
        dry_run: bool,
    ) -> None:
        self._session = own_session(spark)
        self._graph = graph
        self._pipeline = pipeline
        self._since = since
        self._actor = actor
        self._dry_run = dry_run
        steps = 3 + len(pipeline.sources) + len(pipeline.expectations) + (pipeline.then is not None)
        self._stages = RunStages(self._session, graph.store.clock, pipeline.name, steps, tell)
        self._last: LastRun | None = None
        self._slices: dict[str, SourceSlice] = {}
        self._types: dict[TargetSpec, TableType] = {}
        self._expectations: list[ExpectationRun] = []
        self._receipt: Receipt | None = None
        self._merged: MergeOutcome | None = None
        self._warnings: list[str] = []

    def go(self) -> RunOutcome:
        """Do everything, in order."""
        self._look_back()
        self._read()
        growing = [self._slices[source.name] for source in self._pipeline.watermarks]
        if self._since and not any(rows.rows for rows in growing):
            self._then()  # an earlier run may have ended between its commit and its merge
            return "nothing_new"
        frames = self._make()
        self._expect(frames)
        self._load(frames)
        if self._dry_run:
            return "rehearsed"
        self._then()
        return "published"

    # -- steps -------------------------------------------------------------------------------------

    def _look_back(self) -> None:
        if not self._since:
            return
        if not self._pipeline.watermarks:
            raise InvalidRequest(
                f"pipeline {self._pipeline.name!r} has no source with a watermark",
                remedy="Name the column that only grows: watermark: COLUMN; or run without --since",
            )
        self._last = last_run(self._graph, self._pipeline)

    def _read(self) -> None:
        """Check everything before any row is read, then count and close off the sources."""
        pipeline, reporter = self._pipeline, Reporter(self._pipeline.source)
        with self._stages.stage("check"):
            sources = read_sources(self._session, pipeline, reporter)
            frames = Frames(self._session, pipeline, sources, reporter, with_rows=False)
            self._types = examine(frames, self._graph, pipeline, reporter)
            refuse(pipeline, reporter)
            self._warnings += [finding.message for finding in reporter.diagnostics]
            if self._since:
                self._refuse_replacing(frames)
        known = self._last.watermarks if self._last is not None else FrozenMap[str, str]()
        for spec in pipeline.sources:
            frame = sources[spec.name]
            assert frame is not None  # else the check has refused
            with self._stages.stage("source", spec.name) as stage:
                self._slices[spec.name] = slice_source(frame, spec, known.get(spec.name))
                stage.rows = self._slices[spec.name].rows

    def _refuse_replacing(self, frames: Frames) -> None:
        for target in replacing(frames, self._pipeline):
            raise InvalidRequest(
                f"with --since, {target.type} would be replaced by its new rows alone",
                remedy="Use mode merge or append, or run without --since",
                type=target.type,
            )

    def _make(self) -> Frames:
        reporter = Reporter(self._pipeline.source)
        with self._stages.stage("transforms"):
            rows = {name: source_slice.frame for name, source_slice in self._slices.items()}
            frames = Frames(self._session, self._pipeline, rows, reporter)
            for target in self._pipeline.targets:
                try:
                    frames.frame(target.rows)
                except FrameUnavailable:
                    break
            refuse(self._pipeline, reporter)
        return frames

    def _expect(self, frames: Frames) -> None:
        for spec in self._pipeline.expectations:
            with self._stages.stage("expectation", spec.name) as stage:
                result = broken_rows(spec, frames.expectation(spec))
                stage.rows = result.broken
            self._expectations.append(result)
        ExpectationFailed.raise_for(self._pipeline, self._expectations)

    def _load(self, frames: Frames) -> None:
        pipeline = self._pipeline
        with self._stages.stage("load", pipeline.branch) as stage:

            def tell(now: LoadProgress) -> None:
                stage.tell(detail=now.stage, rows=now.rows)

            self._receipt = load(
                self._session,
                self._graph,
                {target.type: frames.frame(target.rows) for target in pipeline.targets},
                mode={target.type: target.mode for target in pipeline.targets},
                columns={target.type: dict(target.columns) for target in pipeline.targets},
                branch=pipeline.branch,
                from_branch=None if pipeline.branch == pipeline.from_branch else pipeline.from_branch,
                if_commit=None if self._last is None else self._last.head,
                message=pipeline.message,
                actor=self._actor,
                labels=labels(pipeline, self._slices),
                on_violation=pipeline.on_violation,
                rejects=None if pipeline.rejects is None else pipeline.address(pipeline.rejects),
                progress=tell,
                dry_run=self._dry_run,
            )
            stage.rows = self._receipt.affected_nodes + self._receipt.affected_edges
            self._warnings += self._receipt.warnings

    def _then(self) -> None:
        """Merge, or say what a merge would do; a branch that was never made has nothing to merge."""
        then, branch = self._pipeline.then, self._pipeline.branch
        if then is None or self._dry_run or not self._exists(branch):
            return
        with self._stages.stage("merge", f"into {then.into}"):
            try:
                self._merged = self._graph.merge(
                    branch,
                    then.into,
                    preview=then.action == "preview",
                    message=self._pipeline.message,
                    actor=self._actor,
                )
            except GraphError as error:
                _say_published(error, branch, self._receipt)
                raise

    def _exists(self, branch: str) -> bool:
        try:
            self._graph.store.snapshot(branch)
        except BranchNotFound:
            return False
        return True

    # -- the report --------------------------------------------------------------------------------

    def report(self, outcome: RunOutcome, error: GraphError | None = None) -> RunReport:
        """Return what is known of the run."""
        pipeline, receipt = self._pipeline, self._receipt
        facts = {} if receipt is None else receipt.facts
        return RunReport(
            pipeline=pipeline.name,
            file=pipeline.source.file,
            graph=self._graph.uri,
            branch=pipeline.branch,
            outcome=outcome,
            started_at_us=self._stages.started_at_us,
            seconds=self._stages.seconds,
            stages=self._stages.done,
            sources=tuple(
                SourceRun(name, read.rows, read.since, read.watermark) for name, read in self._slices.items()
            ),
            targets=()
            if receipt is None
            else tuple(self._target(spec, receipt) for spec in pipeline.targets),
            expectations=tuple(self._expectations),
            rejected=int(facts.get("rejected") or 0),
            rejects=facts.get("rejects"),
            commit_id=None if receipt is None else receipt.commit_id,
            since_commit_id=None if self._last is None else self._last.commit_id,
            merge=None if self._merged is None else FrozenMap(self._merged.to_json()),
            error=None if error is None else FrozenMap({"error": error.summary, "code": error.code}),
            warnings=tuple(self._warnings),
        )

    def _target(self, spec: TargetSpec, receipt: Receipt) -> TargetRun:
        declared = self._types[spec]
        kind, name = declared.kind.value, declared.name
        for counts in receipt.types:
            if (counts.kind, counts.name) == (kind, name):
                return TargetRun(
                    name, kind, spec.mode, counts.given or 0, counts.inserted, counts.updated, counts.deleted
                )
        return TargetRun(name, kind, spec.mode, 0, 0, 0, 0)


def _say_published(error: GraphError, branch: str, receipt: Receipt | None) -> None:
    """Add to an error of the merge that the load before it stands."""
    if receipt is None:
        return
    published = (
        f"The rows are on branch {branch!r}, commit {receipt.commit_id}: merge it when that is settled"
    )
    remedy = published if error.remedy is None else f"{error.remedy}. {published}"
    GraphError.__init__(
        error, error.message, remedy=remedy, **{**error.fields, "published": receipt.commit_id}
    )
