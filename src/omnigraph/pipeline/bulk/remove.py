"""Remove: how a table loses the rows that a bulk load replaces.

Room    pipeline.bulk. Three ways with one result; which one is chosen by size, and said in the receipt.
Ways    driver     the driver knows the new ids and finds the old rows itself: fastest while the ids fit
        deletions  executors join ids with the stored ones and write a deletion file for each fragment
        rewrite    the same, but a fragment that loses most of its rows is written anew without them
Rule    asked again when a lost race has moved the table; the new rows' files stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.catalog.model import ID
from omnigraph.pipeline.bulk.ids import placed_ids, plain_ids
from omnigraph.pipeline.bulk.stage import MESSAGE, collected, message
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Removal
from omnigraph.storage.tables.keys import addresses
from omnigraph.storage.tables.written import drop_rows, fragments_of, without

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
        """Say how the version loses them."""
        if not base.count_rows():
            return Removal(0)
        if self.way == "driver" or self.spark is None:
            return self._by_driver(base)
        return self._by_executors(base, self.spark)

    def _by_driver(self, base: Handle) -> Removal:
        new = self.store.reads.handle(self.table_id, self.new_version)
        ids = new.scanner(columns=[ID]).to_table()[ID].combine_chunks()
        found = addresses(base, ids, [fragment.fragment_id for fragment in base.get_fragments()])
        left = {number: drop_rows(base, number, offsets) for number, offsets in sorted(found.items())}
        return Removal(
            sum(map(len, found.values())),
            fragments_of(text for text in left.values() if text is not None),
            frozenset(number for number, text in left.items() if text is None),
        )

    def _by_executors(self, base: Handle, spark: SparkSession) -> Removal:
        hits = self._hits(base, spark)
        work = _PerFragment(
            self.store.location,
            self.table_id,
            base.version,
            {fragment.fragment_id: fragment.metadata.num_rows for fragment in base.get_fragments()},
            0.0 if self.way == "rewrite" else REWRITE_ABOVE,
        )

        def lose(rows: pa.Table) -> pa.Table:  # Spark looks at the number of arguments
            return work(rows)

        told: list[_Lost] = collected(hits.groupBy("fragment").applyInArrow(lose, MESSAGE))
        return Removal(
            sum(one.rows for one in told),
            fragments_of(one.changed for one in told if one.changed is not None),
            frozenset(one.fragment for one in told if one.changed is None),
            fragments_of(text for one in told for text in one.kept),
        )

    def _hits(self, base: Handle, spark: SparkSession) -> DataFrame:
        """Return the places of the stored rows that are replaced."""
        stored = placed_ids(spark, self.store, self.table_id, base.version)
        new = plain_ids(spark, self.store, self.table_id, self.new_version)
        return stored.join(new, ID, "left_semi").select("fragment", "place")


@dataclass(frozen=True)
class _Lost:
    """What came of one fragment."""

    fragment: int
    rows: int
    changed: str | None  # None: the fragment goes
    kept: tuple[str, ...] = ()


@dataclass(frozen=True)
class _PerFragment:
    """Takes rows out of one fragment, in an executor."""

    location: Location
    table_id: str
    version: int
    sizes: dict[int, int]
    rewrite_above: float

    def __call__(self, hits: pa.Table) -> pa.Table:
        """Write a deletion file, or the rows that stay."""
        fragment = hits["fragment"][0].as_py()
        offsets = np.unique(hits["place"].to_numpy())
        with GraphStore(self.location) as store:
            base = store.reads.handle(self.table_id, self.version)
            left = self.sizes[fragment] - len(offsets)
            if left and len(offsets) > self.rewrite_above * self.sizes[fragment]:
                kept = tuple(without(base, fragment, offsets.tolist()))
                lost = _Lost(fragment, len(offsets), None, kept)
            else:
                lost = _Lost(fragment, len(offsets), drop_rows(base, fragment, offsets))
        return pa.Table.from_batches([message(fragment, lost)])
