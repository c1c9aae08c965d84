"""Executors: who answers the questions of set checks in one process.

- `RowExecutor`: a small change, with Python's sets and dictionaries. For the writes that people and programs
  make all day: a few rows, a few look-ups by value, no query engine to start. Stored rows are only looked up.
- `FrameExecutor`: a change of any size, with DataFusion, in bounded memory.
- `LocalExecutor`: chooses between them, question by question, by the number of rows that must be held.

All give the same answers; a property test drives them with the same changes. Spark's executor is in the
pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import StorageError
from omnigraph.catalog.model import ENDPOINTS, ID, EdgeType
from omnigraph.catalog.types import numbers_in
from omnigraph.engine.change import ChangeSet
from omnigraph.engine.validate.relation import (
    STORED,
    Answer,
    Anti,
    Join,
    Outside,
    Pick,
    Read,
    Relation,
    RelationSide,
    Semi,
    Shared,
    Union,
    names,
)
from omnigraph.storage.tables.predicate import quoted
from omnigraph.storage.transaction import WriteTxn

if TYPE_CHECKING:  # the first change that asks frames imports DataFusion
    from datafusion import SessionContext

MOST = 2_000  # rows of any one source; beyond, a query engine is worth its start
Tuples = list[tuple[Any, ...]]


# -- a small change, by look-ups ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    columns: tuple[str, ...]
    tuples: Tuples

    def keys(self, on: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return the values of some columns of each row."""
        columns = [self.columns.index(name) for name in on]
        return (tuple(row[column] for column in columns) for row in self.tuples)


class RowExecutor:
    """Answers questions about one small change on one base."""

    def __init__(self, change: ChangeSet, base: WriteTxn, most: int = MOST) -> None:
        self._change = change
        self._base = base
        self._most = most
        self._looked_up: dict[tuple[Any, ...], pa.Table] = {}

    def fits(self, relation: Relation) -> bool:
        """Say whether every source that would have to be held is small."""
        return all(self._count(read) <= self._most for read in _held(relation))

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Answer a question that fits: the first rows, and the total."""
        answer = self._of(relation)
        columns = [answer.columns.index(name) for name in order]
        first = sorted(answer.tuples, key=lambda row: [row[column] for column in columns])[:limit]
        return Answer([dict(zip(answer.columns, row, strict=True)) for row in first], len(answer.tuples))

    def _count(self, read: Read) -> int:
        change = self._change.types.get(read.table)
        match read.side:
            case RelationSide.COMMITTED | RelationSide.BEFORE:
                hidden = read.side is RelationSide.COMMITTED and change is not None and change.replaces
                return 0 if hidden else self._base.rows(read.table)
            case RelationSide.REMOVED:
                return 0 if change is None else len(change.removed)
            case RelationSide.GIVEN if change is not None and change.given is not None:
                return int(change.given.num_rows)
            case _:
                return 0 if change is None else int(change.rows.num_rows)

    def _of(self, relation: Relation) -> _Rows:
        match relation:
            case Read():
                return self._read(relation)
            case Join(left, right, on):
                return self._join(self._of(left), right, on)
            case Semi(left, right, on):
                return self._keep(self._of(left), right, on, partnered=True)
            case Anti(left, right, on):
                return self._keep(self._of(left), right, on, partnered=False)
            case Union(parts):
                answers = [self._of(part) for part in parts]
                return _Rows(answers[0].columns, [row for part in answers for row in part.tuples])
            case Pick(of, columns):
                return _Rows(columns, list(dict.fromkeys(self._of(of).keys(columns))))
            case Shared(of, by, holder):
                return _shared(self._of(of), by, holder, names(relation))
            case Outside(of, rows, on, low, high):
                counted: dict[Any, int] = defaultdict(int)
                for (key,) in self._of(rows).keys((on,)):
                    counted[key] += 1
                judged = self._of(of)
                pairs = zip(judged.tuples, judged.keys((on,)), strict=True)
                numbered = [(*row, counted[key]) for row, (key,) in pairs]
                wrong = [row for row in numbered if row[-1] < low or (high is not None and row[-1] > high)]
                return _Rows(names(relation), wrong)
            case _:
                assert_never(relation)

    # -- sources -----------------------------------------------------------------------------------

    def _read(self, read: Read) -> _Rows:
        return _tuples(self._table(read), read)

    def _table(self, read: Read) -> pa.Table:
        change = self._change.types.get(read.table)
        columns = [stored for _, stored in read.columns]
        match read.side:
            case RelationSide.COMMITTED | RelationSide.BEFORE:
                if self._hidden(read):
                    return self._schema(read, columns).empty_table()
                return self._base.scan(read.table, columns).read_all()
            case RelationSide.REMOVED:
                return pa.table({ID: pa.array([], pa.string()) if change is None else change.removed})
            case RelationSide.GIVEN if change is not None and change.given is not None:
                return change.given.select(columns)
            case _:
                empty = self._schema(read, columns).empty_table()
                return empty if change is None else change.rows.select(columns)

    def _hidden(self, read: Read) -> bool:
        change = self._change.types.get(read.table)
        return read.side is RelationSide.COMMITTED and change is not None and change.replaces

    def _schema(self, read: Read, columns: Sequence[str]) -> pa.Schema:
        stored = self._change.catalog.table(read.table).stored_schema
        return pa.schema([stored.field(name) for name in columns])

    # -- partners ----------------------------------------------------------------------------------

    def _join(self, left: _Rows, right: Relation, on: tuple[str, ...]) -> _Rows:
        others = self._partners(left, right, on)
        rest = [name for name in others.columns if name not in on]
        by_key: dict[tuple[Any, ...], Tuples] = defaultdict(list)
        for key, row in zip(others.keys(on), others.keys(rest), strict=True):
            by_key[key].append(row)
        joined = [
            (*row, *more)
            for row, key in zip(left.tuples, left.keys(on), strict=True)
            if None not in key
            for more in by_key.get(key, ())
        ]
        return _Rows((*left.columns, *rest), joined)

    def _keep(self, left: _Rows, right: Relation, on: tuple[str, ...], *, partnered: bool) -> _Rows:
        if not left.tuples:
            return left
        keys = list(left.keys(on))
        if isinstance(right, Read) and right.side in STORED and right.columns == ((on[0], ID),):
            there = self._existing(right, keys)
        else:
            there = set(self._partners(left, right, on).keys(on))
        kept = [row for row, key in zip(left.tuples, keys, strict=True) if (key in there) is partnered]
        return _Rows(left.columns, kept)

    def _existing(self, right: Read, keys: Sequence[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
        if self._hidden(right):
            return set()
        distinct = list(dict.fromkeys(keys))
        mask = self._base.exists(right.table, pa.array([key[0] for key in distinct], pa.string()))
        return {key for key, exists in zip(distinct, mask.to_pylist(), strict=True) if exists}

    def _partners(self, left: _Rows, right: Relation, on: tuple[str, ...]) -> _Rows:
        """Return the rows of the right that may match; of stored rows only those with the values at hand."""
        if not isinstance(right, Read) or right.side not in STORED:
            return self._of(right)
        if self._hidden(right) or not left.tuples:
            return _Rows(names(right), [])
        stored = dict(right.columns)
        by = stored[on[0]]
        values = sorted({key[0] for key in left.keys(on[:1])} - {None})
        columns = {*stored.values()}
        if isinstance(self._change.catalog.table(right.table), EdgeType):
            columns |= {ID, *ENDPOINTS}  # one look-up then serves several questions
        rows = self._lookup(right.table, by, values, columns)
        return _tuples(rows.select(list(stored.values())), right)

    def _lookup(self, table: str, by: str, values: Sequence[Any], columns: set[str]) -> pa.Table:
        key = (table, by, tuple(values), frozenset(columns))
        if key not in self._looked_up:
            kind = self._change.catalog.table(table).stored_schema.field(by).type
            self._looked_up[key] = self._base.lookup(table, by, pa.array(values, kind), sorted(columns))
        return self._looked_up[key]


def _tuples(table: pa.Table, read: Read) -> _Rows:
    labels = tuple(value for _, value in read.label)
    columns = [_plain(column).to_pylist() for column in table.columns]
    rows = [(*row, *labels) for row in zip(*columns, strict=True)]
    if read.complete:
        rows = [row for row in rows if None not in row]
    return _Rows(names(read), rows)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return days and instants as numbers (Python's own dates are coarser), and both zeros as one."""
    if pa.types.is_floating(column.type):
        return pc.add(column, 0.0)
    return column.cast(numbers_in(column.type))


def _shared(rows: _Rows, by: tuple[str, ...], holder: str, columns: tuple[str, ...]) -> _Rows:
    holders: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for key, (value,) in zip(rows.keys(by), rows.keys((holder,)), strict=True):
        holders[key].append(value)
    several = [(*key, len(ids), min(ids), max(ids)) for key, ids in holders.items() if len(ids) > 1]
    return _Rows(columns, several)


def _held(relation: Relation) -> Iterable[Read]:
    """Return the sources that must be held whole: those that are not just looked up by value."""
    match relation:
        case Read():
            return [relation]
        case Join(left, right) | Semi(left, right) | Anti(left, right):
            looked_up = isinstance(right, Read) and right.side in STORED
            return [*_held(left), *([] if looked_up else _held(right))]
        case Union(parts):
            return [read for part in parts for read in _held(part)]
        case Pick(of) | Shared(of):
            return _held(of)
        case Outside(of, rows):
            return [*_held(of), *_held(rows)]
        case _:
            assert_never(relation)


# -- any change, by DataFusion ---------------------------------------------------------------------
#
# Joins and groups run over Arrow memory (which may be mapped from disk) and over scans of stored tables;
# sorting and grouping spill to disk at the memory limit.


MEMORY_BYTES = 2 << 30


class StoredFrames(Protocol):
    """Whoever gives stored rows as DataFusion frames: a base, or a base under another schema."""

    def frame(self, context: SessionContext, table_id: str) -> Any:
        """Return all rows of a table, in the columns of its type."""
        ...


class FrameExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: StoredFrames, memory_bytes: int = MEMORY_BYTES) -> None:
        from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

        self._change = change
        self._base = base
        runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_bytes)
        self._context = SessionContext(SessionConfig(), runtime)
        self._sources: dict[tuple[RelationSide, str], Any] = {}

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total, in one pass."""
        total, first = 0, None
        for batch in streamed(self._of(relation)):
            part = pa.Table.from_batches([batch])
            total += part.num_rows
            merged = part if first is None else pa.concat_tables([first, part])
            first = merged.sort_by([(name, "ascending") for name in order]).slice(0, limit)
        return Answer([] if first is None else first.to_pylist(), total)

    def _of(self, relation: Relation) -> Any:
        from datafusion import col, lit
        from datafusion import functions as f

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
        from datafusion import col

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
        from datafusion import col, lit
        from datafusion import functions as f

        counted = rows.aggregate([col(on).alias("other")], [f.count(col(on)).alias("some")])
        every = of.join(counted, left_on=[on], right_on=["other"], how="left")
        numbered = every.select(*map(col, names(relation.of)), f.coalesce(col("some"), lit(0)).alias("n"))
        wrong = col("n") < lit(low)
        if high is not None:
            wrong = wrong | (col("n") > lit(high))
        return numbered.filter(wrong)

    # -- sources -----------------------------------------------------------------------------------

    def _read(self, read: Read) -> Any:
        from datafusion import col, lit

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
            case RelationSide.COMMITTED | RelationSide.BEFORE:
                if read.side is RelationSide.COMMITTED and change is not None and change.replaces:
                    return self._held(empty)
                return self._base.frame(self._context, read.table)
            case RelationSide.REMOVED:
                removed = pa.array([], pa.string()) if change is None else change.removed
                return self._held(pa.table({ID: removed}))
            case RelationSide.GIVEN if change is not None and change.given is not None:
                return self._held(change.given)
            case _:
                return self._held(empty if change is None else change.rows)

    def _held(self, table: pa.Table) -> Any:
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        return self._context.from_arrow(pa.Table.from_batches(batches))


def streamed(frame: Any) -> Iterator[pa.RecordBatch]:
    """Run a frame and yield its batches, none of which is kept."""
    try:
        for batch in frame.execute_stream():
            yield batch.to_pyarrow()
    except Exception as error:  # DataFusion raises nothing more specific
        raise StorageError(
            f"checking constraints failed: {error}",
            remedy="If memory or disk ran out, free some; a load can be split, or use engine='spark'",
            storage_kind="unknown",
        ) from error


# -- the choice ------------------------------------------------------------------------------------


class LocalExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: WriteTxn, most: int = MOST) -> None:
        self._change = change
        self._base = base
        self._rows = RowExecutor(change, base, most)

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total."""
        chosen = self._rows if self._rows.fits(relation) else self._frames
        return chosen.ask(relation, order, limit)

    @cached_property
    def _frames(self) -> FrameExecutor:
        return FrameExecutor(self._change, self._base)
