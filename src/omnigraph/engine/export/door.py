"""Door: exports by this process, as a folder of files or as one stream of lines.

Room    engine.export. Beside it, `omnigraph.pipeline.export` lets Spark's executors write such a folder.
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

from omnigraph.base.moment import At
from omnigraph.engine.export.destination import destination_at
from omnigraph.engine.export.files import ExportedFile, file_name, write_files
from omnigraph.engine.export.lines import envelope_lines
from omnigraph.engine.export.plan import ExportPlan, Format, check_format, plan_export
from omnigraph.engine.export.report import ExportReport
from omnigraph.engine.export.rows import ordered_rows, stored_rows
from omnigraph.engine.load.sources.framing import END, FORMAT, HEADER
from omnigraph.storage.diagnose import of_the_newest
from omnigraph.storage.store import GraphStore

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
    wanted = types if types is None or isinstance(types, str) else list(types)  # read for each attempt

    def export() -> ExportReport:
        plan = plan_export(store, wanted, branch, at)
        return _export(store, plan, chosen, destination, storage_options, progress)

    return of_the_newest(export) if at is None else export()


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
