"""Rows: the entities of one type at one snapshot, as a stream of batches.

    plan -> **rows** -> files -> destination -> report

Room    engine.export. For this process; executors of Spark read for themselves (pipeline/scan.py).
Given   a store, a pinned snapshot and a type of its schema.
Gives   batches under the names of the properties, of bounded size: as stored, or by id.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.model import ID, TableType
from omnigraph.engine.export.plan import ExportPlan, columns_of, schema_of
from omnigraph.storage.store import GraphStore

BATCH_ROWS = 8_192
BATCH_BYTES = 16 << 20
ADDRESS = "_rowaddr"


def stored_rows(store: GraphStore, plan: ExportPlan, declared: TableType) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order in which they are stored."""
    handle = store.table(plan.snapshot, declared.table_id)
    columns = list(columns_of(declared).values())
    with store.reading(plan.snapshot.state, tables=(declared.table_id,)):
        scanner = handle.scanner(columns=columns, batch_size=BATCH_ROWS, batch_size_bytes=BATCH_BYTES)
        for batch in scanner.to_batches():
            yield _named(batch, declared)


def ordered_rows(store: GraphStore, plan: ExportPlan, declared: TableType) -> Iterator[pa.RecordBatch]:
    """Yield the rows by id. Only the ids are held at once; the rest is looked up in that order."""
    handle = store.table(plan.snapshot, declared.table_id)
    columns = list(columns_of(declared).values())
    with store.reading(plan.snapshot.state, tables=(declared.table_id,)):
        ids = handle.scanner(columns=[ID], with_row_address=True).to_table()
        places = ids[ADDRESS].take(pc.sort_indices(ids[ID])).combine_chunks()
        for start in range(0, len(places), BATCH_ROWS):
            found = handle._take_rows(places.slice(start, BATCH_ROWS), columns=columns)
            for batch in found.combine_chunks().to_batches():
                yield _named(batch, declared)


def _named(batch: pa.RecordBatch, declared: TableType) -> pa.RecordBatch:
    schema = schema_of(declared)
    arrays = [batch.column(at).cast(schema.field(name).type) for name, at in columns_of(declared).items()]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
