"""Export: exports by this process, as a folder of files or as one stream of lines.

`omnigraph.pipeline.export` lets Spark write such a folder.

Given   a store, a state of the graph, names of types.
Gives   a report of the files; or lines, nodes before edges, types and ids in order: the same commit gives
        the same bytes.
Rule    nothing is held but the rows being written, and for the stream the ids of one type.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.base.cancellation import stoppable
from omnigraph.base.times import At
from omnigraph.catalog.model import ID, TableType
from omnigraph.engine.export.files import (
    ExportedFile,
    ExportReport,
    destination_at,
    envelope_lines,
    file_name,
    write_files,
)
from omnigraph.engine.export.plan import ExportPlan, Format, check_format, columns_of, plan_export, schema_of
from omnigraph.engine.load.sources.json import END, FORMAT, HEADER
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.durability import Step, durable
from omnigraph.storage.lance_reads import scanner, take_rows
from omnigraph.storage.store import GraphStore

# -- rows --------------------------------------------------------------------------------------------
#
#   plan -> **rows** -> files -> destination -> report
#
# The entities of one type at one snapshot, as batches of bounded size under the names of the properties: in
# the order of storage, or by id. For this process; executors of Spark read for themselves
# (pipeline/reading/scan.py).


BATCH_ROWS = 8_192
BATCH_BYTES = 16 << 20
ADDRESS = "_rowaddr"


def stored_rows(store: GraphStore, plan: ExportPlan, declared: TableType) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the order in which they are stored."""
    handle = store.table(plan.snapshot, declared.table_id)
    columns = list(columns_of(declared).values())
    with store.reading(plan.snapshot.state, tables=(declared.table_id,)):
        scan = scanner(handle, columns=columns, batch_size=BATCH_ROWS, batch_size_bytes=BATCH_BYTES)
        for batch in scan.to_batches():
            yield named_rows(batch, declared)


def ordered_rows(store: GraphStore, plan: ExportPlan, declared: TableType) -> Iterator[pa.RecordBatch]:
    """Yield the rows by id. Only the ids are held at once; the rest is looked up in that order."""
    handle = store.table(plan.snapshot, declared.table_id)
    columns = list(columns_of(declared).values())
    with store.reading(plan.snapshot.state, tables=(declared.table_id,)):
        ids = scanner(handle, columns=[ID], with_row_address=True).to_table()
        row_addresses = ids[ADDRESS].take(pc.sort_indices(ids[ID])).combine_chunks()
        for start in stoppable(range(0, len(row_addresses), BATCH_ROWS)):
            rows = take_rows(handle, row_addresses.slice(start, BATCH_ROWS), columns)
            for batch in rows.combine_chunks().to_batches():
                yield named_rows(batch, declared)


def named_rows(batch: pa.RecordBatch, declared: TableType) -> pa.RecordBatch:
    """Return stored columns under the names of the properties."""
    schema = schema_of(declared)
    arrays = [batch.column(at).cast(schema.field(name).type) for name, at in columns_of(declared).items()]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- export ------------------------------------------------------------------------------------------


Report = Callable[[int, int], None]  # done, of so many in all


def export_files(
    store: GraphStore,
    destination: str | os.PathLike[str],
    *,
    format: str = "parquet",
    types: Iterable[str] | None = None,
    branch: str = "main",
    at: At | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Report | None = None,
) -> ExportReport:
    """Write the types of one commit into a new or empty folder, a file for each; `progress` counts rows.

    The folder may be on an object store, reached with `storage_options`: those of the graph if not given.
    """
    chosen = check_format(format)
    names = types if types is None or isinstance(types, str) else list(types)  # read for each attempt

    def export() -> ExportReport:
        plan = plan_export(store, names, branch, at)
        return _export(store, plan, chosen, destination, storage_options, progress)

    return of_the_newest(export)


def _export(
    store: GraphStore,
    plan: ExportPlan,
    chosen: Format,
    destination: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    progress: Report | None,
) -> ExportReport:
    with destination_at(destination, store.location, storage_options) as place:
        files: dict[str, list[ExportedFile]] = {}
        done = 0
        for declared in plan.types:
            rows = _followed(stored_rows(store, plan, declared), done, plan.rows, progress)
            new_name = partial(file_name, plan.catalog, declared, 0, chosen)
            with durable(Step.EXPORT_DATA):
                files[declared.id] = write_files(place.staging, new_name, rows, declared, chosen)
            done += plan.rows_of(declared)
        return place.complete(plan, chosen, files)


def export_lines(
    store: GraphStore,
    *,
    types: Iterable[str] | None = None,
    branch: str = "main",
    at: At | None = None,
    framed: bool = False,
) -> Iterator[bytes]:
    """Yield the entities of one commit as JSON lines, several at a time.

    With `framed`, a first and a last line tell a load whether the file is whole and of its schema. What is
    wrong with the arguments is raised at once.
    """
    plan = plan_export(store, types, branch, at)
    lines = _several(store, plan)
    return _framed(lines, plan) if framed else (text.encode() for text, _, _ in lines)


def _several(store: GraphStore, plan: ExportPlan) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield lines of one batch, how many they are, and the last entity."""
    for declared in plan.types:
        for batch in ordered_rows(store, plan, declared):
            text = "".join(f"{line}\n" for line in envelope_lines(batch, declared))
            yield text, batch.num_rows, {"type": declared.name, "id": batch.column(0)[-1].as_py()}


def _framed(lines: Iterator[tuple[str, int, dict[str, str]]], plan: ExportPlan) -> Iterator[bytes]:
    header = {
        "format": FORMAT,
        "graph_commit_id": plan.snapshot.commit_id,
        "branch": plan.snapshot.branch,
        "schema_digest": plan.catalog.declaration_digest,
        "types": [declared.name for declared in plan.types],
    }
    digest, count, last = hashlib.sha256(), 0, dict[str, str]()
    first = _line({HEADER: header})
    digest.update(first)
    yield first
    for text, rows, newest in lines:
        content, last = text.encode(), newest
        digest.update(content)
        count += rows
        yield content
    yield _line({END: {"lines": count, "sha256": digest.hexdigest(), "last": last or None}})


def _line(record: dict[str, Any]) -> bytes:
    return f"{json.dumps(record, ensure_ascii=False)}\n".encode()


def _followed(
    batches: Iterator[pa.RecordBatch], done: int, total: int, progress: Report | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        done += batch.num_rows
        if progress is not None:
            progress(done, total)
