"""Publishing: rows of one type from Spark's tasks to one commit, with a session or without.

    plan -> tasks write files -> outcomes -> **checks -> publish -> receipt**

What Spark's own writers and `stream` share: both know their rows only by the outcomes of tasks that ran under
one plan. A batch that was published before is left as it is, and its first receipt is returned again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.base.dataclass import dataclass
from omnigraph.base.frozen import FrozenMap
from omnigraph.engine.change import Catalogs
from omnigraph.engine.load.assembly import REFUSED, Modes, WriteMode, claimed, publish_load
from omnigraph.engine.load.conform import LoadProblems
from omnigraph.engine.load.sources.tables import Parts, Tabular, parts_of
from omnigraph.engine.write import Receipt, landed
from omnigraph.pipeline.bulk.draft import BulkDraft, BulkOptions, BulkRead
from omnigraph.pipeline.bulk.load_task import LoadJob, TaskOutcome, in_order, load_job, run_partition
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.location import Location
from omnigraph.storage.publish import Intent
from omnigraph.storage.store import GraphStore
from omnigraph.storage.transaction import PinnedSnapshot

BATCH_REQUEST = b"a batch of a stream"  # all that is asked of a batch: its key says which one it is


@dataclass(frozen=True)
class BatchTarget:
    """Where rows go, and what becomes of ids that exist."""

    location: Location
    type: str  # its name, with `node:` or `edge:` before it where that is needed
    branch: str
    mode: WriteMode
    driver_rows: int


@dataclass(frozen=True)
class BatchPlan:
    """One write as its tasks know it: the state that it was planned on, and the columns that come."""

    target: BatchTarget
    snapshot: PinnedSnapshot
    job: LoadJob
    columns: pa.Schema
    renamed: Mapping[str, str] = FrozenMap()  # column -> property

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        """Write the rows of one partition as files that nothing names yet."""
        names = tuple(self.columns.names)
        return run_partition(self.job, self.target.type, names, self.renamed, batches)

    def check(self) -> None:
        """Refuse columns that no row could mend; a row of nulls shows which types can be right."""
        nulls = [pa.nulls(1, column.type) for column in self.columns]
        row = pa.RecordBatch.from_arrays(nulls, schema=self.columns)
        opened = Parts(self.columns.names, parts_of(iter([row])))
        source = Tabular(
            f"<{self.target.type}>",
            None,
            lambda: nullcontext(opened),
            self.job.now_ms,
            self.target.type,
            columns=self.renamed,
        )
        problems = LoadProblems()
        for _ in source.blocks(self.job.catalog, problems, lambda _: None):
            pass
        if problems.of_columns:
            problems.findings().refuse(REFUSED)


@dataclass(frozen=True)
class Batch:
    """One batch of a stream: the query that it belongs to, for all its restarts, and its number there."""

    query_id: str
    number: int

    @property
    def key(self) -> str:
        """Its idempotency key."""
        return f"spark:{self.query_id}:{self.number}"

    @property
    def labels(self) -> dict[str, str]:
        """What its commit says of it."""
        return {"spark.query_id": self.query_id, "spark.batch_id": str(self.number)}


def plan_write(
    store: GraphStore,
    target: BatchTarget,
    columns: StructType,
    *,
    renamed: Mapping[str, str] | None = None,
    keyed: bool = False,
    first: str | None = None,
) -> BatchPlan:
    """Plan a write on the state of now, and check the columns that come.

    A write that landed as commit `first` is planned on the state after it: its rows are only compared with
    those that it wrote.
    """
    snapshot = store.snapshot(target.branch, at=first)
    catalog = Catalogs(store.schemas).get(snapshot.schema)
    catalog.named(target.type)
    job = load_job(store, snapshot, catalog, keyed=keyed, landed=first is not None)
    plan = BatchPlan(target, snapshot, job, to_arrow_schema(columns, timezone="UTC"), dict(renamed or {}))
    plan.check()
    return plan


def publish(
    store: GraphStore,
    target: BatchTarget,
    snapshot: PinnedSnapshot,
    outcomes: Sequence[TaskOutcome],
    intent: Intent,
    spark: SparkSession | None = None,
) -> Receipt:
    """Check what tasks wrote, all of it together, and publish it."""
    catalogs = Catalogs(store.schemas)
    catalog = catalogs.get(snapshot.schema)
    read = BulkRead.of(catalog, snapshot, [(None, outcome) for outcome in in_order(outcomes)])
    read.problems().refuse(REFUSED)
    replaced = (catalog.named(target.type).id,) if target.mode.replaces else ()
    modes = Modes(target.mode, replaced=replaced)  # no rows at all replace those there are, too
    facts = {"mode": target.mode.value, "engine": "spark"}
    draft = BulkDraft(spark, store, read, modes, BulkOptions(target.driver_rows), facts)
    return publish_load(store, catalogs, draft, target.branch, intent)


def publish_batch(
    store: GraphStore,
    target: BatchTarget,
    snapshot: PinnedSnapshot,
    outcomes: Sequence[TaskOutcome],
    batch: Batch,
    intent: Intent,
    spark: SparkSession | None = None,
) -> Receipt | None:
    """Publish a batch, unless it was published before or has no rows.

    Neither its rows nor its actor are part of what the key stands for: a replay may bring rows in another
    order, and a restarted query may have another actor, and it is still the same batch.
    """
    if not any(outcome.read for outcome in outcomes) and target.mode is not WriteMode.OVERWRITE:
        return None
    claim = Claim(batch.key, snapshot, None, BATCH_REQUEST)
    intent = claimed(Claims(store.location, store.syncer), claim, intent)
    intent = replace(intent, labels=FrozenMap({**intent.labels, **batch.labels}))
    known = published_before(store, target.branch, batch)
    return known or publish(store, target, snapshot, outcomes, intent, spark)


def published_before(store: GraphStore, branch: str, batch: Batch) -> Receipt | None:
    """Return the receipt of a batch that has landed, whatever became of its type since."""
    return landed(store, batch.key, store.snapshot(branch), None)
