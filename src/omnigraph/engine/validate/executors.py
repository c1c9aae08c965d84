"""Executors: who answers the questions of set checks in one process.

- `RowExecutor`: a small change, with Python's sets and dictionaries. For the writes that people and programs
  make all day: a few rows, a few look-ups by value, no query engine to start. Stored rows are only looked up.
- `FrameExecutor`: a change of any size, with DataFusion, in bounded memory.
- `LocalExecutor`: asks rows first, and frames where a source that must be held has too many of them.

All give the same answers; a property test drives them with the same changes. Spark's executor is in the
pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
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
from omnigraph.storage.derived.key_hashes import hashes_of
from omnigraph.storage.tables.predicate import quoted
from omnigraph.storage.transaction import WriteTxn

if TYPE_CHECKING:  # the first change that asks frames imports DataFusion
    from datafusion import SessionContext

MOST_HASHED = 1 << 25  # values whose hashes are compared at once: 8 bytes each
MOST = 2_000  # rows of any one source; beyond, a query engine is worth its start
NOTHING = Answer([], 0)
Tuples = list[tuple[Any, ...]]
_Choice = tuple[str, list[Any], pa.Array]  # a column to look rows up by, the values as they are and stored


# -- a small change, by look-ups ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    columns: tuple[str, ...]
    tuples: Tuples

    def keys(self, on: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return the values of some columns of each row."""
        columns = [self.columns.index(name) for name in on]
        return (tuple(row[column] for column in columns) for row in self.tuples)


class _TooManyRows(Exception):
    """A source that would have to be held is not small."""


@dataclass(eq=False)
class RowExecutor:
    """Answers questions about one small change on one base."""

    change: ChangeSet
    base: WriteTxn
    most: int = MOST
    looked_up: dict[tuple[Any, ...], pa.Table] = field(default_factory=dict)

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows, and the total; or raise `_TooManyRows`."""
        answer = self._of(relation)
        if not answer.tuples:
            return NOTHING
        columns = [answer.columns.index(name) for name in order]
        first = sorted(answer.tuples, key=lambda row: [row[column] for column in columns])[:limit]
        return Answer([dict(zip(answer.columns, row, strict=True)) for row in first], len(answer.tuples))

    def _of(self, relation: Relation) -> _Rows:
        match relation:
            case Read():
                return self._read(relation)
            case Join(left, right, on):
                return self._join(self._of(left), right, on)
            case Semi(left, right, on) | Anti(left, right, on):
                rows = self._of(left)
                return self._keep(rows, right, on, isinstance(relation, Semi)) if rows.tuples else rows
            case Union(parts):
                answers = [self._of(part) for part in parts]
                return _Rows(answers[0].columns, [row for part in answers for row in part.tuples])
            case Pick(of, columns):
                return _Rows(columns, list(dict.fromkeys(self._of(of).keys(columns))))
            case Shared(of, by, holder):
                rows = self._of(of)
                several = _shared(rows, by, holder) if len(rows.tuples) > 1 else []
                return _Rows((*by, "n", "least", "greatest"), several)
            case Outside(of, rows, on, low, high):
                counted: dict[Any, int] = defaultdict(int)
                for (key,) in self._of(rows).keys((on,)):
                    counted[key] += 1
                judged = self._of(of)
                pairs = zip(judged.tuples, judged.keys((on,)), strict=True)
                numbered = [(*row, counted[key]) for row, (key,) in pairs]
                wrong = [row for row in numbered if row[-1] < low or (high is not None and row[-1] > high)]
                return _Rows((*judged.columns, "n"), wrong)
            case _:
                assert_never(relation)

    def _read(self, read: Read) -> _Rows:
        """Return the rows of a source that must be held whole."""
        change, side = self.change.types.get(read.table), read.side
        table: pa.Table | None = None
        if side in STORED:
            if not (side is RelationSide.COMMITTED and change is not None and change.replaces):
                if self.base.rows(read.table) > self.most:
                    raise _TooManyRows
                table = self.base.scan(read.table, [stored for _, stored in read.columns]).read_all()
        elif change is not None:
            removed = side is RelationSide.REMOVED
            table = pa.table({ID: change.removed}) if removed else change.rows
            if side is RelationSide.GIVEN and change.given is not None:
                table = change.given
        if (0 if table is None else table.num_rows) > self.most:
            raise _TooManyRows
        return _tuples(table, read)

    # -- partners ----------------------------------------------------------------------------------

    def _join(self, left: _Rows, right: Relation, on: tuple[str, ...]) -> _Rows:
        others = self._partners(left, right, on)
        rest = [name for name in others.columns if name not in on]
        if not others.tuples:
            return _Rows((*left.columns, *rest), [])
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

    def _keep(self, left: _Rows, right: Relation, on: tuple[str, ...], partnered: bool) -> _Rows:
        keys = list(left.keys(on))
        if isinstance(right, Read) and right.side in STORED and right.columns == ((on[0], ID),):
            there = self._existing(right, keys)
        else:
            there = set(self._partners(left, right, on).keys(on))
        kept = [row for row, key in zip(left.tuples, keys, strict=True) if (key in there) is partnered]
        return _Rows(left.columns, kept)

    def _existing(self, right: Read, keys: Sequence[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
        change = self.change.types.get(right.table)
        if right.side is RelationSide.COMMITTED and change is not None and change.replaces:
            return set()
        distinct = list(dict.fromkeys(keys))
        mask = self.base.exists(right.table, pa.array([key[0] for key in distinct], pa.string()))
        return {key for key, exists in zip(distinct, mask.to_pylist(), strict=True) if exists}

    def _partners(self, left: _Rows, right: Relation, on: tuple[str, ...]) -> _Rows:
        """Return the rows of the right that may match; of stored rows only those with the values at hand."""
        if not isinstance(right, Read) or right.side not in STORED:
            return self._of(right)
        change = self.change.types.get(right.table)
        hidden = right.side is RelationSide.COMMITTED and change is not None and change.replaces
        if hidden or not left.tuples:
            return _tuples(None, right)
        declared = self.change.catalog.table(right.table) if change is None else change.declared
        stored, choices = dict(right.columns), []
        for name in on:
            values = sorted({key for (key,) in left.keys((name,))} - {None})
            kind = declared.stored_schema.field(stored[name]).type
            choices.append((stored[name], values, pa.array(values, kind)))
        by, values, sought = choices[0] if len(choices) == 1 else self._rarest(right, choices)
        columns = {stored for _, stored in right.columns}
        if isinstance(declared, EdgeType):
            columns |= {ID, *ENDPOINTS}  # one look-up then serves several questions
        asked = (right.table, by, tuple(values), frozenset(columns))
        rows = self.looked_up.get(asked)
        if rows is None:
            rows = self.looked_up[asked] = self.base.lookup(right.table, by, sought, sorted(columns))
        return _tuples(rows, right)

    def _rarest(self, right: Read, choices: Sequence[_Choice]) -> _Choice:
        """Choose the column to look partners up by: that whose values the fewest rows have."""
        counts = [self.base.count_candidates(right.table, by, sought) for by, _, sought in choices]
        known = [(count, place) for place, count in enumerate(counts) if count is not None]
        if not known:
            return choices[0]
        fewest, place = min(known)
        if fewest > self.most:
            raise _TooManyRows
        return choices[place]


def _tuples(table: pa.Table | None, read: Read) -> _Rows:
    """Return the columns that a source asks for; no table has no rows.

    Days and instants are numbers (Python's own dates are coarser), and both zeros are one.
    """
    names = tuple([name for name, _ in (*read.columns, *read.label)])
    if table is None or not table.num_rows:
        return _Rows(names, [])
    columns = []
    for _, stored in read.columns:
        column = table[stored]
        if not pa.types.is_string(column.type):
            floating = pa.types.is_floating(column.type)
            column = pc.add(column, 0.0) if floating else column.cast(numbers_in(column.type))
        columns.append(column.to_pylist())
    labels = [value for _, value in read.label]
    rows = [(*row, *labels) for row in zip(*columns, strict=True)]
    return _Rows(names, [row for row in rows if None not in row] if read.complete else rows)


def _shared(rows: _Rows, by: tuple[str, ...], holder: str) -> Tuples:
    holders: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for key, (value,) in zip(rows.keys(by), rows.keys((holder,)), strict=True):
        holders[key].append(value)
    return [(*key, len(ids), min(ids), max(ids)) for key, ids in holders.items() if len(ids) > 1]


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


def bounded_context(memory_bytes: int = MEMORY_BYTES) -> SessionContext:
    """Return a query engine whose sorts and groups spill to disk beyond so much memory."""
    from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

    runtime = RuntimeEnvBuilder().with_disk_manager_os().with_fair_spill_pool(memory_bytes)
    return SessionContext(SessionConfig(), runtime)


class FrameExecutor:
    """Answers questions about one change on one base."""

    def __init__(self, change: ChangeSet, base: StoredFrames, memory_bytes: int = MEMORY_BYTES) -> None:
        self._change = change
        self._base = base
        self._context = bounded_context(memory_bytes)
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


class LocalExecutor(RowExecutor):
    """Answers questions about one change on one base."""

    def ask(self, relation: Relation, order: tuple[str, ...], limit: int) -> Answer:
        """Return the first rows by the columns of `order`, and the total."""
        try:
            return super().ask(relation, order, limit)
        except _TooManyRows:
            return NOTHING if self._all_differ(relation) else self._frames.ask(relation, order, limit)

    def _all_differ(self, relation: Relation) -> bool:
        """Say whether texts that must differ do so for certain: texts with different hashes do."""
        if not isinstance(relation, Shared) or not isinstance(relation.of, Read) or len(relation.by) != 1:
            return False
        read, change = relation.of, self.change.types.get(relation.of.table)
        if change is None or read.side in STORED or read.side is RelationSide.REMOVED:
            return False
        rows = change.given if read.side is RelationSide.GIVEN and change.given is not None else change.rows
        values = rows[dict(read.columns)[relation.by[0]]]
        if not pa.types.is_string(values.type) or values.null_count or len(values) > MOST_HASHED:
            return False
        hashes = hashes_of(values)
        hashes.sort()
        return not bool((hashes[1:] == hashes[:-1]).any())

    @cached_property
    def _frames(self) -> FrameExecutor:
        return FrameExecutor(self.change, self.base)
