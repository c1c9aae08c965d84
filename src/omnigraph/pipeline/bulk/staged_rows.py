"""Staged rows: rows that executors have written as files of a table, before anything names these files.

    files -> **repeated rows leave -> what the files do to their table** -> judged, staged, published

What such files do to one type is a `BulkChange`, a `TypeChange` whose rows are not in this process: the one
evaluator asks the same questions of it. Rows that it replaces leave the table in one of three ways with one
result, chosen by size and named in the receipt:

    driver     the driver knows the new ids and finds the old rows itself: fastest while the ids fit
    deletions  executors join ids with the stored ones and write a deletion file for each fragment
    rewrite    the same, but a fragment that loses most of its rows is written anew without them

A removal is computed again when a lost race has moved the table; the files of the new rows stay as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from omnigraph.base.dataclass import dataclass
from omnigraph.catalog.model import ID
from omnigraph.engine.change import TypeChange
from omnigraph.engine.validate.relation import RelationSide
from omnigraph.pipeline.bulk.load_task import MESSAGE, collected, for_each, message
from omnigraph.pipeline.reading.scan import BATCH_ROWS, PARTITION_BYTES, Fragments, grouped
from omnigraph.pipeline.session import rows_of, slots
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import (
    Append,
    DeleteIds,
    Effect,
    Overwrite,
    Removal,
    Replace,
    SeveralEffects,
    Written,
    drop_rows,
    fragments_of,
    rewritten,
    without,
)
from omnigraph.storage.tables.keys import addresses
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK, Layout

# -- the change of one type --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class BulkChange(TypeChange):
    """Rows of one type that executors have written."""

    written: Written
    version: int  # of the table: these rows and no others
    given_version: int  # the same before repeated ids were settled
    remover: BulkRemover  # of the rows that are replaced

    @property
    def count(self) -> int:
        """How many rows are written."""
        return self.written.num_rows

    @property
    def as_given(self) -> bool:
        """A load knows its records as they were given."""
        return True

    def version_of(self, side: RelationSide) -> int | None:
        """Return the version that holds the rows of a side; None for what is not this load's, or nothing."""
        if not self.count or side not in (RelationSide.GIVEN, RelationSide.CHANGED):
            return None
        return self.given_version if side is RelationSide.GIVEN else self.version

    @property
    def merges(self) -> bool:
        """Say whether rows that exist are replaced one by one."""
        return not (self.replaces or self.minted or self.strict)

    def effect(self) -> Effect | None:
        """Return what happens to the table, if anything does."""
        if self.replaces:
            return Overwrite(self.written)
        if not self.count:
            return super().effect()
        if not self.merges:
            return Append(self.written)
        new = Replace(self.written, self.remover)
        return SeveralEffects((DeleteIds(self.removed), new)) if len(self.removed) else new


# -- removing the rows that are replaced -------------------------------------------------------------


Way = Literal["driver", "deletions", "rewrite"]
DRIVER_IDS = 5_000_000  # of about 30 bytes: what a driver holds without noticing
REWRITE_ABOVE = 0.5  # share of a fragment's rows that go: then the rest is written anew


def choose(new_rows: int) -> Way:
    """Return the way that is fastest for so many new rows."""
    return "driver" if new_rows <= DRIVER_IDS else "deletions"


@dataclass(frozen=True)
class BulkRemover:
    """Takes the rows that have the ids of some other version out of a table."""

    spark: SparkSession | None  # None: only the driver's way is open
    store: GraphStore
    table_id: str
    new_version: int  # of the table: the new rows and no others
    way: Way

    def __call__(self, base: Handle) -> Removal:
        """Return how the version loses them."""
        if not base.count_rows():
            return Removal(0)
        if self.way == "driver" or self.spark is None:
            return self._by_driver(base)
        return self._by_executors(base, self.spark)

    def _by_driver(self, base: Handle) -> Removal:
        new = self.store.reads.handle(self.table_id, self.new_version)
        ids = new.scanner(columns=[ID]).to_table()[ID].combine_chunks()
        offsets = addresses(base, ids, [fragment.fragment_id for fragment in base.get_fragments()])
        left = {number: drop_rows(base, number, rows) for number, rows in sorted(offsets.items())}
        return Removal(
            sum(map(len, offsets.values())),
            fragments_of(fragment for fragment in left.values() if fragment is not None),
            frozenset(number for number, fragment in left.items() if fragment is None),
        )

    def _by_executors(self, base: Handle, spark: SparkSession) -> Removal:
        hits = self._hits(base, spark)
        work = _RowRemoval(
            self.store.location,
            self.table_id,
            base.version,
            {fragment.fragment_id: fragment.metadata.num_rows for fragment in base.get_fragments()},
            0.0 if self.way == "rewrite" else REWRITE_ABOVE,
        )

        def lose(rows: pa.Table) -> pa.Table:  # Spark looks at the number of arguments
            return work(rows)

        losses: list[_FragmentLoss] = collected(hits.groupBy("fragment").applyInArrow(lose, MESSAGE))
        return Removal(
            sum(loss.rows for loss in losses),
            fragments_of(loss.changed for loss in losses if loss.changed is not None),
            frozenset(loss.fragment for loss in losses if loss.changed is None),
            fragments_of(fragment for loss in losses for fragment in loss.kept),
        )

    def _hits(self, base: Handle, spark: SparkSession) -> DataFrame:
        """Return the addresses of the stored rows that are replaced."""
        stored = id_addresses(spark, self.store, self.table_id, base.version)
        new = plain_ids(spark, self.store, self.table_id, self.new_version)
        return stored.join(new, ID, "left_semi").select("fragment", "offset")


@dataclass(frozen=True)
class _FragmentLoss:
    """What came of one fragment."""

    fragment: int
    rows: int
    changed: str | None  # None: the fragment goes
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class _RowRemoval:
    """Takes rows out of one fragment, in an executor."""

    location: Location
    table_id: str
    version: int
    sizes: dict[int, int]
    rewrite_above: float

    def __call__(self, hits: pa.Table) -> pa.Table:
        """Write a deletion file, or the rows that stay."""
        fragment = hits["fragment"][0].as_py()
        offsets = np.unique(hits["offset"].to_numpy())
        with GraphStore(self.location) as store:
            base = store.reads.handle(self.table_id, self.version)
            left = self.sizes[fragment] - len(offsets)
            if left and len(offsets) > self.rewrite_above * self.sizes[fragment]:
                kept = tuple(without(base, fragment, offsets.tolist()))
                loss = _FragmentLoss(fragment, len(offsets), None, kept)
            else:
                loss = _FragmentLoss(fragment, len(offsets), drop_rows(base, fragment, offsets))
        return pa.Table.from_batches([message(fragment, loss)])


# -- taking staged rows out again --------------------------------------------------------------------
#
# Of several rows with one id the last counts; rows that break a rule are set aside. The fragments that lose
# rows are written anew without them, in executors: nothing names the old ones.


Offsets = Mapping[int, "np.ndarray[Any, np.dtype[np.int64]]"]  # fragment -> offsets of rows in it


def without_repeated(
    spark: SparkSession | None, store: GraphStore, table_id: str, staged: Handle, written: Written
) -> Written:
    """Keep the last row of each id; the very same value comes back when no id stands there twice."""
    if spark is None:
        repeated = _repeated_addresses(staged)
    else:
        every = id_addresses(spark, store, table_id, staged.version)
        later = Window.partitionBy(ID).orderBy(f.desc("fragment"), f.desc("offset"))
        numbered = every.withColumn("n", f.row_number().over(later)).where("n > 1")
        repeated = numbered.select("fragment", "offset").toArrow()
    if not repeated.num_rows:
        return written
    return without_rows(spark, store, table_id, staged, written, _by_fragment(repeated))


def _repeated_addresses(staged: Handle) -> pa.Table:
    """Return the addresses of rows whose id comes again later: their fragments, and their offsets there."""
    every = staged.scanner(columns=[ID], with_row_address=True).to_table()
    last = every.group_by(ID).aggregate([(ADDRESS, "max")])[f"{ADDRESS}_max"]
    repeated = np.setdiff1d(every[ADDRESS].to_numpy(), last.to_numpy()).astype(np.int64)
    return pa.table({"fragment": repeated >> 32, "offset": repeated & OFFSET_MASK})


def _by_fragment(row_addresses: pa.Table) -> Offsets:
    fragments = row_addresses["fragment"].to_numpy()
    offsets = row_addresses["offset"].to_numpy()
    return {int(number): np.unique(offsets[fragments == number]) for number in np.unique(fragments)}


def without_rows(
    spark: SparkSession | None,
    store: GraphStore,
    table_id: str,
    staged: Handle,
    written: Written,
    removed: Offsets,
) -> Written:
    """Write the fragments that lose rows anew, in executors if there are any; the order of rows stays."""
    work = _Rewrite(store.location, table_id, staged.version)
    numbers = sorted(removed)
    fragments = for_each(spark, [(number, removed[number].tolist()) for number in numbers], work)
    return rewritten(staged, written, dict(zip(numbers, fragments, strict=True)))


@dataclass(frozen=True)
class _Rewrite:
    """Writes one fragment without some of its rows, in an executor."""

    location: Location
    table_id: str
    version: int

    def __call__(self, item: tuple[int, list[int]]) -> list[str]:
        """Return the new fragments."""
        number, offsets = item
        with GraphStore(self.location) as store:
            return without(store.reads.handle(self.table_id, self.version), number, offsets)


# -- ids of a version, and the addresses of their rows -----------------------------------------------


def id_addresses(spark: SparkSession, store: GraphStore, table_id: str, version: int) -> DataFrame:
    """Return the columns `id`, `fragment` and `offset`."""
    return _ids(spark, store, table_id, version, with_address=True)


def plain_ids(spark: SparkSession, store: GraphStore, table_id: str, version: int) -> DataFrame:
    """Return the column `id`."""
    return _ids(spark, store, table_id, version, with_address=False)


def _ids(
    spark: SparkSession, store: GraphStore, table_id: str, version: int, *, with_address: bool
) -> DataFrame:
    handle = store.reads.handle(table_id, version)
    sizes = {number: part.size.bytes for number, part in Layout.of(handle).parts.items()}
    groups = grouped(sizes, PARTITION_BYTES, slots(spark))
    location = store.location

    def rows(fragments: Fragments) -> Iterator[pa.RecordBatch]:
        with GraphStore(location) as opened:
            yield from _scanned(opened.reads.handle(table_id, version), fragments, with_address)

    columns = f"{ID} string, fragment long, offset long" if with_address else f"{ID} string"
    return rows_of(spark, groups, rows, columns)


def _scanned(table: Handle, fragments: Fragments, with_address: bool) -> Iterator[pa.RecordBatch]:
    scan = table.scanner(
        columns=[ID],
        fragments=[table.get_fragment(number) for number in fragments],
        with_row_address=with_address,
        batch_size=BATCH_ROWS,
    )
    for batch in scan.to_batches():
        if not with_address:
            yield batch
            continue
        row_addresses = batch[ADDRESS].to_numpy().astype(np.int64)
        columns = {ID: batch[ID], "fragment": row_addresses >> 32, "offset": row_addresses & OFFSET_MASK}
        yield pa.RecordBatch.from_pydict(columns)
