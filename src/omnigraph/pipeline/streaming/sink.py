"""Sink: `df.write.format("omnigraph")` and `df.writeStream.format("omnigraph")`, one commit for each write.

    rows -> **files written by tasks -> messages -> one publish** in a process of Spark's

Tasks write as those of a bulk load do. Spark commits in a process of its own, without a session and without
a way to return anything: there the files are checked and published locally.

Given   options: `type`, `branch`, `load_mode` (insert, merge or overwrite), `message`, `actor`,
        `driver_rows`; at once also `idempotency_key` and `if_commit`, for a stream `sink_id`.
Rule    Spark calls `abort` after a commit that raised, and that commit may have landed: so nothing is ever
        undone or deleted here, and files that nothing names are left to a cleanup.
        A batch of a stream is known by the id of its query, which belongs to the checkpoint, and its number:
        under one such key there is one commit, whatever happens and whatever rows a replay brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from omnigraph.base.arguments import checked
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest, NotFound
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.assembly import WriteMode, claimed, load_request
from omnigraph.engine.write import Receipt, landed
from omnigraph.pipeline.bulk.load import DRIVER_ROWS
from omnigraph.pipeline.bulk.load_task import TaskOutcome, fingerprint_of
from omnigraph.pipeline.options import (
    BATCH,
    STREAM,
    Options,
    check_use,
    coded,
    location_of,
    number,
    open_store,
    type_name,
)
from omnigraph.pipeline.streaming.publishing import (
    Batch,
    BatchPlan,
    BatchTarget,
    plan_write,
    publish,
    publish_batch,
)
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

LOAD_MODES = {"insert": WriteMode.APPEND, "merge": WriteMode.MERGE, "overwrite": WriteMode.OVERWRITE}
QUERY_ID = "sql.streaming.queryId"  # how Spark's tasks know the query that they work for


def batch_sink(options: Options, schema: StructType, overwrite: bool) -> BatchSink:
    """Plan one write; what is wrong with options or columns is said now."""
    check_use(options, BATCH, "writing")
    target = _target(options, overwrite)
    intent = Intent(options.get("actor"), options.get("message"), options.get("if_commit"))
    key = options.get("idempotency_key")
    with open_store(target.location) as store:
        known = None if key is None else landed(store, key, store.snapshot(target.branch), intent.actor)
        first = None if known is None else known.commit_id
        plan = plan_write(store, target, schema, keyed=key is not None, first=first)
    return BatchSink(plan, intent, key)


def stream_sink(options: Options, schema: StructType, overwrite: bool) -> StreamSink:
    """Plan the writes of a stream; Spark asks for a plan before each batch, and again to commit it."""
    check_use(options, STREAM, "writing a stream")
    target = _target(options, overwrite)
    with open_store(target.location) as store:
        plan = plan_write(store, target, schema)
    return StreamSink(plan, Intent(options.get("actor"), options.get("message")), options.get("sink_id"))


@checked
def written(
    graph: Graph, idempotency_key: str, *, branch: str | None = None, actor: str | None = None
) -> Receipt:
    """Return what a write under a key did: Spark's own writers return nothing."""
    branch = graph.view.line(branch)
    receipt = landed(graph.store, idempotency_key, graph.store.snapshot(branch), actor)
    if receipt is None:
        raise NotFound(
            f"no write under idempotency key {idempotency_key!r} has landed on branch {branch!r}",
            remedy="Give the branch and the actor of the write; or repeat it under its key",
        )
    return receipt


# -- in tasks ----------------------------------------------------------------------------------------


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task reports to the process that commits."""

    partition: int
    outcome: TaskOutcome
    base: tuple[str, int]  # the chain and version that the write was planned on
    query_id: str | None


def _write(plan: BatchPlan, batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    context = TaskContext.get()
    assert context is not None
    outcome, state = plan.run(batches), plan.snapshot.state
    query_id = context.getLocalProperty(QUERY_ID)
    return TaskMessage(context.partitionId(), outcome, (state.line.incarnation, state.version), query_id)


def _outcomes(messages: Sequence[TaskMessage]) -> list[TaskOutcome]:
    """Return what came of the tasks, in the order of their partitions."""
    return [message.outcome for message in sorted(messages, key=lambda message: message.partition)]


# -- in the process that commits ---------------------------------------------------------------------


class BatchSink(DataSourceArrowWriter):
    """Writes one DataFrame as one commit."""

    def __init__(self, plan: BatchPlan, intent: Intent, key: str | None) -> None:
        self._plan = plan
        self._intent = intent
        self._key = key

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one partition as files that nothing names yet."""
        with coded():
            return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check and publish what the tasks wrote."""
        reports = [message for message in messages if isinstance(message, TaskMessage)]
        target = self._plan.target
        with coded(), open_store(target.location) as store:
            outcomes = _outcomes(reports)
            intent = self._intent
            if self._key is not None:
                request = load_request(target.mode.value, (), None, {}, fingerprint_of(outcomes))
                claim = Claim(self._key, self._plan.snapshot, intent.actor, request)
                claims = Claims(store.location, store.syncer)
                if self._plan.job.landed:
                    claims.find(claim)  # another request under the key is refused
                    return
                intent = claimed(claims, claim, intent)
            publish(store, target, self._plan.snapshot, outcomes, intent)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what raised may have published these very files."""


class StreamSink(DataSourceStreamArrowWriter):
    """Writes each batch of a stream as one commit."""

    def __init__(self, plan: BatchPlan, intent: Intent, sink_id: str | None) -> None:
        self._plan = plan
        self._intent = intent
        self._sink_id = sink_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one partition as files that nothing names yet."""
        with coded():
            return _write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish a batch, unless it was published before; this process did not plan it."""
        reports = [message for message in messages if isinstance(message, TaskMessage)]
        with coded():
            sink = next((message.query_id for message in reports if message.query_id), self._sink_id)
            if sink is None:
                raise InvalidRequest(
                    "Spark does not say which query this batch is of", remedy="Set option 'sink_id'"
                )
            target, batch = self._plan.target, Batch(sink, batchId)
            with open_store(target.location) as store:
                base = _base(store, reports, target.branch)
                publish_batch(store, target, base, _outcomes(reports), batch, self._intent)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what raised may have published these very files."""


# -- parts -------------------------------------------------------------------------------------------


def _target(options: Options, overwrite: bool) -> BatchTarget:
    """Read where rows go; that rows are to be replaced must be said twice, to Spark and to us."""
    text = options.get("load_mode", "insert")
    if text not in LOAD_MODES:
        raise InvalidRequest(
            f"option 'load_mode' is {text!r}", remedy=f"The modes are {', '.join(LOAD_MODES)}"
        )
    mode = LOAD_MODES[text]
    if overwrite != (mode is WriteMode.OVERWRITE):
        spark_mode = "replaces rows" if overwrite else "adds rows"
        raise InvalidRequest(
            f"Spark's mode {spark_mode}, and load_mode is {text!r}",
            remedy="Use mode('append') with insert or merge; "
            "to replace all rows of the type, mode('overwrite') with load_mode='overwrite'",
        )
    return BatchTarget(
        location_of(options),
        type_name(options),
        options.get("branch", "main"),
        mode,
        number(options, "driver_rows", DRIVER_ROWS),
    )


def _base(store: GraphStore, reports: Sequence[TaskMessage], branch: str) -> PinnedSnapshot:
    """Return the state that the tasks wrote for; without tasks, that of now."""
    if not reports:
        return store.snapshot(branch)
    chain, version = reports[0].base
    return PinnedSnapshot(branch, store.branches.chain(chain).at(version))
