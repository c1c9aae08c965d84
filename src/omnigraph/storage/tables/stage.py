"""Stage: turn an effect into an immutable detached version of a table.

Room    storage.tables. The only writer of table data. Nothing staged can be seen until a manifest
        pins it, and nothing here moves a table's HEAD.
Given   a handle at the pinned version and an effect.
Gives   a `Staged` value: the new version, row counts and the files that must be durable before publishing.
Rule    a detached commit checks no conflicts, so it is made only on the version it was staged from
        (lance-facts B3); publishing decides whether that version still counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, LanceOperation
from lance.fragment import FragmentMetadata, write_fragments

from omnigraph.base.errors import IntegrityError, InvalidRequest
from omnigraph.storage.cost import stage as cost_stage
from omnigraph.storage.failpoints import Step, durable
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables import columns, predicate
from omnigraph.storage.tables.conform import CheckedStream, conform
from omnigraph.storage.tables.effects import (
    ID,
    AddColumn,
    Append,
    DeleteIds,
    DeleteWhere,
    DropColumn,
    Effect,
    Overwrite,
    RenameColumn,
    Rows,
    Upsert,
)
from omnigraph.storage.tables.fold import REWRITE_BELOW, FragmentSize, plan_fold, settled
from omnigraph.storage.tables.keys import Addresses, addresses, by_fragment, index_change
from omnigraph.storage.tables.tail import TailCache, TailFragment, identity, written

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

    @property
    def changed(self) -> bool:
        """Whether there is anything to publish."""
        return self.version != self.base_version


def stage(base: Handle, effect: Effect, pool: Executor, tail: TailCache) -> tuple[Staged, Handle]:
    """Stage one effect; the base handle itself comes back when there is nothing to do."""
    try:
        return _Stager(base, pool, tail).run(effect)
    except OSError as error:  # Lance reports every storage failure so
        raise storage_failure("staging rows", error) from error


class _Stager:
    """The state of one staging: the base, and what has been written on top of it."""

    def __init__(self, base: Handle, pool: Executor, tail: TailCache) -> None:
        self._base = base
        self._pool = pool
        self._tail = tail
        self._schema = base.schema  # converted anew by Lance on every access
        self._columns = columns.fingerprint(base)
        self._files: list[str] = []
        self._fragments: Mapping[int, FragmentMetadata] = {
            f.fragment_id: f.metadata for f in base.get_fragments()
        }

    def run(self, effect: Effect) -> tuple[Staged, Handle]:
        match effect:
            case Append(rows):
                return self._append(rows)
            case Upsert(rows, remove):
                return self._upsert(rows, remove)
            case DeleteIds(ids):
                return self._delete(self._find(_distinct(ids)))
            case DeleteWhere(condition):
                return self._delete(by_fragment(predicate.find(self._base, condition)[predicate.ADDRESS]))
            case Overwrite(rows):
                return self._overwrite(rows)
            case AddColumn(column, fill):
                return self._add_column(column, fill)
            case DropColumn(name):
                self._known(name)
                return self._project(columns.without_column(self._base, name))
            case RenameColumn(name, to):
                self._known(name)
                if to in self._schema.names:
                    raise InvalidRequest(f"there is already a column {to!r}", column=to)
                return self._project(columns.with_name(self._base, name, to))
            case _:
                assert_never(effect)

    # -- rows --------------------------------------------------------------------------------------

    def _append(self, rows: Rows) -> tuple[Staged, Handle]:
        if not isinstance(rows, pa.Table):
            return self._append_stream(rows)
        rows = conform(rows, self._schema)
        if rows.num_rows == 0:
            return self._unchanged()
        folded = self._fold_set(rows, {})
        new = self._write(self._with_folded(rows, folded, {}))
        return self._commit(
            LanceOperation.Update(
                removed_fragment_ids=sorted(folded), new_fragments=new, update_mode="rewrite_rows"
            ),
            inserted=rows.num_rows,
        )

    def _append_stream(self, rows: Any) -> tuple[Staged, Handle]:
        new = self._write(CheckedStream(rows, self._schema))
        count = sum(fragment.num_rows for fragment in new)
        if count == 0:
            return self._unchanged()
        return self._commit(LanceOperation.Append(new), inserted=count)

    def _upsert(self, rows: pa.Table, remove: pa.Array) -> tuple[Staged, Handle]:
        rows = conform(rows, self._schema)
        ids = rows[ID].combine_chunks()
        if len(pc.unique(ids)) != len(ids):
            raise IntegrityError("an upsert names one id twice; the caller must settle which row wins")
        if rows.num_rows == 0 and len(remove) == 0:
            return self._unchanged()
        cost_stage()
        replaced = self._find(ids)
        removed = self._find(_distinct(remove.filter(pc.invert(pc.is_in(remove, value_set=ids)))))
        old = _union(replaced, removed)
        if rows.num_rows == 0:
            return self._delete(old)
        folded = self._fold_set(rows, old)
        left = {fragment: offsets for fragment, offsets in old.items() if fragment not in folded}
        deletions = self._pool.submit(self._delete_rows, left) if left else None
        new = self._write(self._with_folded(rows, folded, old))
        updated, emptied = deletions.result() if deletions is not None else ([], frozenset())
        return self._commit(
            LanceOperation.Update(
                removed_fragment_ids=sorted(folded | emptied),
                updated_fragments=updated,
                new_fragments=new,
                update_mode="rewrite_rows",
            ),
            inserted=rows.num_rows - _count(replaced),
            updated=_count(replaced),
            deleted=_count(removed),
        )

    def _delete(self, old: Addresses) -> tuple[Staged, Handle]:
        if not old:
            return self._unchanged()
        cost_stage()
        updated, emptied = self._delete_rows(old)
        return self._commit(
            LanceOperation.Update(
                removed_fragment_ids=sorted(emptied), updated_fragments=updated, update_mode="rewrite_rows"
            ),
            deleted=_count(old),
        )

    def _overwrite(self, rows: Rows) -> tuple[Staged, Handle]:
        gone = self._base.count_rows()
        if isinstance(rows, pa.Table):
            new = self._write(conform(rows, self._schema))
        else:
            new = self._write(CheckedStream(rows, self._schema))
        count = sum(fragment.num_rows for fragment in new)
        if count == 0 and gone == 0:
            return self._unchanged()
        # Not Op.Overwrite: this keeps field ids and index definitions.
        return self._commit(
            LanceOperation.Update(
                removed_fragment_ids=sorted(self._fragments), new_fragments=new, update_mode="rewrite_rows"
            ),
            inserted=count,
            deleted=gone,
        )

    # -- columns -----------------------------------------------------------------------------------

    def _add_column(self, column: pa.Field, fill: pa.Scalar | None) -> tuple[Staged, Handle]:
        if column.name in self._schema.names:
            raise InvalidRequest(f"there is already a column {column.name!r}", column=column.name)
        if fill is None and not column.nullable and self._base.count_rows():
            raise InvalidRequest(
                f"column {column.name!r} is required and the table has rows",
                remedy="Give a value to fill them with",
                column=column.name,
            )
        if fill is None or not self._fragments:
            schema = columns.with_column(self._base, column)
            return self._commit(LanceOperation.Merge(list(self._fragments.values()), schema))
        filled = fill.cast(column.type)

        def values(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([pa.repeat(filled, batch.num_rows)], schema=pa.schema([column]))

        merged, schema = [], None
        cost_stage()
        for fragment in self._base.get_fragments():
            with durable(Step.TABLE_DATA):
                metadata, schema = fragment.merge_columns(values, columns=[ID])
            self._files += [f"data/{file.path}" for file in metadata.files]
            merged.append(metadata)
        return self._commit(LanceOperation.Merge(merged, schema))

    def _project(self, schema: Any) -> tuple[Staged, Handle]:
        return self._commit(LanceOperation.Project(schema))

    def _known(self, name: str) -> None:
        names = self._schema.names
        if name not in names or name == ID:
            raise InvalidRequest(
                f"no column {name!r} to change; the columns are {', '.join(names)}", column=name
            )

    # -- writing -----------------------------------------------------------------------------------

    def _find(self, ids: pa.Array) -> Addresses:
        """Return where rows with these ids are: the tail from memory, the rest by index or scan."""
        if len(ids) == 0:
            return {}
        small, big = self._split()
        found = addresses(self._base, ids, big) if big else {}
        wanted = ids.to_pylist() if small else []
        for fragment in small:
            offsets = self._tail_fragment(fragment).find(wanted)
            if len(offsets):
                found[fragment] = offsets
        return found

    def _tail_fragment(self, fragment: int) -> TailFragment:
        return self._tail.get(self._base, fragment, identity(self._columns, self._fragments[fragment]))

    def _split(self) -> tuple[list[int], list[int]]:
        """Return the ids of the small fragments, which the tail cache holds, and of the others."""
        small: list[int] = []
        big: list[int] = []
        for fragment, metadata in self._fragments.items():
            (big if self._has_blobs or settled(_size(metadata)) else small).append(fragment)
        return small, big

    @property
    def _has_blobs(self) -> bool:
        """Lance cannot read blob rows back for writing (lance-facts 11), so they are never folded."""
        return any(b"lance-encoding:blob" in (field.metadata or {}) for field in self._schema) or any(
            str(field.type).startswith("extension<lance.blob") for field in self._schema
        )

    def _fold_set(self, rows: pa.Table, old: Addresses) -> frozenset[int]:
        """Choose what to rewrite along: a full tier, and small fragments that lose rows anyway."""
        if self._has_blobs:
            return frozenset()
        sizes = {
            fragment: _size(metadata, less=len(old.get(fragment, ())))
            for fragment, metadata in self._fragments.items()
        }
        touched = {fragment for fragment in old if sizes[fragment].weight <= REWRITE_BELOW}
        others = {fragment: size for fragment, size in sizes.items() if fragment not in touched}
        weight = FragmentSize(
            rows.num_rows + sum(sizes[fragment].rows for fragment in touched),
            rows.nbytes + sum(sizes[fragment].bytes for fragment in touched),
        )
        return plan_fold(others, weight) | touched

    def _with_folded(self, rows: pa.Table, folded: frozenset[int], old: Addresses) -> pa.Table:
        """Return the folded fragments' surviving rows followed by the new ones."""
        if not folded:
            return rows
        nothing = np.empty(0, np.int64)
        kept = [
            self._tail_fragment(fragment).without(old.get(fragment, nothing)).rows
            for fragment in sorted(folded)
        ]
        return pa.concat_tables([*kept, rows])

    def _write(self, rows: pa.Table | CheckedStream) -> list[FragmentMetadata]:
        """Write rows as new fragments; none when there are no rows."""
        cost_stage()
        data = rows if isinstance(rows, pa.Table) else rows.reader()
        try:
            with durable(Step.TABLE_DATA):
                new = list(write_fragments(data, self._base, schema=self._schema, mode="append"))
        except OSError as error:
            if isinstance(rows, CheckedStream) and rows.problem is not None:
                raise rows.problem from error
            raise
        for fragment in new:
            for file in fragment.files:
                self._files += [f"data/{file.path}", f"data/{file.path.removesuffix('.lance')}/"]
        if isinstance(rows, pa.Table) and len(new) == 1 and not settled(_size(new[0])):
            self._tail.put(identity(self._columns, new[0]), written(rows.combine_chunks()))
        return new

    def _delete_rows(self, old: Addresses) -> tuple[list[FragmentMetadata], frozenset[int]]:
        """Write deletion files; return the changed fragments and the ids of those left empty."""
        updated: list[FragmentMetadata] = []
        emptied: set[int] = set()
        for fragment_id, offsets in sorted(old.items()):
            with durable(Step.TABLE_DELETIONS):
                metadata = self._base.get_fragment(fragment_id).delete_rows(offsets.tolist())
            if metadata is None:
                emptied.add(fragment_id)
            else:
                updated.append(metadata)
                self._files.append(metadata.deletion_file.path(fragment_id))
                if not self._has_blobs and not settled(_size(self._fragments[fragment_id])):
                    left = self._tail_fragment(fragment_id).without(offsets)
                    self._tail.put(identity(self._columns, metadata), left)
        return updated, frozenset(emptied)

    def _commit(
        self, operation: Any, *, inserted: int = 0, updated: int = 0, deleted: int = 0
    ) -> tuple[Staged, Handle]:
        done = self._detached(self._base, operation)
        sizes = {f.fragment_id: _size(f.metadata) for f in done.get_fragments()}
        with durable(Step.TABLE_INDEX):
            change = index_change(done, sizes)
        if change is not None:
            self._files += [f"_indices/{segment.uuid}/" for segment in change.new_indices]
            done = self._detached(done, change)
        staged = Staged(
            base_version=self._base.version,
            version=done.version,
            rows=done.count_rows(),
            inserted=inserted,
            updated=updated,
            deleted=deleted,
            files=tuple(self._files),
        )
        return staged, done

    def _detached(self, base: Handle, operation: Any) -> Handle:
        cost_stage()
        with durable(Step.TABLE_COMMIT):
            done = LanceDataset.commit(
                base, operation, read_version=base.version, detached=True, max_retries=COMMIT_RETRIES
            )
        self._files.append(f"_versions/d{done.version}.manifest")
        return done

    def _unchanged(self) -> tuple[Staged, Handle]:
        version = self._base.version
        return Staged(base_version=version, version=version, rows=self._base.count_rows()), self._base


def _size(metadata: FragmentMetadata, less: int = 0) -> FragmentSize:
    """Return what is alive of a fragment, deletions taken off in proportion."""
    alive = metadata.num_rows - less
    stored = sum(file.file_size_bytes or 0 for file in metadata.files)
    share = alive / metadata.physical_rows if metadata.physical_rows else 0
    return FragmentSize(rows=alive, bytes=int(stored * share))


def _count(found: Addresses) -> int:
    return sum(map(len, found.values()))


def _union(a: Addresses, b: Addresses) -> Addresses:
    both = {f: np.union1d(a[f], b[f]).astype(np.int64) for f in a.keys() & b.keys()}
    return {**a, **b, **both}


def _distinct(ids: pa.Array | pa.ChunkedArray | Iterable[str]) -> pa.Array:
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    return pc.unique(ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()))
