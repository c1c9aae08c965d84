"""Stage: turn an effect into an immutable detached version of a table.

One function for each effect, made of the workbench's tools. What comes back is a `Staged` value: the new
version, row counts and the files that must be durable before publishing. Nothing staged can be seen until a
manifest pins it, and nothing here moves a table's HEAD.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import wait
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation
from lance.fragment import FragmentMetadata

from omnigraph.base.errors import IntegrityError, InvalidRequest
from omnigraph.storage.cost import stage as cost_stage
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.location import storage_failure
from omnigraph.storage.opener import Handle
from omnigraph.storage.tables import layout
from omnigraph.storage.tables.compaction import rebased, with_numbers
from omnigraph.storage.tables.effects import (
    ID,
    AddColumn,
    Append,
    BuildIndexes,
    Compact,
    DeleteIds,
    DropColumn,
    Effect,
    FillNulls,
    Overwrite,
    RenameColumn,
    Replace,
    Rows,
    SeveralEffects,
    Upsert,
    Written,
)
from omnigraph.storage.tables.indexes import complete
from omnigraph.storage.tables.keys import Addresses
from omnigraph.storage.tables.layout import ADDRESS
from omnigraph.storage.tables.predicate import find, is_null
from omnigraph.storage.tables.workbench import CheckedStream, Staged, Tools, Workbench, conform

Result = tuple[Staged, Handle]


def stage(base: Handle, effect: Effect, tools: Tools) -> Result:
    """Stage one effect; the base handle itself comes back when there is nothing to do."""
    if isinstance(effect, SeveralEffects):
        return _stage_several(base, effect, tools)
    try:
        bench = Workbench(base, tools)
        match effect:
            case Append(rows):
                return _append(bench, rows)
            case Upsert(rows, remove):
                return _upsert(bench, rows, remove)
            case Replace():
                return _replace(bench, effect)
            case DeleteIds(ids):
                return _delete(bench, bench.find(_distinct(ids)))
            case Overwrite(rows):
                return _overwrite(bench, rows)
            case AddColumn(column, fill, copy_from):
                return _add_column(bench, column, fill, copy_from)
            case FillNulls(column, value):
                return _fill_nulls(bench, column, value)
            case DropColumn(name):
                _known(bench, name)
                return _project(bench, layout.without_column(bench.base, name))
            case RenameColumn(name, to):
                _known(bench, name)
                if to in bench.schema.names:
                    raise InvalidRequest(f"there is already a column {to!r}", column=to)
                return _project(bench, layout.with_name(bench.base, name, to))
            case BuildIndexes():
                return _build_indexes(bench, effect)
            case Compact():
                return _compact(bench, effect, tools)
            case _:
                assert_never(effect)
    except (OSError, pa.ArrowInvalid) as error:  # what Lance raises when files cannot be read or written
        raise storage_failure("staging rows", error) from error


def _stage_several(base: Handle, effect: SeveralEffects, tools: Tools) -> Result:
    """Stage effects on top of each other; the versions in between are named by nothing."""
    handle, parts = base, []
    for step in effect.effects:
        staged, handle = stage(handle, step, tools)
        parts.append(staged)
    whole = Staged(
        base_version=base.version,
        version=handle.version,
        rows=handle.count_rows(),
        inserted=sum(part.inserted for part in parts),
        updated=sum(part.updated for part in parts),
        deleted=sum(part.deleted for part in parts),
        files=tuple(file for part in parts for file in part.files),
    )
    return whole, handle


# -- rows ---------------------------------------------------------------------------------------------


def _append(bench: Workbench, rows: Rows) -> Result:
    if not isinstance(rows, pa.Table):
        return _append_whole(bench, rows)
    rows = conform(rows, bench.schema)
    if rows.num_rows == 0:
        return bench.unchanged()
    folded = bench.fold_set(rows, {})
    new = bench.write(bench.with_folded(rows, folded, {}) if folded else rows)
    return bench.finish(
        LanceOperation.Update(
            removed_fragment_ids=sorted(folded), new_fragments=new, update_mode="rewrite_rows"
        ),
        inserted=rows.num_rows,
    )


def _append_whole(bench: Workbench, rows: Rows) -> Result:
    new = _new(bench, rows)
    count = sum(fragment.num_rows for fragment in new)
    if count == 0:
        return bench.unchanged()
    return bench.finish(LanceOperation.Append(new), inserted=count)


def _upsert(bench: Workbench, rows: pa.Table, remove: pa.Array) -> Result:
    rows = conform(rows, bench.schema)
    ids = rows[ID].combine_chunks()
    if len(ids) > 1 and len(pc.unique(ids)) != len(ids):
        raise IntegrityError("an upsert names one id twice; the caller must settle which row wins")
    if rows.num_rows == 0 and len(remove) == 0:
        return bench.unchanged()
    cost_stage()
    replaced = bench.find(ids)
    removed = bench.find(_without(remove, ids)) if len(remove) else {}
    old = _union(replaced, removed) if removed else replaced
    if rows.num_rows == 0:
        return _delete(bench, old)
    folded = bench.fold_set(rows, old)
    left = {fragment: offsets for fragment, offsets in old.items() if fragment not in folded}
    deletions = bench.pool.submit(bench.remove, left) if left else None
    try:
        new = bench.write(bench.with_folded(rows, folded, old) if folded else rows)
    finally:
        if deletions is not None:
            wait([deletions])  # no straggler goes on writing after an error was told
    updated, emptied = deletions.result() if deletions is not None else ([], frozenset())
    replaced_count = sum(map(len, replaced.values()))
    return bench.finish(
        LanceOperation.Update(
            removed_fragment_ids=sorted(folded | emptied),
            updated_fragments=updated,
            new_fragments=new,
            update_mode="rewrite_rows",
        ),
        inserted=rows.num_rows - replaced_count,
        updated=replaced_count,
        deleted=sum(map(len, removed.values())),
    )


def _replace(bench: Workbench, effect: Replace) -> Result:
    if not effect.rows.fragments:
        return bench.unchanged()
    cost_stage()
    removal = effect.remover(bench.base)
    bench.take_over(removal)
    return bench.finish(
        LanceOperation.Update(
            removed_fragment_ids=sorted(removal.gone),
            updated_fragments=list(removal.changed),
            new_fragments=[*_new(bench, effect.rows), *removal.kept],
            update_mode="rewrite_rows",
        ),
        inserted=effect.rows.num_rows - removal.rows,
        updated=removal.rows,
    )


def _new(bench: Workbench, rows: Rows) -> list[FragmentMetadata]:
    """Return rows as fragments: written now, or found written."""
    if isinstance(rows, Written):
        bench.files += rows.files()
        bench.derive(layout.FragmentLayout.of(fragment, bench.layout.columns) for fragment in rows.fragments)
        return list(rows.fragments)
    return bench.write(
        conform(rows, bench.schema) if isinstance(rows, pa.Table) else CheckedStream(rows, bench.schema)
    )


def _delete(bench: Workbench, old: Addresses) -> Result:
    if not old:
        return bench.unchanged()
    cost_stage()
    updated, emptied = bench.remove(old)
    return bench.finish(
        LanceOperation.Update(
            removed_fragment_ids=sorted(emptied), updated_fragments=updated, update_mode="rewrite_rows"
        ),
        deleted=sum(map(len, old.values())),
    )


def _overwrite(bench: Workbench, rows: Rows) -> Result:
    gone = bench.layout.rows
    new = _new(bench, rows)
    count = sum(fragment.num_rows for fragment in new)
    if count == 0 and gone == 0:
        return bench.unchanged()
    # Not Op.Overwrite: this keeps field ids and index definitions.
    return bench.finish(
        LanceOperation.Update(
            removed_fragment_ids=sorted(bench.layout.parts), new_fragments=new, update_mode="rewrite_rows"
        ),
        inserted=count,
        deleted=gone,
    )


def _compact(bench: Workbench, effect: Compact, tools: Tools) -> Result:
    """Exchange fragments for others with the same rows, less those that were deleted meanwhile.

    A failure concerns this table alone: it is noted, and the version stays as it is.
    """
    cost_stage()
    work, work.error = effect.work, None
    try:
        change = rebased(bench.base, bench.layout, tools.layouts.deleted, effect)
        if change is None:
            return bench.unchanged()
        new = with_numbers(bench.base, bench.layout, effect)
        bench.files += effect.rewritten.written.files()
        if not work.derived:
            bench.derive(layout.FragmentLayout.of(fragment, bench.layout.columns) for fragment in new)
            work.derived = True
        staged, handle = bench.finish(
            LanceOperation.Update(
                removed_fragment_ids=sorted(change.gone), new_fragments=new, update_mode="rewrite_rows"
            )
        )
        if change.lost:
            after = Workbench(handle, tools)
            after.files = bench.files
            lost = zip(work.numbers, change.lost, strict=True)
            staged, handle = _delete(after, {number: offsets for number, offsets in lost if len(offsets)})
    except (OSError, pa.ArrowInvalid) as error:
        work.error = str(storage_failure("compacting", error))
        return bench.unchanged()
    if staged.rows != bench.layout.rows:
        raise IntegrityError(
            f"compaction would leave {staged.rows} rows of {bench.layout.rows}; nothing was published"
        )
    return replace(staged, base_version=bench.base.version, deleted=0), handle


# -- columns ------------------------------------------------------------------------------------------


def _add_column(bench: Workbench, column: pa.Field, fill: pa.Scalar | None, copy_from: str | None) -> Result:
    if column.name in bench.schema.names:
        raise InvalidRequest(f"there is already a column {column.name!r}", column=column.name)
    empty = fill is None and copy_from is None
    if empty and not column.nullable and bench.layout.rows:
        raise InvalidRequest(
            f"column {column.name!r} is required and the table has rows",
            remedy="Give a value to fill them with",
            column=column.name,
        )
    if empty or not bench.layout.parts:
        schema = layout.with_column(bench.base, column)
        return bench.finish(
            LanceOperation.Merge([part.metadata for part in bench.layout.parts.values()], schema)
        )

    def values(batch: pa.RecordBatch) -> pa.RecordBatch:
        column_values = pa.repeat(fill, batch.num_rows) if copy_from is None else batch[copy_from]
        return pa.record_batch([column_values.cast(column.type)], schema=pa.schema([column]))

    merged, schema = [], None
    cost_stage()
    for fragment in bench.base.get_fragments():
        with durable(Step.TABLE_DATA):
            metadata, schema = fragment.merge_columns(values, columns=[copy_from or ID])
        bench.files += [f"data/{file.path}" for file in metadata.files]
        merged.append(metadata)
    return bench.finish(LanceOperation.Merge(merged, schema))


def _fill_nulls(bench: Workbench, name: str, value: pa.Scalar) -> Result:
    """Rewrite the rows that have no value, whole: columns are never patched (lance-facts B4)."""
    _known(bench, name)
    rows = find(bench.base, is_null(name), tuple(bench.schema.names))
    rows = rows.drop_columns([ADDRESS]).cast(bench.schema)
    position = bench.schema.get_field_index(name)
    filled = pa.repeat(value, rows.num_rows).cast(bench.schema.field(name).type)
    return _upsert(
        bench, rows.set_column(position, bench.schema.field(name), filled), pa.array([], pa.string())
    )


def _build_indexes(bench: Workbench, effect: BuildIndexes) -> Result:
    cost_stage()
    change = complete(bench.base, bench.layout, effect.specs, effect.work, effect.broken)
    effect.finished()
    if change is None:
        return bench.unchanged()
    bench.files += [f"_indices/{segment.uuid}/" for segment in change.new_indices]
    return bench.finish(change)


def _project(bench: Workbench, schema: Any) -> Result:
    return bench.finish(LanceOperation.Project(schema))


def _known(bench: Workbench, name: str) -> None:
    names = bench.schema.names
    if name not in names or name == ID:
        raise InvalidRequest(f"no column {name!r} to change; the columns are {', '.join(names)}", column=name)


def _union(a: Addresses, b: Addresses) -> Addresses:
    both = {f: np.union1d(a[f], b[f]).astype(np.int64) for f in a.keys() & b.keys()}
    return {**a, **b, **both}


def _without(ids: pa.Array, others: pa.Array) -> pa.Array:
    return _distinct(ids.filter(pc.invert(pc.is_in(ids, value_set=others))))


def _distinct(ids: pa.Array | pa.ChunkedArray | Iterable[str]) -> pa.Array:
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
    return pc.unique(ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string()))
