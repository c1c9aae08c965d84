"""Local: what a bulk load asks of its files where there is no Spark to ask.

Room    pipeline.bulk. A data source commits in a process of its own that has no session: the files lie
        there, written by executors, and DataFusion reads them as it reads stored tables.
Rule    gives the same answers as the Spark executor. What is held is ids, never rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.model import ID
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.frames import FrameExecutor
from omnigraph.engine.validate.relation import Answer, Read, Relation
from omnigraph.pipeline.bulk.change import BulkChange
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.layout import ADDRESS, OFFSET_MASK
from omnigraph.storage.transaction import WriteTxn


class WrittenExecutor(FrameExecutor):
    """Answers questions about a change whose rows lie in files."""

    def __init__(self, change: ChangeSet, base: WriteTxn, *, store: GraphStore) -> None:
        super().__init__(change, base)
        self._store = store

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total."""
        return self.answer(relation, order, limit)

    def _open(self, read: Read) -> Any:
        change = self._change.types.get(read.table)
        version = change.version_of(read.side) if isinstance(change, BulkChange) else None
        if version is not None:
            return self._store.reads.frame(self._context, read.table, version)
        return super()._open(read)


def repeated_places(given: Handle) -> pa.Table:
    """Return where rows lie whose id comes again later: their fragments, and their places in them."""
    every = given.scanner(columns=[ID], with_row_address=True).to_table()
    last = every.group_by(ID).aggregate([(ADDRESS, "max")])[f"{ADDRESS}_max"]
    gone = np.setdiff1d(every[ADDRESS].to_numpy(), last.to_numpy()).astype(np.int64)
    return pa.table({"fragment": gone >> 32, "place": gone & OFFSET_MASK})
