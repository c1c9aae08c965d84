"""Frames: questions about a change of any size, answered by DataFusion.

Room    engine.validate. Joins and groups run over Arrow memory (which may be mapped from disk) and over scans
        of stored tables; sorting and grouping spill to disk at the memory limit.
Rule    gives the same answers as rows.py; a property test drives both with the same changes.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, assert_never

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext, col, lit
from datafusion import functions as f

from omnigraph.base.errors import StorageError
from omnigraph.catalog.model import ID
from omnigraph.catalog.types import numbers_in
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.relation import (
    Answer,
    Anti,
    Join,
    Outside,
    Pick,
    Read,
    Relation,
    Semi,
    Shared,
    Side,
    Union,
    names,
)
from omnigraph.storage.tables.predicate import quoted
from omnigraph.storage.transaction import WriteTxn

MEMORY_BYTES = 2 << 30


class FrameExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: WriteTxn, memory_bytes: int = MEMORY_BYTES) -> None:
        self._change = change
        self._base = base
        runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_bytes)
        self._context = SessionContext(SessionConfig(), runtime)
        self._sources: dict[tuple[Side, str], Any] = {}

    def answer(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows and the total, in one pass."""
        frame = self._of(relation)
        total, first = 0, None
        try:
            for batch in frame.execute_stream():
                part = pa.Table.from_batches([batch.to_pyarrow()])
                total += part.num_rows
                merged = part if first is None else pa.concat_tables([first, part])
                first = merged.sort_by([(name, "ascending") for name in order]).slice(0, limit)
        except Exception as error:  # DataFusion raises nothing more specific
            raise StorageError(
                f"checking constraints failed: {error}",
                remedy="If memory or disk ran out, load less at a time or use engine='spark'",
                storage_kind="unknown",
            ) from error
        return Answer([] if first is None else first.to_pylist(), total)

    def _of(self, relation: Relation) -> Any:
        match relation:
            case Read():
                return self._read(relation)
            case Join(left, right, on):
                return self._paired(left, right, on, "inner").select(*map(col, names(relation)))
            case Semi(left, right, on):
                return self._paired(left, right, on, "semi")
            case Anti(left, right, on):
                return self._paired(left, right, on, "anti")
            case Union(parts):
                columns = list(map(col, names(relation)))
                return reduce(lambda a, b: a.union(b), [self._of(part).select(*columns) for part in parts])
            case Pick(of, columns):
                return self._of(of).select(*map(col, columns)).distinct()
            case Shared(of, by, holder):
                counted = self._of(of).aggregate(
                    list(map(col, by)),
                    [
                        f.count(col(holder)).alias("n"),
                        f.min(col(holder)).alias("least"),
                        f.max(col(holder)).alias("greatest"),
                    ],
                )
                return counted.filter(col("n") > lit(1)).select(*map(col, names(relation)))
            case Outside(of, rows, on, low, high):
                return self._outside(relation, self._of(of), self._of(rows), on, low, high)
            case _:
                assert_never(relation)

    def _paired(self, left: Relation, right: Relation, on: tuple[str, ...], how: str) -> Any:
        partners = self._of(right)
        renamed = partners.select(
            *(col(name).alias(f"other_{name}") if name in on else col(name) for name in names(right))
        )
        if how != "inner":  # only the columns compared matter
            renamed = renamed.select(*(col(f"other_{name}") for name in on))
        return self._of(left).join(
            renamed, left_on=list(on), right_on=[f"other_{name}" for name in on], how=how
        )

    def _outside(self, relation: Outside, of: Any, rows: Any, on: str, low: int, high: int | None) -> Any:
        counted = rows.aggregate([col(on).alias("other")], [f.count(col(on)).alias("some")])
        every = of.join(counted, left_on=[on], right_on=["other"], how="left")
        numbered = every.select(*map(col, names(relation.of)), f.coalesce(col("some"), lit(0)).alias("n"))
        wrong = col("n") < lit(low)
        if high is not None:
            wrong = wrong | (col("n") > lit(high))
        return numbered.filter(wrong)

    # -- sources -----------------------------------------------------------------------------------

    def _read(self, read: Read) -> Any:
        types = self._change.catalog.table(read.table).stored_schema
        chosen = []
        for name, stored in read.columns:
            kind = types.field(stored).type
            value = col(quoted(stored))
            if pa.types.is_floating(kind):
                value = value + lit(0.0)  # both zeros are one value
            elif pa.types.is_date(kind):
                value = value.cast(numbers_in(kind))
            chosen.append(value.alias(name))
        # Typed: a bare text becomes a view, which Arrow cannot sort.
        labels = [lit(pa.scalar(value, pa.string())).alias(name) for name, value in read.label]
        frame = self._source(read).select(*chosen, *labels)
        if read.complete:
            for name, _ in read.columns:
                frame = frame.filter(col(name).is_not_null())
        return frame

    def _source(self, read: Read) -> Any:
        key = (read.side, read.table)
        if key not in self._sources:
            self._sources[key] = self._open(read)
        return self._sources[key]

    def _open(self, read: Read) -> Any:
        change = self._change.types.get(read.table)
        empty = self._change.catalog.table(read.table).stored_schema.empty_table()
        match read.side:
            case Side.COMMITTED | Side.BEFORE:
                if read.side is Side.COMMITTED and change is not None and change.replaces:
                    return self._held(empty)
                return self._base.frame(self._context, read.table)
            case Side.REMOVED:
                removed = pa.array([], pa.string()) if change is None else change.removed
                return self._held(pa.table({ID: removed}))
            case Side.GIVEN if change is not None and change.given is not None:
                return self._held(change.given)
            case _:
                return self._held(empty if change is None else change.rows)

    def _held(self, table: pa.Table) -> Any:
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        return self._context.from_arrow(pa.Table.from_batches(batches))
