"""Repeated: rows that executors have written are taken out again before anybody publishes them.

Room    pipeline.bulk. Of several rows with one id the last counts; rows that break a rule are set aside. The
        fragments that lose rows are written anew without them, in executors: nothing names the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

from omnigraph.catalog.model import ID
from omnigraph.pipeline.bulk.ids import placed_ids
from omnigraph.pipeline.bulk.local import repeated_places
from omnigraph.pipeline.bulk.stage import for_each
from omnigraph.storage.location import Location
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.written import Written, rewritten, without

Offsets = Mapping[int, "np.ndarray[Any, np.dtype[np.int64]]"]  # fragment -> places in it


def without_repeated(
    spark: SparkSession | None, store: GraphStore, table_id: str, given: Handle, written: Written
) -> Written:
    """Keep the last row of each id; the very same value comes back when no id stands there twice."""
    if spark is None:
        places = repeated_places(given)
    else:
        every = placed_ids(spark, store, table_id, given.version)
        later = Window.partitionBy(ID).orderBy(f.desc("fragment"), f.desc("place"))
        repeated = every.withColumn("n", f.row_number().over(later)).where("n > 1")
        places = repeated.select("fragment", "place").toArrow()
    if not places.num_rows:
        return written
    return thinned(spark, store, table_id, given, written, by_fragment(places))


def by_fragment(places: pa.Table) -> Offsets:
    """Return places by fragment."""
    fragments = places["fragment"].to_numpy()
    offsets = places["place"].to_numpy()
    return {int(one): np.unique(offsets[fragments == one]) for one in np.unique(fragments)}


def thinned(
    spark: SparkSession | None,
    store: GraphStore,
    table_id: str,
    given: Handle,
    written: Written,
    gone: Offsets,
) -> Written:
    """Write the fragments that lose rows anew, in executors if there are any; the order of rows stays."""
    work = _Rewrite(store.location, table_id, given.version)
    touched = sorted(gone)
    told = for_each(spark, [(number, gone[number].tolist()) for number in touched], work)
    anew = dict(zip(touched, told, strict=True))
    return rewritten(given, written, anew)


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
