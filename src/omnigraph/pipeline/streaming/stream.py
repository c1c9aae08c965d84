"""Stream: `pipeline.stream`, a streaming DataFrame into one type, exactly once for each batch.

    micro-batch -> files written by executors -> checks on Spark -> **one commit under the batch's key**

Batches are published in the driver's own process: with checks on Spark however large they are, with
receipts, and with errors that keep their type.

Given   a streaming DataFrame, an open graph, a type, and a checkpoint: that folder is what the query is.
Rule    the same key for each batch as the streaming sink has (publishing.py): either of them may go on with
        the checkpoint of the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from omnigraph.base.arguments import checked, checked_methods
from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.assembly import LoadMode, WriteMode
from omnigraph.engine.write import Receipt
from omnigraph.pipeline.bulk.load import DRIVER_ROWS
from omnigraph.pipeline.bulk.load_task import for_each_partition
from omnigraph.pipeline.options import ADDRESS, coded, literal_path, open_store
from omnigraph.pipeline.streaming.publishing import (
    Batch,
    BatchTarget,
    plan_write,
    publish_batch,
    published_before,
)
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore

OnBatch = Callable[[Receipt], None]
CONTINUE = {"processingTime": "0 seconds"}


@checked
def stream(
    df: DataFrame,
    graph: Graph,
    type: str,
    *,
    mode: LoadMode,
    checkpoint: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    branch: str | None = None,
    message: str | None = None,
    actor: str | None = None,
    labels: Mapping[str, str] | None = None,
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    driver_rows: int = DRIVER_ROWS,
    on_batch: OnBatch | None = None,
) -> Stream:
    """Start writing a streaming DataFrame into a type, each batch as one commit.

    `mode` is that of `load`, `columns` maps columns to properties, `from` or `to`. `trigger` and
    `output_mode` are Spark's: `trigger={"availableNow": True}` reads what there is and ends. `on_batch` is
    given the receipt of each batch, also of one that was published before a restart; batches without rows
    make no commit and have none. Behind Spark Connect batches are published, and `on_batch` is called, in a
    process of the server's.
    """
    if not df.isStreaming:
        raise InvalidRequest("the DataFrame is not a stream", remedy="Use load, or spark.readStream")
    location = graph.store.location
    target = BatchTarget(location, type, graph.view.write(branch), WriteMode.read(mode), driver_rows)
    plan_write(graph.store, target, df.schema, renamed=columns)  # what is wrong is said before it starts
    folder = _folder(checkpoint)
    intent = Intent(graph.view.by(actor), message, labels=FrozenMap(dict(labels or {})))
    batches = _Batches(graph.store, _Work(target, dict(columns or {}), intent, on_batch, folder))
    writer = df.writeStream.foreachBatch(batches).outputMode(output_mode)
    writer = writer.option("checkpointLocation", folder).trigger(**(trigger or CONTINUE))
    query = (writer if name is None else writer.queryName(name)).start()
    batches.known(str(query.id))
    return Stream(query, batches)


@checked_methods
class Stream:
    """A stream that runs, or has ended."""

    def __init__(self, query: StreamingQuery, batches: _Batches) -> None:
        self.query = query  # Spark's own handle: its progress and its state
        self._batches = batches

    @property
    def last(self) -> Receipt | None:
        """The receipt of the last batch that has one; behind Spark Connect, of those that Spark remembers."""
        if self._batches.last is not None or not self._batches.elsewhere:
            return self._batches.last
        numbers = [int(progress["batchId"]) for progress in self.query.recentProgress]
        receipts = map(self._batches.published, reversed(numbers))
        return next((receipt for receipt in receipts if receipt is not None), None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the stream ends, or some seconds; say whether it has. What ended it is raised."""
        try:
            if timeout is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout))  # type: ignore[arg-type]  # takes fractions
        except StreamingQueryException as error:
            if self._batches.error is not None:  # Spark has only its text
                raise self._batches.error from error
            raise

    def stop(self) -> None:
        """Stop the stream; what was published stays, and a batch under way is published or not."""
        self.query.stop()


@dataclass(frozen=True)
class _Work:
    """What there is to do for each batch, as a value: behind Spark Connect it travels to the server."""

    target: BatchTarget
    columns: Mapping[str, str]
    intent: Intent
    on_batch: OnBatch | None
    checkpoint: str

    def publish(self, store: GraphStore, batch: DataFrame, which: Batch) -> Receipt | None:
        """Publish one batch, unless that was done before."""
        done = published_before(store, self.target.branch, which)
        if done is None:
            plan = plan_write(store, self.target, batch.schema, renamed=self.columns)
            outcomes = for_each_partition(batch, plan.run)
            spark = batch.sparkSession
            done = publish_batch(store, self.target, plan.snapshot, outcomes, which, self.intent, spark)
        if done is not None and self.on_batch is not None:
            self.on_batch(done)
        return done


class _Batches:
    """What Spark calls for each batch, in the driver."""

    def __init__(self, store: GraphStore, work: _Work) -> None:
        self._store = store
        self._work = work
        self._query_id: str | None = None
        self.last: Receipt | None = None
        self.error: GraphError | None = None
        self.elsewhere = False  # the server of Spark Connect has a copy, and calls that

    def known(self, query_id: str) -> None:
        """Take in the id of the query, which is known when it has started."""
        self._query_id = query_id

    def published(self, number: int) -> Receipt | None:
        """Return the receipt of a batch, if it has one."""
        assert self._query_id is not None
        return published_before(self._store, self._work.target.branch, Batch(self._query_id, number))

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Publish one batch."""
        if self._query_id is None:  # the first batch may come before `start` returns, if it ever does
            self._query_id = _query_id(batch.sparkSession, self._work.checkpoint)
        try:
            done = self._work.publish(self._store, batch, Batch(self._query_id, number))
        except GraphError as error:
            self.error = error
            raise
        self.last = done or self.last

    def __reduce__(self) -> tuple[type[_BatchesElsewhere], tuple[_Work]]:
        """Travel without what is open here."""
        self.elsewhere = True
        return _BatchesElsewhere, (self._work,)


class _BatchesElsewhere:
    """What Spark calls for each batch in a process of the server's, which knows nothing of this one."""

    def __init__(self, work: _Work) -> None:
        self._work = work

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Publish one batch."""
        which = Batch(_query_id(batch.sparkSession, self._work.checkpoint), number)
        with coded(), open_store(self._work.target.location) as store:
            self._work.publish(store, batch, which)


def _query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint belongs to, which Spark writes there before any batch."""
    row = spark.read.text(literal_path(f"{checkpoint}/metadata")).first()
    assert row is not None
    return str(json.loads(row[0])["id"])


def _folder(checkpoint: str | os.PathLike[str]) -> str:
    """Return a path as Spark takes it: an address, or a folder as this process sees it."""
    text = os.fspath(checkpoint)
    return text if ADDRESS.match(text) else os.path.abspath(text)
