"""Draft: what executors have written, as a change in one of the three modes for each type.

    outcomes -> **draft** -> judged on Spark, staged, published

Room    pipeline.bulk. The counterpart of engine.load.draft for rows that are not in this process.
Rule    of several rows with one id the last counts, in mode merge and where ids are not derived from keys;
        "last" is by the order of the input, which the order of the fragments keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from omnigraph.base.errors import ReadSetConflict
from omnigraph.base.frozen import FrozenMap
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import NodeType, TableType
from omnigraph.engine.change import ChangeSet, TypeChange, last_of_each
from omnigraph.engine.load.conform import LoadSource
from omnigraph.engine.load.draft import WriteMode
from omnigraph.engine.receipt import Loaded, TypeCount, in_order
from omnigraph.engine.validate.evaluate import questions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import SHOWN, Findings, Violation
from omnigraph.engine.write import Draft, ExecutorFor
from omnigraph.pipeline.bulk.executor import spark_executor
from omnigraph.pipeline.bulk.ids import (
    BulkChange,
    BulkRemover,
    Way,
    WrittenExecutor,
    choose,
    thinned,
    without_repeated,
)
from omnigraph.pipeline.bulk.load_task import TaskOutcome
from omnigraph.pipeline.bulk.row_locations import (
    Culprit,
    RowLocations,
    StagedRows,
    Stretch,
    check_any_went,
    culprits,
    row_addresses,
)
from omnigraph.storage.opener import Handle
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Written, alone, fragments_of
from omnigraph.storage.tables.layout import OFFSET_MASK
from omnigraph.storage.transaction import PinnedSnapshot, WriteTxn

DRIVER_BYTES = 256 << 20  # of files; in memory rows take a few times as much


@dataclass(frozen=True)
class Modes:
    """The mode of each type, and the types that are emptied whether they are given or not."""

    every: WriteMode | None
    by_type: Mapping[str, WriteMode] = FrozenMap()
    replaced: tuple[str, ...] = ()

    def of(self, type_id: str) -> WriteMode:
        """Return the mode of a type; one that was not named is added to."""
        return self.by_type.get(type_id) or self.every or WriteMode.APPEND


@dataclass(frozen=True)
class BulkOptions:
    """How a load is carried out."""

    driver_rows: int  # up to so many rows the driver finishes a load by itself
    upsert: Way | None = None
    sets_aside: bool = False  # rows that break a rule are left out


@dataclass(frozen=True)
class TypeRead:
    """What an input has of one type."""

    declared: TableType
    written: Written
    minted: bool
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.written.num_rows


@dataclass(frozen=True)
class BulkRead:
    """What executors made of an input, under one schema."""

    catalog: Catalog
    snapshot: PinnedSnapshot
    types: Mapping[str, TypeRead]
    outcomes: tuple[TaskOutcome, ...]

    @classmethod
    def of(
        cls,
        catalog: Catalog,
        snapshot: PinnedSnapshot,
        found: Sequence[tuple[LoadSource | None, TaskOutcome]],
    ) -> BulkRead:
        """Put outcomes together, in the order of the input."""
        names = dict.fromkeys(type_id for _, outcome in found for type_id in outcome.types)
        types = {}
        for type_id in names:
            mine = [(s, o.types[type_id]) for s, o in found if type_id in o.types]
            fragments = fragments_of(text for _, rows in mine for text in rows.fragments)
            types[type_id] = TypeRead(
                catalog.table(type_id),
                Written(fragments, snapshot.state.version),
                all(rows.minted for _, rows in mine),
                tuple(Stretch(source, rows.rows, rows.runs) for source, rows in mine),
            )
        return cls(catalog, snapshot, types, tuple(outcome for _, outcome in found))

    @property
    def rows(self) -> int:
        """All rows of all types."""
        return sum(one.rows for one in self.types.values())

    def left_out(self) -> Counter[str]:
        """Return how many rows had problems, by type id; "" where the type is not known."""
        return sum((Counter(dict(outcome.left_out)) for outcome in self.outcomes), Counter[str]())

    def problems(self) -> Findings:
        """Return what was wrong with single rows, in the order of the input."""
        told = sum(len(outcome.problems) for outcome in self.outcomes)
        first = self.problems_kept()
        total = sum(outcome.total_problems for outcome in self.outcomes) - (told - len(first))
        return Findings(first[:SHOWN], total)

    def problems_kept(self) -> tuple[Violation, ...]:
        """Return every problem that was kept; each piece of a file says what is wrong with its columns."""
        every = (violation for outcome in self.outcomes for violation in outcome.problems)
        return tuple(dict.fromkeys(every))


class BulkDraft:
    """A bulk load as a drafter: the same files on every base, less the rows that were set aside.

    Without a session (a data source commits where there is none) this process does all of it.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        store: GraphStore,
        read: BulkRead,
        modes: Modes,
        options: BulkOptions,
    ) -> None:
        self._spark = spark
        self._store = store
        self._read = read
        self._modes = modes
        self._options = options
        size = sum(one.written.nbytes for one in read.types.values())
        self._in_driver = read.rows <= options.driver_rows and size <= DRIVER_BYTES
        self._types = dict(read.types)
        self._given: dict[str, StagedRows] = {}
        self.rejected: list[Violation] = list(read.problems_kept()) if options.sets_aside else []
        self._left_out = read.left_out()
        self.change = self._changes()

    @property
    def ways(self) -> dict[str, str]:
        """How rows that exist are replaced, by type name."""
        return {
            one.declared.name: one.remover.way if isinstance(one, BulkChange) else "driver"
            for one in self.change.types.values()
            if not (one.replaces or one.minted or one.strict)
        }

    @property
    def executor(self) -> ExecutorFor:
        """Who answers questions about the change: few rows are looked up, many are joined on Spark."""
        if self._in_driver:
            return LocalExecutor
        if self._spark is None:
            return partial(WrittenExecutor, store=self._store)
        return spark_executor(self._spark, self._store.location)

    def __call__(self, txn: WriteTxn, catalog: Catalog) -> Draft:
        """Return the change; it does not depend on the base, except that the schema must be the same."""
        if catalog.identity != self._read.catalog.identity:
            raise ReadSetConflict("schema", expected=self._read.catalog.identity, actual=catalog.identity)
        if self._options.sets_aside:
            self._set_aside(txn)
        decided = frozenset(t for t, one in self.change.types.items() if one.replaces)
        return Draft(self.change, decided, *self._affected(), values_judged=True)

    def _affected(self) -> tuple[int, int]:
        nodes = sum(one.rows for one in self._types.values() if isinstance(one.declared, NodeType))
        return nodes, sum(one.rows for one in self._types.values()) - nodes

    def locate(self, found: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""
        return replace(found, violations=tuple(self._places().located(found.violations)))

    def _places(self) -> RowLocations:
        return RowLocations(self._store, self._read.catalog, self._given)

    @property
    def rows_left_out(self) -> int:
        """How many rows were set aside, those of unknown types too; one may have broken several rules."""
        return self._left_out.total()

    def foreseen(self) -> tuple[TypeCount, ...]:
        """Return what the load would do; entities that exist are not told from new ones."""
        counts = {type_id: self._count(declared) for type_id, declared in self._mentioned().items()}
        for change in self.change.types.values():
            known = counts.get(change.declared.id) or self._count(change.declared)
            gone = self._read.snapshot.pin(change.table_id).rows if change.replaces else 0
            counts[change.declared.id] = replace(known, inserted=change.count, deleted=gone)
        return in_order(counts.values())

    def loaded(self, facts: Mapping[str, Any]) -> Loaded:
        """Say what the receipt has of the input."""
        types = tuple(map(self._count, self._mentioned().values()))
        return Loaded(*self._affected(), types, {**facts, "upsert": self.ways})

    def _mentioned(self) -> dict[str, TableType]:
        """Return the types that the input has rows of, good or bad."""
        ids = [*self._read.types, *(type_id for type_id in self._left_out if type_id)]
        return {type_id: self._read.catalog.table(type_id) for type_id in ids}

    def _count(self, declared: TableType) -> TypeCount:
        left = self._types[declared.id].rows if declared.id in self._types else 0
        rejected = self._left_out[declared.id]
        return TypeCount(
            declared.name,
            declared.kind.value,
            given=left + rejected,
            unchanged=left - self.change.rows(declared.table_id),
            rejected=rejected,
        )

    # -- rows that break a rule --------------------------------------------------------------------

    def _set_aside(self, txn: WriteTxn) -> None:
        """Take rows out until nothing is wrong with the rest on this base."""
        while found := culprits(questions(self.change), self.executor(self.change, txn)):
            went = sum(self._take_out(type_id, mine) for type_id, mine in self._by_type(found).items())
            check_any_went(found, went)
            self.rejected += self._places().located([one.violation for one in found])
            self.change = self._changes()

    def _by_type(self, found: Sequence[Culprit]) -> dict[str, list[Culprit]]:
        names = {(one.declared.kind.value, one.declared.name): t for t, one in self._types.items()}
        by_type: dict[str, list[Culprit]] = {}
        for one in found:
            type_id = names.get((one.violation.entity_kind, one.violation.type_name))
            if type_id is not None:
                by_type.setdefault(type_id, []).append(one)
        return by_type

    def _take_out(self, type_id: str, found: Sequence[Culprit]) -> int:
        """Write a type's files anew without some rows; return how many went."""
        read = self._types[type_id]
        handle = self._alone(read)
        gone: dict[int, set[int]] = {}
        for column in sorted({one.column for one in found}):
            but_first = {one.value: one.but_first for one in found if one.column == column}
            for value, several in row_addresses(handle, column, but_first).items():
                for at in several[1:] if but_first[value] else several:
                    gone.setdefault(at >> 32, set()).add(at & OFFSET_MASK)
        if gone:
            offsets = {number: np.array(sorted(some), np.int64) for number, some in gone.items()}
            table = read.declared.table_id
            left = thinned(self._spark, self._store, table, handle, read.written, offsets)
            self._types[type_id] = replace(read, written=left)
        went = sum(map(len, gone.values()))
        self._left_out[type_id] += went
        return went

    # -- the change --------------------------------------------------------------------------------

    def _changes(self) -> ChangeSet:
        every = [self._one(one, self._modes.of(one.declared.id)) for one in self._types.values()]
        for type_id in self._modes.replaced:
            if type_id not in self._types:
                declared = self._read.catalog.table(type_id)
                every.append(TypeChange(declared, declared.stored_schema.empty_table(), replaces=True))
        return ChangeSet.of(self._read.catalog, every)

    def _one(self, read: TypeRead, mode: WriteMode) -> TypeChange:
        declared = read.declared
        given = self._alone(read)
        self._given.setdefault(declared.id, StagedRows(given.version, read.stretches))  # as it was at first
        settles = mode is WriteMode.MERGE and not read.minted and not _keyed(declared)
        if self._in_driver:
            rows = given.to_table(columns=declared.stored_schema.names).cast(declared.stored_schema)
            return TypeChange(
                declared,
                last_of_each(rows) if settles else rows,
                given=rows,
                replaces=mode is WriteMode.OVERWRITE,
                strict=mode is WriteMode.APPEND,
                minted=read.minted,
            )
        table, last = declared.table_id, read
        if settles:
            last = replace(
                read, written=without_repeated(self._spark, self._store, table, given, read.written)
            )
        version = given.version if last.written is read.written else self._alone(last).version
        way = "driver" if self._spark is None else self._options.upsert or choose(last.rows)
        return BulkChange(
            declared,
            declared.stored_schema.empty_table(),
            replaces=mode is WriteMode.OVERWRITE,
            strict=mode is WriteMode.APPEND,
            minted=read.minted,
            written=last.written,
            version=version,
            given_version=given.version,
            remover=BulkRemover(self._spark, self._store, table, version, way),
        )

    def _alone(self, read: TypeRead) -> Handle:
        """Return a version with the rows of a type and no others."""
        table = read.declared.table_id
        found = alone(self._store.table(self._read.snapshot, table), read.written)
        self._store.opener.adopt(table, found)
        return found


def _keyed(declared: TableType) -> bool:
    return isinstance(declared, NodeType) and bool(declared.key)
