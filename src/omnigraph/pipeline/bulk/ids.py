"""Ids: the ids of a version of a table as a DataFrame, and where their rows are.

Room    pipeline.bulk. Executors scan one column; an address is a fragment and a place in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from omnigraph.catalog.model import ID
from omnigraph.pipeline.scan import BATCH_ROWS, PARTITION_BYTES, Fragments, grouped
from omnigraph.pipeline.tasks import rows_of, slots
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK, Layout


def placed_ids(spark: SparkSession, store: GraphStore, table_id: str, version: int) -> DataFrame:
    """Return the columns `id`, `fragment` and `place`."""
    return _ids(spark, store, table_id, version, with_place=True)


def plain_ids(spark: SparkSession, store: GraphStore, table_id: str, version: int) -> DataFrame:
    """Return the column `id`."""
    return _ids(spark, store, table_id, version, with_place=False)


def _ids(
    spark: SparkSession, store: GraphStore, table_id: str, version: int, *, with_place: bool
) -> DataFrame:
    handle = store.reads.handle(table_id, version)
    sizes = {number: part.size.bytes for number, part in Layout.of(handle).parts.items()}
    groups = grouped(sizes, PARTITION_BYTES, slots(spark))
    location = store.location

    def rows(fragments: Fragments) -> Iterator[pa.RecordBatch]:
        with GraphStore(location) as opened:
            yield from _scanned(opened.reads.handle(table_id, version), fragments, with_place)

    columns = f"{ID} string, fragment long, place long" if with_place else f"{ID} string"
    return rows_of(spark, groups, rows, columns)


def _scanned(table: Handle, fragments: Fragments, with_place: bool) -> Iterator[pa.RecordBatch]:
    scan = table.scanner(
        columns=[ID],
        fragments=[table.get_fragment(number) for number in fragments],
        with_row_address=with_place,
        batch_size=BATCH_ROWS,
    )
    for batch in scan.to_batches():
        if not with_place:
            yield batch
            continue
        places = batch[ADDRESS].to_numpy().astype(np.int64)
        columns = {ID: batch[ID], "fragment": places >> 32, "place": places & OFFSET_MASK}
        yield pa.RecordBatch.from_pydict(columns)
