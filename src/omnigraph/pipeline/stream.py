"""Stream: `pipeline.stream`, a streaming DataFrame into one type, exactly once for each batch.

    micro-batch -> files written by executors -> checks on Spark -> **one commit under the batch's key**

Room    pipeline. Batches are published in the driver's own process: with checks on Spark however large they
        are, with receipts, and with errors that keep their type.
Given   a streaming DataFrame, an open graph, a type, and a checkpoint: that folder is what the query is.
Rule    the same key for each batch as the streaming sink has (publishing.py): either of them may go on with
        the checkpoint of the other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from omnigraph.base.errors import GraphError, InvalidRequest
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.graph import Graph
from omnigraph.engine.load.door import LoadMode
from omnigraph.engine.load.draft import Mode
from omnigraph.engine.receipt import Receipt
from omnigraph.pipeline.bulk.door import DRIVER_ROWS
from omnigraph.pipeline.bulk.stage import for_each_partition
from omnigraph.pipeline.publishing import Batch, Target, plan_write, publish_batch, published_before
from omnigraph.storage.publish import Intent

OnBatch = Callable[[Receipt], None]
CONTINUE = {"processingTime": "0 seconds"}


def stream(
    df: DataFrame,
    graph: Graph,
    type: str,
    *,
    mode: LoadMode,
    checkpoint: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
    branch: str = "main",
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
    make no commit and have none.
    """
    if not df.isStreaming:
        raise InvalidRequest("the DataFrame is not a stream", remedy="Use load, or spark.readStream")
    location = graph.store.location
    target = Target(location, type, branch, Mode.read(mode), driver_rows)
    plan_write(graph.store, target, df.schema, renamed=columns)  # what is wrong is said before it starts
    batches = _Batches(
        graph,
        target,
        dict(columns or {}),
        Intent(actor, message, labels=FrozenMap(dict(labels or {}))),
        on_batch,
    )
    writer = df.writeStream.foreachBatch(batches).outputMode(output_mode)
    writer = writer.option("checkpointLocation", _folder(checkpoint)).trigger(**(trigger or CONTINUE))
    query = (writer if name is None else writer.queryName(name)).start()
    batches.known(str(query.id))
    return Stream(query, batches)


class Stream:
    """A stream that runs, or has ended."""

    def __init__(self, query: StreamingQuery, batches: _Batches) -> None:
        self.query = query  # Spark's own handle: its progress and its state
        self._batches = batches

    @property
    def last(self) -> Receipt | None:
        """The receipt of the last batch that has one."""
        return self._batches.last

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


class _Batches:
    """What Spark calls for each batch, in the driver."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        columns: Mapping[str, str],
        intent: Intent,
        on_batch: OnBatch | None,
    ) -> None:
        self._graph = graph
        self._target = target
        self._columns = columns
        self._intent = intent
        self._on_batch = on_batch
        self._started = threading.Event()
        self._query_id = ""
        self.last: Receipt | None = None
        self.error: GraphError | None = None

    def known(self, query_id: str) -> None:
        """Take in the id of the query, which is known when it has started: batches wait for it."""
        self._query_id = query_id
        self._started.set()

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Publish one batch."""
        self._started.wait()
        try:
            done = self._published(batch, Batch(self._query_id, number))
        except GraphError as error:
            self.error = error
            raise
        if done is not None:
            self.last = done
            if self._on_batch is not None:
                self._on_batch(done)

    def _published(self, batch: DataFrame, which: Batch) -> Receipt | None:
        store = self._graph.store
        known = published_before(store, self._target.branch, which)
        if known is not None:
            return known
        plan = plan_write(store, self._target, batch.schema, renamed=self._columns)
        outcomes = for_each_partition(batch, plan.run)
        return publish_batch(
            store, self._target, plan.snapshot, outcomes, which, self._intent, batch.sparkSession
        )


def _folder(checkpoint: str | os.PathLike[str]) -> str:
    """Return a path as Spark takes it; text is Spark's own spelling, from where its JVM was started."""
    return checkpoint if isinstance(checkpoint, str) else os.path.abspath(checkpoint)
