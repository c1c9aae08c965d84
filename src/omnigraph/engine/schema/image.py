"""Image: the rows of a type as they will be under a desired schema, before anything is written.

Room    engine.schema. Constraints that a schema change adds are judged on this, so that a plan which
        adds a column and a constraint on it at once is judged as a whole.
Given   the table as it is, the type as it shall be, and where each column's values come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import TableType

ID = "id"


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a desired column come from: a stored column, a value for nulls, or both."""

    stored: str | None
    fill: pa.Scalar | None = None


@dataclass(frozen=True)
class Image:
    """One type under the desired schema."""

    declared: TableType
    handle: Any
    sources: Mapping[str, ColumnSource]  # by property id

    def batches(self, properties: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield `id` and some properties (or endpoints), named by their ids."""
        stored = {p: p if p in ENDPOINTS else self.sources[p].stored for p in properties}
        wanted = list(dict.fromkeys([ID, *(column for column in stored.values() if column is not None)]))
        for batch in self.handle.scanner(columns=wanted).to_batches():
            columns = {ID: batch[ID], **{p: self._values(batch, p) for p in properties}}
            yield pa.record_batch(list(columns.values()), names=list(columns))

    def table(self, properties: Sequence[str]) -> pa.Table:
        """Return `id` and some properties of all rows."""
        found = list(self.batches(properties))
        if not found:
            return pa.table({name: pa.array([], pa.string()) for name in (ID, *properties)})
        return pa.Table.from_batches(found)

    def _values(self, batch: pa.RecordBatch, identity: str) -> pa.Array:
        if identity in ENDPOINTS:
            return batch[identity]
        source, arrow = self.sources[identity], self.declared.property_by_id(identity).type.arrow
        if source.stored is None:
            missing = source.fill is None  # a fill of `false` is one
            return pa.nulls(batch.num_rows, arrow) if missing else pa.repeat(source.fill, batch.num_rows)
        values = batch[source.stored].cast(arrow)
        return pc.fill_null(values, source.fill) if source.fill is not None else values
