"""Draft: what executors have written, as a change.

    outcomes -> **draft** -> judged on Spark, staged, published

The counterpart of engine.load.draft for rows that are not in this process. Where of several rows with one
id the last counts, "last" is by the order of the input, which the order of the fragments keeps. Rows that
break a rule are set aside if the load asks for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import GraphError, StaleVersion
from omnigraph.base.panics import panics_caught
from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.model import TableType
from omnigraph.engine.change import ChangeSet, TypeChange
from omnigraph.engine.load.assembly import InputDraft, Modes, WriteMode, change_of_rows
from omnigraph.engine.load.conform import LoadSource
from omnigraph.engine.load.fingerprint import Fingerprint
from omnigraph.engine.validate.evaluate import questions
from omnigraph.engine.validate.executors import LocalExecutor
from omnigraph.engine.validate.relation import SHOWN, Findings, Violation
from omnigraph.engine.write import ExecutorFor
from omnigraph.pipeline.bulk.executor import WrittenExecutor, spark_executor
from omnigraph.pipeline.bulk.load_task import TaskOutcome, fingerprint_of
from omnigraph.pipeline.bulk.row_locations import (
    Culprit,
    RowLocations,
    StagedRows,
    Stretch,
    check_any_removed,
    culprits,
    row_addresses,
    write_rejects,
)
from omnigraph.pipeline.bulk.staged_rows import (
    BulkChange,
    BulkRemover,
    Way,
    choose,
    without_repeated,
    without_rows,
)
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle
from omnigraph.storage.staging import staged_files_gone
from omnigraph.storage.store import GraphStore
from omnigraph.storage.tables.effects import Written, alone, fragments_of
from omnigraph.storage.tables.layout import OFFSET_MASK
from omnigraph.storage.transaction import PinnedSnapshot, WriteTxn

DRIVER_BYTES = 256 << 20  # of files; in memory rows take a few times as much


@dataclass(frozen=True)
class BulkOptions:
    """How a load is carried out."""

    driver_rows: int  # up to so many rows the driver finishes a load by itself
    upsert: Way | None = None
    sets_aside: bool = False  # rows that break a rule are left out
    keyed: bool = False  # the load has an idempotency key
    rejects: str | None = None  # the file that they are written to


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
        outcomes: Sequence[tuple[LoadSource | None, TaskOutcome]],
    ) -> BulkRead:
        """Put outcomes together, in the order of the input."""
        type_ids = dict.fromkeys(type_id for _, outcome in outcomes for type_id in outcome.types)
        types = {}
        for type_id in type_ids:
            parts = [(s, outcome.types[type_id]) for s, outcome in outcomes if type_id in outcome.types]
            fragments = fragments_of(fragment for _, rows in parts for fragment in rows.fragments)
            types[type_id] = TypeRead(
                catalog.table(type_id),
                Written(fragments, snapshot.state.version),
                all(rows.minted for _, rows in parts),
                tuple(Stretch(source, rows.rows, rows.runs) for source, rows in parts),
            )
        return cls(catalog, snapshot, types, tuple(outcome for _, outcome in outcomes))

    @property
    def rows(self) -> int:
        """All rows of all types."""
        return sum(read.rows for read in self.types.values())

    def left_out(self) -> Counter[str]:
        """Return how many rows had problems, by type id; "" where the type is not known."""
        return sum((Counter(dict(outcome.left_out)) for outcome in self.outcomes), Counter[str]())

    def problems(self) -> Findings:
        """Return what was wrong with single rows, in the order of the input."""
        reported = sum(len(outcome.problems) for outcome in self.outcomes)
        kept = self.problems_kept()
        total = sum(outcome.total_problems for outcome in self.outcomes) - (reported - len(kept))
        return Findings(kept[:SHOWN], total)

    def problems_kept(self) -> tuple[Violation, ...]:
        """Return every problem that was kept, once: each task says what is wrong with the columns."""
        every = (violation for outcome in self.outcomes for violation in outcome.problems)
        return tuple(dict.fromkeys(every))


class BulkDraft(InputDraft):
    """Files that executors wrote as a change: the same files on every base, less rows that were set aside.

    Without a session (a data source commits where there is none) this process does all of it.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        store: GraphStore,
        read: BulkRead,
        modes: Modes,
        options: BulkOptions,
        facts: Mapping[str, Any],
    ) -> None:
        super().__init__(read.catalog, facts)
        self._spark = spark
        self._store = store
        self._read = read
        self._modes = modes
        self._options = options
        nbytes = sum(type_read.written.nbytes for type_read in read.types.values())
        self._in_driver = read.rows <= options.driver_rows and nbytes <= DRIVER_BYTES
        self.executor = self._executor()
        self._types = dict(read.types)
        self._given: dict[str, StagedRows] = {}
        self._rejected: list[Violation] = list(read.problems_kept()) if options.sets_aside else []
        self._left_out = read.left_out()
        try:
            with panics_caught():
                self.change = self._changes()
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> GraphError:
        """Say why files that were written just now cannot be made versions, or be read."""
        head = self._store.branches.chain(self._read.snapshot.state.line.incarnation).latest()
        since = min((read.written.since for read in self._read.types.values()), default=head.version)
        if since < head.swept:
            return staged_files_gone("a cleanup ran while the rows of this load were staged")
        return storage_failure("staging the rows of a load", error)

    def _executor(self) -> ExecutorFor:
        """Return who answers questions about the change: few rows are looked up, many joined on Spark."""
        if self._in_driver:
            return LocalExecutor
        if self._spark is None:
            return partial(WrittenExecutor, store=self._store)
        return spark_executor(self._spark, self._store.location)

    # -- what the assembly needs to know -----------------------------------------------------------

    def change_under(self, txn: WriteTxn, catalog: Catalog) -> ChangeSet:
        """Return the change: it depends on the base only where rows are set aside, and on its schema."""
        if catalog.identity != self.catalog.identity:
            raise StaleVersion("schema", expected=self.catalog.identity, actual=catalog.identity)
        if self._options.sets_aside:
            self._set_aside(txn)
        return self.change

    def locate(self, findings: Findings, change: ChangeSet) -> Findings:
        """Say of each violation where in the input it is."""
        return replace(findings, violations=tuple(self._locations().located(findings.violations)))

    @property
    def fingerprint(self) -> Fingerprint | None:
        """What tells the input from another, where that is wanted."""
        return fingerprint_of(self._read.outcomes) if self._options.keyed else None

    @property
    def rows(self) -> int:
        """All rows that were read and break no rule by themselves."""
        return self._read.rows

    @property
    def rows_by_type(self) -> Mapping[str, int]:
        """The rows of each type id, less those that were set aside."""
        return {type_id: read.rows for type_id, read in self._types.items()}

    @property
    def rejected_by_type(self) -> Mapping[str, int]:
        """The rows of each type id that were set aside; a row may have broken several rules."""
        return self._left_out

    def facts(self) -> dict[str, Any]:
        """Return what the receipt says besides counts."""
        return {
            **super().facts(),
            "rejected": self._left_out.total(),
            "rejects": self._options.rejects if self._rejected else None,
            "upsert": self._ways(),
        }

    def accepted(self, *, dry_run: bool) -> None:
        """Write the reject table, before the publish: a load whose rejects cannot be kept must not land."""
        if self._rejected and self._options.rejects is not None and not dry_run:
            write_rejects(self._options.rejects, self._store, self._rejected)

    def _ways(self) -> dict[str, str]:
        """Return how rows that exist are replaced, by type name."""
        return {
            type_change.declared.name: type_change.remover.way
            if isinstance(type_change, BulkChange)
            else "driver"
            for type_change in self.change.types.values()
            if not (type_change.replaces or type_change.minted or type_change.strict)
        }

    def _locations(self) -> RowLocations:
        return RowLocations(self._store, self.catalog, self._given)

    # -- rows that break a rule --------------------------------------------------------------------

    def _set_aside(self, txn: WriteTxn) -> None:
        """Take rows out until nothing is wrong with the rest on this base."""
        while wrong := culprits(questions(self.change), self.executor(self.change, txn)):
            removed = sum(self._take_out(type_id, mine) for type_id, mine in self._by_type(wrong).items())
            check_any_removed(wrong, removed)
            self._rejected += self._locations().located([culprit.violation for culprit in wrong])
            self.change = self._changes()

    def _by_type(self, wrong: Sequence[Culprit]) -> dict[str, list[Culprit]]:
        type_ids = {(read.declared.kind.value, read.declared.name): t for t, read in self._types.items()}
        by_type: dict[str, list[Culprit]] = {}
        for culprit in wrong:
            type_id = type_ids.get((culprit.violation.entity_kind, culprit.violation.type_name))
            if type_id is not None:
                by_type.setdefault(type_id, []).append(culprit)
        return by_type

    def _take_out(self, type_id: str, wrong: Sequence[Culprit]) -> int:
        """Write a type's files anew without some rows; return how many were left out."""
        read = self._types[type_id]
        handle = self._alone(read)
        offsets: dict[int, set[int]] = {}
        for column in sorted({culprit.column for culprit in wrong}):
            but_first = {culprit.value: culprit.but_first for culprit in wrong if culprit.column == column}
            for value, addresses in row_addresses(handle, column, but_first).items():
                for address in addresses[1:] if but_first[value] else addresses:
                    offsets.setdefault(address >> 32, set()).add(address & OFFSET_MASK)
        if offsets:
            removed = {number: np.array(sorted(rows), np.int64) for number, rows in offsets.items()}
            table = read.declared.table_id
            written = without_rows(self._spark, self._store, table, handle, read.written, removed)
            self._types[type_id] = replace(read, written=written)
        left_out = sum(map(len, offsets.values()))
        self._left_out[type_id] += left_out
        return left_out

    # -- the change --------------------------------------------------------------------------------

    def _changes(self) -> ChangeSet:
        changes = [self._type_change(read, self._modes.of(read.declared.id)) for read in self._types.values()]
        return ChangeSet.of(self.catalog, [*changes, *self._modes.emptied(self.catalog, self._types)])

    def _type_change(self, read: TypeRead, mode: WriteMode) -> TypeChange:
        declared = read.declared
        staged = self._alone(read)
        self._given.setdefault(declared.id, StagedRows(staged.version, read.stretches))  # as it was at first
        if self._in_driver:
            rows = staged.to_table(columns=declared.stored_schema.names)
            return change_of_rows(declared, rows, mode, minted=read.minted)
        table, last = declared.table_id, read
        if mode.keeps_last(declared, minted=read.minted):
            last = replace(
                read, written=without_repeated(self._spark, self._store, table, staged, read.written)
            )
        version = staged.version if last.written is read.written else self._alone(last).version
        way = "driver" if self._spark is None else self._options.upsert or choose(last.rows)
        return BulkChange(
            declared,
            declared.stored_schema.empty_table(),
            replaces=mode.replaces,
            strict=mode.strict,
            minted=read.minted,
            written=last.written,
            version=version,
            given_version=staged.version,
            remover=BulkRemover(self._spark, self._store, table, version, way),
        )

    def _alone(self, read: TypeRead) -> Handle:
        """Return a version with the rows of a type and no others."""
        table = read.declared.table_id
        handle = alone(self._store.table(self._read.snapshot, table), read.written)
        self._store.opener.adopt(table, handle)
        return handle
