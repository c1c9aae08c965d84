"""Feed rows: what one commit changed, or what two states do not share, as record batches for Spark.

    two states -> deltas by type (engine.history) -> **columns** -> batches

Room    pipeline. Runs in executors. With one type its images are structs of stored values, column by column;
        with several they are JSON, in the formats of query results.
Rule    properties are found by identity, whatever they are called in a commit. A struct has those that the
        type had when the stream was made: one that a commit lacks is null, one of another type is refused,
        unless its values fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from omnigraph.base.errors import InvalidRequest
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.constraints import ENDPOINTS
from omnigraph.catalog.model import ID, EdgeType, Property, TableType
from omnigraph.catalog.past import columns_then
from omnigraph.catalog.types import Scalar
from omnigraph.engine.history.change import Op, kind_of
from omnigraph.engine.history.comparison import Comparison, changes_in
from omnigraph.engine.history.delta import Delta
from omnigraph.engine.history.images import column_name
from omnigraph.engine.history.paired import Pair
from omnigraph.pipeline.scan import BATCH_ROWS
from omnigraph.pipeline.types import INSTANT, spark_type, to_spark, travels_as
from omnigraph.storage.manifest.records import CommitRecord

JSON_ROWS = 4_096  # of one batch: their images are held as Python values
NAMES = pa.list_(pa.field("element", pa.string()))
# What a row says of its commit: column, Arrow type, Spark's type.
COMMIT: tuple[tuple[str, pa.DataType, DataType], ...] = (
    ("commit_id", pa.string(), StringType()),
    ("version", pa.int64(), LongType()),
    ("committed_at", INSTANT, TimestampType()),
    ("commit_kind", pa.string(), StringType()),
    ("branch", pa.string(), StringType()),
    ("actor", pa.string(), StringType()),
    ("message", pa.string(), StringType()),
)


@dataclass(frozen=True)
class Images:
    """How the images of entities are shown."""

    declared: TableType | None = None  # the one type, as it was when the stream was made

    @property
    def schema(self) -> StructType:
        """The columns of a feed as Spark sees them: the change, and its commit."""
        return StructType([*self.of_changes, *(StructField(name, kind) for name, _, kind in COMMIT)])

    @property
    def of_changes(self) -> StructType:
        """The columns of a change."""
        image: DataType = StringType()
        if self.declared is not None:
            ends = [StructField(name, StringType()) for name in self._ends]
            members = [StructField(p.name, spark_type(p.type.arrow)) for p in self._members]
            image = StructType([*ends, *members])
        names = [StructField(name, StringType()) for name in ("op", "kind", "type", ID)]
        images = [StructField("fields", ArrayType(StringType())), StructField("before", image)]
        return StructType([*names, *images, StructField("after", image)])

    def rows(self, found: Comparison) -> Iterator[pa.RecordBatch]:
        """Yield the changes between the states before and after a commit."""
        for declared in found.types:
            for delta in found.deltas(declared):
                for changes in self.changes(delta, found.pair(declared)):
                    yield _with_commit(changes, found.after.commit)

    def changes(self, delta: Delta, pair: Pair) -> Iterator[pa.RecordBatch]:
        """Yield the changes of one type."""
        shown = self._json(delta, pair) if self.declared is None else self._structs(delta, pair)
        for part in shown:
            yield _batch(part, pair.declared)

    # -- one type ----------------------------------------------------------------------------------

    def _structs(self, delta: Delta, pair: Pair) -> Iterator[_Part]:
        for op, old, new in (
            (Op.INSERT, None, delta.inserted),
            (Op.UPDATE, delta.before, delta.after),
            (Op.DELETE, delta.deleted, None),
        ):
            rows = new if new is not None else old
            assert rows is not None
            names = _names_of_changed(delta, pair.declared) if op is Op.UPDATE else [None] * rows.num_rows
            for low in range(0, rows.num_rows, BATCH_ROWS):
                ids = rows[ID].slice(low, BATCH_ROWS).combine_chunks()
                before, after = (
                    pa.nulls(len(ids), self._image)
                    if side is None
                    else self._struct(side.slice(low, BATCH_ROWS), pair.declared, then)
                    for side, then in ((old, pair.older), (new, pair.newer))
                )
                ops = pa.repeat(pa.scalar(op.value), len(ids))
                fields = pa.array(names[low : low + BATCH_ROWS], NAMES)
                yield _Part(ops, ids, fields, before, after)

    def _struct(self, rows: pa.Table, compared: TableType, then: Catalog) -> pa.Array:
        """Return compared rows of a state as structs; what its schema lacks is null."""
        known = columns_then(compared, then)
        here = {p.id: p for p in compared.properties if p.column in known}
        columns = [_one(rows[name]) for name in self._ends]
        columns += [_values(rows, p, here.get(p.id)) for p in self._members]
        return pa.StructArray.from_arrays(columns, fields=list(self._image))

    @property
    def _image(self) -> pa.StructType:
        ends = [pa.field(name, pa.string()) for name in self._ends]
        return pa.struct([*ends, *(pa.field(p.name, travels_as(p.type.arrow)) for p in self._members)])

    @property
    def _ends(self) -> tuple[str, ...]:
        return ENDPOINTS if isinstance(self.declared, EdgeType) else ()

    @property
    def _members(self) -> tuple[Property, ...]:
        properties = () if self.declared is None else self.declared.properties
        return tuple(p for p in properties if p.type.scalar is not Scalar.BLOB)

    # -- several types -----------------------------------------------------------------------------

    def _json(self, delta: Delta, pair: Pair) -> Iterator[_Part]:
        every = changes_in(delta, pair)
        while some := list(islice(every, JSON_ROWS)):
            yield _Part(
                pa.array([one.op.value for one in some], pa.string()),
                pa.array([one.id for one in some], pa.string()),
                pa.array([list(one.fields) if one.op is Op.UPDATE else None for one in some], NAMES),
                pa.array([_text(one.before) for one in some], pa.string()),
                pa.array([_text(one.after) for one in some], pa.string()),
            )


@dataclass(frozen=True, eq=False)
class _Part:
    """Some changes of one type."""

    ops: pa.Array
    ids: pa.Array
    fields: pa.Array
    before: pa.Array
    after: pa.Array


def _batch(part: _Part, declared: TableType) -> pa.RecordBatch:
    count = len(part.ids)
    return pa.RecordBatch.from_pydict(
        {
            "op": part.ops,
            "kind": pa.repeat(pa.scalar(kind_of(declared)), count),
            "type": pa.repeat(pa.scalar(declared.name), count),
            ID: part.ids,
            "fields": part.fields,
            "before": part.before,
            "after": part.after,
        }
    )


def _with_commit(changes: pa.RecordBatch, commit: CommitRecord) -> pa.RecordBatch:
    told: dict[str, Any] = {
        "commit_id": commit.id,
        "version": commit.manifest_version,
        "committed_at": commit.authored_at_us,
        "commit_kind": commit.kind.value,
        "branch": commit.branch,
        "actor": commit.actor,
        "message": commit.message,
    }
    columns = dict(zip(changes.schema.names, changes.columns, strict=True))
    added = {name: pa.repeat(pa.scalar(told[name], kind), changes.num_rows) for name, kind, _ in COMMIT}
    return pa.RecordBatch.from_pydict(columns | added)


def _values(rows: pa.Table, asked: Property, here: Property | None) -> pa.Array:
    """Return the values of a property in the type that the stream gives it."""
    goal = asked.type.arrow
    if here is None:
        return pa.nulls(rows.num_rows, travels_as(goal))
    if here.type.arrow != goal and not here.type.widens_to(asked.type):
        raise InvalidRequest(
            f"property {here.name!r} is now of type {here.type}, and this stream reads it as {asked.type}",
            remedy="Start the query again: it takes the columns of the schema of then",
            property=here.name,
        )
    return to_spark(_one(rows[here.column]).cast(goal), goal)


def _names_of_changed(delta: Delta, now: TableType) -> list[list[str] | None]:
    """Return, for each row that was updated, the names of what differs."""
    columns = list(delta.changed)
    if not columns:
        return [[] for _ in range(delta.after.num_rows)]
    names = [column_name(column, now) for column in columns]
    differs = np.array([delta.changed[column] for column in columns]).T
    return [sorted(names[at] for at in np.flatnonzero(row)) for row in differs]


def _text(image: Any) -> str | None:
    return None if image is None else json.dumps(dict(image), ensure_ascii=False)


def _one(values: pa.ChunkedArray) -> pa.Array:
    found = values.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
