"""Run: a pipeline from its sources to one commit, and what follows it.

    check -> sources -> transforms -> expectations -> **one load** -> merge -> report

Room    pipeline.declared. Puts the other rooms in order; rows are Spark's and the load's.
Gives   a report. A run that fails raises, with nothing published unless the error says what was; its report
        is written all the same, if one was asked for.
Rule    all targets are one load, so one commit, judged together. With `since`, the branch must not have moved
        since its last watermark was read: of two such runs at once, one is refused.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from omnigraph.base.errors import BranchNotFound, GraphError, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.model import TableType
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.load import LoadProgress
from omnigraph.engine.merge.merge import MergeOutcome
from omnigraph.engine.receipt import Receipt
from omnigraph.language.diagnostics import Reporter
from omnigraph.pipeline.bulk.load import load
from omnigraph.pipeline.declared.check import examine, refuse, replacing
from omnigraph.pipeline.declared.expect import ExpectationFailed, broken_rows
from omnigraph.pipeline.declared.frames import Frames, Unbuilt
from omnigraph.pipeline.declared.page import page
from omnigraph.pipeline.declared.report import (
    ExpectationRun,
    Outcome,
    RunReport,
    SourceRun,
    TargetRun,
    write_report,
)
from omnigraph.pipeline.declared.sources import read_sources
from omnigraph.pipeline.declared.spec import Pipeline, TargetSpec
from omnigraph.pipeline.declared.stages import Stages, Tell
from omnigraph.pipeline.declared.watermark import LastRun, Slice, labels, last_run, sliced
from omnigraph.pipeline.session import own_session


def run(
    spark: SparkSession,
    graph: Graph,
    pipeline: Pipeline,
    *,
    since: bool = False,
    report: str | os.PathLike[str] | None = None,
    actor: str | None = None,
    progress: Tell | None = None,
    dry_run: bool = False,
) -> RunReport:
    """Run a pipeline: everything that it reads and makes goes to the graph in one commit, or nothing does.

    `since` reads only what is above the watermarks that the last run on the branch left in its commit.
    `report` is a folder for the report as JSON and as a page. `dry_run` does everything but write.
    """
    going = _Run(spark, graph, pipeline, since=since, actor=actor, tell=progress, dry_run=dry_run)
    try:
        outcome = going.go()
    except GraphError as error:
        if report is not None:
            failed = going.report("failed", error)
            write_report(failed, page(failed), report)
        raise
    done = going.report(outcome)
    if report is not None:
        write_report(done, page(done), report)
    return done


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
        tell: Tell | None,
        dry_run: bool,
    ) -> None:
        self._session = own_session(spark)
        self._graph = graph
        self._pipeline = pipeline
        self._since = since
        self._actor = actor
        self._dry_run = dry_run
        steps = 3 + len(pipeline.sources) + len(pipeline.expectations) + (pipeline.then is not None)
        self._stages = Stages(self._session, graph.store.clock, pipeline.name, steps, tell)
        self._last: LastRun | None = None
        self._slices: dict[str, Slice] = {}
        self._types: dict[TargetSpec, TableType] = {}
        self._expectations: list[ExpectationRun] = []
        self._receipt: Receipt | None = None
        self._merged: MergeOutcome | None = None
        self._warnings: list[str] = []

    def go(self) -> Outcome:
        """Do everything, in order."""
        self._look_back()
        self._read()
        growing = [self._slices[one.name] for one in self._pipeline.watermarks]
        if self._since and not any(one.rows for one in growing):
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
            self._warnings += [one.message for one in reporter.found]
            if self._since:
                self._refuse_replacing(frames)
        known = self._last.watermarks if self._last is not None else FrozenMap[str, str]()
        for spec in pipeline.sources:
            frame = sources[spec.name]
            assert frame is not None  # else the check has refused
            with self._stages.stage("source", spec.name) as stage:
                self._slices[spec.name] = sliced(frame, spec, known.get(spec.name))
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
            rows = {name: one.frame for name, one in self._slices.items()}
            frames = Frames(self._session, self._pipeline, rows, reporter)
            for target in self._pipeline.targets:
                try:
                    frames.frame(target.rows)
                except Unbuilt:
                    break
            refuse(self._pipeline, reporter)
        return frames

    def _expect(self, frames: Frames) -> None:
        for spec in self._pipeline.expectations:
            with self._stages.stage("expectation", spec.name) as stage:
                found = broken_rows(spec, frames.expectation(spec))
                stage.rows = found.broken
            self._expectations.append(found)
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

    def report(self, outcome: Outcome, error: GraphError | None = None) -> RunReport:
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
                SourceRun(name, one.rows, one.since, one.watermark) for name, one in self._slices.items()
            ),
            targets=() if receipt is None else tuple(self._target(one, receipt) for one in pipeline.targets),
            expectations=tuple(self._expectations),
            rejected=int(facts.get("rejected") or 0),
            rejects=facts.get("rejects"),
            commit_id=None if receipt is None else receipt.commit_id,
            since_commit_id=None if self._last is None else self._last.commit_id,
            merge=None if self._merged is None else FrozenMap(self._merged.to_json()),
            error=None if error is None else FrozenMap({"error": str(error), "code": error.code}),
            warnings=tuple(self._warnings),
        )

    def _target(self, spec: TargetSpec, receipt: Receipt) -> TargetRun:
        declared = self._types[spec]
        kind, name = declared.kind.value, declared.name
        for one in receipt.types:
            if (one.kind, one.name) == (kind, name):
                return TargetRun(
                    name, kind, spec.mode, one.given or 0, one.inserted, one.updated, one.deleted
                )
        return TargetRun(name, kind, spec.mode, 0, 0, 0, 0)


def _say_published(error: GraphError, branch: str, receipt: Receipt | None) -> None:
    """Add to an error of the merge that the load before it stands."""
    if receipt is None:
        return
    said = f"The rows are on branch {branch!r}, commit {receipt.commit_id}: merge it when that is settled"
    remedy = said if error.remedy is None else f"{error.remedy}. {said}"
    GraphError.__init__(
        error, error.message, remedy=remedy, **{**error.fields, "published": receipt.commit_id}
    )
