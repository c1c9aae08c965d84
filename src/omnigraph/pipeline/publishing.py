"""Publishing: rows of one type from Spark's tasks to one commit, with a session or without.

    plan -> tasks write files -> outcomes -> **checks -> publish -> receipt**

Room    pipeline. What Spark's own writers and `stream` share: both know their rows only as what tasks tell.
Given   a type, a mode and a branch; outcomes of tasks that ran under one plan.
Gives   a receipt. A batch that was published before is left as it is, and its first receipt is given again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.base.frozen import FrozenMap
from omnigraph.base.ids import new_id
from omnigraph.engine.catalogs import Catalogs
from omnigraph.engine.load.door import REFUSED, claimed
from omnigraph.engine.load.draft import Mode
from omnigraph.engine.load.problems import Problems
from omnigraph.engine.load.sources.tables import Parts, Tabular, parts_of
from omnigraph.engine.receipt import Receipt, counts_of, replayed
from omnigraph.engine.write import ChangeWrite
from omnigraph.pipeline.bulk.draft import BulkDraft, Modes, Read
from omnigraph.pipeline.bulk.draft import Options as DraftOptions
from omnigraph.pipeline.bulk.piece import Job, Outcome, in_order, run_partition
from omnigraph.pipeline.options import find_type
from omnigraph.storage import transaction
from omnigraph.storage.claims import Claim, Claims
from omnigraph.storage.location import Location
from omnigraph.storage.manifest.records import CommitKind
from omnigraph.storage.publish import Intent
from omnigraph.storage.snapshot import PinnedSnapshot
from omnigraph.storage.store import GraphStore

BATCH_REQUEST = b"a batch of a stream"  # all that is asked of a batch: its key says which one it is


@dataclass(frozen=True)
class Target:
    """Where rows go, and what becomes of ids that exist."""

    location: Location
    type: str  # its name, with `node:` or `edge:` before it where that is needed
    branch: str
    mode: Mode
    driver_rows: int


@dataclass(frozen=True)
class Plan:
    """One write as its tasks know it: the state that it was planned on, and the columns that come."""

    target: Target
    snapshot: PinnedSnapshot
    job: Job
    columns: pa.Schema
    renamed: Mapping[str, str] = FrozenMap()  # column -> property

    def run(self, batches: Iterable[pa.RecordBatch]) -> Outcome:
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
        problems = Problems()
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
    target: Target,
    columns: StructType,
    *,
    renamed: Mapping[str, str] | None = None,
    digest: bool = False,
) -> Plan:
    """Plan a write on the state of now, and check the columns that come."""
    snapshot = store.snapshot(target.branch)
    catalog = Catalogs(store.schemas).get(snapshot.schema)
    find_type(catalog, target.type)
    job = Job(
        target.location,
        catalog,
        {table.table_id: snapshot.pin(table.table_id).version for table in catalog.tables},
        store.clock.now_us() // 1000,
        since=new_id() if digest else None,
    )
    plan = Plan(target, snapshot, job, to_arrow_schema(columns, timezone="UTC"), dict(renamed or {}))
    plan.check()
    return plan


def publish(
    store: GraphStore,
    target: Target,
    snapshot: PinnedSnapshot,
    outcomes: Sequence[Outcome],
    intent: Intent,
    spark: SparkSession | None = None,
) -> Receipt:
    """Check what tasks wrote, all of it together, and publish it."""
    catalogs = Catalogs(store.schemas)
    catalog = catalogs.get(snapshot.schema)
    found = [(None, outcome) for outcome in in_order(outcomes)]
    read = Read.of(catalog, snapshot, found, None)
    read.problems().refuse(REFUSED)
    replaced = (find_type(catalog, target.type).id,) if target.mode is Mode.OVERWRITE else ()
    modes = Modes(target.mode, replaced=replaced)  # no rows at all replace those there are, too
    draft = BulkDraft(spark, store, read, modes, DraftOptions(target.driver_rows))
    write = ChangeWrite(
        draft,
        catalogs,
        CommitKind.LOAD,
        REFUSED,
        always_commit=True,
        locate=draft.locate,
        executor=draft.executor,
    )
    done = store.publish(target.branch, write, intent)
    return Receipt(
        branch=target.branch,
        commit=done.commit,
        types=counts_of(done, catalog),
        affected_nodes=read.rows_of("node"),
        affected_edges=read.rows_of("edge"),
        replayed=done.replayed,
        attempts=done.attempts,
        warnings=done.warnings,
        facts={"mode": target.mode.value, "engine": "spark", "total_entities": read.rows},
    )


def publish_batch(
    store: GraphStore,
    target: Target,
    snapshot: PinnedSnapshot,
    outcomes: Sequence[Outcome],
    batch: Batch,
    intent: Intent,
    spark: SparkSession | None = None,
) -> Receipt | None:
    """Publish a batch, unless it was published before or has no rows.

    Neither its rows nor its actor are part of what the key stands for: a replay may bring rows in another
    order, and a restarted query may have another actor, and it is still the same batch.
    """
    if not any(outcome.read for outcome in outcomes) and target.mode is not Mode.OVERWRITE:
        return None
    claim = Claim(batch.key, target.branch, None, BATCH_REQUEST)
    intent = claimed(Claims(store.location, store.syncer), claim, intent)
    intent = replace(intent, labels=FrozenMap({**intent.labels, **batch.labels}))
    known = landed(store, target.branch, intent.commit_id)
    return known or publish(store, target, snapshot, outcomes, intent, spark)


def landed(store: GraphStore, branch: str, commit_id: str | None) -> Receipt | None:
    """Return the receipt of a commit, if a branch has it."""
    chain, head = store.branches.head(branch)
    done = None if commit_id is None else chain.find(commit_id, head)
    if done is None:
        return None
    told = transaction.Receipt(branch, done.commit, done.commit.tables)
    return replayed(branch, told, Catalogs(store.schemas).get(done.schema))
