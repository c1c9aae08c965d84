"""Workbench: what staging is made of: checking rows, finding them, folding, writing files, detached commits.

One bench for each staging of one effect on one version. The only caller of Lance's writing functions for
tables; stage.py says what to do with them. A detached commit checks no conflicts, so it is made only on the
version it was staged from (lance-facts B3); publishing decides whether that version still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any

import numpy as np
import pyarrow as pa
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.base.dataclass import dataclass
from omnigraph.base.errors import InvalidRequest
from omnigraph.storage.cost import stage as cost_stage
from omnigraph.storage.derived.rows import RowFinder, by_fragment
from omnigraph.storage.durability import Step, Syncer, durable
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables.differences import TailCache, TailFragment
from omnigraph.storage.tables.effects import ID, Removal, RowSource, Written
from omnigraph.storage.tables.keys import PROBE_LIMIT, Addresses, addresses
from omnigraph.storage.tables.layout import (
    PER_TIER,
    REWRITE_BELOW,
    FragmentLayout,
    FragmentSize,
    Layout,
    Layouts,
    data_files,
    plan_fold,
    size_of,
)

# -- rows that fit their table ---------------------------------------------------------------------
#
# Rows have exactly the columns of their table, or are refused before anything is written. Lance would take
# some misfits silently (a missing column becomes null) and report others as storage failures.


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with their columns in table order."""
    if not rows.schema.equals(schema):
        check_columns(rows.schema, schema)
        rows = rows.select(schema.names)
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            raise InvalidRequest(
                f"the rows do not fit the table: column {field.name!r} is required and has nulls",
                column=field.name,
            )
    return rows.cast(schema) if not rows.schema.equals(schema) else rows  # takes over nullability only


class CheckedStream:
    """Rows in table order, each batch checked as it passes.

    What is raised inside a reader comes out of Lance as a storage failure; `problem` keeps what was
    really wrong.
    """

    def __init__(self, rows: RowSource, schema: pa.Schema) -> None:
        self._source = rows.reader()
        self._schema = schema
        self.problem: InvalidRequest | None = None
        check_columns(self._source.schema, schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the stream as Lance takes it."""
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._source:
            try:
                yield from conform(pa.Table.from_batches([batch]), self._schema).to_batches()
            except InvalidRequest as error:
                self.problem = error
                raise


def check_columns(columns: pa.Schema, expected: pa.Schema) -> None:
    """Refuse rows whose columns are not those of the table."""
    problems = [f"column {name!r} is missing" for name in expected.names if name not in columns.names]
    problems += [f"the table has no column {name!r}" for name in columns.names if name not in expected.names]
    problems += [
        f"column {field.name!r} is {columns.field(field.name).type}, the table has {field.type}"
        for field in expected
        if field.name in columns.names and columns.field(field.name).type != field.type
    ]
    if len(set(columns.names)) != len(columns.names):
        problems.append("a column name stands twice")
    if problems:
        raise InvalidRequest(f"the rows do not fit the table: {'; '.join(problems)}", problems=problems)


# -- workbench -----------------------------------------------------------------------------------


FILE_ROWS = 1 << 20  # of one data file
COMMIT_RETRIES = 5  # detached versions are random numbers: a collision is drawn again


@dataclass(frozen=True, slots=True)
class Staged:
    """One table's staged version."""

    base_version: int
    version: int
    rows: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    files: tuple[str, ...] = ()  # relative to the table; a trailing "/" means everything below


@dataclass(frozen=True)
class Tools:
    """What staging shares between tables and writes."""

    pool: Executor
    tail: TailCache
    layouts: Layouts
    finder: RowFinder
    looked_up: tuple[str, ...]  # columns that rows are found by, beside ids and ends
    syncer: Syncer
    folder: str  # where the files of the table are


class Workbench:
    """The base of one staging, and what has been written on top of it."""

    def __init__(self, base: Handle, tools: Tools) -> None:
        self.base = base
        self.layout = tools.layouts.get(base)
        self.schema = self.layout.schema
        self.files: list[str] = []
        self.pool = tools.pool
        self._tail = tools.tail
        self._layouts = tools.layouts
        self._finder = tools.finder
        self._looked_up = tools.looked_up
        self._syncer = tools.syncer
        self._folder = tools.folder
        self._changed: frozenset[int] = frozenset()

    def find(self, ids: pa.Array) -> Addresses:
        """Return where rows with these ids are: the tail from memory, the rest by index or scan."""
        if len(ids) == 0:
            return {}
        small, big = self.layout.small, self.layout.big
        located = self._find_big(ids, big) if big else {}
        sought = ids.to_pylist() if small else []
        for fragment in small:
            offsets = self._tail.get(self.base, fragment, self.layout.parts[fragment].key).find(sought)
            if len(offsets):
                located[fragment] = offsets
        return located

    def _find_big(self, ids: pa.Array, big: Mapping[int, FragmentLayout]) -> Addresses:
        if len(ids) <= PROBE_LIMIT and self._finder.can_find(self.base, self.layout, ID):
            return by_fragment(self._finder.find(self.base, self.layout, ID, ids).addresses)
        return addresses(self.base, ids, list(big))

    def _tail_fragment(self, fragment: int) -> TailFragment:
        return self._tail.get(self.base, fragment, self.layout.parts[fragment].key)

    def fold_set(self, rows: pa.Table, old: Addresses) -> frozenset[int]:
        """Choose what to rewrite along: a full tier, and small fragments that lose rows anyway."""
        if self.layout.has_blobs or (not old and len(self.layout.parts) < PER_TIER):
            return frozenset()  # no tier can be full
        sizes = {
            fragment: size_of(part.metadata, less=len(old[fragment])) if fragment in old else part.size
            for fragment, part in self.layout.parts.items()
        }
        touched = {fragment for fragment in old if sizes[fragment].weight <= REWRITE_BELOW}
        others = {fragment: size for fragment, size in sizes.items() if fragment not in touched}
        weight = FragmentSize(
            rows.num_rows + sum(sizes[fragment].rows for fragment in touched),
            rows.nbytes + sum(sizes[fragment].bytes for fragment in touched),
        )
        return plan_fold(others, weight) | touched

    def with_folded(self, rows: pa.Table, folded: frozenset[int], old: Addresses) -> pa.Table:
        """Return the folded fragments' surviving rows followed by the new ones."""
        nothing = np.empty(0, np.int64)
        kept = [
            self._tail_fragment(fragment).without(old.get(fragment, nothing)).rows
            for fragment in sorted(folded)
        ]
        return pa.concat_tables([*kept, rows])

    def write(self, rows: pa.Table | CheckedStream) -> list[FragmentMetadata]:
        """Write rows as new fragments; none when there are no rows."""
        cost_stage()
        new: list[FragmentMetadata] = []
        beside: list[Future[Any]] = []
        try:
            # File by file: Lance encodes on few threads, so what lies beside one is made during the next.
            pieces: Sequence[pa.Table | CheckedStream] = (rows,)
            if isinstance(rows, pa.Table) and rows.num_rows > FILE_ROWS:
                pieces = [rows.slice(start, FILE_ROWS) for start in range(0, rows.num_rows, FILE_ROWS)]
            for piece in pieces:
                fragments = self._write_fragments(piece)
                beside += self._beside(fragments, piece)
                new += fragments
        finally:
            if beside:
                wait(beside)  # no straggler goes on writing after an error was told
        if beside:
            _finish(beside)
        if isinstance(rows, pa.Table) and len(new) == 1:
            part = FragmentLayout.of(new[0], self.layout.columns)
            if not part.settled:
                self._tail.put(part.key, TailFragment(rows.combine_chunks(), np.arange(rows.num_rows)))
        return new

    def _write_fragments(self, rows: pa.Table | CheckedStream) -> list[FragmentMetadata]:
        data = rows if isinstance(rows, pa.Table) else rows.reader()
        try:
            with durable(Step.TABLE_DATA):
                return list(
                    write_fragments(
                        data, self.base, schema=self.schema, mode="append", max_rows_per_file=FILE_ROWS
                    )
                )
        except OSError as error:
            if isinstance(rows, CheckedStream) and rows.problem is not None:
                raise rows.problem from error
            raise

    def _beside(self, new: list[FragmentMetadata], rows: pa.Table | CheckedStream) -> list[Future[Any]]:
        """Note new files, begin to sync them, and write what rows of them are found by."""
        parts = [FragmentLayout.of(fragment, self.layout.columns) for fragment in new]
        for part in parts:
            for path in data_files(part.metadata):
                self.files += [f"data/{path}", f"data/{path.removesuffix('.lance')}/"]
                if self._syncer.enabled:  # begin now: other files are still being written
                    self.pool.submit(self._syncer.early, f"{self._folder}data/{path}")
        if not self.layout.has_blobs and not any(part.settled for part in parts):
            return []  # rows of small files are found in memory
        return self._derive(parts, rows if isinstance(rows, pa.Table) else None)

    def derive(self, parts: Iterable[FragmentLayout]) -> None:
        """Write beside files that others wrote what rows of them are found by."""
        _finish(self._derive(parts, None))

    def _derive(self, parts: Iterable[FragmentLayout], rows: pa.Table | None) -> list[Future[Any]]:
        """Begin with the key hashes of new files, whose rows are given if they are still in memory.

        Rows of small files are found in memory and need none; a table with blobs has no small files.
        """
        tasks: list[Future[Any]] = []
        start = 0
        for part in parts:
            count = part.metadata.physical_rows
            values = None if rows is None else rows.slice(start, count)
            start += count
            if part.settled or self.layout.has_blobs:
                tasks += self._finder.derive(self.base, part, self.pool, self._looked_up, values)
        return tasks

    def remove(self, old: Addresses) -> tuple[list[FragmentMetadata], frozenset[int]]:
        """Write deletion files; return the changed fragments and the ids of those left empty."""
        updated: list[FragmentMetadata] = []
        emptied: set[int] = set()
        for fragment_id, offsets in sorted(old.items()):
            with durable(Step.TABLE_DELETIONS):
                metadata = self.base.get_fragment(fragment_id).delete_rows(offsets.tolist())
            if metadata is None:
                emptied.add(fragment_id)
            else:
                updated.append(metadata)
                self.files.append(metadata.deletion_file.path(fragment_id))
                part = self.layout.parts[fragment_id]
                key = FragmentLayout.of(metadata, self.layout.columns).key
                self._layouts.lose(part, offsets, key)
                if not self.layout.has_blobs and not part.settled:
                    self._tail.put(key, self._tail_fragment(fragment_id).without(offsets))
        self._changed = frozenset(old)
        return updated, frozenset(emptied)

    def take_over(self, removal: Removal) -> None:
        """Note what others wrote so that the base loses rows."""
        deletions = [(fragment.id, fragment.deletion_file) for fragment in removal.changed]
        self.files += [file.path(number) for number, file in deletions if file is not None]
        self.files += Written(removal.kept, since=0).files()
        self._changed = frozenset(fragment.id for fragment in removal.changed)

    def finish(
        self, operation: Any, *, inserted: int = 0, updated: int = 0, deleted: int = 0
    ) -> tuple[Staged, Handle]:
        """Make the detached version."""
        done = self._detached(self.base, operation)
        if isinstance(operation, LanceOperation.Project | LanceOperation.Merge):  # other columns
            layout = Layout.of(done)
        else:
            layout = self.layout.after(done, self._changed)
        self._layouts.put(done, layout)
        for fragment, part in self.layout.small.items():
            if fragment not in layout.parts or layout.parts[fragment].key != part.key:
                self._tail.retire(part.key)
        staged = Staged(
            base_version=self.base.version,
            version=done.version,
            rows=layout.rows,
            inserted=inserted,
            updated=updated,
            deleted=deleted,
            files=tuple(self.files),
        )
        return staged, done

    def _detached(self, base: Handle, operation: Any) -> Handle:
        cost_stage()
        with durable(Step.TABLE_COMMIT):
            done = LanceDataset.commit(
                base, operation, read_version=base.version, detached=True, max_retries=COMMIT_RETRIES
            )
        self.files.append(f"_versions/d{done.version}.manifest")
        return done

    def unchanged(self) -> tuple[Staged, Handle]:
        """Return the base: there is nothing to do."""
        version = self.base.version
        return Staged(base_version=version, version=version, rows=self.layout.rows), self.base


def _finish(tasks: Sequence[Future[Any]]) -> None:
    """Wait for all tasks, then raise what one of them raised."""
    wait(tasks)
    for task in tasks:
        task.result()
